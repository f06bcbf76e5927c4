"""Plays situations at once on one stage and measures when each is said where: on the command line, on the page, by an alert.

A need that nobody waits for any more is not well: a situation where nobody may be called fails by one line or one alert.
"""

import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from rota.cli.look import Looker, concerns
from rota.errors import RotaError
from tests.situations.situation import Situation
from tests.situations.stage import Stage
from tests.waiting import wait_until

BOUND = 120.0  # seconds in which each has to say so
GIVEN = 240.0  # seconds that are waited for it: what is late is measured, too
AT_ONCE = 8  # groups that are looked at
QUIET = 150.0  # seconds for which a healthy situation is watched


@dataclass
class Row:
    """What was measured of a situation, in seconds since it began, and since it was mended for `over`."""

    of: Situation
    began: float = 0.0
    mended: float = 0.0
    status: float | None = None
    page: float | None = None
    alert: float | None = None
    well: float | None = None
    over: float | None = None
    line: str = ""
    alerts: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def said(self) -> bool:
        """Whether everybody knows."""
        missing = [self.status, self.page if self.of.red != "-" else 0.0, self.alert if self.of.alerts else 0.0]
        return not self.of.cause or None not in missing

    @property
    def done(self) -> bool:
        """Whether it is well again and everybody knows."""
        return not self.of.cause or (self.well is not None and (self.over is not None or self.alert is None))

    def judge(self) -> str:
        """`right`, or what is silent, late or wrong."""
        if not self.of.cause:
            return "right" if not self.wrong else f"WRONG: {'; '.join(self.wrong)[:300]}"
        found = list(self.wrong)
        for what, seconds, wanted in (
            ("status", self.status, True), ("page", self.page, self.of.red != "-"), ("alert", self.alert, self.of.alerts),
        ):  # fmt: skip
            if wanted and (seconds is None or seconds > BOUND):
                found.append(f"{what} {'silent' if seconds is None else 'late'}")
        if self.alert is not None and self.over is None:
            found.append("no alert of its end")
        if self.well is None:
            found.append("status not well again")
        told = [title for title in self.alerts if not title.startswith("over:")]
        if len(told) > 1:
            found.append(f"{len(told)} alerts: {', '.join(told)}")
        return "; ".join(found)[:300] or "right"

    def describe(self) -> str:
        """One line of the table."""
        told = " ".join(
            f"{'-' if s is None else f'{s:.0f}':>6}" for s in (self.status, self.page, self.alert, self.over)
        )
        return f"{self.of.name:<22} {self.of.cause or 'healthy':<12} {told}  {self.judge()}  | {self.line[:200]}"


