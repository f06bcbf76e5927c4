"""Draws how the planning time grows with P and W."""

import re
from pathlib import Path

from benchmarks.report import BROKER
from benchmarks.run import Measurement

SIZE = re.compile(r"([\d,]+) x ([\d,]+)")
LOOK = {"rota": ("#0b7a75", "rota"), BROKER: ("#c8553d", "Kafka broker (Java, hot)")}


def draw(timings: list[Measurement], path: Path) -> None:
    """Draws two panels: time over P at 100 workers, and time over W at 100,000 and 1,000,000 partitions."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True)
    for engine, (colour, label) in LOOK.items():
        points = sorted((*_read_size(t), t.median) for t in timings if t.engine == engine and t.median)
        over_p = [(p, ms) for p, w, ms in points if w == 100]
        left.plot(*zip(*over_p, strict=True), "o-", color=colour, label=label, lw=2, ms=5) if over_p else None
        for count, style in ((1_000_000, "o-"), (100_000, "o--")):
            over_w = [(w, ms) for p, w, ms in points if p == count]
            if over_w:
                right.plot(
                    *zip(*over_w, strict=True), style, color=colour, lw=2, ms=5, alpha=1 if style == "o-" else 0.6
                )
                right.annotate(
                    f"P = {count:,}", over_w[0], (0, 7), textcoords="offset points", fontsize=8, color=colour
                )
    left.set(title="over partitions (100 workers)", xlabel="partitions", ylabel="median ms", xscale="log", yscale="log")
    right.set(title="over workers", xlabel="workers", xscale="log")
    left.legend(frameon=False)
    for axes in (left, right):
        axes.grid(True, which="major", color="#e6e6e6", lw=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle("One worker more: Snapshot in memory → Plan in memory", x=0.01, ha="left", fontweight="bold")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _read_size(timing: Measurement) -> tuple[int, int]:
    found = SIZE.match(timing.state)
    assert found is not None
    return int(found[1].replace(",", "")), int(found[2].replace(",", ""))
