"""Law: the same code runs an ensemble of three, and a leader that is killed loses nothing and doubles nothing."""

import threading

from rota.coordination import membership
from rota.coordination.client import ZooKeeperStore, connect
from rota.coordination.embedded import EmbeddedZooKeeper, four_letters
from rota.coordination.group_state import GroupState
from rota.coordination.publication import KEEP_EPOCHS, Publication, publish, take_control
from rota.coordination.records import Live
from rota.errors import CoordinationError
from tests.claiming import NotOwner, claim_one
from tests.waiting import LONG, wait_until

PARTITIONS = frozenset(f"flights:{i}" for i in range(12))


def leader(servers: list[EmbeddedZooKeeper]) -> EmbeddedZooKeeper | None:
    return next((s for s in servers if "Mode: leader" in four_letters(s.port, "srvr")), None)


def test_a_killed_leader_loses_nothing(ensemble: list[EmbeddedZooKeeper]) -> None:
    hosts = ",".join(server.hosts for server in ensemble)
    published: list[tuple[int, dict[str, frozenset[str]]]] = []
    tokens: list[int] = []
    stop = threading.Event()
    failed: list[BaseException] = []

    def work(store: ZooKeeperStore) -> None:
        """Publishes and hands one partition to and fro, some ten times a second; an outage is survived by trying again."""
        tree = GroupState(store, "default")
        try:
            while not stop.wait(0.05):
                try:
                    term = take_control(tree)
                    cut = len(published) % 11 + 1
                    names = sorted(PARTITIONS)
                    plan = {"w1": frozenset(names[:cut]), "w2": frozenset(names[cut:])}
                    published.append((publish(tree, term, Publication(plan)).epoch, plan))
                    for worker in ("a", "b"):
                        incarnation = membership.join(tree, worker, Live())
                        seen = tree.owned(["flights:0"])["flights:0"]
                        tokens.append(claim_one(tree, incarnation, "flights:0", seen.version).token)
                except (CoordinationError, NotOwner):
                    continue
        except BaseException as error:
            failed.append(error)

    with connect(hosts, 30.0, connect_timeout=LONG) as store:
        GroupState(store, "default").found()
        session = store.session
        worker = threading.Thread(target=work, args=(store,))
        worker.start()

        def three_more() -> None:
            before = len(published)
            wait_until(lambda: len(published) > before + 3)

        for _ in range(2):
            three_more()
            old = wait_until(lambda: leader(ensemble))
            old.kill()
            three_more()
            wait_until(lambda old=old: leader(ensemble) not in (None, old))
            old.start(LONG)
        stop.set()
        worker.join()
        assert failed == []
        assert store.session == session, "an outage shorter than the session keeps it"
        tree = GroupState(store, "default")
        epochs = [epoch for epoch, _ in published]
        assert epochs == sorted(set(epochs)), "an epoch is never used twice"
        assert tokens == sorted(set(tokens)), "every claim's token is above the one before"
        assert {w: t.partitions for w, t in tree.targets()[1].items()} == published[-1][1]
        kept = epochs[-KEEP_EPOCHS:]  # a fast machine publishes more
        assert [e.epoch for e in tree.epochs()][-len(kept) :] == kept
