"""Law: the real ZooKeeper and the one in memory answer alike."""

import pytest

from rota.coordination.store import MAX_DATA, MAX_OPS, Check, Create, Delete, Set, Store
from rota.errors import ConfigError, Conflict, Unavailable, Unknown
from tests.conformance.worlds import World, again
from tests.waiting import LONG, wait_until


@pytest.fixture
def store(world: World, group: str) -> Store:
    store = world.connect()
    store.ensure(f"/rota/{group}")
    return store


@pytest.fixture
def root(group: str) -> str:
    return f"/rota/{group}"


def test_a_node_has_versions_zxids_and_the_servers_time(store: Store, root: str) -> None:
    made = store.create(f"{root}/a", b"one")
    assert (made.data, made.version, made.czxid, made.owner) == (b"one", 0, made.mzxid, 0)
    set_ = store.set(f"{root}/a", b"two", 0)
    assert (set_.data, set_.version, set_.czxid) == (b"two", 1, made.czxid)
    assert set_.mzxid > made.mzxid
    assert store.get(f"{root}/a") == set_
    assert abs(store.now() - set_.mtime / 1000) < 60


def test_a_multi_has_one_zxid_and_returns_what_it_wrote(store: Store, root: str) -> None:
    results = store.multi(
        [Create(f"{root}/a", b"x"), Set(f"{root}/a", b"y", 0), Check(f"{root}/a", 1), Create(f"{root}/b")]
    )
    assert [r.version if r else None for r in results] == [0, 1, None, 0]
    assert len({r.mzxid for r in results if r}) == 1
    assert store.get_many([f"{root}/b", f"{root}/none", f"{root}/a"]) == (results[3], None, results[1])
    assert store.children(root) == ("a", "b")
    assert store.children(f"{root}/none") == ()


@pytest.mark.parametrize(
    ("op", "cause"),
    [
        (Create("{}/a"), "exists"),
        (Create("{}/none/x"), "missing"),
        (Create("{}/e/x"), "ephemeral_parent"),
        (Set("{}/a", b"", 7), "version"),
        (Set("{}/none", b"", -1), "missing"),
        (Check("{}/a", 7), "version"),
        (Check("{}/none"), "missing"),
        (Delete("{}/none"), "missing"),
        (Delete("{}/a", 7), "version"),
        (Delete("{}/full"), "not_empty"),
    ],
    ids=lambda v: v if isinstance(v, str) else f"{type(v).__name__}-{v.path}",
)
def test_a_conflict_names_the_culprit_and_nothing_is_written(
    store: Store, root: str, op: Create | Set | Check | Delete, cause: str
) -> None:
    for path in ("a", "full", "full/x"):
        store.create(f"{root}/{path}")
    store.create(f"{root}/e", ephemeral=True)
    fields = {name: getattr(op, name) for name in type(op).__slots__} | {"path": op.path.format(root)}
    before = store.children(root)
    with pytest.raises(Conflict) as refused:
        store.multi([Set(f"{root}/a", b"changed", 0), Create(f"{root}/new"), type(op)(**fields), Create(f"{root}/a")])
    assert (refused.value.index, refused.value.path, refused.value.cause) == (2, op.path.format(root), cause)
    assert "Nothing was written" in str(refused.value)
    assert store.children(root) == before
    assert (node := store.get(f"{root}/a")) is not None
    assert node.version == 0


def test_an_ephemeral_node_lives_as_long_as_its_session(world: World, store: Store, root: str) -> None:
    other = world.connect()
    node = other.create(f"{root}/e", ephemeral=True)
    assert node.owner == other.session
    assert store.get(f"{root}/e") == node
    other.close()
    wait_until(lambda: store.get(f"{root}/e") is None)
    other.close()
    for call in (other.sync, lambda: other.get(root), lambda: other.create(f"{root}/x")):
        with pytest.raises(Unavailable):
            call()


def test_an_expired_session_is_followed_by_another(world: World, store: Store, root: str) -> None:
    other = world.connect()
    before = other.session
    other.create(f"{root}/e", ephemeral=True)
    world.expire(other)
    assert store.get(f"{root}/e") is None
    again(lambda: other.create(f"{root}/e", ephemeral=True))
    assert other.session != before
    assert (node := store.get(f"{root}/e")) is not None
    assert node.owner == other.session


def test_renew_is_a_new_session_at_once(world: World, store: Store, root: str) -> None:
    other = world.connect()
    other.create(f"{root}/e", ephemeral=True)
    before = other.session
    assert other.renew() == other.session != before
    wait_until(lambda: store.get(f"{root}/e") is None)
    assert other.active()


