"""`python -m rota.dataplane.spark.trial sc://HOST:PORT`: ends with 0 once an executor of that Spark did a trivial task.

A worker starts it for a Spark on a cluster: the server answers long before an executor is there, and without one for ever.
It waits as long as the task does.
"""

import sys

from rota.dataplane.spark.session import join_session, open_session


def main(endpoint: str) -> None:
    """Asks; raises what Spark raises."""
    spark = join_session(open_session, endpoint, None)
    spark.range(0, 1, 1, 1).count()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
