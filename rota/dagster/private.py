"""The parts of Dagster that are used and not public: here, and nowhere else.

Seen on 1.13.27; pyproject.toml lets in 1.13 alone, and `tests/face/test_private.py` fails where a release changes one of
these. Each line gives its use, and when it can go. Two more are in modules that do not import Dagster: `rota/local/page.py`
reads "pid: " in the events of a run, for the demo's faults, and `dagster_project/warm.py` changes how Dagster's code
server starts a run.

- AssetMaterializationPlannedData, DagsterEvent: keys in a run's config are no partition tag, so Dagster plans nothing for
  them. A run that fails would show none of them red, and one that works none in progress. Until a run may say what it
  makes.
- AssetCheckEvaluationTargetMaterializationData, copy: SQLite stores only the second of an evaluation, and the page counts
  none of the second of its materialization. Until an evaluation may name its materialization.
- DagsterUserCodeProcessError, SerializableErrorInfo: Dagster stores the traceback of whatever a tick raises, and of a
  step's Failure; this error alone carries what is stored in its place. Without it an expected error is 40 lines.
- QueuedRunCoordinator, SubmitRunContext: a rebalance, and a consuming run for which there is room, need not wait in the
  queue, half a second to a second of the time from a dead worker to the next commit. Until that wait is below 0.2 s.
- TagConcurrencyLimitsCounter: whether Dagster's limits keep a run in the queue, as its daemon asks. Until a run can ask.
- DagsterUserCodeUnreachableError: its name marks a tick to which the code server gave no answer.
- InstigatorState, InstigatorTick: the types of sensors and their ticks in the instance, for mypy alone.
"""

from dagster._core.definitions.asset_checks import asset_check_evaluation
from dagster._core.errors import DagsterUserCodeProcessError as DagsterUserCodeProcessError
from dagster._core.errors import DagsterUserCodeUnreachableError as DagsterUserCodeUnreachableError
from dagster._core.events import AssetMaterializationPlannedData as AssetMaterializationPlannedData
from dagster._core.events import DagsterEvent as DagsterEvent
from dagster._core.run_coordinator import QueuedRunCoordinator as QueuedRunCoordinator
from dagster._core.run_coordinator import SubmitRunContext as SubmitRunContext
from dagster._core.scheduler.instigation import InstigatorState as InstigatorState
from dagster._core.scheduler.instigation import InstigatorTick as InstigatorTick
from dagster._utils.tags import TagConcurrencyLimitsCounter as TagConcurrencyLimitsCounter
from dagster_shared.error import SerializableErrorInfo as SerializableErrorInfo
from dagster_shared.record import copy as copy

AssetCheckEvaluationTargetMaterializationData = asset_check_evaluation.AssetCheckEvaluationTargetMaterializationData

# Tags of a run: the address of the code server that started it, and its repository and code location. The first shows that a
# run's process ended: Dagster's default launcher does not notice, and the run would be "started" for ever.
GRPC_INFO_TAG = ".dagster/grpc_info"
LOCATION_TAG = ".dagster/repository"
HIDDEN_TAG = (
    ".dagster/"  # begins a tag that the page shows nowhere: such a tag is for rota's own questions to the run storage
)
# Threads of the code server. The first ends when the server is asked to end, also while runs that it started continue; the
# other, which also a server without heartbeats has, when it ends. Without them a tick outlives its code by up to 29 s.
GUARDS = ("grpc-server-heartbeat", "grpc-server-cleanup")
SERVERS = ("DAGSTER_GRPC_MAX_WORKERS", "DAGSTER_CODE_SERVER_MAX_WORKERS")  # how many threads both code servers have
# where SQLite keeps a run's events: `delete_run` leaves the file, empty and as long as before
EVENTS = ("history", "runs")
LOGS = "logs"  # the page's address of the logs of runs: a picture beside them needs no server of ours
