"""Laws of looks and wishes: each wish and setting changes what a decision reads, and what does not matter does not."""

from collections.abc import Callable
from random import Random

import pytest

from rota.coordination import membership, ownership, room, wishes
from rota.coordination.adopt import adopt
from rota.coordination.forget import forget_partitions, forget_pipeline, forget_worker
from rota.coordination.look import basis
from rota.coordination.look import look as look_at
from rota.coordination.memory import MemoryServer, MemoryStore
from rota.coordination.packed import pack
from rota.coordination.parking import note_refusal, park, unpark, waiting
from rota.coordination.publication import Publication, publication_of, publish, take_control
from rota.coordination.records import Checkpoint, Live, Loads, Refusal, WorkerWishes
from rota.coordination.store import MAX_DATA
from rota.coordination.tree import Tree, groups
from rota.core import Policy, plan
from rota.errors import ConfigError, Undecodable
from rota.rebalance import rebalance
from tests.conformance.worlds import World

KEYS = ("AA", "B6", "DL", "UA")


class Group:
    """A group of two workers and four partitions, balanced once."""

    def __init__(self, server: MemoryServer) -> None:
        self.server = server
        self.tree = Tree(server.connect(), "default")
        self.tree.found()
        self.tree.grow("flights", KEYS)
        self.agents: dict[str, Tree] = {}
        self.names: dict[str, str] = {}
        for worker in ("w1", "w2"):
            self.join(worker)
        self.rebalance()

    def join(self, worker: str, **live: object) -> None:
        self.agents[worker] = Tree(self.server.connect(), "default")
        self.names[worker] = membership.join(self.agents[worker], worker, Live(**live))  # type: ignore[arg-type]

    def rebalance(self) -> None:
        look = look_at(self.tree)
        policy = Policy(grace=look.basis.meta.grace)
        publish(self.tree, take_control(self.tree), publication_of(look, plan(look.snapshot, policy=policy)))

    def held(self) -> dict[str, int]:
        return {w: len(t.partitions) for w, t in self.tree.targets()[1].items()}

    def worker(self, name: str) -> object:
        return next(w for w in look_at(self.tree).snapshot.workers if w.id == name)


@pytest.fixture
def balanced(memory: MemoryServer) -> Group:
    return Group(memory)


