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
    r"|fs\.s3a\.\w+Exception|amazon\.awssdk\.\S+Exception|AccessDeniedException: s3a:"
    r"|Cannot run program|Python in worker has different version|PYTHON_VERSION_MISMATCH"
    r"|Python worker exited unexpectedly|\.OutOfMemoryException|OutOfDirectMemoryError|\b(?:Arrow)?MemoryError\b"
    r"|Python worker failed to connect back|PACKAGE_NOT_INSTALLED|UNSUPPORTED_PACKAGE_VERSION|Too many open files"
    r"|spark\.driver\.maxResultSize"
)
# Not known as of another Python, it is told without what to set.
PYTHON = re.compile(
    r'Cannot run program "[^"\n]+"|Python in worker has different version[^\n]*?(?=, PySpark cannot|\. Please|$)'
    r"|\[(?:PACKAGE_NOT_INSTALLED|UNSUPPORTED_PACKAGE_VERSION)\][^\n]*",
    re.M,
)
# Not known as a module that the executors lack, it is taken for a fault of the transform, and parks whom it fails for.
MODULE = re.compile(r"^\s*ModuleNotFoundError: No module named '([\w.]+)'", re.M)
# Not seen, a Spark that cannot read a bucket fails in its own words, without the command that mends it.
NO_JARS = "S3AFileSystem not found"
# Not known as of the analysis, a typo in a transform is tried three times before a person is asked.
ANALYSIS = ("AnalysisException", "ParseException")  # before any row is read: no other data mends it
# Not seen, an error of the transform names no line of the pipeline's file.
FRAME = re.compile(r'^\s*File "([^"\n]+)", line (\d+)', re.M)
CALL_SITE = re.compile(r"^(.+):(\d+)$", re.M)
UNRESOLVED_NAMES = ("objectName", "name", "fieldName")  # the parameters of a message that name the column
# Not seen, a column that a frame does not have is reported with Spark's guess about a join, which is mostly wrong.
GUESS = re.compile(r" It's probably because of illegal references like `.*?`\.(?= SQLSTATE|$)")
# Not known as a wrapper, an error is told without the one that it wraps.
WRAPPED = ("SparkException", "PythonException", "SparkConnectGrpcException", "Py4JJavaError")
# Not seen, an error of a file that Spark cannot read names no cause.
UNEXPLAINED = "FAILED_READ_FILE.NO_HINT"
# Not seen, a task that cannot be ended holds its slot until Spark ends.
STUCK = re.compile(r"Killed task \S+ could not be stopped within .*")
# Not seen, a dead Spark is told as the object of gRPC that said so.
RPC = re.compile(r'of RPC that terminated with:\s+status = (\S+)\s+details = "(.*?)"?$', re.M)
# Not seen, a pipeline file that needs a session as it is imported is told so in Spark's words, without where to put that.
EARLY = re.compile("SESSION_OR_CONTEXT_NOT_EXISTS|NO_ACTIVE_OR_DEFAULT_SESSION")
# Not seen, `rota prepare --s3` that finds no registry of Maven says how Ivy ended, and not why.
UNRESOLVED = "unresolved dependency"
# Not seen, of a Spark that ended its last line is told, whatever that says.
TELLING = re.compile("Exception|ERROR|Error")
# Not seen, a wrong token is told in Spark's own words, without what to set.
TOKEN = "authentication token"
