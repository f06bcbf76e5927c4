"""The tables of a timed run, as Markdown: raw medians of both sides, their ratio, moves, peak memory."""

import os
import platform
from collections import defaultdict
from dataclasses import dataclass, field

from benchmarks.run import Timing


@dataclass(slots=True)
class Results:
    """What was timed, by part."""

    parts: dict[str, list[Timing]] = field(default_factory=dict)

    def add(self, part: str, timing: Timing) -> None:
        """One more timing."""
        self.parts.setdefault(part, []).append(timing)


def markdown(results: Results) -> str:
    """Every table there is something for."""
    return f"{host()}\n\n" + "\n\n".join(section(part, timings) for part, timings in results.parts.items())


def host() -> str:
    """Where it was measured, and what."""
    cores = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.machine()}"
    return f"Measured on {cores}: Snapshot in memory -> Plan in memory."


def section(part: str, timings: list[Timing]) -> str:
    """The table of one part."""
    tables = {"speed": _speed, "python": _python, "weighted": _weighted, "azure": _azure, "growth": _growth}
    return tables[part](timings)


def _growth(timings: list[Timing]) -> str:
    return (
        "**How time grows** with P and W, one more worker (median ms).\n\n![time over P and W](speed.png)\n\n"
        + _table(timings, {"rota": "rota", BROKER: "Kafka broker"})
    )


BROKER = "Kafka uniform (Java)"


def _rows(timings: list[Timing]) -> dict[str, dict[str, Timing]]:
    rows: dict[str, dict[str, Timing]] = defaultdict(dict)
    for timing in timings:
        rows[timing.state][timing.engine] = timing
    return rows


def _ms(timing: Timing | None) -> str:
    if timing is None:
        return ""
    if timing.median is None:
        return timing.missing
    return f"{timing.median:,.0f}" if timing.median >= 100 else f"{timing.median:.3g}"


def _ratio(ours: Timing | None, theirs: Timing | None) -> str:
    if ours is None or theirs is None or not ours.median or not theirs.median:
        return ""
    ratio = theirs.median / ours.median
    return f"{ratio:,.0f}x" if ratio >= 10 else f"{ratio:.2f}x"


def _table(timings: list[Timing], engines: dict[str, str]) -> str:
    """A row a state, a column an engine; a ratio above 1 means that ours is faster."""
    others = [e for e in engines if e != "rota"]
    head = ["state", "rota, ms", *(x for e in others for x in (f"{engines[e]}, ms", "ratio")), "moves", "peak MiB"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for state, by in _rows(timings).items():
        ours = by.get("rota")
        moves = [str(t.get("moves")) if t and t.answer else "-" for t in [ours, *(by.get(e) for e in others)]]
        peaks = [str(t.get("peak_mib")) if t and t.answer else "-" for t in [ours, *(by.get(e) for e in others)]]
        cells = [state, _ms(ours)]
        for engine in others:
            cells += [_ms(by.get(engine)), _ratio(ours, by.get(engine))]
        lines.append("| " + " | ".join([*cells, " / ".join(moves), " / ".join(peaks)]) + " |")
    return "\n".join(lines)


def _speed(timings: list[Timing]) -> str:
    names = {
        "rota": "rota",
        BROKER: "broker",
        "Kafka sticky (Java)": "sticky",
        "Kafka cooperative (Java)": "cooperative",
    }
    return (
        "**Beside Kafka's own Java** (4.1.0, JIT-hot; median; ratio = theirs / ours; moves from a live owner and peak "
        "memory in the order of the columns).\nThe broker's assignor and ours are handed partition -> owner ready made. "
        "The cooperative one needs a second round for what moves, which is not in its time.\n\n"
        + _table(timings, names)
    )


def _python(timings: list[Timing]) -> str:
    names = {"rota": "rota", "kafka-python sticky": "kafka-python", "kazoo partitioner": "kazoo"}
    return "**Beside Python** (kafka-python 3.0.12; kazoo 2.11.0, not sticky).\n\n" + _table(timings, names)


def _weighted(timings: list[Timing]) -> str:
    lines = ["| state | engine | ms | moves | worst/mean | peak MiB |", "|---|---|---|---|---|---|"]
    for t in timings:
        after = t.get("after")
        reached = t.missing or (f"{after:.4f}" if after is not None else "")
        lines.append(
            f"| {t.state} | {t.engine} | {_ms(t)} | {_dash(t.get('moves'))} | {reached} | {_dash(t.get('peak_mib'))} |"
        )
    return "**Weighted yardstick** (`sticky-load`; before: 1.1008 at 100 x 10).\n\n" + "\n".join(lines)


def _dash(value: object) -> str:
    return "-" if value is None else f"{value}"


def _azure(timings: list[Timing]) -> str:
    lines = [
        "| state | strategy | rounds until settled | minutes at 30 s | changes | changes in 20 more rounds | spread |",
        "|---|---|---|---|---|---|---|",
    ]
    for t in timings:
        rounds = t.get("rounds")
        minutes = "-" if rounds is None else f"{rounds / 2:.1f}"
        told = t.missing or ("never" if rounds is None else str(rounds))
        cells = [t.state, t.engine, told, minutes, *(_dash(t.get(k)) for k in ("changes", "after", "spread"))]
        lines.append("| " + " | ".join(cells) + " |")
    return (
        "**Azure's ownership manager** (azure-eventhub 5.15.1, in-memory store; ours publishes each of these in one "
        "epoch).\n\n" + "\n".join(lines)
    )
