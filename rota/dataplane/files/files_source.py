"""Landing folders as a source: a folder is a partition, and an offset is the ordinal of a file in the index.

Laws:
1. No file is lost if names come late or out of order, or if a file is half-written when it is listed first. The index
   gives a file its ordinal once the file has settled, and the file is read only while it is the same file.
2. If a folder cannot be listed, or the state of a file cannot be read, only its own partition waits.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar, cast

from rota.dataplane import names
from rota.dataplane.files import avro_reading, fitting, headers, listing, owner, parquet_reading, text_lines, texts
from rota.dataplane.files.after import Tidier
from rota.dataplane.files.file_index import FileIndex, LandedFile, explain_without_copy
from rota.dataplane.files.landing import NO_FILE, PORTION, LandedBytes, Landing, Refuse, Rested, count_files
from rota.dataplane.files.listed import Listed, explain_unlisted, shorten
from rota.dataplane.files.moved import explain_moved, find_moved
from rota.dataplane.files.opening import open_landing
from rota.dataplane.formats import lines, values
from rota.dataplane.formats.options import GOOD_ALONE, check_options, find_encoding, is_multiline, make_options
from rota.dataplane.ports import ENDS, Observation, Query, SourceContext, SourceFile, Tidied
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

    `messages`: the reasons why a file cannot be read, with the next steps. `read_columns` returns the table's columns.
    `reading`: the files of the ranges that a job reads now.
    """

    name: str
    landing: Landing
    declared: Files
    index: FileIndex
    clock: Callable[[], float] = time.time
    messages: listing.ChangeMessages = listing.LIVE
    read_columns: Callable[[], str | None] = lambda: None
    reading: dict[str, Sequence[LandedFile]] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        check_options(self.declared.options, f"files({self.declared.path!r})")

    @classmethod
    def of(cls, pipeline: Pipeline, context: SourceContext) -> "FilesSource":
        """Return the source that the pipeline declares, with the environment's variables filled in."""
        declared, index = cast(Files, pipeline.source), context.held.get(FileIndex.at, join(context.location, "index"))
        landing = open_landing(declared.path)
        return cls(pipeline.name, landing, declared, index, read_columns=context.read_columns)

    @property
    def options(self) -> dict[str, str]:
        """The options of Spark's reader."""
        return make_options(self.declared.format, self.declared.options)

    def list_keys(self) -> tuple[str, ...]:
        """See `Source.list_keys`: the folders below the root whose partition ids are not too long."""
        names_found = self._list(lambda: sorted(map(names.key, self.landing.list_folders())))
        return tuple(k for k in names_found if is_partition(partition_id(self.name, k)))

    def _list_ignored(self) -> Mapping[str, str]:
        """Return what is never read, by path below the landing folder."""
        found = self._list(lambda: sorted(self.landing.list_ignored()))
        folders = self._list(lambda: sorted(self.landing.list_folders()))
        long = {f: listing.TOO_LONG for f in folders if not is_partition(partition_id(self.name, names.key(f)))}
        return dict(found) | long

    def _list(self, look: "Callable[[], list[T]]") -> "list[T]":
        """Call `look`. Raise EnvironmentFailed if the landing folder cannot be listed."""
        try:
            return look()
        except OSError as error:
            what = f"{self.landing.place} cannot be listed ({error}). Check the folder's rights"
            raise EnvironmentFailed(what) from error

    def observe(self, partitions: tuple[str, ...], query: Query = ENDS) -> Observation:
        """See `Source.observe`."""
        place, ignored = (self.landing.find_place(), self._list_ignored()) if query.inspect else ("", {})
        if query.inspect and self.declared.format == "avro":
            avro_reading.parse_reader(self.declared)
        assigned = self.index.given(partitions) if query.consumed.positions else {}
        lost = {p: self._explain_lost(assigned[p]) for p in query.consumed.find_beyond(assigned)}
        asked, young = tuple(p for p in partitions if p not in lost), list[float]()
        now = self.clock() + min(query.ahead, self.declared.settle / 2)  # at more, a growing file would seem settled
        find_new = partial(self._find_new, now=now, young=young)
        if not query.assign:
            counts, ends = self.index.latest(asked, find_new)
            assigned = {**assigned, **counts}
        elif self.index.renewed:
            self.index.keep(asked)
            ends = assigned = self.index.given(asked)
        else:
            ends = assigned = self.index.extend(asked, find_new)
            self._claim()
        return Observation(
            ends=ends,
            unreadable={p: self._explain_unreadable(p) for p in asked if p not in ends},
            starts=query.choose_starts(self.declared.start, ends),
            assigned=assigned,
            lost=lost,
            ready_in=tuple(young),
            index=self.index.id,
            place=place,
            ignored=ignored,
        )

    def _explain_lost(self, end: int) -> str:
        return (
            f"the index has given {end} offsets: an older one was restored, or it was lost. Bring its index back. "
            f"{explain_without_copy(self.index.location.rpartition('/')[0])}"
        )

    def _explain_unreadable(self, partition: str) -> str:
        """Return why the partition cannot be read, with the next step; empty if it can be read again."""
        ((_, files),) = self._list_rested({partition: frozenset()}, self.clock(), [])
        if isinstance(files, OSError):
            return listing.explain_blind(files)
        begun = self.index.given((partition,))[partition]
        return (
            "" if begun else explain_moved(self.landing.place, find_moved(self.index, self.landing, {partition: files}))
        )

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

    def list_files(self, spans: Spans, *, compare: bool = False) -> Iterator[SourceFile]:
        """See `HasFiles.list_files`: paths below the landing folder."""
        if not compare:
            yield from (SourceFile(p, offset, file.path) for p, offset, file in self._list_files(spans))
            return
        there = list(self._list_files(spans))
        look = self.tidier.look((file for *_, file in there), archived=False)
        rested = {p: self._list_rested_paths(p) for p in {p for p, _, file in there if look(file) != file}}
        for p, offset, file in there:
            now = look(file)
            young = now.size != NO_FILE and file.path not in rested.get(p, ())
            yield SourceFile(p, offset, file.path, "same" if now == file else "changing" if young else "changed")

    def _list_rested_paths(self, partition: str) -> frozenset[str]:
        """Return the paths of the files that rested; none if the partition cannot be listed."""
        ((_, files),) = self._list_rested({partition: frozenset()}, self.clock(), [])
        return frozenset() if isinstance(files, OSError) else frozenset(file.path for file in files)

    def _list_files(self, spans: Spans) -> Iterator[tuple[str, int, LandedFile]]:
        """Yield partition, offset and file of each entry of the index in the spans."""
        files = self.index.files({p: (of[0][0], of[-1][1]) for p, of in spans.items() if of})
        for p, of in spans.items():
            for start, end in of:
                yield from ((p, o, file) for o, file in enumerate(files[p][start:end], start))

    @property
    def tidier(self) -> Tidier:
        """Takes consumed files away as declared."""
        return Tidier(self.landing, self.declared.after)

    def _claim(self) -> None:
        """Claim the landing folder for this index, if consumed files are taken away.

        If the mark cannot be written, files stay: no file is taken away without the mark. Raises ForeignTable,
        EnvironmentFailed.
        """
        try:
            self._mark()
        except OSError as error:
            log.warning("landing=%s not_claimed=%s", self.landing.place, error)

    def _mark(self) -> None:
        if self.declared.after != "keep":
            owner.claim(self.landing, self.index.id, self.index.location.rpartition("/")[0])

    def tidy(self, find_consumed: Callable[[str], Spans]) -> Tidied:
        """See `HasFiles.tidy`: by `after` of the declaration."""
        if self.declared.after == "keep":
            return Tidied()
        self.index.given(())  # reads the id of the index again
        consumed = find_consumed(self.index.id)
        try:
            self._mark()
        except (OSError, RotaError) as error:
            log.warning("landing=%s not_taken_away=%s", self.landing.place, error)
            return Tidied(stays=(f"Consumed files of {self.landing.place} stay: {error}",))
        return self.tidier.tidy(
            (names.folder(key_of(p)), (file for _, _, file in self._list_files({p: of}))) for p, of in consumed.items()
        )

    def reread(self, ranges: Ranges) -> Self:
        """See `Replays.reread`: the files of the ranges get their present size and time."""
        files = self.index.files(ranges)
        look = self.tidier.look(file for p, (start, end) in ranges.items() for file in files[p][start:end])
        now = {p: {o: look(f) for o, f in enumerate(files[p][a:b], a)} for p, (a, b) in ranges.items()}
        return replace(self, index=replace(self.index, renewed=now), messages=listing.AGAIN, reading={})

    @contextmanager
    def read(self, spark: "SparkSession", ranges: Ranges, attempt: str) -> Iterator[Records]:
        """See `SparkSource.read`."""
        del attempt
        self.reading.update(files := self.index.files(ranges))
        placed = [(p, o, f) for p, (start, end) in ranges.items() for o, f in enumerate(files[p][start:end], start)]
        landed = [self.landing.find(file) for *_, file in placed]
        listed = Listed.of(self.landing.spark_place, files, ranges)
        refuse = partial(self._refuse, files=files, ranges=ranges)
        try:
            refuse(lambda file, path: explain_unlisted(listed.place, path) or texts.explain_misnamed(file))
            both = zip(placed, landed, strict=True)
            if self.declared.format == "parquet":  # the footers have a count, which reveals files that Spark misses
                of = {file.path: (p, o, one) for (p, o, file), one in both}
                yield parquet_reading.read(spark, listed, self.declared, of, self.read_columns, refuse)
            elif self.declared.format == "avro":
                sized = {file.path: (p, o, file.size, one) for (p, o, file), one in both}
                with avro_reading.read(spark, self.landing, self.declared, sized, refuse) as records:
                    yield records
            else:
                yield replace(self._read_text(spark, listed, landed, refuse), list_raw=self.list_raw)
        finally:
            self.reading.clear()

    def _read_text(
        self, spark: "SparkSession", listed: Listed, landed: Sequence[LandedBytes], refuse: Callable[[Refuse], None]
    ) -> Records:
        """Let Spark's reader return the good records, and count from the bytes how many there can be. In doubt, and again
        if a record is bad, each line is parsed as a value, like a message."""
        form, given, schema = self.declared.format, self.declared.options, self.declared.schema
        explain = partial(lines.explain_bad, form, options=given)

        def identify(frame: "DataFrame") -> "DataFrame":
            return values.merge_names(listed.identify(frame), schema, form)

        def mark() -> "DataFrame":
            listed.check_seen(spark)
            return text_lines.parse(listed.load_text(spark, text_lines.find_ends(given), False), self.declared)

        if is_multiline(given):
            refuse(lambda file, _: texts.explain_archive(file) or texts.explain_ill(file, form, given))
            listed.check_seen(spark)
            frame = listed.load(spark, self.declared, self.options, f"{CORRUPT} string, ")
            if form == "json":
                whole = listed.load_text(spark, text_lines.find_ends(given), True)
                text_lines.check_one_value(whole, self.declared, self.locate, self.messages[3])
            return Records(frame, explain, identify=identify)
        with ThreadPoolExecutor(1) as pool:
            counting = pool.submit(texts.count_most, landed, form, given)
            good = listed.load(spark, self.declared, self.options | GOOD_ALONE)
        if (most := counting.result()) is not None:
            return Records(good, explain, None, most, mark, identify, listed.named)
        refuse(lambda file, _: texts.explain_archive(file))
        return Records(mark(), explain)

    def locate(self, partition: str, offset: int) -> str:
        """Return the file's path below the landing folder."""
        file = self._find_file(partition, offset)
        return file.path if file else "a file that the index knows no more"

    def _find_file(self, partition: str, offset: int) -> LandedFile | None:
        files = self.reading.get(partition) or self.index.files({partition: (offset, offset + 1)})[partition]
        return files[offset] if offset < len(files) else None

    def translate(self, text: str) -> str:
        """See `Translates.translate`: names a landed file by its path below the landing folder."""
        return headers.explain_misfit(shorten(text, self.landing.spark_place), self.landing, self.declared)

    def list_raw(self, partition: str, offset: int) -> Iterator[str]:
        """See `Records.list_raw`: the lines of the file."""
        file = self._find_file(partition, offset)
        if file is None or is_multiline(self.declared.options):
            return iter(())
        return texts.read_lines(self.landing.find(file), find_encoding(self.declared.options) or "utf-8")

    def _find_new(
        self, known: Mapping[str, frozenset[str]], now: float, young: list[float]
    ) -> Iterator[dict[str, list[LandedFile]]]:
        """Yield the files of each partition that are not among the known ones, for some partitions at a time.

        A partition that cannot be listed is left out, and so is a folder that was renamed before its first file had an
        offset. `young` receives the seconds until each other new file has settled.
        """
        for listed in map(dict, take_portions(self._list_rested(known, now, young), PORTION, count_files)):
            found = {p: files for p, files in listed.items() if not isinstance(files, OSError)}
            if len(found) < len(listed):
                self.list_keys()  # raises if the whole landing folder cannot be listed
            new = {p: files for p, files in found.items() if not known[p]}
            out = {one.partition for one in find_moved(self.index, self.landing, new)}
            yield {p: files for p, files in found.items() if p not in out}

    def _list_rested(self, known: Mapping[str, frozenset[str]], now: float, young: list[float]) -> Iterator[Rested]:
        """Yield each partition with its settled files, without the known ones, sorted by name; or with the error of its
        listing."""
        whose, nowhere = names.find_folders({p: key_of(p) for p in known})
        yield from nowhere.items()
        paths = {folder: known[p] for folder, p in whose.items()}
        for folder, found in self.landing.list_rested(paths, self.declared.settle, now, young):
            yield whose[folder], found if isinstance(found, OSError) else sorted(found)

    def _find_error(
        self, partition: str, files: Sequence[LandedFile], start: int, end: int, look: Look
    ) -> RotaError | None:
        try:
            what, step, heals = self._explain_change(files, start, end, look)
        except OSError as error:
            self.list_keys()  # raises if the whole landing folder cannot be listed
            return EnvironmentFailed(listing.explain_blind(error))
        step = step.format(p=quote(partition))
        return SourceChanged(f"{partition}: {what}", step=step, partition=partition, heals=heals) if what else None

    def _explain_change(self, files: Sequence[LandedFile], start: int, end: int, look: Look) -> tuple[str, str, bool]:
        """Return what happened to the first of these files that changed, the next step, and whether the change may heal by
        itself; empty if no file changed. Raises OSError."""
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
