"""`python -m rota.dataplane.spark.trial sc://HOST:PORT [local]`: warms that Spark, and ends with 0 once its tasks are done.

A worker starts this program for its own Spark, and joins after it. If a job fails, the last line of its output is why. On
a cluster the server answers before an executor joins, even if none ever does: the program waits until one did its tasks.
"""

import sys

from rota.dataplane.spark.session import join_session, open_session, take_first_line
from rota.dataplane.spark.warming import warm


def main(endpoint: str, local: bool) -> int:
    """Run the jobs; return the exit code."""
    try:
        spark = join_session(open_session, endpoint, None)
        warm(spark, local)
    except Exception as error:
        sys.stdout.write(f"{take_first_line(error)}\n")
        return 1
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], "local" in sys.argv[2:]))
