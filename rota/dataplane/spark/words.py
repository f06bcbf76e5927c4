"""What rota reads in the words of Spark 4.3.0, of gRPC and of the system; Spark's plans are read in `plans`.

Law: where a release of theirs says one of these otherwise, no row is lost or doubled. Above each stands what happens then.
"""

import re

# Not known as the environment's, an error is pinned on a partition, unless no trivial query finds a slot.
ENVIRONMENT = re.compile(
    r"No space left on device|File too large|Disk quota exceeded|Read-only file system|Input/output error|Permission denied"
    r"|Stale (?:NFS )?file handle|Transport endpoint is not connected|Remote I/O error|Host is down|Connection timed out"
    r"|OutOfMemoryError|Cannot allocate memory|ExecutorLostFailure|SparkOutOfMemoryError|UNABLE_TO_ACQUIRE_MEMORY"
    r"|OPERATION_CANCELED|JOB_CANCELLED|(?:Job|Stage) (?:\d+ )?(?:was )?cancelled"
    r"|StatusCode\.(?:CANCELLED|UNAVAILABLE|UNAUTHENTICATED)|SESSION_CLOSED|SESSION_NOT_FOUND|SESSION_CHANGED"
    r"|Connection refused|Connection reset|SparkContext was shut down|stopped SparkContext|Failed to connect"
    r"|Cannot run program|Python in worker has different version|PYTHON_VERSION_MISMATCH|Too many open files"
)
# Not known as of the analysis, a typo in a transform is tried three times before a person is asked.
ANALYSIS = ("AnalysisException", "ParseException")  # before any row is read: no other data mends it
# Not known as a wrapper, an error is told without the one that it wraps.
WRAPPED = ("SparkException", "PythonException", "SparkConnectGrpcException", "Py4JJavaError")
# Not seen, a task that cannot be ended holds its slot until Spark ends.
STUCK = re.compile(r"Killed task \S+ could not be stopped within .*")
# Not seen, a wrong token is told in Spark's own words, without what to set.
TOKEN = "authentication token"
