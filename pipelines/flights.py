"""The flights out of New York in 2013: one folder per carrier, one file per month, into one Delta table."""

from pathlib import Path

import dagster as dg

from rota import Pipeline, delta, files
from rota.settings import expand

NAME = Path(__file__).stem  # a copy of this file is another pipeline; to rename one: docs/tables.md

# After batches, one run at a time. It misses neither a batch that comes while it runs nor one before the first tick.
# (`any_deps_updated() & ~in_progress()` misses both, and `eager()` waits for every key.)
WHEN = dg.AutomationCondition
BATCH = WHEN.any_deps_match(WHEN.newly_updated()).since(WHEN.newly_requested())
FIRST = (WHEN.missing() & WHEN.any_deps_match(~WHEN.missing())).newly_true()


def transform(flights):
    """Return every flight, with the minutes that it made up in the air (null if it never flew)."""
    return flights.selectExpr("*", "dep_delay - arr_delay as made_up")


pipeline = Pipeline(
    source=files(
        "${ROTA_LANDING}/flights",
        format="csv",
        schema="""year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int,
            sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string, dest string,
            air_time int, distance int, hour int, minute int, time_hour timestamp""",
        options={"header": "true", "nullValue": "NA"},
    ),
    table=delta("${ROTA_TABLES}/" + NAME),
    transform=transform,
)


# Yours to change or delete: the pipeline does not need it.
@dg.asset(
    key=[NAME, "delays"],
    deps=[[NAME, "records"]],
    group_name=NAME,
    automation_condition=(BATCH | FIRST) & ~WHEN.in_progress(),
    kinds={"pandas"},
    owners=["team:default"],
)
def delays() -> dg.MaterializeResult:
    """The average delay of each carrier: plain pandas reads the table after every batch."""
    from deltalake import DeltaTable

    table = DeltaTable(expand(pipeline.table.path) + "/main")
    flights = table.to_pandas(columns=["carrier", "dep_delay"])
    late = flights.groupby("carrier")["dep_delay"].mean().round(1).sort_values(ascending=False)
    return dg.MaterializeResult(
        metadata={
            "flights": len(flights),
            "table version": table.version(),
            "minutes late": dg.MetadataValue.md(late.to_frame().to_markdown()),
        }
    )
