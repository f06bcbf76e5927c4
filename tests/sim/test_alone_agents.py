"""Agents that decide alone, step by step: a run that begins between any two of them, another protocol, another life."""

import pytest

from rota.coordination import membership, overrides
from rota.coordination.alone import grab, write_target
from rota.coordination.group_state import GroupState
from rota.coordination.records import Live
from rota.ids import worker_of
from rota.run.eligibility import judge, read_facts
from tests.sim.ablations import Wanted
from tests.sim.alone_group import Said, found_group, rounds, start

P = ("p:0", "p:1")


def begin_run(tree: GroupState, incarnation: str) -> bool:
    """A run enters itself and looks at its right; whether it works on the first partition."""
    node = membership.register_run(tree, "r1", incarnation, [P[0]])
    judged = judge(read_facts(tree, [P[0]], incarnation), incarnation, node.rpartition("/")[2])
    if P[0] not in judged.owners:
        membership.end_run(tree, node)
    return P[0] in judged.owners


def play(step: int, tree_of_run: type[GroupState] = GroupState) -> tuple[bool, bool] | None:
    """w2 asks w1, and a run of w1 begins after this step of w1's next round: whether it works on the partition, and whether
    w1 set that free; None if the round has no such step."""
    server, tree = found_group()
    w1 = start(server, "w1")
    mine = rounds(w1)
    assert {view.incarnation for view in tree.owned().values()} == {mine}
    other = GroupState(server.connect(), "g")
    w2 = membership.join(other, "w2", Live(protocol="claim"))
    grab(other, w2, [P[0]])
    write_target(other, w2, [P[0]], None)
    works = None
    for number, _ in enumerate(w1.cycle()):
        if number == step:
            works = begin_run(tree_of_run(server.connect(), "g"), mine)
    return None if works is None else (works, tree.owned()[P[0]].incarnation is None)


def test_a_run_that_begins_between_any_two_steps_is_waited_for_or_refused() -> None:
    outcomes = [one for step in range(40) if (one := play(step)) is not None]
    assert (True, True) not in outcomes, "it was set free while a run works on it"
    assert {(True, False), (False, True)} <= set(outcomes)  # else it proved nothing


def test_a_run_that_does_not_look_at_the_target_is_overrun() -> None:
    assert (True, True) in [play(step, Wanted) for step in range(40)]


def test_a_worker_joins_no_group_whose_live_workers_run_another_protocol() -> None:
    server, tree = found_group("assigned")
    w1 = start(server, "w1")
    rounds(w1)
    tree.found(protocol="claim")
    said: Said = []
    w2 = start(server, "w2", said)
    assert rounds(w2) == ""
    assert [word for word, _ in said] == ["refused"], "said once"
    assert "the group's protocol is claim, and w1 still run assigned" in str(said[0][1]["reason"])
    w1.store.close()
    assert rounds(w2)
    assert len(w2.state.held) == 2


def test_a_worker_keeps_to_its_protocol_until_it_is_restarted_and_reports_it_once() -> None:
    server, tree = found_group()
    said: Said = []
    w1 = start(server, "w1", said)
    mine = rounds(w1)
    tree.found(protocol="ordinal")
    rounds(w1, 40)
    assert [facts["reason"] for word, facts in said if word == "notice"] == [
        "the group's protocol is ordinal now: restart this worker, it runs claim"
    ]
    assert {view.incarnation for view in tree.owned().values()} == {mine}


@pytest.mark.parametrize("protocol", ["claim", "ordinal"])
def test_what_a_former_life_wrote_counts_only_for_the_same_worker(protocol: str) -> None:
    """w2 takes what w1 left. When w1 is back with its old target, it takes nothing that w2 names."""
    server, tree = found_group(protocol)
    w1 = start(server, "w1")
    rounds(w1)
    w1.store.close()
    w2 = start(server, "w2")
    there = rounds(w2)
    assert {view.incarnation for view in tree.owned().values()} == {there}
    assert tree.target("w1") is not None
    again = start(server, "w1")
    for _ in range(6):
        rounds(again, 1)
        assert not {p for p, v in tree.owned().items() if v.incarnation == again.state.incarnation} & (
            w2.state.held & (tree.target("w2") or pytest.fail("no target")).partitions
        )
        rounds(w2, 1)
    assert len(again.state.held) == len(w2.state.held - again.state.held) == 1


@pytest.mark.parametrize(
    ("protocol", "options"),
    [("claim", {}), ("claim", {"steal": "published", "interval": 0.1}), ("race", {}), ("ordinal", {})],
)
def test_what_is_pinned_to_a_worker_that_is_full_comes_to_it(protocol: str, options: dict[str, object]) -> None:
    server, tree = found_group(protocol, 5)
    tree.found(protocol=protocol, options=options)
    w1, w2 = start(server, "w1"), start(server, "w2")
    rounds(w1, 1)
    overrides.override(tree, "w1", max_partitions=1)

    def settle() -> dict[str, str]:
        for _ in range(60):
            for agent in (w1, w2):
                rounds(agent, 1)
        return {p: worker_of(v.incarnation) for p, v in tree.owned().items() if v.incarnation}

    owners = settle()
    theirs = min(p for p, worker in owners.items() if worker == "w2")
    overrides.pin(tree, theirs, "w1")
    assert settle()[theirs] == "w1"
    assert len(settle()) == 5
