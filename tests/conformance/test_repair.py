"""Unreadable records are listed, and an operator can remove them: on both stores."""

from collections.abc import Sequence
from contextlib import nullcontext

import pytest

from rota.coordination import membership, overrides, repair
from rota.coordination.group_state import GroupState
from rota.coordination.publication import Publication, publish, take_control
from rota.coordination.records import Live, Own, encode
from rota.coordination.store import Node, Op
from rota.errors import ConfigError, Conflict, Undecodable
from tests.ablations import NO_VERSION, change_store
from tests.claiming import NotOwner, claim_one, release_one
from tests.conformance.life import Life, P
from tests.conformance.worlds import World


@pytest.fixture
def life(tree: GroupState) -> Life:
    return Life(tree)


def list_paths(tree: GroupState) -> list[str]:
    """The path of every record."""
    paths, store = tree.paths, tree.store
    single = [paths.meta, paths.controller, paths.head, paths.overrides, paths.refused]
    return single + [f"{folder}/{name}" for folder in paths.folders for name in store.children(folder)]


def tear(tree: GroupState, path: str) -> None:
    tree.store.set(path, b"\xff", -1)


def test_every_record_that_cannot_be_read_is_listed_with_why(life: Life) -> None:
    assert not repair.find_unreadable(life.tree)
    everything = list_paths(life.tree)
    assert len(everything) == len(repair.SINGLE) + len(repair.FOLDERS)
    for path in everything:
        tear(life.tree, path)
    found = repair.find_unreadable(life.tree)
    assert [one.path for one in found] == sorted(everything)
    assert all(one.why.startswith(one.path) for one in found)
    assert {one.path.split("/")[3] for one in found if one.instead} == {"live", "runs", "assign", "grab"}
    with pytest.raises(Undecodable, match=f"rota repair --group {life.tree.group}"):
        life.tree.meta()


def test_the_owner_of_a_torn_own_record_is_fenced_and_the_next_token_is_higher(life: Life, world: World) -> None:
    tree, path = life.tree, life.tree.paths.own(P)
    tear(tree, path)
    assert repair.repair(tree, [path]) == (path,)
    assert tree.owned()[P].incarnation is None
    assert tree.owned()[P].version > life.right.version
    with pytest.raises(NotOwner):
        release_one(tree, life.w1, P, life.right.version)
    assert life.commits()[P] is not None, "the run under the former claim writes nothing more"
    other = GroupState(world.connect(), tree.group)
    w2 = membership.join(other, "w2", Live())
    assert claim_one(other, w2, P, tree.owned()[P].version).token > life.right.token
    with pytest.raises(ConfigError, match="No unreadable record"):
        repair.repair(tree, [path])
    assert tree.owned()[P].incarnation == w2, "what can be read stays"


@pytest.mark.parametrize("guarded", [True, False])
def test_what_was_written_meanwhile_is_not_set_free(life: Life, world: World, guarded: bool) -> None:
    """Without the version in the write, an owner that just claimed would lose its partition."""
    tree, path, other = life.tree, life.tree.paths.own(P), world.connect()
    tear(tree, path)
    send = (tree.store if guarded else change_store(tree.store, NO_VERSION)).multi

    def multi(ops: Sequence[Op]) -> tuple[Node | None, ...]:
        other.set(path, encode(Own(incarnation=life.w1)), -1)
        return send(ops)

    tree.store.multi = multi  # type: ignore[method-assign]
    with pytest.raises(Conflict) if guarded else nullcontext():
        repair.repair(tree, [path])
    assert (tree.owned()[P].incarnation == life.w1) == guarded


def test_a_lost_reply_of_a_repair_is_read_back(life: Life, world: World) -> None:
    for what in ("reply", "request"):
        tear(life.tree, life.tree.paths.own(P))
        version = life.tree.store.get(life.tree.paths.own(P)).version  # type: ignore[union-attr]
        world.lose(life.tree.store, what)
        repair.repair(life.tree, [life.tree.paths.own(P)])
        assert (life.tree.owned()[P].incarnation, life.tree.owned()[P].version) == (None, version + 1)


def test_a_torn_checkpoint_or_park_is_removed_and_nothing_that_can_be_read(life: Life) -> None:
    tree, torn = life.tree, (life.tree.paths.checkpoint(P), life.tree.paths.parking(P))
    for path in torn:
        tear(tree, path)
    before = tree.owned()
    assert repair.repair(tree, [tree.paths.root]) == torn
    assert tree.owned() == before
    assert not repair.find_unreadable(tree)
    assert (tree.checkpoints(), tree.parked()) == ({}, {})


