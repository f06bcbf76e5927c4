"""A small group in a real ZooKeeper, and the commands called in this process."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner, Result

from rota.cli import cli
from rota.coordination import membership
from rota.coordination.client import connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.group_state import GroupState
from rota.coordination.publication import Audit, Publication, publish, take_control
from rota.coordination.records import Checkpoint, Live, Parked, Refusal, Refusals, encode
from rota.core import Move
from tests.claiming import claim_one, release_one
from tests.demo.json_keys import documented, held

KEYS = ("AA", "B6", "UA")


@dataclass(frozen=True)
class Group:
    server: EmbeddedZooKeeper
    tree: GroupState
    w1: str
    w2: str

    @property
    def hosts(self) -> str:
        return self.server.hosts

    def move(self, partition: str) -> None:
        """An epoch moves the partition from w1 to w2, which claims it."""
        tree = self.tree
        move = Move(partition, "w1", "w2", 1.0, "w1 was 1 over its quota of 1")
        audit = Audit("w2 joined", ("w2",), (), (move,), {"moves": 1, "placements": 0, "imbalance_after": 1.0}, "r3")
        of_w1, of_w2 = (
            frozenset(p for p, own in tree.owned().items() if own.incarnation == one) for one in (self.w1, self.w2)
        )
        targets = {"w1": of_w1 - {partition}, "w2": of_w2 | {partition}}
        publish(tree, take_control(tree), Publication(targets, audit=audit))
        release_one(tree, self.w1, partition, tree.owned([partition])[partition].version)
        claim_one(tree, self.w2, partition, tree.owned([partition])[partition].version)

    def refuse(self, partition: str) -> None:
        """A late write of the partition was refused."""
        token = self.tree.owned()[partition].token
        late = Refusal(partition=partition, token=token - 1, newer=token, run_id="run-6", at=self.tree.store.now())
        self.tree.update(
            self.tree.paths.refused, Refusals, lambda was: Refusals(ring=(*(was.ring if was else ()), late))
        )


@contextmanager
def open_small_group(folder: Path) -> Iterator[Group]:
    """w1 holds AA and B6, w2 got UA in epoch 2 and committed it; B6 is parked; a late write of UA was refused."""
    with EmbeddedZooKeeper(folder) as server:
        with connect(server.hosts, 60) as one, connect(server.hosts, 60) as two:
            tree = GroupState(one, "default")
            tree.found()
            tree.grow("flights", KEYS)
            w1 = membership.join(tree, "w1", Live(endpoint="sc://127.0.0.1:1"))
            w2 = membership.join(GroupState(two, "default"), "w2", Live(capacity=2.0))
            term = take_control(tree)
            first = {"w1": frozenset(f"flights:{k}" for k in KEYS)}
            placed = tuple(Move(f"flights:{k}", None, "w1", 1.0, "it had no owner") for k in KEYS)
            audit = Audit("w1 joined", ("w1",), (), placed, {"moves": 0, "placements": 3, "imbalance_after": 1.0}, "r1")
            term = publish(tree, term, Publication(first, audit=audit)).term
            second = {"w1": frozenset({"flights:AA", "flights:B6"}), "w2": frozenset({"flights:UA"})}
            moved = (Move("flights:UA", "w1", "w2", 1.0, "w1 was 1 over its quota of 2"),)
            audit = Audit("w2 joined", ("w2",), (), moved, {"moves": 1, "placements": 0, "imbalance_after": 1.3}, "r2")
            publish(tree, term, Publication(second, audit=audit))
            for incarnation, partition in ((w1, "flights:AA"), (w1, "flights:B6"), (w2, "flights:UA")):
                holder = tree if incarnation == w1 else GroupState(two, "default")
                claim_one(holder, incarnation, partition, tree.owned([partition])[partition].version)
            token = tree.owned()["flights:UA"].token
            done = Checkpoint(offset=3, token=token, run_id="run-7", rows=2500, seconds=1.5, epoch=2)
            one.create(tree.paths.checkpoint("flights:UA"), encode(done))
            one.create(
                tree.paths.parking("flights:B6"), encode(Parked(reason="the transform raised ValueError: no", offset=1))
            )
            group = Group(server, tree, w1, w2)
            group.refuse("flights:UA")
            yield group


class Run:
    """Calls a command in this process."""

    def __call__(self, *arguments: str) -> Result:
        result = CliRunner().invoke(cli, arguments, catch_exceptions=True)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def json(self, *arguments: str) -> dict[str, object]:
        document = json.loads(self(*arguments, "--json").output)
        said = documented("why --at" if "--at" in arguments else arguments[0])
        assert set(held(document, said)) == said
        return document
