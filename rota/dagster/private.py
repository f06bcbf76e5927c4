"""The private parts of Dagster that rota uses. No other module imports private parts.

They exist in 1.13.27. pyproject.toml allows only 1.13, and `tests/face/test_private.py` fails if a release changes one.
Each line gives the use of a part, and when it can go. Two more are in modules that do not import Dagster:
`rota/local/page.py` reads "pid: " in the events of a run, for the demo's faults, and `dagster_project/warm.py` changes how
Dagster's code server starts a run.

- AssetMaterializationPlannedData, DagsterEvent: Dagster plans no materializations for partitions in a run's config. Without
  a plan, the page shows none of them in progress, or as failed if the run fails. Until a run can declare them.
- AssetCheckEvaluationTargetMaterializationData, copy: SQLite stores only the second of an evaluation, and the page does not
  count one of the same second as its materialization. Until an evaluation can name its materialization.
- DagsterUserCodeProcessError, SerializableErrorInfo: Dagster stores the traceback of each error of a tick, and of a step's
  Failure, except for this error, which contains the text to store. Without it an expected error is 40 lines.
- QueuedRunCoordinator, SubmitRunContext: a rebalance, and a consuming run for which a slot is free, skip the queue. That
  saves half a second to a second from a dead worker to the next commit. Until the queue takes less than 0.2 s.
- TagConcurrencyLimitsCounter: computes whether Dagster's limits keep a run in the queue. Until a public function does.
- DagsterUserCodeUnreachableError: its name marks a tick that the code server did not answer.
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

# Tags of a run: the address of the code server that started it, and its repository and code location. By the address,
# `sensors/runs.py` detects that a run's process ended, which Dagster's default launcher does not.
GRPC_INFO_TAG = ".dagster/grpc_info"
LOCATION_TAG = ".dagster/repository"
HIDDEN_TAG = ".dagster/"  # the prefix of tags that the page does not show: rota filters runs by such tags
# Threads of the code server. The first ends when the server is to end, even while runs that it started continue. The
# second, which a server without heartbeats also has, ends with the server. Without them a tick outlives its code by 29 s.
GUARDS = ("grpc-server-heartbeat", "grpc-server-cleanup")
SERVERS = ("DAGSTER_GRPC_MAX_WORKERS", "DAGSTER_CODE_SERVER_MAX_WORKERS")  # how many threads both code servers have
# where SQLite keeps a run's events: `delete_run` leaves the file, empty and as long as before
EVENTS = ("history", "runs")
LOGS = "logs"  # the path at which the page serves the logs of runs, and the pictures beside them
