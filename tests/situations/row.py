"""What was measured of a situation, and what is to be said of it."""

from dataclasses import dataclass, field

from tests.situations.situation import Situation

BOUND = 120.0  # seconds in which each has to say so
OVER = "over: "  # begins the title of an alert that reports an end


@dataclass
class Row:
    """What was measured of a situation, in seconds since it began, and since it was mended for `well` and `over`. `load` is
    the machine's greatest while it was looked at, in processes that want to run."""

    of: Situation
    began: float = 0.0
    mended: float = 0.0
    status: float | None = None
    page: float | None = None
    alert: float | None = None
    well: float | None = None
    over: float | None = None
    load: float = 0.0
    line: str = ""
    alerts: list[str] = field(default_factory=list)  # titles, as often as they came
    wrong: list[str] = field(default_factory=list)

    @property
    def said(self) -> bool:
        """Whether all places report it."""
        missing = [self.status, self.page if self.of.red != "-" else 0.0, self.alert if self.of.alerts else 0.0]
        return not self.of.cause or None not in missing

    @property
    def done(self) -> bool:
        """Whether it is well again and all places report it."""
        return not self.of.cause or (self.well is not None and (self.over is not None or self.alert is None))

    def add_wrong(self, *found: str) -> None:
        """What is wrong, once each."""
        self.wrong += [one for one in dict.fromkeys(found) if one not in self.wrong]

    def judge(self, bound: float = BOUND) -> str:
        """`right`, or what is silent, late or wrong. Late is what took longer than the bound, in seconds."""
        if not self.of.cause:
            return "; ".join(self.wrong) or "right"
        found = list(self.wrong)
        for what, seconds, wanted in (
            ("status", self.status, True), ("page", self.page, self.of.red != "-"), ("alert", self.alert, self.of.alerts),
        ):  # fmt: skip
            if wanted and (seconds is None or seconds > bound):
                found.append(f"{what} {'silent' if seconds is None else 'late'}")
        if self.alert is not None and self.over is None:
            found.append("no alert of its end")
        if self.well is None:
            found.append("status not well again")
        sent = [title for title in self.alerts if not title.startswith(OVER)]
        if len(sent) > 1:
            found.append(f"{len(sent)} alerts: {', '.join(sent)}")
        return "; ".join(found) or "right"

    def describe(self) -> str:
        """One line of what the command prints."""
        seconds = " ".join(f"{show(s):>6}" for s in (self.status, self.page, self.alert, self.over))
        cause = self.of.cause or "healthy"
        return f"{self.of.name:<22} {cause:<12} {seconds} {self.load:>5.1f}  {self.judge()[:300]}  | {self.line[:200]}"


def show(seconds: float | None) -> str:
    """Whole seconds; `-` where it was not said."""
    return "-" if seconds is None else f"{seconds:.0f}"
