"""Landing folders as a source: one folder a partition, an offset is a file's ordinal in the index.

Law: names may come late and out of order, and files may be half-written when they are first seen: nothing is lost, because
a file is read under the ordinal that the index gave it, once it rested, and only while it is still the same file. A
folder that cannot be listed, or a file that cannot be looked at, keeps its own partition waiting and no other.
"""

import logging
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar, cast

from rota.dataplane import columns, names
from rota.dataplane.files import fitting, headers, listing, owner, parquet_reading, staging, text_lines, texts
from rota.dataplane.files.after import Tidier
from rota.dataplane.files.file_index import FileIndex, LandedFile, explain_without_copy
from rota.dataplane.files.landing import NO_FILE, PORTION, LandedBytes, Landing, Refuse, Rested, Shown, count_files
from rota.dataplane.files.moved import explain_moved, find_moved
from rota.dataplane.files.opening import open_landing
from rota.dataplane.formats import lines, values
from rota.dataplane.formats.options import GOOD_ALONE, check_options, find_encoding, is_multiline, make_options
from rota.dataplane.ports import Home, Tidied
from rota.dataplane.spark.spark_source import Records
from rota.errors import EnvironmentFailed, RotaError, SourceChanged
from rota.ids import is_partition, key_of, partition_id, quote
from rota.ledger.values import Ranges, Spans
from rota.pipeline import Files, Pipeline
from rota.portions import take_portions
from rota.record import CORRUPT
from rota.stores import join

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
log = logging.getLogger(__name__)
Look = Callable[[LandedFile], LandedFile | None]