CHANGES: dict[str, Callable[[Group], object]] = {
    "cordon": lambda g: wishes.cordon(g.tree, "w1"),
    "drain": lambda g: wishes.drain(g.tree, "w1"),
    "capacity": lambda g: wishes.wish(g.tree, "w1", capacity=3.0),
    "labels": lambda g: wishes.wish(g.tree, "w1", labels={"disk": "ssd"}),
    "max_partitions": lambda g: wishes.wish(g.tree, "w1", max_partitions=1),
    "pin": lambda g: wishes.pin(g.tree, "flights:AA", "w2"),
    "pause": lambda g: wishes.pause(g.tree),
    "assignor": lambda g: g.tree.found(assignor="hash"),
    "options": lambda g: g.tree.found(options={"x": 1}),
    "budget": lambda g: g.tree.found(budget=1),
    "cooldown": lambda g: g.tree.found(cooldown=1.0),
    "grace": lambda g: g.tree.found(grace=1.0),
    "keys": lambda g: g.tree.grow("flights", ["VX"]),
    "pipeline": lambda g: g.tree.grow("hotels", ["1"]),
    "requires": lambda g: g.tree.grow("flights", [], {"disk": "ssd"}),
    "join": lambda g: g.join("w3"),
    "leave": lambda g: g.agents["w2"].store.close(),
    "leaving": lambda g: membership.announce(g.agents["w2"], g.names["w2"], Live(leaving=True)),
    "zone": lambda g: membership.announce(g.agents["w2"], g.names["w2"], Live(zone="a")),
    "restart": lambda g: (g.agents["w2"].store.close(), g.join("w2")),
    "unreadable live": lambda g: g.tree.store.set(g.tree.paths.live(g.names["w2"]), b"?", -1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_decision_reads_changes_the_basis(balanced: Group, change: str) -> None:
    assert not basis(balanced.tree).moved
    CHANGES[change](balanced)
    assert basis(balanced.tree).moved
    assert basis(Tree(balanced.server.connect(), "default")).moved, "whoever looks sees the same"
    balanced.rebalance()
    assert not basis(balanced.tree).moved


NOTHING: dict[str, Callable[[Group], object]] = {
    "usage": lambda g: membership.announce(g.agents["w2"], g.names["w2"], Live(usage={"cpu": 0.9})),
    "load": lambda g: g.tree.put(g.tree.paths.load("flights"), Loads(rates={"AA": 5.0})),
    "checkpoint": lambda g: g.tree.put(g.tree.paths.checkpoint("flights:AA"), Checkpoint(offset=1, token=1, run_id="")),
    "claim": lambda g: ownership.claim(g.agents["w1"], g.names["w1"], "flights:AA", 0),
    "parked": lambda g: park(g.tree, "flights:AA", "bad"),
    "the same wish": lambda g: wishes.uncordon(g.tree, "w1"),
    "the same settings": lambda g: g.tree.found(assignor="sticky", budget=None),
    "the same keys": lambda g: g.tree.grow("flights", KEYS),
    "token base": lambda g: adopt(g.tree, 1000),
}


@pytest.mark.parametrize("change", NOTHING)
def test_what_it_does_not_read_leaves_the_basis_alone(balanced: Group, change: str) -> None:
    NOTHING[change](balanced)
    assert not basis(balanced.tree).moved


def test_wishes_overrule_what_a_worker_announces(balanced: Group) -> None:
    balanced.join("w3", capacity=2.0, labels={"disk": "hdd", "rack": "1"}, max_partitions=9, zone="a")
    worker = balanced.worker("w3")
    assert (worker.capacity, worker.labels, worker.max_partitions, worker.state) == (  # type: ignore[attr-defined]
        2.0,
        {"disk": "hdd", "rack": "1"},
        9,
        "active",
    )
    wishes.wish(balanced.tree, "w3", capacity=4.0, labels={"disk": "ssd"}, max_partitions=0)
    wishes.cordon(balanced.tree, "w3")
    worker = balanced.worker("w3")
    assert (worker.capacity, worker.labels, worker.max_partitions, worker.state) == (  # type: ignore[attr-defined]
        4.0,
        {"disk": "ssd", "rack": "1"},
        0,
        "cordoned",
    )
    wishes.drain(balanced.tree, "w3")
    assert balanced.worker("w3").state == "draining"  # type: ignore[attr-defined]
    wishes.uncordon(balanced.tree, "w3")
    assert balanced.worker("w3").state == "active"  # type: ignore[attr-defined]


def test_a_drained_worker_hands_over_and_a_cordoned_one_keeps(balanced: Group) -> None:
    wishes.cordon(balanced.tree, "w2")
    balanced.tree.grow("flights", ["VX", "WN"])
    balanced.rebalance()
    assert balanced.held() == {"w1": 4, "w2": 2}
    wishes.drain(balanced.tree, "w2")
    balanced.rebalance()
    assert balanced.held() == {"w1": 6, "w2": 0}


def test_pins_requires_and_loads_reach_the_planner(balanced: Group) -> None:
    wishes.pin(balanced.tree, "flights:AA", "w2")
    balanced.tree.grow("flights", [], {"disk": "ssd"})
    balanced.tree.put(balanced.tree.paths.load("flights"), Loads(rates={"AA": 30.0, "DL": 10.0}))
    snapshot = look_at(balanced.tree).snapshot
    parts = {p.id: p for p in (snapshot.partition(i) for i in range(4))}
    assert {p: v.pin for p, v in parts.items() if v.pin} == {"flights:AA": "w2"}
    assert {p: v.load for p, v in parts.items()} == {
        "flights:AA": 30.0,
        "flights:B6": 20.0,  # nobody measured it: the mean of those measured
        "flights:DL": 10.0,
        "flights:UA": 20.0,
    }
    assert parts["flights:AA"].rate == 30.0
    assert parts["flights:B6"].rate is None
    assert all(p.requires == {"disk": "ssd"} for p in parts.values())
    wishes.pin(balanced.tree, "flights:AA", None)
    assert balanced.tree.wishes().pins == {}


def test_pause_is_a_wish_of_the_group(balanced: Group) -> None:
    wishes.pause(balanced.tree)
    assert basis(balanced.tree).wishes.paused
    wishes.resume(balanced.tree)
    assert not basis(balanced.tree).wishes.paused


def test_an_owner_is_the_target_or_where_that_is_gone_the_own_record(balanced: Group) -> None:
    """w2 was to take over from w1, and died before it could: w1, which still owns, is who holds it."""
    mine = sorted(balanced.tree.target("w2").partitions)  # type: ignore[union-attr]
    ownership.claim(balanced.agents["w1"], balanced.names["w1"], mine[0], 0)
    ownership.claim(balanced.agents["w2"], balanced.names["w2"], mine[1], 0)
    balanced.agents["w2"].store.close()
    look = look_at(balanced.tree)
    owners = {p: look.snapshot.name(int(look.snapshot.owner[i])) for i, p in enumerate(look.snapshot.partition_ids)}
    assert owners[mine[0]] == "w1"
    assert owners[mine[1]] == "w2"
    assert look.basis.left == ("w2",)
    assert dict(look.absences) == {"w2": 1000.0}


def test_an_absence_is_remembered_from_look_to_look() -> None:
    time = [100.0]
    group = Group(MemoryServer(clock=lambda: time[0]))
    group.agents["w2"].store.close()
    look = look_at(group.tree)
    publish(
        group.tree,
        take_control(group.tree),
        Publication({w: t.partitions for w, t in look.targets.items()}, absences=look.absences, due=110.0),
    )
    time[0] = 105.0
    again = look_at(group.tree)
    assert (again.now, dict(again.absences), again.snapshot.absences) == (105.0, {"w2": 100.0}, {"w2": 100.0})
    assert group.tree.head().record.due == 110.0
    group.join("w2")
    assert dict(look_at(group.tree).absences) == {}


# --- what cannot be read


def test_an_unreadable_live_or_wish_record_makes_a_worker_keep_what_it_holds(balanced: Group) -> None:
    balanced.tree.store.set(balanced.tree.paths.live(balanced.names["w2"]), b"?", -1)
    balanced.tree.store.create(balanced.tree.paths.worker("w1"), b"?")
    look = look_at(balanced.tree)
    assert {w.id: w.state for w in look.snapshot.workers} == {"w1": "cordoned", "w2": "cordoned"}
    assert set(balanced.tree.unreadable) == {
        balanced.tree.paths.live(balanced.names["w2"]),
        balanced.tree.paths.worker("w1"),
    }
    balanced.tree.store.set(balanced.tree.paths.worker("w1"), b'{"v":1}', -1)
    look_at(balanced.tree)
    assert set(balanced.tree.unreadable) == {balanced.tree.paths.live(balanced.names["w2"])}


@pytest.mark.parametrize("which", ["meta", "wishes", "controller", "head"])
def test_an_unreadable_record_of_the_group_stops_the_look(balanced: Group, which: str) -> None:
    path = getattr(balanced.tree.paths, which)
    balanced.tree.store.set(path, b"\xff", -1)
    for look in (basis, look_at):
        with pytest.raises(Undecodable) as refused:
            look(balanced.tree)
        assert refused.value.path == path


def test_an_unreadable_pipeline_is_not_one_without_partitions(balanced: Group) -> None:
    path = balanced.tree.paths.pipeline("flights")
    balanced.tree.store.set(path, b"", -1)
    with pytest.raises(Undecodable):
        look_at(balanced.tree)
    with pytest.raises(Undecodable):
        balanced.tree.grow("flights", ["AA"])


def test_an_unreadable_target_is_nobodys_loss(balanced: Group) -> None:
    mine = balanced.tree.target("w2").partitions  # type: ignore[union-attr]
    for partition in mine:
        ownership.claim(balanced.agents["w2"], balanced.names["w2"], partition, 0)
    balanced.tree.store.set(balanced.tree.paths.assign("w2"), b"?", -1)
    with pytest.raises(Undecodable):
        balanced.agents["w2"].target("w2")
    balanced.rebalance()
    assert balanced.agents["w2"].target("w2").partitions == mine  # type: ignore[union-attr]


def test_loads_that_cannot_be_read_hold_up_no_other_pipelines_loads(balanced: Group) -> None:
    tree = balanced.tree
    tree.grow("hotels", ["1"])
    for partition in ("flights:AA", "hotels-1"):
        tree.put(tree.paths.checkpoint(partition), Checkpoint(offset=1, token=1, run_id="", rows=60))
    tree.store.create(tree.paths.load("flights"), b"?")
    assert tree.paths.load("flights") in rebalance(tree, "r").unreadable
    assert tree.loads()["hotels"].record.rates["1"] > 0


def test_an_unreadable_own_record_or_checkpoint_is_left_out_and_named(balanced: Group) -> None:
    tree = balanced.tree
    tree.store.set(tree.paths.own("flights:AA"), b"?", -1)
    tree.store.create(tree.paths.checkpoint("flights:AA"), b"?")
    tree.store.create(f"{tree.paths.checkpoints}/foreign=node", b"?")
    assert "flights:AA" not in tree.owned()
    assert len(tree.owned()) == 3
    assert tree.checkpoints() == {}
    assert set(tree.unreadable) == {tree.paths.own("flights:AA"), tree.paths.checkpoint("flights:AA")}


# --- founding, growing, forgetting


def test_a_group_is_founded_once_by_whoever_comes_first(world: World, group: str) -> None:
    trees = [Tree(world.connect(), group) for _ in range(2)]
    assert not trees[0].there()
    with pytest.raises(ConfigError, match="is not in this ZooKeeper"):
        trees[0].meta()
    ids = {tree.found().id for tree in trees}
    assert ids == {trees[1].meta().id}
    assert len(ids) == 1
    assert group in groups(trees[0].store)
    assert trees[0].found(assignor="hash").assignor == trees[1].meta().assignor == "hash"
    with pytest.raises(ConfigError, match=r"Bad settings of the group: .*cooldown"):
        trees[0].found(cooldown=-1.0)


@pytest.mark.parametrize("what", ["reply", "request"])
def test_a_lost_reply_of_founding_and_of_an_update_is_resolved(world: World, group: str, what: str) -> None:
    tree = Tree(world.connect(), group)
    tree.store.ensure(tree.paths.root)
    world.lose(tree.store, what)
    meta = tree.found()
    world.lose(tree.store, what)
    assert tree.grow("flights", KEYS) == KEYS
    assert tree.partitions()["flights"].keys == KEYS
    assert tree.meta() == meta


def test_partitions_only_grow_and_within_bounds(balanced: Group) -> None:
    tree = balanced.tree
    assert tree.grow("flights", ["AA", "ZZ"]) == ("ZZ",)
    assert tree.grow("flights", []) == ()
    assert tree.partitions()["flights"].keys == (*KEYS, "ZZ")
    for bad in ("", " a", "a  b", "a/b", "a,b", "%41", "x" * 129, "x" * 113, "ü" * 57):
        with pytest.raises(ConfigError, match="id"):
            tree.grow("flights", [bad])
    many = [f"{i:05}" for i in range(99_997)]
    with pytest.raises(
        ConfigError, match=r" for 2 of the partitions of 'many', .* many:99995, many:99996\. .* 100000 are the most"
    ):
        tree.grow("many", many)
    assert tree.partitions()["many"].keys == tuple(many[:-2]), "those that fit are there, in their order"
    with pytest.raises(ConfigError, match="for 2 of the partitions of 'many'"):
        tree.grow("many", many)
    with pytest.raises(ConfigError, match="for 1 of the partitions of 'hotels'"):
        tree.grow("hotels", ["eu-2"], {"zone": "eu"})
    assert tree.partitions()["hotels"].requires == {"zone": "eu"}
    forget_partitions(tree, ["many-00000", "many-00001"])
    assert tree.grow("many", many[2:]) == ("99994", "99995")


def two_workers(keys: list[str]) -> tuple[Tree, Callable[[], object]]:
    """A balanced group, and what ends its second worker."""
    server = MemoryServer()
    tree = Tree(server.connect(), "g")
    tree.found()
    tree.grow("events", keys)
    one, two = server.connect(), server.connect()
    for worker, store in (("w1", one), ("w2", two)):
        membership.join(Tree(store, "g"), worker, Live())
    rebalance(tree, "r1")
    return tree, two.close


def test_a_group_grows_only_as_far_as_one_worker_can_hold_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = Random(1)
    keys = [f"{chance.getrandbits(128):032x}" for _ in range(20_000)]
    tree, end = two_workers(keys[:19_000])
    sizes: list[int] = []
    monkeypatch.setattr(room, "pack", lambda ids: sizes.append(1) or pack(ids))
    with pytest.raises(ConfigError, match=r"with one more its ids take \d+ bytes, above 349000\. Use shorter keys"):
        tree.grow("events", keys)
    there = tree.partitions()["events"].keys
    assert 19_000 < len(there) < 20_000
    assert set(there) - set(keys[:19_000]) == set(sorted(set(keys[19_000:]))[: len(there) - 19_000])
    sizes.clear()
    with pytest.raises(ConfigError, match=f"for {20_000 - len(there)} of the partitions of 'events'"):
        tree.grow("events", keys)
    assert len(sizes) == 3, "a group that is full costs each look the same"
    rebalance(tree, "r2")
    end()
    assert f"w2 left. {len(there) // 2} of {len(there)} partitions moved" in rebalance(tree, "r3").sentence

    monkeypatch.setattr("rota.coordination.room.MAX_PACKED", MAX_DATA)
    tree, end = two_workers([*keys, *(f"{chance.getrandbits(128):032x}" for _ in range(10_000))])
    end()
    for _ in range(2):  # without the guard it can never be published
        with pytest.raises(ConfigError, match=r"Slots takes \d+ bytes"):
            rebalance(tree, "r2")


def test_the_greatest_group_may_have_numbered_keys_or_some_random_digits() -> None:
    chance = Random(1)
    for name in ("{0}", "customer_{1:08x}"):
        tree = Tree(MemoryServer().connect(), "g")
        tree.found()
        keys = {name.format(i, chance.getrandbits(32)) for i in range(99_000)}
        assert len(tree.grow("orders", keys)) == len(keys)


def test_a_wish_about_somebody_unknown_names_the_known(balanced: Group) -> None:
    with pytest.raises(ConfigError, match=r"Unknown worker 'w9'. Known: w1, w2"):
        wishes.cordon(balanced.tree, "w9")
    with pytest.raises(ConfigError, match=r"Unknown partition 'flights:XX'. Known: flights:AA, "):
        wishes.pin(balanced.tree, "flights:XX", "w1")
    with pytest.raises(ConfigError, match=r"Bad wish: .*capacity"):
        wishes.wish(balanced.tree, "w1", capacity=-1.0)
    assert balanced.tree.worker_wishes() == {}


def test_forget_removes_only_what_is_gone_for_good(balanced: Group) -> None:
    wishes.cordon(balanced.tree, "w2")
    with pytest.raises(ConfigError, match="is live"):
        forget_worker(balanced.tree, "w2")
    balanced.agents["w2"].store.close()
    with pytest.raises(ConfigError, match="still has a target"):
        forget_worker(balanced.tree, "w2")
    balanced.rebalance()
    forget_worker(balanced.tree, "w2")
    assert wishes.workers(balanced.tree) == {"w1"}
    assert balanced.tree.read(balanced.tree.paths.worker("w2"), WorkerWishes) is None


def test_a_pipeline_that_was_taken_away_leaves_the_group_and_comes_back_where_it_was(balanced: Group) -> None:
    tree = balanced.tree
    tree.grow("hotels", ["x"])
    balanced.rebalance()
    wishes.pin(tree, "flights:AA", "w2")
    tree.put(tree.paths.load("flights"), Loads(rates={"AA": 1.0}))
    offset = Checkpoint(offset=7, token=1, run_id="r", rows=1, seconds=1.0, epoch=1)
    tree.put(tree.paths.checkpoint("flights:AA"), offset)
    owned = tree.owned()
    assert set(forget_pipeline(tree, "flights")) == {f"flights:{key}" for key in KEYS}
    assert basis(tree).moved
    balanced.rebalance()
    assert {p for target in tree.targets()[1].values() for p in target.partitions} == {"hotels-x"}
    assert tree.wishes().pins == {}
    assert tree.loads() == {}
    assert tree.owned() == owned, "a token is never given twice"
    tree.grow("flights", KEYS)
    balanced.rebalance()
    assert len({p for target in tree.targets()[1].values() for p in target.partitions}) == 5
    assert tree.checkpoints()["flights:AA"].record == offset


def test_a_pipeline_in_use_or_unknown_is_not_forgotten(balanced: Group) -> None:
    tree = balanced.tree
    incarnation = tree.live()[0].incarnation
    membership.register_run(tree, "r1", incarnation, ["flights:UA"])
    with pytest.raises(ConfigError, match="Run r1 consumes flights:UA"):
        forget_pipeline(tree, "flights")
    with pytest.raises(ConfigError, match=r"Unknown pipeline 'flight'\. Known: flights"):
        forget_pipeline(tree, "flight")
    assert tree.partitions()["flights"].keys == KEYS


def test_the_cap_is_what_people_wish_else_what_is_announced(balanced: Group) -> None:
    tree = balanced.tree
    assert [wishes.cap(tree, "w1", announced) for announced in (None, 7)] == [None, 7]
    wishes.wish(tree, "w1", max_partitions=3)
    assert [wishes.cap(tree, "w1", announced) for announced in (None, 7)] == [3, 3]
    tree.store.set(tree.paths.worker("w1"), b"\xff", -1)
    assert [wishes.cap(tree, "w1", announced) for announced in (None, 7)] == [None, 7], "it may claim its target again"


# --- parking, refusals, adoption


def test_a_parked_partition_waits_longer_after_each_failure_of_the_same_offset() -> None:
    time = [100.0]
    tree = Group(MemoryServer(clock=lambda: time[0])).tree
    waits = [park(tree, "flights:AA", "bad", retry_after=5.0, offset=3) for _ in range(3)]
    assert [(p.failures, p.retry_at) for p in waits] == [(1, 105.0), (2, 110.0), (3, 120.0)]
    assert park(tree, "flights:AA", "bad", retry_after=5.0, offset=4).failures == 1
    assert park(tree, "flights:UA", "changed").retry_at is None
    assert set(tree.parked()) == {"flights:AA", "flights:UA"}
    parked = waits[2]
    assert [waiting(parked, now) for now in (119.9, 120.0)] == [True, False]
    assert waiting(tree.parked()["flights:UA"].record, 1e12)
    assert unpark(tree, "flights:AA")
    assert not unpark(tree, "flights:AA")


def test_the_last_two_hundred_refusals_stay(balanced: Group) -> None:
    for token in range(205):
        assert note_refusal(balanced.tree, Refusal(partition="flights:AA", token=token, newer=token + 1))
    ring = balanced.tree.refusals().ring
    assert [r.token for r in ring] == list(range(5, 205))
    assert ring[0].at == 1000.0


def test_a_refusal_waits_for_the_session_of_a_run_that_was_asleep(
    balanced: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = balanced.tree.store
    assert isinstance(store, MemoryStore)
    store.disconnect()

    def wait_active(timeout: float) -> bool:
        store.reconnect()
        return True

    monkeypatch.setattr(store, "wait_active", wait_active)
    assert note_refusal(balanced.tree, Refusal(partition="flights:AA", token=1, newer=2))
    assert [r.token for r in balanced.tree.refusals().ring] == [1]


def test_adoption_outgrows_every_token_that_a_table_has_seen(balanced: Group) -> None:
    held = ownership.claim(balanced.agents["w1"], balanced.names["w1"], "flights:AA", 0)
    run = membership.register_run(balanced.agents["w1"], "run", balanced.names["w1"], ["flights:AA"])
    with pytest.raises(ConfigError, match="are alive, the first is run"):
        adopt(balanced.tree, 5_000)
    assert balanced.tree.meta().token_base == 0
    balanced.tree.store.set(run, b"torn", -1)
    with pytest.raises(ConfigError, match="are alive, the first is run"):
        adopt(balanced.tree, 5_000)
    membership.end_run(balanced.agents["w1"], run)
    behind = Checkpoint(offset=2, token=4_999, run_id="adopt")
    balanced.tree.put(balanced.tree.paths.checkpoint("flights:AA"), Checkpoint(offset=9, token=1, run_id="r"))
    assert adopt(balanced.tree, 5_000, {"flights:AA": behind}).token_base > 5_000
    assert balanced.tree.checkpoints()["flights:AA"].record == behind
    after = balanced.tree.owned()["flights:AA"]
    assert after.token > 5_000
    assert after.version == held.version, "who owns what is as it was"
    assert adopt(balanced.tree, 10).token_base == balanced.tree.meta().token_base > 5_000, "it never goes down"


def test_under_grace_a_worker_that_returns_finds_its_partitions_waiting() -> None:
    """w2 dies, others come and go meanwhile, it returns in time: nobody else took what it had; later somebody does."""
    for late in (False, True):
        time = [100.0]
        group = Group(MemoryServer(clock=lambda time=time: time[0]))
        group.tree.found(grace=30.0)
        group.rebalance()
        mine = group.tree.target("w2").partitions  # type: ignore[union-attr]
        for partition in mine:
            ownership.claim(group.agents["w2"], group.names["w2"], partition, 0)
        group.agents["w2"].store.close()
        group.rebalance()
        assert group.held() == {"w1": 2, "w2": 0}
        assert group.tree.head().record.due == 130.0
        time[0] = 110.0
        group.join("w3")
        group.rebalance()
        taken = group.tree.targets()[1]["w1"].partitions | group.tree.targets()[1]["w3"].partitions
        assert not taken & mine
        time[0] = 131.0 if late else 120.0
        if not late:
            group.join("w2")
        group.rebalance()
        now = {w for w, t in group.tree.targets()[1].items() if t.partitions & mine}
        assert "w2" not in now if late else now == {"w2"}
        assert now
