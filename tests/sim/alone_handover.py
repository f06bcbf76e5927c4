"""The hand-over of `handover`, in a group whose workers decide alone: instead of a controller, people pin and unpin.

`python -m tests.sim.alone_handover PROTOCOL SEED` plays one seed again and prints what happened; with FIRST LAST many.
"""

import sys
from collections import Counter

from rota.coordination import overrides
from rota.core.protocols.known_protocols import ASSIGNED
from simulator.actors import SHIPPED, Parts
from simulator.alone_checker import AloneChecker
from simulator.timeline import Life
from tests.sim.handover import PARTITIONS, TEAM, HandOver


class AloneHandOver(HandOver):
    """`HandOver` under a protocol; see there."""

    def __init__(
        self,
        seed: int,
        protocol: str = "claim",
        *,
        faults: bool = True,
        parts: Parts = SHIPPED,
        restless: float = 0.2,
    ) -> None:
        super().__init__(seed, faults=faults, parts=parts, restless=restless)
        self.again = (
            f"PYTHONPATH=. python -m tests.sim.alone_handover {protocol} {seed}{'' if faults else ' --no-faults'}"
        )
        log = self.checker.log
        self.checker = AloneChecker(self, strict=False)
        self.checker.log.parked_by = log.parked_by
        options = {"slices": "sticky"} if protocol == "ordinal" else {}
        self.reader.found(protocol=protocol, options=options)
        assert self.reader.meta().protocol != ASSIGNED

    def _controller(self) -> Life:
        """People: they pin a partition to some worker and take the pin back later."""
        while self.now < self.churn:
            yield 0.4
            if self.rng.random() < self.restless:
                overrides.pin(self.reader, self.rng.choice(PARTITIONS), self.rng.choice(TEAM).id)
            if self.rng.random() < self.restless:
                overrides.unpin(self.reader, PARTITIONS)
        overrides.unpin(self.reader, PARTITIONS)


def main(words: list[str]) -> None:
    """As `handover.main`, with the protocol first."""
    faults, protocol = "--no-faults" not in words, words[0]
    seeds = [int(word) for word in words if word.isdigit()]
    counts: Counter[str] = Counter()
    for seed in range(*seeds) if len(seeds) > 1 else seeds:
        world = AloneHandOver(seed, protocol, faults=faults).play()
        counts += world.counts + world.checker.found
        if len(seeds) == 1:
            print("\n".join(world.story))  # noqa: T201
        if world.checker.found:
            print(world.repro())  # noqa: T201
    print(dict(counts))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