@pytest.mark.parametrize(("what", "version"), [("reply", 1), ("request", 0)])
def test_a_lost_reply_is_unknown_and_never_sent_again(
    world: World, store: Store, root: str, what: str, version: int
) -> None:
    store.create(f"{root}/a")
    world.lose(store, what)
    with pytest.raises(Unknown):
        store.set(f"{root}/a", b"x", 0)
    assert store.wait_active(LONG)
    store.sync()
    assert (node := store.get(f"{root}/a")) is not None
    assert node.version == version


def test_without_a_connection_nothing_is_sent(world: World, store: Store, root: str) -> None:
    other = world.connect()
    other.create(f"{root}/a", ephemeral=True)
    session = other.session
    world.disconnect(other)
    assert not other.active()
    with pytest.raises(Unavailable):
        other.set(f"{root}/a", b"x", 0)
    world.reconnect(other)
    assert other.session == session
    assert (node := store.get(f"{root}/a")) is not None
    assert node.version == 0
    assert other.set(f"{root}/a", b"x", 0).version == 1


def test_a_watch_calls_back_on_data_children_and_creation(world: World, store: Store, root: str) -> None:
    other = world.connect()
    store.create(f"{root}/a")
    changes = {
        f"{root}/a": lambda: store.set(f"{root}/a", b"x", -1),
        root: lambda: store.create(f"{root}/b"),
        f"{root}/c": lambda: store.create(f"{root}/c"),
        f"{root}/b": lambda: store.delete(f"{root}/b"),
    }
    for path, change in changes.items():
        called: list[str] = []
        other.watch(path, lambda called=called: called.append("called"))
        change()
        wait_until(lambda called=called: called)
        assert called == ["called"]


def test_a_stamp_changes_with_any_change(world: World, store: Store, root: str) -> None:
    """A client that reads nothing while the stamp is unchanged misses nothing: no write, no end of a session."""
    other = world.connect()
    changes = (
        lambda: other.create(f"{root}/a", b"x"),
        lambda: other.set(f"{root}/a", b"x", -1),
        lambda: other.create(f"{root}/e", ephemeral=True),
        lambda: other.delete(f"{root}/a"),
        lambda: store.create(f"{root}/mine"),
        other.close,
    )
    for change in changes:
        wait_until(lambda: store.stamp() == store.stamp())  # no session of another test ended just now
        before = store.stamp()
        change()
        assert store.stamp() != before
    before = store.stamp()
    store.renew()
    assert store.stamp() != before


@pytest.mark.parametrize(
    "ops",
    [
        [],
        [Check("/rota")] * (MAX_OPS + 1),
        [Create("/rota/big", b"x" * (MAX_DATA + 1))],
        [Create(f"/rota/big{i}", b"x" * 400_000) for i in range(3)],
        [Create("rota/relative")],
        [Create("/rota/")],
        [Create("/rota//a")],
        [Create("/rota/..")],
        [Create("/rota/caf\u00e9")],
        [Create("/rota/\ud800")],
        [Create("/rota/" + "a" * 1000)],
        [Create("/rota/text", "text")],  # type: ignore[arg-type]
        [Set("/rota", b"", 2**31)],
        [Set("/rota", b"", True)],
        [Check("/rota", -2)],
    ],
    ids=lambda ops: f"{len(ops)}-{ascii(ops[0])[:40] if ops else ''}",
)
def test_what_would_hurt_the_connection_is_refused_before_it_is_sent(store: Store, root: str, ops: list) -> None:
    before = store.create(f"{root}/a").mzxid
    with pytest.raises(ConfigError) as refused:
        store.multi(ops)
    assert "\n" not in str(refused.value)
    assert store.create(f"{root}/b").mzxid == before + 1
    for read in (lambda: store.get("/rota/caf\u00e9"), lambda: store.children("no"), lambda: store.watch("//", print)):
        with pytest.raises(ConfigError):
            read()


def test_ten_thousand_records_are_read_in_one_pipeline(store: Store, root: str) -> None:
    for start in range(0, 10_000, MAX_OPS):
        store.multi([Create(f"{root}/n{i}", b"%d" % i) for i in range(start, start + MAX_OPS)])
    names = store.children(root)
    nodes = store.get_many([f"{root}/{n}" for n in names])
    assert [f"n{node.data.decode()}" for node in nodes if node] == list(names)
    assert len(names) == 10_000


def test_ensure_creates_missing_nodes_and_accepts_existing_ones(world: World, store: Store, root: str) -> None:
    other = world.connect()
    for _ in range(2):
        other.ensure(f"{root}/a/b/c")
        store.ensure(f"{root}/a/b/c")
    assert store.get(f"{root}/a/b/c") is not None
