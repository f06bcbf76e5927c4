"""Laws of membership: an incarnation is one session; the newest counts."""

import pytest

from rota.coordination import membership
from rota.coordination.group_state import GroupState
from rota.coordination.levels import with_build
from rota.coordination.records import Live, RunNode, encode
from rota.errors import ConfigError, Conflict
from rota.ids import MAX_PARTITION, incarnation_of, parse_incarnation, worker_of
from tests.conformance.worlds import World, again


def test_join_announce_leave(world: World, tree: GroupState) -> None:
    agent = GroupState(world.connect(), tree.group)
    incarnation = membership.join(agent, "w1", Live(endpoint="sc://127.0.0.1:15002"))
    assert parse_incarnation(incarnation) == ("w1", agent.store.session)
    (view,) = tree.live()
    assert (view.incarnation, view.worker, view.session) == (incarnation, "w1", agent.store.session)
    assert view.record == with_build(Live(endpoint="sc://127.0.0.1:15002"), tree.levels)
    membership.announce(agent, incarnation, Live(leaving=True))
    assert tree.live()[0].record == with_build(Live(leaving=True), tree.levels)
    assert membership.join(agent, "w1", Live()) == incarnation, "again in the same session: the same incarnation"
    for _ in range(2):
        membership.leave(agent, incarnation)
    assert tree.live() == ()
    with pytest.raises(Conflict):
        membership.announce(agent, incarnation, Live())


@pytest.mark.parametrize("worker", ["", ".hidden", "a b", "a/b", "caf\u00e9", "x" * 129, 7, None])
def test_a_bad_id_is_refused_in_one_line(tree: GroupState, worker: object) -> None:
    with pytest.raises(ConfigError) as refused:
        membership.join(tree, worker, Live())  # type: ignore[arg-type]
    assert "worker id" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_newest_incarnation_counts(world: World, tree: GroupState) -> None:
    agents = [GroupState(world.connect(), tree.group) for _ in range(3)]
    joined = [membership.join(agents[i], "w1", Live()) for i in (2, 0, 1)]
    assert tree.newest(tree.live())["w1"].incarnation == joined[-1]
    assert {worker_of(i) for i in joined} == {"w1"}


@pytest.mark.parametrize("what", ["reply", "request"])
def test_a_lost_reply_of_a_join_and_of_a_run_is_resolved(world: World, tree: GroupState, what: str) -> None:
    agent = GroupState(world.connect(), tree.group)
    world.lose(agent.store, what)
    incarnation = membership.join(agent, "w1", Live())
    assert [v.incarnation for v in tree.live()] == [incarnation]
    world.lose(agent.store, what)
    path = membership.register_run(agent, "run", incarnation, ["p:b", "p:a"])
    (run,) = tree.runs()
    assert (run.run_id, run.session, run.incarnation, run.partitions) == (
        "run",
        agent.store.session,
        incarnation,
        ("p:a", "p:b"),
    )
    world.lose(agent.store, what)
    membership.end_run(agent, path)
    assert tree.runs() == ()
    world.lose(agent.store, what)
    membership.leave(agent, incarnation)
    assert tree.live() == ()


def test_after_an_expiry_a_worker_is_another_incarnation(world: World, tree: GroupState) -> None:
    agent = GroupState(world.connect(), tree.group)
    before = membership.join(agent, "w1", Live())
    world.expire(agent.store)
    assert tree.live() == ()
    after = again(lambda: membership.join(agent, "w1", Live()))
    assert after != before
    assert [v.incarnation for v in tree.live()] == [after]


def test_incarnations_are_written_one_way() -> None:
    for session in (0, 1, 0x100002E7BD20000, -1, -(1 << 63), (1 << 63) - 1):
        text = incarnation_of("w.1-a_b", session)
        assert parse_incarnation(text) == ("w.1-a_b", session)
        assert len(text.rpartition("@")[2]) == 16
    for bad in ("w1", "w1@", "w1@123", "@0000000000000000", "w1@000000000000000G", "w1@0000000000000000x"):
        with pytest.raises(ConfigError, match="incarnation"):
            parse_incarnation(bad)


def test_a_run_takes_back_what_it_will_not_touch(tree: GroupState) -> None:
    mine = membership.join(tree, "w1", Live())
    node = membership.register_run(tree, "r1", mine, ["p:1", "p:2"])
    membership.narrow_run(tree, node, ["p:2"])
    assert [(run.run_id, run.partitions) for run in tree.runs()] == [("r1", ("p:2",))]
    membership.end_run(tree, node)
    with pytest.raises(Conflict):
        membership.narrow_run(tree, node, [])


def test_a_run_that_continues_for_another_incarnation_moves_its_node(world: World, tree: GroupState) -> None:
    """A click works for one owner after the other; the node of the first must not count for the second."""
    first, second = (membership.join(tree, w, Live()) for w in ("w1", "w2"))
    another = GroupState(world.connect(), tree.group)
    theirs = membership.register_run(another, "run", first, ["p:a"])  # another life of the run: not its own to remove
    membership.register_run(tree, "run", first, ["p:a"])
    membership.register_run(tree, "run", second, ["p:b"])
    membership.end_run(another, theirs)
    assert [(r.incarnation, r.partitions) for r in tree.runs()] == [(second, ("p:b",))]


def test_a_run_that_continues_with_other_partitions_is_younger_than_the_run_that_named_them_before(
    world: World, tree: GroupState
) -> None:
    """Its node of before may still be there, when it could not be removed: both would take themselves for the elder."""
    mine = membership.join(tree, "w1", Live())
    first, second = (GroupState(world.connect(), tree.group) for _ in range(2))
    membership.register_run(first, "first", mine, ["p:1"])
    membership.register_run(second, "second", mine, ["p:2"])
    membership.register_run(first, "first", mine, ["p:2"])
    assert [run.run_id for run in sorted(tree.runs(), key=lambda run: run.czxid)] == ["second", "first"]


def test_a_runs_node_holds_as_many_partitions_as_it_may_name() -> None:
    """Also with the longest ids; JSON of any number would be too large from some 5,000 on."""
    longest = [f"s:{i:05}".ljust(MAX_PARTITION, "x") for i in range(3 * membership.MAX_RUN + 1)]
    assert [len(some) for some in membership.portions(longest)] == [*3 * [membership.MAX_RUN], 1]
    assert [p for some in membership.portions(longest) for p in some] == longest
    encode(RunNode(partitions=tuple(longest[: membership.MAX_RUN])))
