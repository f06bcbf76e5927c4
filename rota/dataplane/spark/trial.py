"""`python -m rota.dataplane.spark.trial sc://HOST:PORT`: ends with 0 once an executor of that Spark did a trivial task.

A worker starts this program for a Spark on a cluster. There the server answers before an executor joins, even if none ever
does. The program waits until the task is done.
"""

import sys

from rota.dataplane.spark.session import join_session, open_session


def main(endpoint: str) -> None:
    """Run the task. Raises the errors of Spark."""
    spark = join_session(open_session, endpoint, None)
    spark.range(0, 1, 1, 1).count()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
