"""Chooses the offsets of a replay: a range, files by name, the offsets of a period of time, or changed files.

Law: only offsets that the table's log names as consumed are chosen. A range is not checked here: the replay checks it.
Each offset is in one span, and skipped offsets are in none. The cost grows with the commits, not with the offsets.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from itertools import groupby, zip_longest

from rota.dataplane.ports import HasFiles, HasTimes, Ports, Source, SourceFile
from rota.errors import ConfigError, shown
from rota.ledger.values import LogEntry, Ranges, Spans, join_ranges

OFFSETS = "Say which offsets to replay, from and to; or when they were consumed, since and until"


@dataclass(frozen=True, slots=True)
class Choice:
    """What to replay; exactly one of the fields is set. Raises ConfigError if none or several are.

    Args:
        range: offsets [start, end).
        files: paths below the landing folder, or the ends of such paths.
        time: [since, until) in seconds since 1970, of commits; with `stamped`, of the records' own timestamps.
        changed: the files that changed after they were consumed.
    """

    range: tuple[int, int] | None = None
    files: tuple[str, ...] = ()
    time: tuple[float, float] | None = None
    changed: bool = False
    stamped: bool = False

    def __post_init__(self) -> None:
        if self.stamped and not self.time:
            raise ConfigError("stamped needs a time. Give since, until or both")
        if sum(map(bool, (self.range is not None, self.files, self.time is not None, self.changed))) != 1:
            raise ConfigError("Say what to replay: from and to, or files, or since and until, or changed. One of them")


def choose_spans(ports: Ports, partitions: Sequence[str], choice: Choice) -> dict[str, list[tuple[int, int]]]:
    """Return partition -> spans to replay; a partition without spans is left out.

    Raises:
        ConfigError: a file was not consumed, the source has no files, or its records cannot change.
    """
    if choice.range:
        return {p: [choice.range] for p in partitions}
    consumed = find_consumed(ports.main.read_log(), set(partitions), None if choice.stamped else choice.time)
    source, offsets = ports.source, dict[str, list[int]]()
    if choice.time and choice.stamped:
        return _find_stamped(source, consumed, choice.time)
    if choice.time:
        return consumed
    if choice.files:
        offsets |= _find_files(source, consumed, choice.files)
    else:
        changed = find_changed(require_files(source, partitions[0]), consumed)
        offsets |= {p: [one.offset for one in files] for p, files in changed.items()}
    return {p: spans for p, found in offsets.items() if (spans := list(join_offsets(sorted(found))))}


def find_consumed(
    past: Iterable[LogEntry], partitions: Container[str] | None = None, time: tuple[float, float] | None = None
) -> dict[str, list[tuple[int, int]]]:
    """Return partition -> the consumed spans, without skipped offsets.

    Args:
        past: the table's log.
        partitions: restricts the result to these.
        time: restricts the result to commits in [since, until), in seconds since 1970.
    """
    found = defaultdict[str, list[tuple[int, int]]](list)
    for one in past:
        if one.op == "commit" and (time is None or time[0] <= one.at < time[1]):
            for p, span in one.ranges.items():
                if partitions is None or p in partitions:
                    found[p].append(span)
    return {p: join_ranges(spans) for p, spans in found.items()}


def require_files(source: Source, partition: str) -> HasFiles:
    """Return the source. Raises ConfigError if its data cannot change."""
    if not isinstance(source, HasFiles):
        raise ConfigError(f"Nothing of {partition} changes once it is there. {OFFSETS}")
    return source


def find_changed(source: HasFiles, spans: Spans) -> dict[str, list[SourceFile]]:
    """Return the files of these offsets that changed since the offsets were assigned, by partition."""
    found: dict[str, list[SourceFile]] = {}
    for file in source.list_files(spans, compare=True):
        if file.state in ("changed", "changing"):
            found.setdefault(file.partition, []).append(file)
    return found


def join_offsets(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield spans [start, end) of the consecutive offsets in `offsets`, which are sorted."""
    for _, run in groupby(enumerate(offsets), key=lambda pair: pair[1] - pair[0]):
        found = [offset for _, offset in run]
        yield found[0], found[-1] + 1


def list_rounds(spans: Mapping[str, list[tuple[int, int]]]) -> Iterator[Ranges]:
    """Yield the spans in rounds with at most one span per partition."""
    for row in zip_longest(*spans.values()):
        yield {p: span for p, span in zip(spans, row, strict=True) if span}


def parse_time(text: str, default: float = 0.0, zone: tzinfo | None = UTC) -> float:
    """Return the seconds since 1970 of a time in ISO 8601, in `zone` unless it names one (None: local time).

    Raises:
        ConfigError: it is no time, or out of range.
    """
    if not text:
        return default
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ConfigError(f"{shown(text)} is no time. Give one like 2026-01-31T12:00:00") from None


def _find_stamped(source: Source, consumed: Spans, time: tuple[float, float]) -> dict[str, list[tuple[int, int]]]:
    if not isinstance(source, HasTimes):
        raise ConfigError(f"The records of {next(iter(consumed), 'the source')} have no time of their own. {OFFSETS}")
    found: dict[str, list[tuple[int, int]]] = {}
    for p, (start, end) in source.find_offsets(tuple(consumed), *time).items():
        within = ((max(a, start), min(b, end)) for a, b in consumed[p])
        found[p] = [(a, b) for a, b in within if a < b]
    return {p: spans for p, spans in found.items() if spans}


def _find_files(source: Source, consumed: Spans, files: Sequence[str]) -> dict[str, list[int]]:
    if not isinstance(source, HasFiles):
        raise ConfigError(f"{next(iter(consumed), 'The source')} has no files. {OFFSETS}")
    places = {(one.partition, one.offset): one.name for one in source.list_files(consumed)}
    found = defaultdict[str, list[int]](list)
    for name in files:
        here = [key for key, place in places.items() if place == name or place.endswith(f"/{name}")]
        if not here:
            raise ConfigError(
                f"No file {name!r} was consumed. Give its path below the landing folder, as `rota why` does"
            )
        for p, offset in here:
            found[p].append(offset)
    return {p: sorted(set(of)) for p, of in found.items()}
