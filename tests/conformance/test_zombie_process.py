"""A real process, paused past its session with SIGSTOP, overtaken, woken: whatever it tries is refused."""

import signal
from pathlib import Path

import pytest

from rota.coordination import membership
from rota.coordination.checkpoint import Entry, write_checkpoints
from rota.coordination.client import connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.group_state import GroupState
from rota.coordination.records import Checkpoint, Live, Own, encode
from tests.claiming import claim_one
from tests.conformance.processes import start_script
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
P = "flights:UA"
ZOMBIE = """
import sys
from rota.coordination import membership, ownership
from rota.coordination.checkpoint import Entry, write_checkpoints
from rota.coordination.client import connect
from rota.coordination.records import Checkpoint, Live
from rota.coordination.group_state import GroupState
from rota.errors import RotaError
from tests.ablations import NO_OWNER, NO_RUN, Blind, change_store

hosts, group, guarded = sys.argv[1], sys.argv[2], sys.argv[3] == "guarded"
store = connect(hosts, 4.0)
if not guarded:
    change_store(store, NO_OWNER, NO_RUN)
tree = GroupState(store, group)
incarnation = membership.join(tree, "zombie", Live())
run = membership.register_run(tree, "run", incarnation, ["flights:UA"])
held = ownership.claim_all(tree, incarnation, {"flights:UA": 0}).taken["flights:UA"]

def commit(offset):
    seen = tree.checkpoints().get("flights:UA")
    entry = (Entry if guarded else Blind)(held, Checkpoint(offset=offset, token=held.token, run_id="zombie"), seen)
    try:
        return "written" if write_checkpoints(tree, run, [entry])["flights:UA"] is None else "refused"
    except RotaError as error:
        return type(error).__name__

session = store.session
print(commit(100), store.active(), flush=True)
sys.stdin.readline()  # paused here
active = store.active() and store.session == session
first = commit(666)
store.wait_active(240)
print(first, commit(667), active, flush=True)
"""


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without-guards"])
def test_a_woken_zombie(zookeeper: EmbeddedZooKeeper, group: str, guarded: bool) -> None:
    with connect(zookeeper.hosts) as store:
        tree = GroupState(store, group)
        tree.found()
        store.create(tree.paths.own(P), encode(Own()))
        zombie, stdin, stdout = start_script(ZOMBIE, zookeeper.hosts, group, "guarded" if guarded else "not")
        try:
            assert stdout.readline() == "written True\n"
            zombie.send_signal(signal.SIGSTOP)
            wait_until(lambda: tree.live() == ())
            incarnation = membership.join(tree, "w2", Live())
            seen = tree.owned()[P]
            assert seen.incarnation not in {v.incarnation for v in tree.live()}, "its owner is gone: claimed at once"
            mine = claim_one(tree, incarnation, P, seen.version)
            run = membership.register_run(tree, "run", incarnation, [P])
            entry = Entry(mine, Checkpoint(offset=150, token=mine.token, run_id="w2"), tree.checkpoints()[P])
            assert write_checkpoints(tree, run, [entry]) == {P: None}
            stdin.write("\n")
            stdin.flush()
            zombie.send_signal(signal.SIGCONT)
            first, second, active = stdout.readline().split()
        finally:
            zombie.kill()
            zombie.wait()
            stdin.close()
            stdout.close()
        offset = tree.checkpoints()[P].record.offset
    if guarded:
        assert (active, offset) == ("False", 150)
        assert "written" not in (first, second)
    else:
        assert (second, offset) == ("written", 667), "the same zombie without guards overwrites its successor"
