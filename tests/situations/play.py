"""Plays situations at once on one stage and measures when each is said where: on the command line, on the page, by an
alert.

A need without a situation is a failure: a situation without a need fails by one line or one alert.
What is said belongs to the one situation that it names; in a group of its own all of the group's lines belong to it.
"""

import os
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from rota.cli.observer import GroupObserver, concerns
from rota.errors import RotaError
from rota.face.need import Need
from tests.situations.row import OVER, Row
from tests.situations.situation import Situation
from tests.situations.stage import Stage
from tests.situations.typed import Said, Typist
from tests.waiting import wait_until

GIVEN = 240.0  # seconds that are waited for it: what is late is measured, too
AT_ONCE = 8  # groups that are looked at
QUIET = 150.0  # seconds for which a healthy situation is watched
PAUSE = 2.0  # seconds between two looks

Line = tuple[str, Need | None]  # what is not well; no need where the group cannot be read
Alarm = tuple[float, str, str]


class Play:
    """Several situations at once. `tell` gets each row as soon as it is known."""

    def __init__(
        self, stage: Stage, situations: Sequence[Situation], tell: Callable[[str], object] = print, quiet: float = QUIET
    ) -> None:
        self.stage, self.tell, self.quiet = stage, tell, quiet
        self.rows = [Row(one) for one in situations]
        self.observers = {
            group: GroupObserver(stage.group_tree(one.pipeline)) for one in situations for group in [one.of]
        }
        self.lines: dict[str, list[Line]] = {}
        self.typist = Typist()

    def play(self) -> list[Row]:
        """Begins all, waits until all is reported and typed, repairs all, waits until that is reported."""
        for row in self.rows:
            self._wait(lambda row=row: self.stage.is_consumed(row.of.pipeline), f"{row.of.name} does not begin", row)
            self._try(row, row.of.ready)
        self._wait(self._is_calm, "not calm before")
        self.tell(f"# all is well, {len(self.rows)} situations begin: {time.strftime('%H:%M:%S')}")
        begun = time.time()
        quiet = self.quiet if any(not row.of.cause for row in self.rows) else 0.0
        with ThreadPoolExecutor(len(self.rows)) as hands:  # a slow one delays no other
            self._do(self._strike, hands)
            self._wait(lambda: self._look() and time.time() - begun >= quiet and all(row.said for row in self.rows), "")
            for row in self.rows:
                if not row.said:
                    self.tell(f"# {row.of.name} is silent; there is: {self.lines[row.of.of]}"[:1000])
            self._wait(lambda: self._look() and self._is_typed(), "not typed")
            self._confirm()
            self._do(self._heal, hands)
            self._wait(lambda: self._look() and all(row.done for row in self.rows), "")
        self._tell_strangers(begun)
        for row in self.rows:
            if row.of.cause:
                self.tell(row.describe())
        return self.rows

    def _do(self, act: Callable[[Row], None], hands: ThreadPoolExecutor) -> None:
        """All at once. One alone is done here: a process that it starts would end with its thread."""
        if len(self.rows) == 1:
            act(self.rows[0])
        else:
            for row in self.rows:
                hands.submit(act, row)

    def _strike(self, row: Row) -> None:
        row.began = time.time()
        self._try(row, row.of.strike)

    def _heal(self, row: Row) -> None:
        row.mended = time.time()
        self._try(row, row.of.heal)

    def _try(self, row: Row, act: Callable[[Stage, str], None]) -> None:
        try:
            act(self.stage, row.of.pipeline)
        except Exception as error:
            row.add_wrong(f"the play itself: {type(error).__name__} {str(error)[:150]}")
            self.tell(f"# {row.of.name}: {row.wrong[-1]}")

    def _wait(self, what: Callable[[], object], why: str, row: Row | None = None) -> None:
        try:
            wait_until(what, GIVEN, pause=PAUSE)
        except AssertionError:
            if why:
                self.tell(f"# {why}: {[line for group in self.lines.values() for line, _ in group]}")
            if row is not None:
                row.add_wrong(why)

    # --- what is said

    def _is_calm(self) -> bool:
        """Whether nothing needs a person, and each alert of before is over."""
        self._look_at_groups()
        titles = [title for _, title, _ in self.stage.read_alerts()]
        open_still = sum(1 if not title.startswith(OVER) else -1 for title in titles)
        return not any(is_due(need) for lines in self.lines.values() for _, need in lines) and open_still <= 0

    def _look_at_groups(self) -> None:
        if not self.lines:  # each loads the pipelines' files once: not beside another
            self.lines = {group: self._look_at(group) for group in self.observers}
        with ThreadPoolExecutor(AT_ONCE) as pool:
            self.lines = dict(zip(self.observers, pool.map(self._look_at, self.observers), strict=True))

    def _look_at(self, group: str) -> list[Line]:
        try:
            return [(need.line, need) for need in self.observers[group].observe().needs]
        except RotaError as error:
            return [(str(error), None)]

    def _look(self) -> bool:
        self._look_at_groups()
        alerts, load = self.stage.read_alerts(), os.getloadavg()[0]
        for row in (one for one in self.rows if one.began):
            awaited = [one for one in self.lines[row.of.of] if self._is_mine(row, one[1])]
            mine = [one for one in awaited if is_due(one[1])]
            heard = find_alerts(row, alerts)
            row.alerts = [title for _, title, _ in heard]
            row.load = max(row.load, load)
            if row.of.cause:
                self._judge(row, mine, heard)
            elif not row.mended:
                row.add_wrong(*(line for line, _ in mine), *(f"alert {t}: {x}" for _, t, x in heard))
            awaited = [one for one in awaited if one[1] is None or one[1].due < float("inf")]
            alone = not row.of.group or row.of.on
            if not row.mended and row.of.cause and (find_line(row, awaited) if alone else self._is_said(row.of.of)):
                self._find_answer(row)  # typed as soon as it can be confirmed: the command waits until it is due
        return True

    def _judge(self, row: Row, mine: list[Line], heard: list[Alarm]) -> None:
        now = time.time()
        found = find_line(row, mine)
        if row.status is None and found:
            row.status, row.line = now - row.began, found
            self.tell(f"  . {row.of.name}: status after {row.status:.0f} s: {found}")
        if row.page is None and row.of.red != "-" and not row.mended and self._is_red(row):
            row.page = time.time() - row.began
            self.tell(f"  . {row.of.name}: page after {row.page:.0f} s")
        sent = [at for at, title, _ in heard if not title.startswith(OVER)]
        if row.alert is None and sent:
            row.alert = sent[0] - row.began
            self.tell(f"  . {row.of.name}: alert after {row.alert:.0f} s: {row.alerts[0]}")
        if row.mended:
            over = [at for at, title, _ in heard if title.startswith(OVER) and at > row.mended]
            row.over = over[-1] - row.mended if len(over) >= len(sent) > 0 else None
            row.well = None if mine else row.well or now - row.mended

    def _is_said(self, group: str) -> bool:
        return all(row.said for row in self.rows if row.of.of == group)

    def _is_red(self, row: Row) -> bool:
        asset, _, check = row.of.red.partition(":")
        of = row.of.of if asset == "membership" else row.of.pipeline
        return bool(self.stage.find_red(f"{of}/{asset}", check))

    def _is_mine(self, row: Row, need: Need | None) -> bool:
        """Whether the need is the situation's: in a group that others share, only what names it."""
        if row.of.on or need is None or not row.of.group:
            return True
        if need.kind in ("partition", "pipeline"):
            return concerns(need, row.of.pipeline)
        return names(row, need.name, need.why)

    # --- what is typed

    def _is_typed(self) -> bool:
        """Whether `rota status --check` was answered for each."""
        return None not in [self._find_answer(row) for row in self.rows]

    def _find_answer(self, row: Row) -> Said | None:
        """What the command printed of the group, or else of its pipeline. It ends
        at the first need that is due, and of a healthy pipeline among others only `--pipeline` can say that it is well."""
        shared = bool(row.of.group) and not row.of.on
        if row.of.cause or not shared:
            said = self.typist.type(row.of.of)
            if said is None or not shared or confirms(row, said):
                return said
        return self.typist.type(row.of.of, row.of.pipeline)

    def _confirm(self) -> None:
        """`rota status --check` said the same, and ended so."""
        for row in self.rows:
            said = self._find_answer(row) or Said(-1, ("no answer",))
            if not confirms(row, said):
                row.add_wrong(f"status --check exits {said.code}: {'; '.join(said.lines)[:200]}")
            if not row.of.cause:
                self.tell(row.describe())
        self.typist.close()

    def _tell_strangers(self, begun: float) -> None:
        """Alerts that belong to no situation."""
        alerts = self.stage.read_alerts()
        owned = {one for row in self.rows for one in find_alerts(row, alerts)}
        for at, title, text in alerts:
            if at >= begun and (at, title, text) not in owned:
                self.tell(f"# an alert of nothing that is played, after {at - begun:.0f} s: {title}: {text[:200]}")