@pytest.mark.parametrize("folder", ["head", "controller", "refused", "partitions", "epochs", "all of them"])
def test_records_of_the_group_begin_anew_from_what_else_is_there(life: Life, folder: str) -> None:
    """No target changes, no former controller can publish, and the next epoch has the next number."""
    tree = life.tree
    before, stale = tree.targets(), take_control(tree)
    torn = [path for path in list_paths(life.tree) if any(f"/{folder}" in path for folder in GROUPS[folder])]
    for path in torn:
        tear(tree, path)
    assert sorted(repair.repair(tree, torn)) == sorted(torn)
    assert repair.find_unreadable(tree) == ()
    assert tree.unreadable == {}
    assert tree.targets()[1] == before[1]
    assert tree.partitions()["flights"].keys == ("AA",)
    if "controller" in GROUPS[folder]:
        with pytest.raises(Conflict):
            publish(tree, stale, Publication({}))
    done = publish(tree, take_control(tree), Publication({"w2": frozenset({P})}))
    assert done.epoch == before[0].record.epoch + 1
    with pytest.raises(ConfigError, match="No unreadable record"):
        repair.repair(tree, torn)


GROUPS = {f: (f,) for f in ("head", "controller", "refused", "partitions", "epochs")}
GROUPS["all of them"] = tuple(GROUPS)


def test_what_goes_with_its_session_or_is_written_anew_is_left_alone(life: Life) -> None:
    paths = life.tree.paths
    kept = [paths.live(life.w1), paths.assign("w1"), life.run]
    for path in kept:
        tear(life.tree, path)
        with pytest.raises(ConfigError, match=f"{path} cannot be removed by hand"):
            repair.repair(life.tree, [path])
    tear(life.tree, paths.overrides)
    assert repair.repair(life.tree, [paths.root]) == (paths.overrides,)
    assert [one.path for one in repair.find_unreadable(life.tree)] == sorted(kept)


def test_a_partition_goes_back_to_its_own_pipeline(tree: GroupState) -> None:
    """Also where two pipelines are torn whose names begin alike, and without what was forgotten."""
    names = {"a": ("1", "2"), "a-b": ("1", "2")}
    for name, keys in names.items():
        tree.grow(name, keys)
    placed = {"w1": frozenset({"a:1", "a-b:1"}), "w2": frozenset({"a:2", "a-b:2"})}
    term = publish(tree, take_control(tree), Publication({**placed, "w3": frozenset({"a:9"})})).term
    publish(tree, term, Publication(placed))
    for name in names:
        tear(tree, tree.paths.pipeline(name))
    assert set(repair.repair(tree, [tree.paths.partitions])) == {tree.paths.pipeline(name) for name in names}
    assert {name: record.keys for name, record in tree.partitions().items()} == names


def test_settings_that_cannot_be_read_begin_anew_under_a_new_id_once_no_run_is_alive(life: Life) -> None:
    tree, before = life.tree, life.tree.meta()
    tear(tree, tree.paths.meta)
    tear(tree, tree.paths.overrides)
    with pytest.raises(ConfigError, match="run-1"):
        repair.repair(tree, [tree.paths.root])
    assert len(repair.find_unreadable(tree)) == 2, "all or none"
    membership.end_run(tree, life.run)
    repair.repair(tree, [tree.paths.meta])
    assert tree.meta().id != before.id


def test_a_group_that_lost_its_settings_alone_is_founded_again_under_another_id(life: Life) -> None:
    """It said for ever that the sensor founds it, and the sensor found the rest of it there."""
    tree, before, head, own = life.tree, life.tree.meta(), life.tree.head(), life.tree.owned()
    tree.store.delete(tree.paths.meta)
    assert tree.found(assignor="hash").assignor == "hash"
    assert tree.meta().id != before.id
    assert (tree.head(), tree.owned()) == (head, own)


def test_overrides_that_cannot_be_read_refuse_every_override_until_they_are_removed(life: Life) -> None:
    tree = life.tree
    for path in (tree.paths.overrides, tree.paths.worker("w1")):
        tear(tree, path)
    group = (lambda: overrides.pause(tree), lambda: overrides.resume(tree), lambda: overrides.pin(tree, P, "w1"))
    for change in (*group, lambda: overrides.cordon(tree, "w1"), lambda: overrides.uncordon(tree, "w1")):
        with pytest.raises(Undecodable, match="rota repair"):
            change()
    repair.repair(tree, [tree.paths.overrides, tree.paths.workers])
    assert not repair.find_unreadable(tree)
    assert tree.worker_overrides() == {}
    assert overrides.cordon(tree, "w1").capacity is None
