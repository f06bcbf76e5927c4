"""Draws how the planning time grows with P and W."""

import re
from pathlib import Path

from benchmarks.report import BROKER
from benchmarks.run import Measurement

SIZE = re.compile(r"([\d,]+) x ([\d,]+)")
LOOK = {"rota": ("#0b7a75", "rota"), BROKER: ("#c8553d", "Kafka's broker (Java, hot)")}
LINES = ((1_000_000, "o-", 1.0), (100_000, "o--", 0.6))  # partitions, their style, and how strong


def draw(timings: list[Measurement], path: Path) -> None:
    """Draws two panels: time over P at 100 workers, and time over W at 100,000 and 1,000,000 partitions."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import StrMethodFormatter

    plt.rcParams.update({"font.size": 9, "axes.edgecolor": "#999999"})
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True)
    for engine, (colour, label) in LOOK.items():
        points = sorted((*_read_size(t), t.median) for t in timings if t.engine == engine and t.median)
        if over_p := [(p, ms) for p, w, ms in points if w == 100]:
            left.plot(*zip(*over_p, strict=True), "o-", color=colour, label=label, lw=2, ms=5)
        for count, style, strength in LINES:
            if over_w := [(w, ms) for p, w, ms in points if p == count]:
                right.plot(*zip(*over_w, strict=True), style, color=colour, lw=2, ms=5, alpha=strength)
                right.annotate(
                    f"{count:,}", over_w[-1], (8, 0), textcoords="offset points", fontsize=8, color=colour, va="center",
                )  # fmt: skip
    for axes, what in ((left, "partitions"), (right, "workers")):
        axes.set(xlabel=what, xscale="log", yscale="log")
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axes.grid(True, which="major", color="#e6e6e6", lw=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    left.set_title("100 workers: milliseconds over partitions")
    right.set_title("100,000 and 1,000,000 partitions: milliseconds over workers")
    left.set_ylim(bottom=0.1)
    right.margins(x=0.16)
    left.legend(frameon=False)
    for axes in (left, right):
        axes.title.set(fontsize=9.5, fontweight="bold", ha="left", x=0.0)
    figure.suptitle("Time to plan when one worker joins (median)", x=0.01, ha="left", fontweight="bold")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _read_size(timing: Measurement) -> tuple[int, int]:
    found = SIZE.match(timing.state)
    assert found is not None
    return int(found[1].replace(",", "")), int(found[2].replace(",", ""))
