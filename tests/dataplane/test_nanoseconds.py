"""Times of nanoseconds in Parquet files, as pandas writes them by default: `nanoseconds="truncate"`."""

import io
from datetime import UTC, datetime, timedelta

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rota.errors import ConfigError
from rota.pipeline import files
from tests.dataplane.conftest import log
from tests.dataplane.world import World

TIMES = [0, 1, 999, 1000, -1, -999, -1000, -1001, None, 2**63 - 1, 1 - 2**63]  # nanoseconds since 1970
SIZES = {"ns": 1, "us": 1_000, "ms": 1_000_000}
TEXT = """
pipeline = Pipeline(
    source=source(
        format='parquet', schema='n int, At timestamp, `lo``cal` timestamp_ntz, deep array<timestamp>',
        nanoseconds='truncate', options={'mergeSchema': 'true'},
    ),
    table=delta({table!r}), transform=TRANSFORM,
)
"""


def make_file(unit: str, deep: bool = False) -> bytes:
    values = [n and n // SIZES[unit] for n in TIMES]
    columns = {
        "n": pa.array(range(len(TIMES)), pa.int32()),
        "at": pa.array(values, pa.timestamp(unit, "UTC")),
        "lo`cal": pa.array(values, pa.timestamp(unit)),
    }
    if deep:
        columns["deep"] = pa.array([[n] for n in values], pa.list_(pa.timestamp(unit)))
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def make_by_pandas() -> bytes:
    local = pd.Series(pd.to_datetime(pd.array(TIMES, "Int64"), unit="ns"))
    rows = pd.DataFrame({"n": range(len(TIMES)), "At": local.dt.tz_localize("UTC"), "lo`cal": local})
    sink = io.BytesIO()
    rows.astype({"n": "int32"}).to_parquet(sink)
    return sink.getvalue()


def cut(nanoseconds: int | None, unit: str) -> datetime | None:
    if nanoseconds is None:
        return None
    of_file = nanoseconds // SIZES[unit] * SIZES[unit]
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=of_file // 1000)


@pytest.mark.parametrize("transform", ["None", "lambda df: df.where('n >= 0')"], ids=["plain", "with a filter"])
def test_each_time_is_cut_to_microseconds_in_a_job_of_several_units(landed: World, transform: str) -> None:
    landed.write(TEXT.replace("TRANSFORM", transform))
    landed.put("a/0.parquet", make_by_pandas())
    for number, unit in enumerate(SIZES, 1):
        landed.put(f"a/{number}.parquet", make_file(unit))
    landed.put("b/0.parquet", make_file("ns", deep=True))
    landed.give("a", "b")
    landed.until_idle("a", "b")
    ((name, one),) = landed.tree.parked().items()
    assert name == "p:b"
    assert one.record.reason.startswith("b/0.parquet has deep.element as timestamp[ns], not timestamp")
    assert "nanoseconds='truncate'" in one.record.reason
    found = {(row["_offset"], row["n"]): (row["At"], row["lo`cal"]) for row in log(landed.table / "main").rows()}
    for offset, unit in enumerate(("ns", *SIZES)):
        for n, nanoseconds in enumerate(TIMES):
            time = cut(nanoseconds, unit)
            assert found.pop((offset, n)) == (time, time and time.replace(tzinfo=None)), (unit, nanoseconds)
    assert not found


@pytest.mark.parametrize(
    "given", [{"format": "json", "nanoseconds": "truncate"}, {"format": "parquet", "nanoseconds": "cut"}]
)
def test_what_is_declared_is_checked(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="give 'refuse', or, of Parquet, 'truncate'"):
        files("/land", schema="at timestamp", **given)  # type: ignore[arg-type]
