"""Where each record of a group stands. `docs/protocol.md` lists the tree."""

from dataclasses import dataclass, field

from rota.errors import ConfigError
from rota.ids import (
    GOING,
    WAITING,
    checked_id,
    checked_incarnation,
    checked_partition,
    incarnation_of,
    is_partition,
    run_node,
)

ROOT = "/rota"


@dataclass(frozen=True, slots=True)
class Paths:
    """The znodes of one group. Every id is checked before it becomes part of a path."""

    group: str
    root: str = field(init=False)  # the group's own node

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", f"{ROOT}/{checked_id('group', self.group)}")
        if self.group == "clock":
            raise ConfigError(
                "A group cannot be called 'clock': that node tells the server's time. Choose another name"
            )

    @property
    def meta(self) -> str:
        """Format, random id, token base, protocol, assignor, options, policy."""
        return f"{self.root}/meta"

    @property
    def workers(self) -> str:
        """Folder of what people override for each worker."""
        return f"{self.root}/workers"

    def worker(self, worker: str) -> str:
        """What people override for one worker."""
        return f"{self.workers}/{checked_id('worker', worker)}"

    @property
    def overrides(self) -> str:
        """What people override for the group."""
        return f"{self.root}/overrides"

    @property
    def lives(self) -> str:
        """Folder of the live incarnations."""
        return f"{self.root}/live"

    def live(self, incarnation: str) -> str:
        """The ephemeral node of one incarnation."""
        return f"{self.lives}/{checked_incarnation(incarnation)}"

    def waiting(self, incarnation: str) -> str:
        """The ephemeral node of a process that waits beside a live incarnation of its own worker; it is not live."""
        return f"{self.live(incarnation)}{WAITING}"

    @property
    def partitions(self) -> str:
        """Folder of the partition keys, one node a pipeline."""
        return f"{self.root}/partitions"

    def pipeline(self, pipeline: str) -> str:
        """The partition keys of one pipeline."""
        return f"{self.partitions}/{checked_id('pipeline', pipeline)}"

    @property
    def controller(self) -> str:
        """Who may publish: its dataVersion is checked with every write of an assignment."""
        return f"{self.root}/controller"

    @property
    def head(self) -> str:
        """The epoch that is current."""
        return f"{self.root}/head"

    @property
    def assigns(self) -> str:
        """Folder of the targets, one node a worker."""
        return f"{self.root}/assign"

    def assign(self, worker: str) -> str:
        """The two slots of one worker's target."""
        return f"{self.assigns}/{checked_id('worker', worker)}"

    @property
    def owns(self) -> str:
        """Folder of the own records."""
        return f"{self.root}/own"

    def own(self, partition: str) -> str:
        """The own record of one partition."""
        return f"{self.owns}/{checked_partition(partition)}"

    @property
    def grabs(self) -> str:
        """Folder of what workers that decide alone ask for."""
        return f"{self.root}/grab"

    def grab(self, name: str) -> str:
        """The ephemeral node of the worker that asks for a partition, or has an ordinal."""
        return f"{self.grabs}/{name if is_partition(name) else checked_id('grab', name)}"

    @property
    def checkpoints(self) -> str:
        """Folder of the checkpoints."""
        return f"{self.root}/checkpoints"

    def checkpoint(self, partition: str) -> str:
        """The checkpoint of one partition."""
        return f"{self.checkpoints}/{checked_partition(partition)}"

    @property
    def runs(self) -> str:
        """Folder of the consuming runs."""
        return f"{self.root}/runs"

    def run(self, incarnation: str, run_id: str, session: int) -> str:
        """The ephemeral node of one consuming run; its name says for whom it works."""
        return f"{self.runs}/{run_node(incarnation, run_id, session)}"

    def going(self, run_id: str, session: int) -> str:
        """The ephemeral node of a run that goes on, whether or not it works on a batch."""
        return f"{self.runs}/{incarnation_of(run_id, session)}{GOING}"

    @property
    def parked(self) -> str:
        """Folder of the parked partitions."""
        return f"{self.root}/parked"

    def parking(self, partition: str) -> str:
        """Why one partition is parked."""
        return f"{self.parked}/{checked_partition(partition)}"

    @property
    def epochs(self) -> str:
        """Folder of the audit of publications; the last 200 are kept."""
        return f"{self.root}/epochs"

    def epoch(self, epoch: int) -> str:
        """The audit of one publication."""
        return f"{self.epochs}/{epoch:010d}"

    @property
    def refused(self) -> str:
        """A ring of the last 200 refused writes."""
        return f"{self.root}/refused"

    @property
    def folders(self) -> tuple[str, ...]:
        """Every node that only holds others."""
        return (
            self.workers,
            self.lives,
            self.partitions,
            self.assigns,
            self.owns,
            self.grabs,
            self.checkpoints,
            self.runs,
            self.parked,
            self.epochs,
        )
