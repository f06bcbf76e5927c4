"""What a situation is: how it begins and ends, and what has to be said of it where."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.situations.stage import Stage

Act = Callable[["Stage", str], None]  # of the situation of that name

CHECK_OF = {  # cause -> the asset and the check that turns red; "" for `group_works` of the pipeline's ownership
    "workers": "ownership:all_owned",
    "unowned": "ownership:all_owned",
    "unplaceable": "ownership:all_owned",
    "handover": "ownership:all_owned",
    "parked": "records:none_parked",
    "rewritten": "records:none_rewritten",
    "left out": "records:none_left_out",
    "source": "records:source_and_table_answer",
    "table": "records:source_and_table_answer",
    "new": "records:source_and_table_answer",
    "gap": "records:no_gap",
    "stale": "ownership:no_stale_epoch",
    "restored": "checkpoints:offsets_advance",
    "runs": "checkpoints:keeps_up",
    "idle": "checkpoints:keeps_up",
    "refused": "membership:every_file_served",
}


def nothing(stage: "Stage", name: str) -> None:
    """What begins or ends by itself."""


@dataclass(frozen=True)
class Situation:
    """One row. It has a pipeline of its own name or `on` another's, in a group of that name or in `group`.

    `cause` is that of the need; empty where the group is well and no alert may be sent. Its line contains `words`. `check`
    is `asset:check` of the pipeline, by itself that of the cause; "-" where the page cannot say so. `alert` is found in its
    alert, by itself the pipeline's name; none comes where not `alerts`. `keys` are there before, with a file each where it
    `lands`. `workers` are the group's: id -> options of `rota worker`.
    """

    name: str
    cause: str
    words: str
    strike: Act
    heal: Act = nothing
    ready: Act = nothing
    group: str = ""
    more: str = ""
    functions: str = ""
    declared: str = ""
    keys: tuple[str, ...] = ("x",)
    lands: bool = False
    workers: dict[str, tuple[str, ...]] = field(default_factory=lambda: {"w": ("--no-spark",)})
    check: str = ""
    alerts: bool = True
    alert: str = ""
    on: str = ""

    @property
    def pipeline(self) -> str:
        """Its pipeline."""
        return self.on or self.name

    @property
    def of(self) -> str:
        """Its group."""
        return self.group or self.pipeline

    @property
    def red(self) -> str:
        """The check that has to fail: `asset:check`."""
        return self.check or CHECK_OF.get(self.cause, "ownership:group_works")
