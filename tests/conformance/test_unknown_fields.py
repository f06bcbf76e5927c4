"""A field of another build is ignored when a record is read, and is there again after each rewrite of the record."""

import json
import zlib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.coordination import alone, membership, overrides
from rota.coordination.checkpoint import Entry, carry_load, write_checkpoints
from rota.coordination.forget import forget_partitions
from rota.coordination.group_state import GroupState
from rota.coordination.levels import Levels
from rota.coordination.parking import note_refusal, park
from rota.coordination.pipeline_records import rename_pipeline
from rota.coordination.publication import Publication, publish, take_control
from rota.coordination.records import Checkpoint, Live, Refusal
from rota.coordination.repair import find_unreadable
from rota.coordination.token_base import adopt
from rota.coordination.upgrade import finalize
from rota.group.rebalance import preview
from simulator.memory_store import MemoryServer
from tests.conformance.life import Life, P

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("aé\n\0", max_size=5),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text("ab.", max_size=3), one, max_size=3),
    max_leaves=8,
)
UNKNOWN = st.dictionaries(st.from_regex(r"new_[a-z]{1,5}", fullmatch=True), JSON, min_size=1, max_size=3)
REWRITTEN = (
    "meta", "overrides", "controller", "head", "refused", "workers/w1", "partitions/flights", "assign/w1",
    f"checkpoints/{P}", f"parked/{P}",
)  # fmt: skip


def split(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The JSON of a record as it is in ZooKeeper, and what follows it."""
    if data.startswith(b"x"):
        return json.loads(zlib.decompress(data)), b""
    line, newline, rest = data.partition(b"\n")
    return json.loads(line), newline + rest


def add(tree: GroupState, name: str, fields: dict[str, Any]) -> None:
    """Write the record as a build would that has more fields."""
    path = f"{tree.paths.root}/{name}"
    node = tree.store.get(path)
    assert node is not None
    body, rest = split(node.data)
    more = {**fields, **body}
    for slot in more.get("slots", ()):
        slot.update(fields)
    line = json.dumps(more).encode()
    tree.store.set(path, zlib.compress(line) if node.data.startswith(b"x") else line + rest, -1)


def read_fields(tree: GroupState, name: str) -> dict[str, Any]:
    node = tree.store.get(f"{tree.paths.root}/{name}")
    assert node is not None
    return split(node.data)[0]


def found() -> Life:
    tree = GroupState(MemoryServer(clock=lambda: 1000.0).connect(), "default")
    tree.found()
    return Life(tree)


def rewrite_all(life: Life) -> None:
    """Every call that rewrites a record of another process, or of an earlier life."""
    tree = life.tree
    overrides.override(tree, "w1", capacity=3.0)
    overrides.pause(tree)
    overrides.pin(tree, P, "w1")
    overrides.repin(tree, {P: P})
    overrides.unpin(tree, [P])
    tree.found(assignor="hash")
    seen = tree.checkpoints([P])[P]
    done = Checkpoint(offset=2, token=life.right.token, run_id="run-1")
    assert write_checkpoints(tree, life.run, [Entry(life.right, carry_load(seen, done), seen)]) == {P: None}
    park(tree, P, "bad again")
    note_refusal(tree, Refusal(partition=P, token=1, newer=2))
    tree.grow("flights", ["BB", "CC"])
    forget_partitions(tree, ["flights:BB"])
    for targets, basis in (({P, "flights:CC"}, "a"), ({P}, "b"), ({P}, "c")):
        publish(tree, take_control(tree), Publication({"w1": frozenset(targets)}, basis=basis, members=(life.w1,)))
    membership.end_run(tree, life.run)
    adopt(tree, 10**6, {P: done})
    tree.levels = Levels(1, 2, "0.2.0")
    membership.announce(tree, life.w1, Live())
    take_control(tree)
    assert finalize(tree).level == 2


@settings(max_examples=25, deadline=None)
@given(UNKNOWN)
def test_each_rewrite_of_each_record_keeps_them(fields: dict[str, Any]) -> None:
    life = found()
    for name in REWRITTEN:
        add(life.tree, name, fields)
    before = {name: life.tree.store.get(f"{life.tree.paths.root}/{name}") for name in REWRITTEN}
    rewrite_all(life)
    for name in REWRITTEN:
        node, now = before[name], life.tree.store.get(f"{life.tree.paths.root}/{name}")
        assert node is not None
        assert now is not None
        assert now.version > node.version, f"{name} was not rewritten"
        assert fields.items() <= read_fields(life.tree, name).items(), name


@settings(max_examples=25, deadline=None)
@given(UNKNOWN)
def test_so_does_a_worker_that_decides_alone_and_a_rename(fields: dict[str, Any]) -> None:
    life = found()
    tree = life.tree
    for name in REWRITTEN:
        add(tree, name, fields)
    assert [slot for slot in read_fields(tree, "assign/w1")["slots"] if fields.items() <= slot.items()], (
        "also in a slot"
    )
    mine = tree.assigns()["w1"]
    alone.write_target(tree, life.w1, [P], mine.version, mine.record)
    assert fields.items() <= read_fields(tree, "assign/w1").items()
    membership.end_run(tree, life.run)
    rename_pipeline(tree, "flights", "planes", {P: "planes:AA"}, {"planes:AA": tree.checkpoints([P])[P].record})
    for name in ("partitions/planes", "checkpoints/planes:AA"):
        assert fields.items() <= read_fields(tree, name).items()


@settings(max_examples=25, deadline=None)
@given(UNKNOWN)
def test_every_record_with_them_is_readable_and_decides_the_same(fields: dict[str, Any]) -> None:
    life = found()
    tree = life.tree
    was = preview(tree)
    for folder in (
        "",
        "workers",
        "live",
        "partitions",
        "assign",
        "own",
        "grab",
        "checkpoints",
        "runs",
        "parked",
        "epochs",
    ):
        for name in tree.store.children(f"{tree.paths.root}/{folder}".rstrip("/")):
            path = f"{folder}/{name}".strip("/")
            node = tree.store.get(f"{tree.paths.root}/{path}")
            if node is not None and node.data:
                add(tree, path, fields)
    assert find_unreadable(tree) == ()
    now = preview(tree)
    assert (now.plan.assignment.as_dict(), now.plan.measures) == (was.plan.assignment.as_dict(), was.plan.measures)
    assert now.read.basis.workers == was.read.basis.workers
    assert now.read.basis.overrides.dump_known() == was.read.basis.overrides.dump_known()


@settings(max_examples=10, deadline=None)
@given(UNKNOWN)
def test_a_build_that_ignores_a_field_needs_no_other_decision(fields: dict[str, Any]) -> None:
    life = found()
    was = preview(life.tree).read.basis.digest
    for name in ("meta", "overrides", "workers/w1"):
        add(life.tree, name, fields)
    assert preview(life.tree).read.basis.digest == was
