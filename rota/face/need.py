"""A need: a fault that needs an operator, or that is expected to heal. Lines, checks and alerts use the same type.

Laws:
1. Each need states its subject, the reason, and the next step.
2. `join_needs` alone decides which needs have one cause. `rota status`, `rota up` and the alerts report a cause once.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from math import inf, isfinite
from typing import Any, Self

from rota.errors import counted
from rota.ids import pipeline_of, quote

QUOTED = 3  # lines of one cause that a report quotes
NEEDS_OPERATOR = "needs an operator"  # what each report writes of a need that does not heal itself
REPORTED = ("kind", "name", "cause", "why", "step", "since", "person", "due", "which")  # the fields in JSON


@dataclass(frozen=True, slots=True)
class Need:
    """A fault that needs an operator, or that is expected to heal.

    Args:
        kind: the kind of `name`: a group, worker, partition, pipeline, record, file or Dagster.
        name: the part that has the fault.
        cause: one lasting word.
        why: the reason.
        step: the next step; empty if `why` ends with it.
        since: when it was first observed, in server seconds.
        person: it needs an operator now.
        due: the server second from which it needs an operator.
        which: identifies the cause among needs of one kind and cause, whatever the wording of each reason. Empty: `cause`
            alone identifies it.
        row: the row of the table of causes. Reports do not contain it, nor the three values below.
        state: if it changes, the age of the need starts at zero.
        patience: the seconds between `since` and `due`.
        lasted: the seconds for which the need has existed, by stored times.
    """

    kind: str
    name: str
    cause: str
    why: str
    step: str = ""
    since: float = 0.0
    person: bool = True
    due: float = 0.0
    which: str = ""
    row: str = ""
    state: str = ""
    patience: float = 0.0
    lasted: float = 0.0

    @property
    def key(self) -> str:
        """Identifies the need from one observation to the next."""
        return "|".join((self.row, self.name, self.state))

    @property
    def scope(self) -> str:
        """The pipeline of the need; empty for a need of the group."""
        return {"group": "", "partition": pipeline_of(self.name)}.get(self.kind, self.name)

    @property
    def sentence(self) -> str:
        """The reason and the next step, in one line."""
        return f"{self.why}: {self.step}" if self.step else self.why

    @property
    def line(self) -> str:
        """The subject, the reason and the next step, in one line."""
        about = {"partition": "", "record": "", "file": "", "dagster": ""}.get(self.kind, f"{self.kind} ")
        return f"{about}{self.name}: {self.sentence}"

    def describe(self) -> dict[str, Any]:
        """Return the need as JSON values, with its line. `due` is null if it never needs an operator."""
        values = {name: getattr(self, name) for name in REPORTED}
        return {**values, "due": self.due if isfinite(self.due) else None, "line": self.line}

    @classmethod
    def read(cls, described: Mapping[str, Any]) -> Self:
        """Return the need of what `describe` returned, or of a part of it."""
        values = {name: described[name] for name in REPORTED if name in described}
        return cls(**(values | {"due": inf} if values.get("due", 0.0) is None else values))


@dataclass(frozen=True, slots=True)
class JoinedNeed:
    """The needs of one cause, in order of their names. `about`: what they have in common; `which`: see `Need`."""

    about: str
    cause: str
    which: str
    needs: Sequence[Need]

    @property
    def key(self) -> str:
        """Identifies the cause from one report to the next."""
        return f"{self.cause} {self.about} {self.which}".strip()

    @property
    def title(self) -> str:
        """The subject and the cause, in a few words."""
        return f"{self.about or ', '.join(sorted({one.name for one in self.needs}))}: {self.cause}"

    @property
    def line(self) -> str:
        """One need for each reason, three reasons at most; with `which`, only the first need."""
        alike: dict[str, list[Need]] = {}
        for one in self.needs:
            alike.setdefault(self.which or _hide_name(one, one.sentence), []).append(one)
        left = len(alike) - QUOTED
        more = f"; and {counted(left, 'more reason')}" if left > 0 else ""
        return "; ".join(map(_quote_first, list(alike.values())[:QUOTED])) + more


def join_needs(needs: Iterable[Need]) -> tuple[JoinedNeed, ...]:
    """Join the needs that have one cause.

    Partitions of a pipeline share a cause if `which` is the same except for names and numbers. Failing sensors share one
    if `which` is the same, whatever their pipelines.
    """

    def find_cause(need: Need) -> tuple[str, str, str]:
        about = pipeline_of(need.name) if need.kind == "partition" else need.name
        return "" if need.cause == "fails" else about, need.cause, need.which and digest(_hide_name(need, need.which))

    ordered = sorted(needs, key=lambda need: (find_cause(need), need.name, need.line))
    return tuple(JoinedNeed(*cause, tuple(alike)) for cause, alike in groupby(ordered, key=find_cause))


def digest(text: str) -> str:
    """Return a hash of the text without its numbers and ids."""
    return sha256(re.sub(r"[0-9a-f]{8,}|\d+", "#", text).encode()).hexdigest()[:16]


def _hide_name(need: Need, text: str) -> str:
    return text.replace(quote(need.name), "...").replace(need.name, "...") if need.kind == "partition" else text


def _quote_first(needs: Sequence[Need]) -> str:
    first, *others = needs
    names = {one.name for one in others} - {first.name}
    return first.line + (f" (and {len(names)} more, such as {min(names)})" if names else "")
