"""Law: a ZooKeeper that was rebuilt, restored or lost its last writes is worked with again, without a restart by hand; one
that is only away for long takes no session from any process."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rota.coordination.client import ZooKeeperStore, connect
from rota.coordination.embedded import EmbeddedZooKeeper, four_letters
from rota.coordination.group_state import GroupState
from rota.coordination.records import Live
from rota.group.agent import Agent
from simulator.memory_store import MemoryServer
from tests.conformance.processes import Start
from tests.conformance.targets import aim, found_with, wait_until_owned
from tests.conformance.worlds import again
from tests.waiting import LONG, wait_until

SESSION = 5.0
Servers = Sequence[EmbeddedZooKeeper]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[EmbeddedZooKeeper]]:
    """It runs when a test begins; each leaves it so."""
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("alone")) as server:
        yield [server]


def find_leader(servers: Servers) -> EmbeddedZooKeeper | None:
    return next((one for one in servers if "Mode: leader" in four_letters(one.port, "srvr")), None)


def hosts(servers: Servers) -> str:
    return ",".join(server.hosts for server in servers)


def stop_all(servers: Servers, change: Callable[[Path], None]) -> None:
    """All of them are down while `change` does something to each one's data."""
    for server in servers:
        server.kill()
    for server in servers:
        change(server.data_dir)
    begin_group(servers)


def begin_group(servers: Servers) -> None:
    """A quorum answers only once most are there."""
    with ThreadPoolExecutor(len(servers)) as pool:
        list(pool.map(lambda server: server.start(LONG), servers))


def keep(folder: Path) -> None:
    """A backup, as operators make it: files of a server that is down, or that gets no writes."""
    shutil.rmtree(folder / "copy", ignore_errors=True)
    shutil.copytree(folder / "data", folder / "copy")


def wipe(folder: Path) -> None:
    myid = folder / "data" / "myid"
    number = myid.read_text() if myid.exists() else ""
    shutil.rmtree(folder / "data")
    if number:
        (folder / "data").mkdir()
        myid.write_text(number)


def restore(folder: Path) -> None:
    shutil.rmtree(folder / "data")
    shutil.copytree(folder / "copy", folder / "data")


def write(store: ZooKeeperStore, times: int) -> None:
    for _ in range(times):
        store.now()


def older(servers: Servers, store: ZooKeeperStore, what: str) -> int:
    """The servers know less than `store` has seen; the session that it had."""
    if what == "restored":
        for server in servers:
            keep(server.data_dir)
        lead = wait_until(lambda: find_leader(servers))
        lead.kill()  # the next leader counts from a greater epoch, which the restored ones forget
        wait_until(lambda: find_leader(servers) not in (None, lead))
        assert store.wait_active(LONG)
    again(lambda: write(store, 20))
    before = store.session  # also a change of leaders may have ended one
    stop_all(servers, restore if what == "restored" else wipe)
    return before


@pytest.mark.parametrize(("which", "what"), [("alone", "wiped"), ("ensemble", "restored")])
def test_a_client_that_has_seen_more_gets_a_new_session(request: pytest.FixtureRequest, which: str, what: str) -> None:
    servers: Servers = request.getfixturevalue(which)
    with connect(hosts(servers), SESSION, connect_timeout=LONG) as store:
        store.ensure("/rota/a")
        before = older(servers, store, what)
        wait_until(lambda: store.active() and store.session != before)
        assert "it was rebuilt, restored" in store.lost_why
        again(lambda: store.ensure("/rota/b"))
        assert store.fresh is None


class Hasty(ZooKeeperStore):
    """It gives its session up after its timeout, whether ZooKeeper gives sessions to others or not."""

    def begin_anew(self, client: Any) -> None:
        self.rebuild(client)


