"""Formats measurements as Markdown tables: medians, ratios, moves and peak memory."""

import os
import platform
from collections import defaultdict
from dataclasses import dataclass, field

from benchmarks.run import Measurement


@dataclass(slots=True)
class Results:
    """The measurements of each part."""

    parts: dict[str, list[Measurement]] = field(default_factory=dict)

    def add(self, part: str, timing: Measurement) -> None:
        """Adds one measurement."""
        self.parts.setdefault(part, []).append(timing)


def format_results(results: Results) -> str:
    """The tables of all parts."""
    return f"{format_host()}\n\n" + "\n\n".join(format_part(part, timings) for part, timings in results.parts.items())


def format_host() -> str:
    """A line that describes the machine."""
    cores = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.machine()}"
    return f"Measured on {cores}: Snapshot in memory -> Plan in memory."


def format_part(part: str, timings: list[Measurement]) -> str:
    """The table of one part."""
    tables = {
        "speed": _format_speed,
        "python": _format_python,
        "weighted": _format_weighted,
        "azure": _format_azure,
        "growth": _format_growth,
    }
    return tables[part](timings)


def _format_growth(timings: list[Measurement]) -> str:
    return (
        "**How time grows** with P and W, one more worker (median ms).\n\n![time over P and W](speed.png)\n\n"
        + _format_table(timings, {"rota": "rota", BROKER: "Kafka broker"})
    )


BROKER = "Kafka uniform (Java)"


def _group_by_state(timings: list[Measurement]) -> dict[str, dict[str, Measurement]]:
    rows: dict[str, dict[str, Measurement]] = defaultdict(dict)
    for timing in timings:
        rows[timing.state][timing.engine] = timing
    return rows


def _format_ms(timing: Measurement | None) -> str:
    if timing is None:
        return ""
    if timing.median is None:
        return timing.missing
    return f"{timing.median:,.0f}" if timing.median >= 100 else f"{timing.median:.3g}"


def _format_ratio(ours: Measurement | None, theirs: Measurement | None) -> str:
    if ours is None or theirs is None or not ours.median or not theirs.median:
        return ""
    ratio = theirs.median / ours.median
    return f"{ratio:,.0f}x" if ratio >= 10 else f"{ratio:.2f}x"


def _format_table(timings: list[Measurement], engines: dict[str, str]) -> str:
    """One row for each state, one column for each engine. A ratio above 1 means that rota is faster."""
    others = [e for e in engines if e != "rota"]
    head = ["state", "rota, ms", *(x for e in others for x in (f"{engines[e]}, ms", "ratio")), "moves", "peak MiB"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for state, by in _group_by_state(timings).items():
        ours = by.get("rota")
        moves = [str(t.get("moves")) if t and t.answer else "-" for t in [ours, *(by.get(e) for e in others)]]
        peaks = [str(t.get("peak_mib")) if t and t.answer else "-" for t in [ours, *(by.get(e) for e in others)]]
        cells = [state, _format_ms(ours)]
        for engine in others:
            cells += [_format_ms(by.get(engine)), _format_ratio(ours, by.get(engine))]
        lines.append("| " + " | ".join([*cells, " / ".join(moves), " / ".join(peaks)]) + " |")
    return "\n".join(lines)


def _format_speed(timings: list[Measurement]) -> str:
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
        + _format_table(timings, names)
    )


def _format_python(timings: list[Measurement]) -> str:
    names = {"rota": "rota", "kafka-python sticky": "kafka-python", "kazoo partitioner": "kazoo"}
    return "**Beside Python** (kafka-python 3.0.12; kazoo 2.11.0, not sticky).\n\n" + _format_table(timings, names)


def _format_weighted(timings: list[Measurement]) -> str:
    lines = ["| state | engine | ms | moves | worst/mean | peak MiB |", "|---|---|---|---|---|---|"]
    for t in timings:
        after = t.get("after")
        reached = t.missing or (f"{after:.4f}" if after is not None else "")
        moves, peak = _format_value(t.get("moves")), _format_value(t.get("peak_mib"))
        lines.append(f"| {t.state} | {t.engine} | {_format_ms(t)} | {moves} | {reached} | {peak} |")
    return "**Weighted yardstick** (`sticky-load`; before: 1.1008 at 100 x 10).\n\n" + "\n".join(lines)


def _format_value(value: object) -> str:
    return "-" if value is None else f"{value}"


def _format_azure(timings: list[Measurement]) -> str:
    lines = [
        "| state | strategy | rounds until settled | minutes at 30 s | changes | changes in 20 more rounds | spread |",
        "|---|---|---|---|---|---|---|",
    ]
    for t in timings:
        rounds = t.get("rounds")
        minutes = "-" if rounds is None else f"{rounds / 2:.1f}"
        shown = t.missing or ("never" if rounds is None else str(rounds))
        cells = [t.state, t.engine, shown, minutes, *(_format_value(t.get(k)) for k in ("changes", "after", "spread"))]
        lines.append("| " + " | ".join(cells) + " |")
    return (
        "**Azure's ownership manager** (azure-eventhub 5.15.1, in-memory store; ours publishes each of these in one "
        "epoch).\n\n" + "\n".join(lines)
    )