@dataclass(frozen=True, slots=True)
class FilesSource:
    """The landing folder of pipeline `name`.

    `messages` has the reasons why a file cannot be read, with the next steps. `read_columns` returns the table's columns.
    `reading` has the files of ranges that are being read. `resting` has the times, by `clock`, at which the files that the
    last poll left out will have rested.
    """

    name: str
    landing: Landing
    declared: Files
    index: FileIndex
    clock: Callable[[], float] = time.time
    messages: listing.ChangeMessages = listing.LIVE
    read_columns: Callable[[], str | None] = lambda: None
    reading: dict[str, Sequence[LandedFile]] = field(default_factory=dict, compare=False)
    resting: list[float] = field(default_factory=list, compare=False)

    def __post_init__(self) -> None:
        check_options(self.declared.options, f"files({self.declared.path!r})")

    @classmethod
    def of(cls, pipeline: Pipeline, home: Home) -> "FilesSource":
        """The source that the pipeline declares, with the environment's variables filled in."""
        declared, index = cast(Files, pipeline.source), FileIndex(join(home.location, "index"))
        landing = open_landing(declared.path, home.scratch)
        return cls(pipeline.name, landing, declared, index, read_columns=home.read_columns)

    @property
    def options(self) -> dict[str, str]:
        """The options of Spark's reader."""
        return make_options(self.declared.format, self.declared.options)

    def find_place(self) -> str:
        """See `Source.find_place`: the landing folder."""
        return self.landing.find_place()

    @property
    def look_every(self) -> float:
        """See `Paced.look_every`."""
        return self.landing.look_every

    def list_keys(self) -> tuple[str, ...]:
        """See `Source.list_keys`: the folders below the root whose partition ids are not too long."""
        names_found = self._list(lambda: sorted(map(names.key, self.landing.list_folders())))
        return tuple(k for k in names_found if is_partition(partition_id(self.name, k)))

    def list_ignored(self) -> Mapping[str, str]:
        """See `LeavesOut.list_ignored`: by path below the landing folder."""
        found = self._list(lambda: sorted(self.landing.list_ignored()))
        folders = self._list(lambda: sorted(self.landing.list_folders()))
        long = {f: listing.TOO_LONG for f in folders if not is_partition(partition_id(self.name, names.key(f)))}
        return dict(found) | long

    def _list(self, look: "Callable[[], list[T]]") -> "list[T]":
        """What a look at the landing folder gives."""
        try:
            return look()
        except OSError as error:
            what = f"{self.landing.place} cannot be listed ({error}). Check the folder's rights"
            raise EnvironmentFailed(what) from error

    def read_ends(self, partitions: tuple[str, ...]) -> Mapping[str, int]:
        """See `Source.read_ends`."""
        self.resting.clear()
        return self.index.latest(partitions, self.find_new)

    def find_rest(self, within: float) -> float:
        """See `Rests.find_rest`."""
        left = (at - self.clock() for at in self.resting)
        return max(0.0, max((one for one in left if one <= within), default=within))

    def ahead(self, seconds: float) -> Self:
        """See `Rests.ahead`."""
        seconds = min(seconds, self.declared.settle / 2)  # else a file that grows would seem to rest
        return replace(self, clock=lambda: self.clock() + seconds, resting=[])

    def read_assigned_ends(self, partitions: tuple[str, ...]) -> Mapping[str, int]:
        """See `Remembers.read_assigned_ends`."""
        return self.index.given(partitions)

    def assign_offsets(self, partitions: tuple[str, ...]) -> Mapping[str, int]:
        """See `Source.assign_offsets`."""
        return self.index.extend(partitions, self.find_new)

    def explain_lost(self, partition: str, end: int) -> str:  # noqa: ARG002
        """See `Remembers.explain_lost`."""
        return (
            f"the index has given {end} offsets: an older one was restored, or it was lost. Bring its index back. "
            f"{explain_without_copy(self.index.location.rpartition('/')[0])}"
        )

    def explain_unreadable(self, partition: str) -> str:
        """See `WaitsAlone.explain_unreadable`."""
        ((_, files),) = self._list_rested({partition: frozenset()})
        if isinstance(files, OSError):
            return listing.explain_blind(files)
        begun = self.index.given((partition,))[partition]
        return (
            "" if begun else explain_moved(self.landing.place, find_moved(self.index, self.landing, {partition: files}))
        )

    @property
    def skips_existing(self) -> bool:
        """See `Source.skips_existing`."""
        return self.declared.start == "latest"

    def choose_starts(self, ends: Mapping[str, int], later: Container[str] = ()) -> Mapping[str, int]:
        """See `Source.choose_starts`: as declared. `latest` holds for folders that are there at first."""
        start = self.declared.start
        if isinstance(start, int):
            return dict.fromkeys(ends, start)
        return {p: end if self.skips_existing and p not in later else 0 for p, end in ends.items()}

    def plan_jobs(self, starts: Mapping[str, int], latest: Mapping[str, int]) -> tuple[Ranges, ...]:
        """See `Source.plan_jobs`."""
        room = min(self.declared.max_files, self.declared.max_job_files)
        unread = {p: (at, min(latest[p], at + room)) for p, at in starts.items()}
        files = self.index.files(unread)
        return fitting.fit_jobs(
            self.declared, ((p, at, [one.size for one in files[p][at:end]]) for p, (at, end) in unread.items())
        )

    def find_broken(self, ranges: Ranges) -> Mapping[str, RotaError]:
        """See `Source.find_broken`."""
        files = self.index.files(ranges)
        look = self.landing.look(file for p, (start, end) in ranges.items() for file in files[p][start:end])
        errors = {p: self._find_error(p, files[p], start, end, look) for p, (start, end) in ranges.items()}
        return {p: error for p, error in errors.items() if error}

    def list_names(self, spans: Spans) -> Iterator[tuple[str, int, str]]:
        """See `Named.list_names`: paths below the landing folder."""
        return ((p, offset, file.path) for p, offset, file in self._list_files(spans))

    def _list_files(self, spans: Spans) -> Iterator[tuple[str, int, LandedFile]]:
        """Partition, offset and file of what the index has in the spans."""
        files = self.index.files({p: (of[0][0], of[-1][1]) for p, of in spans.items() if of})
        for p, of in spans.items():
            for start, end in of:
                yield from ((p, o, file) for o, file in enumerate(files[p][start:end], start))

    def find_rewritten(self, spans: Spans) -> Mapping[str, tuple[int, ...]]:
        """See `ChangesInPlace.find_rewritten`."""
        there = list(self._list_files(spans))
        look = self.tidier.look((file for *_, file in there), archived=False)
        changed = [(p, offset) for p, offset, file in there if look(file) != file]
        return {p: tuple(offset for q, offset in changed if q == p) for p in spans}

    def explain_unsettled(self, partition: str, offsets: Iterable[int]) -> str:
        """See `ChangesInPlace.explain_unsettled`: files that no rename moved and that did not rest."""
        files = self.index.files((partition,))[partition]
        ((_, listed),) = self._list_rested({partition: frozenset()})
        if isinstance(listed, OSError):
            raise listed
        rested = {file.path for file in listed}
        moved = {o: files[o] for o in offsets if o < len(files) and files[o].path not in rested}
        look = self.landing.look(moved.values())
        now = {o: look(file) for o, file in moved.items()}
        moving = ", ".join(files[o].path for o, file in now.items() if file and file.size != NO_FILE)
        return f"{moving} changed less than {self.declared.settle:g} s ago" if moving else ""

    @property
    def tidier(self) -> Tidier:
        """What does with consumed files as declared."""
        return Tidier(self.landing, self.declared.after)

    @property
    def tidies(self) -> bool:
        """See `TidiesUp.tidies`."""
        return self.declared.after != "keep"

    @property
    def index_id(self) -> str:
        """See `TidiesUp.index_id`."""
        return self.index.id

    def claim(self) -> None:
        """See `TidiesUp.claim`. A folder that cannot be written keeps its files: nothing is taken away without the mark."""
        try:
            self._claim()
        except OSError as error:
            log.warning("landing=%s not_claimed=%s", self.landing.place, error)

    def _claim(self) -> None:
        if self.tidies:
            owner.claim(self.landing, self.index_id, self.index.location.rpartition("/")[0])

    def tidy(self, consumed: Spans) -> Tidied:
        """See `TidiesUp.tidy`: by `after` of the declaration."""
        try:
            self._claim()
        except (OSError, RotaError) as error:
            log.warning("landing=%s not_taken_away=%s", self.landing.place, error)
            return Tidied(stays=(f"Consumed files of {self.landing.place} stay: {error}",))
        return self.tidier.tidy(
            (names.folder(key_of(p)), (file for _, _, file in self._list_files({p: of}))) for p, of in consumed.items()
        )

    def keep_identities(self, partitions: tuple[str, ...]) -> None:
        """See `ChangesInPlace.keep_identities`."""
        self.index.keep(partitions)

    def reread(self, ranges: Ranges) -> Self:
        """See `Replays.reread`: the files of the ranges have the size and time of now."""
        files = self.index.files(ranges)
        look = self.tidier.look(file for p, (start, end) in ranges.items() for file in files[p][start:end])
        now = {p: {o: look(f) for o, f in enumerate(files[p][a:b], a)} for p, (a, b) in ranges.items()}
        return replace(self, index=replace(self.index, renewed=now), messages=listing.AGAIN, reading={})

    @contextmanager
    def read(self, spark: "SparkSession", ranges: Ranges, attempt: str) -> Iterator[Records]:
        """See `SparkSource.read`."""
        self.reading.update(files := self.index.files(ranges))
        placed = [(p, o, f) for p, (start, end) in ranges.items() for o, f in enumerate(files[p][start:end], start)]
        landed = [self.landing.find(file) for *_, file in placed]
        try:
            with self.landing.show(attempt, files, ranges) as shown:
                self._refuse(lambda file, _: staging.explain_misnamed(file), files, ranges)
                if self.declared.format != "parquet":
                    yield self._read_text(spark, shown, landed, lambda explain: self._refuse(explain, files, ranges))
                else:  # the count of its records shows what Spark does not see
                    of = {file.path: (p, o, one) for (p, o, file), one in zip(placed, landed, strict=True)}
                    refuse = partial(self._refuse, files=files, ranges=ranges)
                    yield parquet_reading.read(spark, shown, self.declared, of, self.read_columns, refuse)
        finally:
            self.reading.clear()

    def _read_text(
        self, spark: "SparkSession", shown: Shown, landed: Sequence[LandedBytes], refuse: Callable[[Refuse], None]
    ) -> Records:
        """The good ones of as many records as the bytes have, by Spark's reader. In doubt, and once more if a record is bad,
        each line is parsed as a value, as a message is."""
        form, given, schema = self.declared.format, self.declared.options, self.declared.schema
        explain = partial(lines.explain_bad, form, options=given)

        def identify(frame: "DataFrame") -> "DataFrame":
            return values.merge_names(shown.identify(frame), schema, form)

        def mark() -> "DataFrame":
            shown.check_seen(spark)
            return text_lines.parse(shown.load_text(spark, landed, text_lines.find_ends(given), False), self.declared)

        if is_multiline(given):
            refuse(lambda file, _: texts.explain_archive(file) or texts.explain_ill(file, form, given))
            shown.check_seen(spark)
            frame = shown.load(spark, self.declared, self.options, f"{CORRUPT} string, ")
            if form == "json":
                whole = shown.load_text(spark, landed, text_lines.find_ends(given), True)
                text_lines.check_one_value(whole, self.declared, self.locate, self.messages[3])
            return Records(frame, explain, identify=identify)
        with ThreadPoolExecutor(1) as pool:
            counting = pool.submit(texts.count_most, landed, form, given)
            good = shown.load(spark, self.declared, self.options | GOOD_ALONE)
            _ = good.schema  # meanwhile Spark lists the files
        if (most := counting.result()) is not None:
            return Records(good, explain, None, most, mark, identify, shown.named)
        refuse(lambda file, _: texts.explain_archive(file))
        return Records(mark(), explain, identify=columns.keep_ids)

    def rename_pipeline(self, old: str, number: int) -> None:
        """See `FollowsRename.rename_pipeline`."""
        self.index.rename(old, self.name, number)

    def locate(self, partition: str, offset: int) -> str:
        """The file's path below the landing folder."""
        return self._find_path(partition, offset) or "a file that the index knows no more"

    def _find_path(self, partition: str, offset: int) -> str | None:
        file = self._find_file(partition, offset)
        return file.path if file else None

    def _find_file(self, partition: str, offset: int) -> LandedFile | None:
        files = self.reading.get(partition) or self.index.files({partition: (offset, offset + 1)})[partition]
        return files[offset] if offset < len(files) else None

    def translate(self, text: str) -> str:
        """See `Translates.translate`: the landed file instead of our link to it."""
        return headers.explain_misfit(staging.replace_links(text, self._find_path), self.landing, self.declared)

    def read_records(self, partition: str, offset: int) -> Iterator[str]:
        """See `HoldsSeveral.read_records`: the lines of the file."""
        file = self._find_file(partition, offset)
        if file is None or is_multiline(self.declared.options):
            return iter(())
        return texts.read_lines(self.landing.find(file), find_encoding(self.declared.options) or "utf-8")

    def find_new(self, known: Mapping[str, frozenset[str]]) -> Iterator[dict[str, list[LandedFile]]]:
        """The files of each partition that are not among the known ones, of some partitions after the other. What cannot be
        looked at, and only that, is left out; so is a folder that was renamed, before its first file has an ordinal."""
        for listed in map(dict, take_portions(self._list_rested(known), PORTION, count_files)):
            found = {p: files for p, files in listed.items() if not isinstance(files, OSError)}
            if len(found) < len(listed):
                self.list_keys()  # raises where it is not a partition's own fault
            new = {p: files for p, files in found.items() if not known[p]}
            out = {one.partition for one in find_moved(self.index, self.landing, new)}
            yield {p: files for p, files in found.items() if p not in out}

    def _list_rested(self, known: Mapping[str, frozenset[str]]) -> Iterator[Rested]:
        """The files of each partition that rested for `settle` seconds, without the known ones, by name; or why it cannot be
        listed."""
        whose, nowhere = names.find_folders({p: key_of(p) for p in known})
        yield from nowhere.items()
        paths = {folder: known[p] for folder, p in whose.items()}
        now, left = self.clock(), list[float]()
        for folder, found in self.landing.list_rested(paths, self.declared.settle, now, left):
            yield whose[folder], found if isinstance(found, OSError) else sorted(found)
        self.resting.extend(now + one for one in left)

    def _find_error(
        self, partition: str, files: Sequence[LandedFile], start: int, end: int, look: Look
    ) -> RotaError | None:
        try:
            what, step, heals = self._explain_change(files, start, end, look)
        except OSError as error:
            self.list_keys()  # raises where it is not the partition's own fault
            return EnvironmentFailed(listing.explain_blind(error))
        step = step.format(p=quote(partition))
        return SourceChanged(f"{partition}: {what}", step=step, partition=partition, heals=heals) if what else None

    def _explain_change(self, files: Sequence[LandedFile], start: int, end: int, look: Look) -> tuple[str, str, bool]:
        """What became of the first of these files that is not what it was, what to do, and whether it may be so again; empty
        if nothing. Raises OSError."""
        if end > len(files):
            why, way = self.messages[2]
            return f"the index has {len(files)} files and offset {end} was asked for: {why}", way, False
        for offset, file in enumerate(files[start:end], start):
            now = look(file)
            if now is None and self.landing.is_away():
                raise EnvironmentFailed(
                    f"The landing folder {self.landing.place} is not there, or empty. Mount it; no partition is parked"
                )
            if now and now.size == NO_FILE:
                way = f"Bring the file back, {self.messages[3]}"
                return f"{file.path} (offset {offset}) is no regular file any more", way, False
            if now != file:
                why, way = self.messages[1] if now else self.messages[0]
                if now is None and (taken := self.tidier.explain_taken(file, again=self.messages is listing.AGAIN))[0]:
                    why, way = taken[0], f"{taken[1]}, {self.messages[3]}"
                return f"{file.path} (offset {offset}) {why}", way, now is None
        return "", "", False

    def _refuse(self, explain: Refuse, files: Mapping[str, Sequence[LandedFile]], ranges: Ranges) -> None:
        """Raise SourceChanged for the first file for which `explain` returns why Spark must not read it."""
        for partition, (start, end) in ranges.items():
            for file in files[partition][start:end]:
                if why := explain(self.landing.find(file), file.path):
                    raise SourceChanged(f"{file.path} {why}", partition=partition)