def test_an_outage_longer_than_the_session_keeps_it(alone: list[EmbeddedZooKeeper]) -> None:
    """No server could expire it meanwhile. A client that gives it up anyway loses its work at each long outage."""
    (server,) = alone
    with ZooKeeperStore(server.hosts, SESSION) as patient, Hasty(server.hosts, SESSION) as hasty:
        both = (patient, hasty)
        assert all(store.wait_active(LONG) for store in both)
        patient.ensure("/rota/a")
        before, client = [store.session for store in both], hasty.client
        server.kill()
        wait_until(lambda: patient.fresh is not None and hasty.client is not client)
        server.start()
        wait_until(lambda: patient.active() and hasty.active())
        assert [store.session == was for store, was in zip(both, before, strict=True)] == [True, False]
        wait_until(lambda: patient.fresh is None and hasty.fresh is None)


@pytest.mark.parametrize("what", ["wiped", "restored"])
def test_every_worker_is_live_again_as_another_incarnation(
    start: Start, alone: list[EmbeddedZooKeeper], group: str, what: str
) -> None:
    """Its claims in a restored one have lower tokens than those that the tables saw: consuming refuses to write there."""
    with connect(hosts(alone)) as store:
        tree = found_with(GroupState(store, group))
        workers = [start(name, hosts=hosts(alone)) for name in ("w1", "w2")]
        wait_until(lambda: len(tree.live()) == 2)
    if what == "restored":
        keep(alone[0].data_dir)
    with connect(hosts(alone)) as store:
        tree = GroupState(store, group)
        write(store, 300)
        aim(tree, w1="1", w2="2")
        wait_until_owned(tree, w1="1", w2="2")
        lives, seen = {v.incarnation for v in tree.live()}, tree.owned()
    stop_all(alone, wipe if what == "wiped" else restore)
    if what == "wiped":
        for worker in workers:
            worker.hears("event=no-group")
    with connect(hosts(alone)) as store:
        tree = GroupState(store, group)
        if what == "wiped":
            found_with(tree)

        def newer() -> set[str]:
            return {v.incarnation for v in tree.live()} - lives

        wait_until(lambda: len(newer()) == 2)
        aim(tree, w1="1", w2="2")
        wait_until(lambda: {v.incarnation for v in tree.owned().values()} == newer())
        assert all(view.token < seen[p].token for p, view in tree.owned().items())
    for worker in workers:
        assert "it was rebuilt, restored" in worker.hears("event=lost")
        assert len(worker.said("event=no-group")) == (1 if what == "wiped" else 0)
        assert worker.process.poll() is None


def test_silence_and_its_end_are_said_once(memory: MemoryServer) -> None:
    """Also where each look takes longer than the session is surely alive: then nothing is written either."""
    GroupState(memory.connect(), "g").found()
    said: list[str] = []
    store, clock = memory.connect(), [0.0]
    agent = Agent(
        GroupState(store, "g"),
        "w1",
        Live(),
        lambda word, **_: said.append(word),
        max_shutdown=10,
        session_timeout=4,
        clock=lambda: clock[0],
    )

    def rounds(slow: float = 0.0) -> list[str]:
        said.clear()
        for _ in range(5):
            for _ in agent.cycle():
                clock[0] += slow
        return said

    assert rounds() == ["joined"]
    store.disconnect()
    assert rounds() == ["suspended"]
    assert rounds() == []
    store.reconnect()
    assert rounds() == ["resumed"]
    assert rounds(slow=3.0) == ["suspended"]
    assert rounds() == ["resumed"]


def test_a_group_that_is_gone_is_waited_for(memory: MemoryServer) -> None:
    """Whether it goes with the session or under it."""
    tree = GroupState(memory.connect(), "g")
    tree.found()
    said: list[str] = []
    worker = GroupState(memory.connect(), "g")
    agent = Agent(worker, "w1", Live(), lambda word, **_: said.append(word), max_shutdown=10, session_timeout=4)

    def rounds() -> list[str]:
        said.clear()
        for _ in range(5):
            list(agent.cycle())
        return said

    assert rounds() == ["joined"]

    def remove(path: str) -> None:
        for child in tree.store.children(path):
            remove(f"{path}/{child}")
        tree.store.delete(path)

    for session_ends in (True, False):
        if session_ends:
            memory.expire(worker.store.session)
        remove("/rota/g")
        assert rounds() == (["suspended", "lost", "no-group"] if session_ends else ["no-group"])
        assert agent.done is None
        tree.found()
        assert rounds()[-1] == "joined"
