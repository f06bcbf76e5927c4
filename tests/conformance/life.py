"""A group with every kind of record: w1 owns a partition, and a run of w1 works on it."""

from rota.coordination import alone, membership, overrides
from rota.coordination.checkpoint import Entry, write_checkpoints
from rota.coordination.group_state import GroupState
from rota.coordination.parking import note_refusal, park
from rota.coordination.publication import Publication, publish, take_control
from rota.coordination.records import Checkpoint, Live, Refusal
from tests.claiming import claim_one

P = "flights:AA"


class Life:
    """A founded group in which w1 works on P under `right` in `run`."""

    def __init__(self, tree: GroupState) -> None:
        self.tree = tree
        tree.grow("flights", ["AA"])
        self.w1 = membership.join(tree, "w1", Live())
        overrides.override(tree, "w1", capacity=2.0)
        publish(tree, take_control(tree), Publication({"w1": frozenset({P})}))
        target = tree.target("w1")
        assert target is not None
        self.version = target.version
        self.right = claim_one(tree, self.w1, P, 0, target.version)
        self.run = membership.register_run(tree, "run-1", self.w1, [P])
        self.done = Checkpoint(offset=1, token=self.right.token, run_id="run-1")
        assert self.commits() == {P: None}
        park(tree, P, "bad")
        note_refusal(tree, Refusal(partition=P, token=1, newer=2))
        alone.grab(tree, self.w1, [P])

    def commits(self) -> dict[str, object]:
        """The checkpoint of the run of w1."""
        return dict(write_checkpoints(self.tree, self.run, [Entry(self.right, self.done)]))
