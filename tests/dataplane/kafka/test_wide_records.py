"""Records of many fields from a topic: good and bad ones, and their replay."""

import json

from rota.run.replay import ReplayedRange, replay
from tests.dataplane.conftest import log
from tests.dataplane.kafka.topics import Worlds, commit

FIELDS = 300


def test_records_of_many_fields_are_committed_and_replayed(worlds: Worlds) -> None:
    names = [f"c{n}" for n in range(FIELDS)]
    good = dict(zip(names, range(FIELDS), strict=True))
    world = worlds.make(schema=", ".join(f"{name} int" for name in names))
    worlds.broker.produce(worlds.topic, 0, [json.dumps(one).encode() for one in (good, {**good, names[-1]: "x"})])
    world.give("0")
    done = commit(world, "0")["p:0"]
    assert (done.rows, done.bad_rows) == (1, 1)
    (again,) = replay(world.tree, world.ports, {"p:0": (0, 2)}, "again")
    assert isinstance(again, ReplayedRange)
    assert (again.rows, again.bad_rows) == (1, 1)
    (row,) = log(world.table / "main").rows()
    assert {name: row[name] for name in names} == good
    bad = log(world.table / "quarantine").rows()
    assert all(names[-1] in str(one["_reason"]) for one in bad)