def find_alerts(row: Row, alerts: Sequence[Alarm]) -> list[Alarm]:
    """Those that name the situation since it began, and those that tell of their end."""
    mine = [one for one in alerts if one[0] >= row.began and names(row, *one[1:])]
    ends = {f"{OVER}{title}" for _, title, _ in mine}
    return [one for one in alerts if one[0] >= row.began and (one in mine or one[1] in ends)]


def is_due(need: Need | None) -> bool:
    """Whether it needs a person now."""
    return need is None or need.person


def find_line(row: Row, lines: Sequence[Line]) -> str:
    """The line that is wanted of the situation, if it is there."""
    return next((line for line, need in lines if matches(row, line) and (not need or need.cause == row.of.cause)), "")


def confirms(row: Row, said: Said) -> bool:
    """Whether the command ended as it has to, and with the line."""
    return said.code == bool(row.of.cause) and (not row.of.cause or any(matches(row, line) for line in said.lines))


def matches(row: Row, line: str) -> bool:
    """Whether the line is the one that is wanted: in a shared group it names the situation, too."""
    return row.of.words in line and (not row.of.group or bool(row.of.on) or names(row, line))


def names(row: Row, *texts: str) -> bool:
    """Whether one of the texts names the situation."""
    alert = row.of.alert or rf"(?<![\w-]){re.escape(row.of.pipeline)}(?!\w)"
    return any(re.search(alert, text) for text in texts)
