"""A record of a topic has the same fate as in a file: the table `fates`, on a real broker."""

import pytest

from tests.dataplane import fates
from tests.dataplane.fates import differ, read_fates
from tests.dataplane.kafka.topics import Worlds, commit


@pytest.mark.parametrize(
    ("schema", "more", "table"),
    [
        (fates.JSON_SCHEMA, "", fates.JSON),
        (fates.CSV_SCHEMA, ", format='csv'", fates.CSV),
        (fates.CSV_SCHEMA, ", format='csv', options={'encoding': 'Shift_JIS'}", fates.CODED["Shift_JIS"]),
    ],
    ids=["json", "csv", "another encoding"],
)
def test_the_fate_of_a_record_of_a_topic(schema: str, more: str, table: fates.Fates, worlds: Worlds) -> None:
    world, records = worlds.make(1, schema=schema, more=more), list(table)
    worlds.broker.produce(worlds.topic, 0, records)
    world.give("0")
    commit(world, "0")
    assert differ(table, read_fates(world, "0", records)) == {}
