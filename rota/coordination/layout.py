"""The path of each record of a group. `docs/protocol.md` lists the tree."""

from rota.errors import ConfigError
from rota.ids import (
    LIVENESS_SUFFIX,
    WAITING,
    checked_id,
    checked_incarnation,
    checked_partition,
    incarnation_of,
    is_partition,
    run_node,
)

ROOT = "/rota"


class _Node:
    """A node of a fixed name, directly below the group's own."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, paths: "Paths", _: object = None) -> str:
        return f"{paths.root}/{self.name}"


class Paths:
    """The znodes of one group. Every id is checked before it becomes part of a path."""

    meta = _Node("meta")  # format, random id, token base, protocol, assignor, options, policy
    overrides = _Node("overrides")  # the overrides of the group
    controller = _Node("controller")  # the right to publish: each write of an assignment checks its dataVersion
    head = _Node("head")  # the epoch that is current
    refused = _Node("refused")  # a ring of the last 200 refused writes
    workers = _Node("workers")  # folder of the overrides of each worker
    lives = _Node("live")  # folder of the live incarnations
    partitions = _Node("partitions")  # folder of the partition keys, one node a pipeline
    assigns = _Node("assign")  # folder of the targets, one node a worker
    owns = _Node("own")  # folder of the own records
    grabs = _Node("grab")  # folder of the grabs of workers that decide alone
    checkpoints = _Node("checkpoints")  # folder of the checkpoints
    runs = _Node("runs")  # folder of the consuming runs
    parked = _Node("parked")  # folder of the parked partitions
    epochs = _Node("epochs")  # folder of the audit of publications; the last 200 are kept

    def __init__(self, group: str) -> None:
        if group == "clock":
            raise ConfigError(
                "A group cannot be called 'clock': that node is used to read the server's time. Choose another name"
            )
        self.group, self.root = group, f"{ROOT}/{checked_id('group', group)}"

    def worker(self, worker: str) -> str:
        """The overrides of one worker."""
        return f"{self.workers}/{checked_id('worker', worker)}"

    def live(self, incarnation: str) -> str:
        """The ephemeral node of one incarnation."""
        return f"{self.lives}/{checked_incarnation(incarnation)}"

    def waiting(self, incarnation: str) -> str:
        """The ephemeral node of a process that waits while another process of its worker is live; it is not live
        itself.
        """
        return f"{self.live(incarnation)}{WAITING}"

    def pipeline(self, pipeline: str) -> str:
        """The partition keys of one pipeline."""
        return f"{self.partitions}/{checked_id('pipeline', pipeline)}"

    def assign(self, worker: str) -> str:
        """The two slots of one worker's target."""
        return f"{self.assigns}/{checked_id('worker', worker)}"

    def own(self, partition: str) -> str:
        """The own record of one partition."""
        return f"{self.owns}/{checked_partition(partition)}"

    def grab(self, name: str) -> str:
        """The ephemeral node of the worker that asks for a partition, or has an ordinal."""
        return f"{self.grabs}/{name if is_partition(name) else checked_id('grab', name)}"

    def checkpoint(self, partition: str) -> str:
        """The checkpoint of one partition."""
        return f"{self.checkpoints}/{checked_partition(partition)}"

    def run(self, incarnation: str, run_id: str, session: int) -> str:
        """The ephemeral node of one consuming run; its name contains the incarnation that it works for."""
        return f"{self.runs}/{run_node(incarnation, run_id, session)}"

    def liveness(self, run_id: str, session: int) -> str:
        """The ephemeral node of a live run, with or without a batch."""
        return f"{self.runs}/{incarnation_of(run_id, session)}{LIVENESS_SUFFIX}"

    def parking(self, partition: str) -> str:
        """Why one partition is parked."""
        return f"{self.parked}/{checked_partition(partition)}"

    def epoch(self, epoch: int) -> str:
        """The audit of one publication."""
        return f"{self.epochs}/{epoch:010d}"

    @property
    def folders(self) -> tuple[str, ...]:
        """Every node that only holds others."""
        return (
            *(self.workers, self.lives, self.partitions, self.assigns, self.owns),
            *(self.grabs, self.checkpoints, self.runs, self.parked, self.epochs),
        )
