"""The checks tell a stale commit and a gap from ordinary life, and what needs a person from what heals itself."""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from rota.coordination.records import Checkpoint, Live, Parked
from rota.coordination.store import Node
from rota.coordination.views import OwnView, Read
from rota.core.values import Worker
from rota.dagster.assets import checks, page_keys
from rota.dagster.assets.names import Names
from rota.dagster.assets.pipeline_checks import Memory, load_memory
from rota.face import needs
from rota.face.health import find_gaps, find_stale
from rota.face.needs import find_needs
from rota.face.seen import Seen
from rota.pipeline import Pipeline, delta, files
from rota.run.eligibility import Facts

W1 = "w1@0000000000000001"


@dataclass(frozen=True)
class Commit:
    version: int
    ranges: dict[str, tuple[int, int]]
    tokens: dict[str, int] = field(default_factory=dict)
    op: str = "commit"


ORDINARY = [
    Commit(3, {"p": (4, 9)}, {"p": 12}),
    Commit(2, {"p": (0, 4), "q": (0, 1)}, {"p": 12, "q": 10}),
    Commit(4, {"p": (0, 2)}, {}, op="replay"),
    Commit(5, {"q": (1, 2)}, {"q": 15}),
    Commit(6, {"q": (2, 3)}, {"q": 15}, op="skip"),
    Commit(7, {"q": (3, 4)}, {"q": 15}),
]


def test_ordinary_life_is_neither_stale_nor_has_gaps() -> None:
    assert not find_stale(ORDINARY)
    assert not find_gaps(ORDINARY)


def test_a_commit_of_an_older_token_is_stale_at_any_place_of_the_answer() -> None:
    zombie = Commit(8, {"q": (2, 3)}, {"q": 11})
    assert find_stale([zombie, *ORDINARY]) == {"q": "version 8 has token 11, version 7 had 15"}
    assert find_stale([*ORDINARY, zombie]) == find_stale([zombie, *ORDINARY])


def test_a_lost_and_a_doubled_range_are_gaps() -> None:
    lost, doubled = Commit(8, {"p": (10, 11)}), Commit(8, {"p": (4, 9)})
    assert find_gaps([*ORDINARY, lost]) == {"p": "version 8 starts at 10, the one before ended at 9"}
    assert find_gaps([*ORDINARY, doubled]) == {"p": "version 8 starts at 4, the one before ended at 9"}


FACTS = Facts(
    partitions=("p:a",),
    owns={"p:a": OwnView(W1, 1, 7)},
    epoch=1,
    targets={"w1": frozenset({"p:a"})},
    lives={W1: Live()},
    now=1000.0,
    checkpoints={"p:a": Read(Checkpoint(offset=5, token=7, run_id="r"), Node(b"", 0, 1, 1, 0))},
)
PIPELINE = Pipeline(files("${LANDING}", format="json", schema="n int"), delta("t"), name="p")


def evaluate(**changes: object) -> dict[str, tuple[bool, str, object]]:
    """Check -> whether it passes, its severity, and what an alert is made from, of a group with these changes."""
    seen = Seen("default", 1000.0, replace(FACTS, **changes), workers=(Worker("w1", W1),))  # type: ignore[arg-type]
    said = checks.evaluate_needs(find_needs(seen)[0], PIPELINE, Names(), 1)
    needs = {one.check_name: one.metadata.get(page_keys.NEEDS) for one in said}
    return {one.check_name: (one.passed, one.severity.value, (n := needs[one.check_name]) and n.value) for one in said}


def test_every_cause_has_its_check_and_a_well_group_fails_none() -> None:
    known = {cause for causes in checks.CAUSES.values() for cause in causes}
    written = set(
        re.findall(r'Finding\("(?:partition|pipeline)", [^,]+, "([a-z ]+)"', Path(needs.__file__).read_text())
    )
    assert written - known <= {"record", "unserved"}, "they are of the group"
    specs = checks.list_checks(PIPELINE, Names())
    assert {spec.name for spec in specs} == {*checks.CAUSES, checks.GROUP}
    assert all(passed for passed, *_ in evaluate().values())


def test_what_needs_a_person_is_an_error_and_what_is_tried_again_is_a_warning() -> None:
    """A partition that was tried again for ever was amber for ever."""
    park = Parked(reason="the disk is full", since=990.0, retry_at=1010.0)
    assert evaluate(parked={"p:a": park})["none_parked"] == (False, "WARN", None)
    again = park.model_copy(update={"failures": 3})
    passed, severity, reported = evaluate(parked={"p:a": again})["none_parked"]
    assert (passed, severity) == (False, "ERROR")
    assert isinstance(reported, list)
    assert [(one["name"], one["cause"]) for one in reported] == [("p:a", "parked")]
    assert evaluate(parked={"p:a": park.model_copy(update={"person": True})})["none_parked"][1] == "ERROR"


def test_a_memory_outlives_its_sensor_and_a_strange_one_is_forgotten() -> None:
    memory = Memory(7, {"p:a": "why"}, {}, {"p:b": 1.5}, {"p:c": (2.5, 3, 4)})
    assert load_memory(memory.dump()) == memory
    assert load_memory(None) == load_memory('{"other": 1}') == load_memory("[]") == load_memory("{") == Memory()