class Play:
    """Several situations at once. `tell` gets each row as soon as it is known."""

    def __init__(self, stage: Stage, situations: Sequence[Situation], tell: Callable[[str], object] = print) -> None:
        self.stage, self.tell = stage, tell
        self.rows = [Row(one) for one in situations]
        self.lookers = {group: Looker(stage.group_tree(one.pipeline)) for one in situations for group in [one.of]}
        self.needs: dict[str, list[tuple[bool, str, object]]] = {}

    def play(self) -> list[Row]:
        """Begins all, waits until all is said, mends all, waits until that is said."""
        for row in self.rows:
            self._wait(lambda row=row: self.stage.is_consumed(row.of.pipeline), f"{row.of.name} does not begin", row)
            row.of.ready(self.stage, row.of.pipeline)
        self._wait(self._is_calm, "not calm before")
        self.tell(f"# all is well, {len(self.rows)} situations begin: {time.strftime('%H:%M:%S')}")
        for row in self.rows:
            row.began = time.time()
            self._try(row, row.of.strike)
        begun = time.time()
        quiet = QUIET if any(not row.of.cause for row in self.rows) else 0.0
        self._wait(lambda: self._look() and time.time() - begun >= quiet and all(row.said for row in self.rows), "")
        for row in self.rows:
            self._type(row)
        for row in self.rows:
            row.mended = time.time()
            self._try(row, row.of.heal)
        self._wait(lambda: self._look() and all(row.done for row in self.rows), "")
        for row in self.rows:
            if row.of.cause:
                self.tell(row.describe())
        return self.rows

    def _try(self, row: Row, act: Callable[[Stage, str], None]) -> None:
        try:
            act(self.stage, row.of.pipeline)
        except Exception as error:
            row.wrong.append(f"the play itself: {type(error).__name__} {str(error)[:150]}")

    def _wait(self, what: Callable[[], object], why: str, row: Row | None = None) -> None:
        try:
            wait_until(what, GIVEN, pause=1.0)
        except AssertionError:
            if why:
                self.tell(f"# {why}: {[line for group in self.needs.values() for person, line, _ in group if person]}")
            if row is not None:
                row.wrong.append(why)

    def _is_calm(self) -> bool:
        self._look_at_groups()
        return not any(person for needs in self.needs.values() for person, *_ in needs)

    def _look_at_groups(self) -> None:
        if not self.needs:  # each loads the pipelines' files once: not beside another
            self.needs = {group: self._look_at(group) for group in self.lookers}
        with ThreadPoolExecutor(AT_ONCE) as pool:
            self.needs = dict(zip(self.lookers, pool.map(self._look_at, self.lookers), strict=True))

    def _look_at(self, group: str) -> list[tuple[bool, str, object]]:
        try:
            return [(need.person, need.line, need) for need in self.lookers[group].look().needs]
        except RotaError as error:
            return [(True, str(error), None)]

    def _look(self) -> bool:
        self._look_at_groups()
        alerts = self.stage.read_alerts()
        for row in self.rows:
            mine = [line for person, line, need in self.needs[row.of.of] if person and self._is_mine(row, need)]
            heard = [
                (at, title, text) for at, title, text in alerts if at >= row.began and self._names(row, title, text)
            ]
            for _, title, _ in heard:
                if title not in row.alerts:
                    row.alerts.append(title)
            if row.of.cause:
                self._judge(row, mine, heard)
            else:
                if not row.mended:
                    row.wrong += [
                        line for line in (*mine, *(f"alert {t}: {x}" for _, t, x in heard)) if line not in row.wrong
                    ]
        return True

    def _judge(self, row: Row, mine: list[str], heard: list[tuple[float, str, str]]) -> None:
        stage, now = self.stage, time.time()
        found = next((line for line in mine if row.of.words in line), "")
        if row.status is None and found:
            row.status, row.line = now - row.began, found
            self.tell(f"  . {row.of.name}: status after {row.status:.0f} s: {found[:150]}")
        if row.page is None and row.of.red != "-" and not row.mended:
            asset, _, check = row.of.red.partition(":")
            of = row.of.of if asset == "membership" else row.of.pipeline
            if stage.find_red(f"{of}/{asset}", check):
                row.page = time.time() - row.began
                self.tell(f"  . {row.of.name}: page after {row.page:.0f} s")
        told = [at for at, title, _ in heard if not title.startswith("over:")]
        if row.alert is None and told:
            row.alert = told[0] - row.began
            self.tell(f"  . {row.of.name}: alert after {row.alert:.0f} s")
        if row.mended:
            ends = [f"over: {title}" for title in row.alerts]
            over = [at for at, title, _ in heard if title in ends and at > row.mended]
            if over and row.over is None:
                row.over = over[0] - row.mended
            row.well = None if mine else row.well or now - row.mended

    def _type(self, row: Row) -> None:
        """`rota status --check` says the same, and ends so."""
        code, said = self.stage.ask(row.of.of, row.of.pipeline if row.of.group else "")
        if code != bool(row.of.cause) or (row.status is not None and row.of.words not in said):
            row.wrong.append(f"status --check exits {code}: {said[:200]}")
        if not row.of.cause:
            self.tell(row.describe())

    def _is_mine(self, row: Row, need: object) -> bool:
        from rota.needs import Need

        if row.of.on:
            return True
        if not isinstance(need, Need) or not row.of.group or need.kind in ("partition", "pipeline"):
            return not isinstance(need, Need) or concerns(need, row.of.pipeline)
        return self._names(row, need.name, need.why)

    def _names(self, row: Row, *texts: str) -> bool:
        alert = row.of.alert or rf"(?<![\w-]){re.escape(row.of.pipeline)}(?![\w])"
        return any(re.search(alert, text) for text in texts)
