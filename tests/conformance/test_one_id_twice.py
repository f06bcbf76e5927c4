"""Law: of two processes with one id that are started again whenever they end, one works and the other one waits."""

import os
import subprocess
import sys

import pytest

from rota.coordination import membership
from rota.coordination.group_state import GroupState
from rota.coordination.publication import Publication, publish, take_control
from rota.coordination.records import Live
from rota.group.agent import Agent
from rota.machine import name_machine
from simulator.memory_store import MemoryServer, MemoryStore

GONE = 2**22  # above the greatest process id of Linux


class Supervised:
    """A worker that is started again, as another process or the same one, whenever it ends."""

    def __init__(self, server: MemoryServer, host: str, pid: int, machine: str = "") -> None:
        self.server, self.live = server, Live(host=host, machine=machine, pid=pid)
        self.said: list[str] = []
        self.begin()

    def begin(self) -> None:
        store: MemoryStore = self.server.connect()
        self.agent = Agent(GroupState(store, "g"), "w1", self.live, self.say, max_shutdown=10, session_timeout=4)

    def say(self, word: str, /, **facts: object) -> None:
        self.said.append(f"{word} {facts.get('host')} {facts.get('pid')}")

    def rounds(self, count: int = 5) -> None:
        for _ in range(count):
            list(self.agent.cycle())
            if self.agent.done is not None:
                self.agent.store.close()
                self.begin()


@pytest.fixture
def tree(memory: MemoryServer) -> GroupState:
    tree = GroupState(memory.connect(), "g")
    tree.found()
    publish(tree, take_control(tree), Publication({"w1": frozenset({"p:a"})}))
    return tree


def takes(tree: GroupState) -> int:
    """How often the partition changed hands."""
    return tree.owned()["p:a"].version


@pytest.mark.parametrize("guarded", [True, False])
def test_they_do_not_take_over_from_each_other(
    memory: MemoryServer, tree: GroupState, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        monkeypatch.setattr(membership, "rival", lambda *_: None)
    first, second = Supervised(memory, "here", os.getpid()), Supervised(memory, "far", 7)
    for _ in range(20):
        first.rounds()
        second.rounds()
    assert takes(tree) == 1 if guarded else takes(tree) >= 20
    if guarded:
        assert first.said == ["joined None None", "claimed None None", "rival far 7"]
        assert second.said == [f"taken here {os.getpid()}"]
        memory.expire(first.agent.store.session)
        second.rounds()
        assert takes(tree) == 2, "at once when it is gone"
        first.rounds()
        assert takes(tree) == 2
        assert first.said[-1] == "taken far 7"


@pytest.mark.parametrize("guarded", [True, False])
def test_two_containers_of_one_host_name_do_not_either(memory: MemoryServer, tree: GroupState, guarded: bool) -> None:
    """Each is process 1 of its own namespace. If the namespace is unknown, each takes the other for its own past."""
    first, second = (Supervised(memory, "worker", 1, f"boot/pid:[{n}]" if guarded else "") for n in (1, 2))
    for _ in range(20):
        first.rounds()
        second.rounds()
    assert takes(tree) == 1 if guarded else takes(tree) >= 20
    if guarded:
        assert first.said[-1] == second.said[-1].replace("taken", "rival") == "rival worker 1"
        memory.expire(first.agent.store.session)
        second.rounds()
        assert takes(tree) == 2, "at once when it is gone"


def test_a_machine_has_one_name_in_all_its_processes() -> None:
    asked = "from rota.machine import name_machine; print(name_machine())"
    other = subprocess.run([sys.executable, "-c", asked], check=True, capture_output=True, text=True).stdout.strip()
    assert name_machine() == other != ""


def test_a_worker_works_where_the_namespace_of_process_ids_is_unknown(
    memory: MemoryServer, tree: GroupState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS has no /proc: the worker began with a traceback."""

    def read_link(path: str) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "readlink", read_link)
    one = Supervised(memory, "here", os.getpid(), name_machine())
    one.rounds()
    assert one.said == ["joined None None", "claimed None None"]
    assert takes(tree) == 1


@pytest.mark.parametrize(
    ("host", "pid", "waits"),
    [
        ("here", os.getpid(), False),  # this very process, before its session was lost
        ("here", GONE, False),
        ("here", os.getppid(), True),
        ("far", GONE, True),
        ("", 0, False),
    ],
    ids=["this process before", "ended here", "runs here", "elsewhere", "names no host"],
)
def test_which_process_is_waited_for(memory: MemoryServer, tree: GroupState, host: str, pid: int, waits: bool) -> None:
    other = GroupState(memory.connect(), "g")
    membership.join(other, "w1", Live(host=host, pid=pid))
    membership.join(GroupState(memory.connect(), "g"), "w11", Live(host="far", pid=1))
    mine = Supervised(memory, "here", os.getpid())
    mine.rounds()
    assert (mine.agent.state.incarnation is None) is waits
    assert len(tree.live()) == (2 if waits else 3)


def test_a_live_node_that_cannot_be_read_is_somebodys(memory: MemoryServer, tree: GroupState) -> None:
    other = GroupState(memory.connect(), "g")
    incarnation = membership.join(other, "w1", Live(host="far", pid=1))
    other.store.set(other.paths.live(incarnation), b"of a newer version", -1)
    mine = Supervised(memory, "here", os.getpid())
    mine.rounds()
    assert mine.said == ["taken None None"]
    memory.expire(other.store.session)
    mine.rounds()
    assert "joined None None" in mine.said
