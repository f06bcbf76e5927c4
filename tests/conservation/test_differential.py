"""Every record of random files is in exactly one of the two tables, whatever it is."""

from itertools import chain

import pytest
from pyspark.sql import SparkSession

from rota.local.bucket import BucketServer
from tests.conservation import play, transforms
from tests.conservation.case import STORES
from tests.conservation.engines import ENGINES
from tests.conservation.generate import STOPS, draw_case
from tests.conservation.many import Many
from tests.conservation.shape import FLAT, NESTED

SCHEMAS, FILES, RECORDS = 100, 2_000, 400_000
HALVES = tuple(range(first, first + SCHEMAS // 2) for first in (0, SCHEMAS // 2))  # two processes may play them at once
FORMATS = {"csv": set(FLAT), "json": {*FLAT, *NESTED} - {"byte"}, "parquet": {*FLAT, *NESTED}}
EVERY = {  # what the schemas must have been drawn of
    *(f"type: {format} {kind}" for format, kinds in FORMATS.items() for kind in kinds),
    *(f"odd value: {format} {kind}" for format in ("csv", "json") for kind in FORMATS[format]),
    *(f"engine: {format} {engine}" for format in FORMATS for engine in ENGINES),
    *(f"store: {format} {store}" for format in FORMATS for store in STORES),
    *(f"stop: {format} {what}" for format, what in STOPS),
    *(f"transform: {kind}" for kind in transforms.KINDS),
    *(f"option: {name}=true" for name in ("header", "multiLine")),
    *(f"compression: {kind}" for kind in ("gz", "bz2", "parquet snappy", "parquet gzip", "parquet zstd")),
    *(f"hurt: {what}" for what in ("half a line", "no UTF-8", "blank lines")),
    *(f"fields: {what}" for what in ("too few", "one more", "many")),
    *(f"{what}: {format}" for what in ("byte order mark", "huge") for format in ("csv", "json")),
    *(f"line end: {end!r}" for end in ("\n", "\r\n")),
    f"scar: {chr(0)!r}",
    "parquet: no bytes",
}


@pytest.fixture(scope="module", params=HALVES, ids=lambda half: f"cases {half.start} to {half.stop - 1}")
def played(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    endpoint: str,
    spark: SparkSession,
    buckets: BucketServer,
) -> Many:
    """Half of the cases, each played and judged."""
    found, folder = Many(), tmp_path_factory.mktemp("cases")
    for number in request.param:
        one = draw_case(0, number)
        found.add(one, play.judge_case(one, folder / str(number), endpoint, spark, buckets))
    return found


def test_every_record_is_in_exactly_one_table(played: Many) -> None:
    """A case that fails: `python -m tests.conservation --first <its number> --schemas 1` makes it small."""
    assert not {whence: one.faults[:2] for whence, one in played.failed.items()}


def test_there_are_enough_files(played: Many) -> None:
    assert played.files >= FILES / len(HALVES)


def test_there_are_enough_records(played: Many) -> None:
    assert played.records.total() >= RECORDS / len(HALVES)


def test_the_cases_are_drawn_of_everything() -> None:
    numbers = list(chain(*HALVES))
    assert numbers == list(range(SCHEMAS))
    assert not EVERY.difference(*(draw_case(0, number).drawn for number in numbers))


def test_the_same_number_makes_the_same_bytes() -> None:
    for number in range(5):
        assert draw_case(3, number).files == draw_case(3, number).files
    assert draw_case(3, 1).files != draw_case(4, 1).files
