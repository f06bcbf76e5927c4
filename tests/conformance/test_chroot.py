"""A ZooKeeper's address may name a znode below which all of it is: two deployments share a server and nothing else."""

import threading
import uuid

import pytest

from rota.coordination import membership
from rota.coordination.client import ZooKeeperStore, connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.group_reader import groups
from rota.coordination.group_state import GroupState
from rota.coordination.records import Live
from rota.coordination.store import Check, Create, Delete, Set
from rota.errors import Conflict
from rota.group.rebalance import rebalance
from rota.machine import free_port
from rota.settings import split_hosts
from tests.waiting import LONG


@pytest.fixture
def chroot() -> str:
    """One that is not there yet, of two nodes."""
    return f"/{uuid.uuid4().hex}/staging"


def seen_whole(zookeeper: EmbeddedZooKeeper, path: str) -> tuple[str, ...]:
    """The children of a path, for a client without a chroot."""
    with connect(zookeeper.hosts) as store:
        return store.children(path)


def test_the_address_is_taken_apart() -> None:
    assert split_hosts("a:1, b:2/x/y") == (("a:1", "b:2"), "/x/y")
    assert split_hosts("[::1]:2181/") == (("[::1]:2181",), "")


def test_a_group_is_founded_below_the_chroot_which_is_made(zookeeper: EmbeddedZooKeeper, chroot: str) -> None:
    with connect(zookeeper.hosts + chroot) as store, connect(zookeeper.hosts) as plain:
        assert groups(store) == (), "a read creates nothing, and finds no group"
        assert plain.get(chroot) is None
        tree, theirs = GroupState(store, "default"), GroupState(plain, "default")
        tree.found()
        theirs.found()
        tree.grow("p", ["a", "b"])
        membership.join(tree, "w1", Live())
        rebalance(tree, "r1")
        target = tree.target("w1")
        assert target is not None
        assert target.partitions == {"p:a", "p:b"}
        assert tree.meta().id != theirs.meta().id
        assert (theirs.live(), dict(theirs.ids())) == ((), {})
        assert tree.store.now() > 0
        assert groups(store) == ("default",)
        assert plain.children(chroot) == ("rota",)
        assert plain.get(f"{chroot}{tree.paths.meta}") == store.get(tree.paths.meta)


def test_every_operation_is_below_the_chroot(zookeeper: EmbeddedZooKeeper, chroot: str) -> None:
    fired = threading.Event()
    with connect(zookeeper.hosts + chroot) as store:
        store.ensure("/rota/g")
        store.ensure("/rota/g")
        store.watch("/rota/g", fired.set)
        made, _ = store.multi([Create("/rota/g/n", b"1"), Create("/rota/g/gone", ephemeral=True)])
        assert made is not None
        assert fired.wait(LONG)
        written, _, _ = store.multi([Set("/rota/g/n", b"2", made.version), Check("/rota/g"), Delete("/rota/g/gone")])
        assert store.get_many(["/rota/g/n", "/rota/g/none"]) == (written, None)
        with pytest.raises(Conflict) as lost:
            store.create("/rota/g/n")
        assert (lost.value.path, lost.value.cause) == ("/rota/g/n", "exists")
        store.create("/rota/g/mine", ephemeral=True)
        before = store.stamp()
        assert seen_whole(zookeeper, f"{chroot}/rota/g") == ("mine", "n")
        store.renew()
        assert store.stamp()[0] != before[0]
        assert store.children("/rota/g") == ("n",)


def test_without_the_chroot_of_a_request_it_is_the_whole_tree(
    zookeeper: EmbeddedZooKeeper, chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ablation: the requests that are rota's own know no chroot, as kazoo's do by themselves."""
    with connect(zookeeper.hosts + chroot) as store:
        store.ensure("/rota/g")
        monkeypatch.setattr(store, "chroot", "")
        name = uuid.uuid4().hex
        connect(zookeeper.hosts).ensure("/rota/g")
        store.create(f"/rota/g/{name}")
        assert name not in store.children("/rota/g")
    assert name in seen_whole(zookeeper, "/rota/g")


def test_several_hosts_have_one_chroot(zookeeper: EmbeddedZooKeeper, chroot: str) -> None:
    with connect(f"127.0.0.1:{free_port()},{zookeeper.hosts}{chroot}", connect_timeout=LONG) as store:
        assert isinstance(store, ZooKeeperStore)
        store.ensure("/rota/g")
    assert seen_whole(zookeeper, chroot) == ("rota",)
