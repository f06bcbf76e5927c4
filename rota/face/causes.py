"""The ranked table of causes: what each explains, how long it may heal, which step repairs it.

`rota.face.needs` finds the needs and applies the table in one loop. The rows are in order of rank: a row explains rows
below it only.
"""

from dataclasses import dataclass
from math import inf

from rota.face.need import Need
from rota.face.seen import OPEN

SETTLE = 45.0  # seconds that a rebalance, a restart of a Spark or a reload may take, at most
IDLE = 75.0  # seconds until a run works on new records: a launch, and a wait for a slot
FAILING = 60.0  # seconds in which ticks may fail: those of `SETTLE`, and those until the next successful tick
BEHIND = 600.0  # seconds in which lag has to fall
HEALS = inf  # patience with what is retried automatically: it never needs an operator

BEHINDS = ("still", "growing")
REBALANCE = "see whether Dagster's sensor of {group!r} ticks"
REPLAY = "compare the table with its source, then replay what differs"


@dataclass(frozen=True, slots=True)
class Cause:
    """A row of the table.

    Args:
        kind: the kind of what the need is about.
        patience: seconds after which the need needs an operator.
        step: the next step; `{...}` is filled in. Empty if the reason ends with the step, or the finder chooses it.
        explains: rows of the same pipeline, or of the whole group, that are not reported beside this one. Their age
            starts at zero once they are no longer explained.
        covers: likewise, but their age continues, and this need is due when a covered one is.
        cause: the cause that the need reports, if it is not the name of the row.
    """

    kind: str
    patience: float = SETTLE
    step: str = ""
    explains: tuple[str, ...] = ()
    covers: tuple[str, ...] = ()
    cause: str = ""


CAUSES = {
    "silent": Cause("dagster", step="start it, or set ROTA_DAGSTER to the address of its page"),
    "location": Cause("dagster", step="repair it, then reload it on the page"),
    "lost": Cause("dagster", step="end it and start it again, or restart Dagster", cause="location"),
    "daemon": Cause("dagster", IDLE, "see whether Dagster's daemon runs, and start it again"),
    "refused": Cause("file", 0.0),
    "workers": Cause(
        "group",
        step="start one with `rota worker --id NAME{option}`",
        explains=("unowned", "unassigned", "unclaimed", "unplaceable", "handover"),
    ),
    "rebalances": Cause("group", 0.0, explains=("new", "unassigned"), cause="runs"),
    "rebalances retried": Cause("group", HEALS, cause="runs"),
    "protocol": Cause("worker", step="end its process and start it again"),
    "spark": Cause("worker", step="see the worker's log; the worker starts its Spark again if that ended"),
    "unable": Cause(
        "worker",
        step="give its Spark room (`spark.cores.max` of the others, or more machines); then it gets partitions again",
    ),
    "twice": Cause("worker", step="give it another --id"),
    "record": Cause("record", 0.0),
    "target": Cause("record", cause="record"),  # the next rebalance, or the worker, writes it again
    "own record": Cause("partition", 0.0, cause="record"),
    "source": Cause("pipeline", covers=("fails", "runs", "runs retried", "refused runs", "idle"), explains=BEHINDS),
    "table": Cause("pipeline", covers=("idle",), explains=("refused runs", *BEHINDS)),
    "foreign table": Cause("pipeline", 0.0, covers=("idle",), explains=("refused runs", *BEHINDS), cause="table"),
    "unserved": Cause(
        "pipeline",
        step="reload the code location; the page then shows why the file is not served",
        covers=("idle",),
        explains=BEHINDS,
    ),
    "off": Cause("pipeline", 0.0, "turn it on, on Dagster's page", explains=("idle", *BEHINDS)),
    "fails": Cause("pipeline", FAILING, covers=("idle",), explains=BEHINDS),
    "restored": Cause("partition", explains=("refused runs",)),
    "runs": Cause("pipeline", 0.0, covers=("idle",), explains=BEHINDS),
    "refused runs": Cause("pipeline", IDLE, covers=("idle",), explains=BEHINDS, cause="runs"),
    "runs retried": Cause("pipeline", HEALS, cause="runs"),
    "room": Cause("pipeline", 0.0),
    "new": Cause("pipeline", step=REBALANCE),
    "idle": Cause(
        "pipeline",
        IDLE,
        "see whether Dagster's sensor {sensor} ticks, and what its runs wait for",
        explains=BEHINDS,
    ),
    "left out": Cause("pipeline", 0.0),
    "rewritten": Cause("partition", 0.0, "`rota replay {partition} --changed`"),
    "stale": Cause("partition", 0.0, REPLAY),
    "gap": Cause("partition", 0.0, REPLAY),
    "parked": Cause("partition", 0.0, "repair the cause, then `rota retry {partition}`"),
    "failed": Cause("partition", HEALS),
    "unplaceable": Cause("partition"),
    "unowned": Cause("partition", step="see the log of {taker}"),
    "unassigned": Cause("partition", step=REBALANCE + ", and its last rebalance", cause="unowned"),
    "unclaimed": Cause("partition", step="see the workers' logs{more}", cause="unowned"),
    "handover": Cause("partition", step="see the log of {worker}, and what its run does"),
    "withheld": Cause("partition", OPEN, "end the producer's transaction, or abort it by `kafka-transactions.sh`"),
    "still": Cause("partition", 0.0, "look at its runs"),
    "growing": Cause("partition", HEALS, "add a worker"),
}
RANKS = {row: rank for rank, row in enumerate(CAUSES)}


def make_need(
    row: str,
    name: str,
    why: str,
    *,
    kind: str = "",
    step: str = "",
    wait: float = 0.0,
    lasted: float = 0.0,
    state: str = "",
    which: str = "",
    **words: str,
) -> Need:
    """Return a need of a row of the table, before `find_needs` knows its age.

    Args:
        row: the name of the row.
        name: what the need is about.
        why: the reason.
        kind: the kind of `name`, if it is not that of the row.
        step: the next step, if it is not that of the row. `words` fill in the step of the row.
        wait: seconds beyond the patience of the row.
        lasted: seconds for which stored times prove that the need exists.
        state: see `Need`.
        which: see `Need`.
    """  # fmt: skip
    of = CAUSES[row]
    step = step or of.step.format(**words)
    patience = of.patience + wait
    return Need(
        kind or of.kind,
        name,
        of.cause or row,
        why,
        step,
        which=which,
        row=row,
        state=state,
        patience=patience,
        lasted=lasted,
    )
