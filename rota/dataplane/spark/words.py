"""The texts of Spark 4.3.0, of gRPC and of the system that rota interprets; `plans` interprets Spark's plans.

Law: if a release changes one of these texts, no row is lost or doubled. The comment above each states the effect.
"""

import re

# Without a match, an error of the environment is attributed to a partition, unless even a trivial query finds no slot.
ENVIRONMENT = re.compile(
    r"No space left on device|File too large|Disk quota exceeded|Read-only file system|Input/output error|Permission denied"
    r"|Stale (?:NFS )?file handle|Transport endpoint is not connected|Remote I/O error|Host is down|Connection timed out"
    r"|OutOfMemoryError|Cannot allocate memory|ExecutorLostFailure|SparkOutOfMemoryError|UNABLE_TO_ACQUIRE_MEMORY"
    r"|OPERATION_CANCELED|JOB_CANCELLED|(?:Job|Stage) (?:\d+ )?(?:was )?cancelled"
    r"|StatusCode\.(?:CANCELLED|UNAVAILABLE|UNAUTHENTICATED)|SESSION_CLOSED|SESSION_NOT_FOUND|SESSION_CHANGED"
    r"|Connection refused|Connection reset|SparkContext was shut down|stopped SparkContext|Failed to connect"
    r"|fs\.s3a\.\w+Exception|amazon\.awssdk\.\S+Exception|AccessDeniedException: s3a:"
    r"|Cannot run program|Python in worker has different version|PYTHON_VERSION_MISMATCH"
    r"|Python worker exited unexpectedly|\.OutOfMemoryException|OutOfDirectMemoryError|\b(?:Arrow)?MemoryError\b"
    r"|Python worker failed to connect back|PACKAGE_NOT_INSTALLED|UNSUPPORTED_PACKAGE_VERSION|Too many open files"
    r"|spark\.driver\.maxResultSize"
)
# Without a match, the error of another Python is reported without the variable to set.
PYTHON = re.compile(
    r'Cannot run program "[^"\n]+"|Python in worker has different version[^\n]*?(?=, PySpark cannot|\. Please|$)'
    r"|\[(?:PACKAGE_NOT_INSTALLED|UNSUPPORTED_PACKAGE_VERSION)\][^\n]*",
    re.M,
)
# Without a match, a module that the executors lack counts as a fault of the transform, and parks partitions.
MODULE = re.compile(r"^\s*ModuleNotFoundError: No module named '([\w.]+)'", re.M)
# Without a match, the error of a Spark without jars for a bucket is reported without the command that fetches them.
NO_JARS = "S3AFileSystem not found"
# Without a match, a landed file that Spark does not see counts as a fault of the transform, and parks partitions.
UNSEEN = "PATH_NOT_FOUND"
# Without a match, a typo in a transform is tried three times before it needs an operator.
ANALYSIS = ("AnalysisException", "ParseException")  # before any row is read: other data do not help
# Without a match, an error of the transform names no line of the pipeline's file.
FRAME = re.compile(r'^\s*File "([^"\n]+)", line (\d+)', re.M)
CALL_SITE = re.compile(r"^(.+):(\d+)$", re.M)
UNRESOLVED_NAMES = ("objectName", "name", "fieldName")  # the parameters of a message that name the column
# Without a match, a column that a frame does not have is reported with Spark's guess about a join, which is mostly wrong.
GUESS = re.compile(r" It's probably because of illegal references like `.*?`\.(?= SQLSTATE|$)")
# Without a match, a wrapper is reported without the error that it wraps.
WRAPPED = ("SparkException", "PythonException", "SparkConnectGrpcException", "Py4JJavaError")
# Without a match, the error of a file that Spark cannot read names no cause.
UNEXPLAINED = "FAILED_READ_FILE.NO_HINT"
# Without a match, a task that cannot be ended holds its slot until Spark ends.
STUCK = re.compile(r"Killed task \S+ could not be stopped within .*")
# Without a match, the error of a dead Spark is the first line of gRPC's object, without its details.
RPC = re.compile(r'of RPC that terminated with:\s+status = (\S+)\s+details = "(.*?)"?$', re.M)
# Without a match, the error of a pipeline file that needs a session at import does not state where to put that code.
EARLY = re.compile("SESSION_OR_CONTEXT_NOT_EXISTS|NO_ACTIVE_OR_DEFAULT_SESSION")
# Without a match, `rota prepare --s3` without a registry of Maven reports how Ivy ended, and not why.
UNRESOLVED = "unresolved dependency"
# Without a match, the last line of a Spark that ended is reported, whatever it contains.
TELLING = re.compile("Exception|ERROR|Error")
# Without a match, a wrong token is reported in Spark's own words, without the variable to set.
TOKEN = "authentication token"
