"""The judge of worlds in which workers decide alone. For a while, two targets may name one partition.

- `stolen`, `usurped`, `own`, `uninvited`, `busy`, `cap` and the rules of the log are those of `Checker`. A forced
  claim is allowed `max_shutdown` after another target named the partition, or its owner's target dropped it.
- `starved`: at the end every partition is owned by a live worker. `settled`: by the one worker whose target names it.
- `uneven`: at the end no worker holds two more than another worker below its cap. `steal="published"` and
  `slices="published"` do not promise this, so they are not judged by it.
- `restless`: no partition changed its owner in the last `CALM` seconds, if the last happening was at least `SLACK`
  seconds before them.
"""

import math
from collections import Counter

from rota.ids import worker_of
from simulator.actors import Scene
from simulator.checker import SLACK, Checker
from simulator.truth import Change, Changes

CALM = 60.0


class AloneChecker(Checker):
    """Judges every event; see `Checker`."""

    def __init__(self, stage: Scene, *, strict: bool) -> None:
        super().__init__(stage, strict=strict)
        self.named: dict[str, set[str]] = {}  # partition -> the workers whose targets name it
        self._moved_at = -math.inf
        self._moved: dict[str, float] = {}  # partition -> when its owner last changed

    def after_event(self, changes: Changes) -> None:
        """Judge as `Checker` does; a target counts as soon as it is written."""
        if changes.chosen:
            self._published()
        changes.published = False
        super().after_event(changes)

    def _published(self) -> None:
        self.named = {}
        for worker, slots in self.stage.truth.slots.items():
            for partition in slots[-1][1] if slots else ():
                self.named.setdefault(partition, set()).add(worker)
        self.target = {p: next(iter(workers)) for p, workers in self.named.items() if len(workers) == 1}
        for partition, owner in self.stage.truth.owner.items():
            if owner is not None and self.named.get(partition, set()) != {worker_of(owner)}:
                self._revoked.setdefault(partition, self.stage.now)
            else:
                self._revoked.pop(partition, None)

    def _owner_changed(self, change: Change) -> None:
        self._moved_at = self._moved[change.partition] = self.stage.now
        super()._owner_changed(change)

    def at_the_end(self) -> None:
        """Judge the quiet end of the world."""
        truth, stage = self.stage.truth, self.stage
        here = truth.workers()
        hops = "fastest" in stage.options.values()  # partitions move to the fastest worker for ever
        for partition in truth.load:
            owner = truth.owner.get(partition)
            if not truth.serving(owner) and not (hops and self._moved.get(partition, 0.0) > stage.now - CALM):
                self.breach("starved", f"{partition} is owned by {owner}")
            elif not hops and owner is not None and self.named.get(partition, set()) & here != {worker_of(owner)}:
                names = ", ".join(sorted(self.named.get(partition, ())))
                self.breach("settled", f"{partition} is owned by {owner}, the targets of {names} name it")
        if self.promises_even():
            self._judge_evenness(here)
        last = max((h.at + h.value * (h.what in ("freeze", "cut")) for h in stage.happenings), default=0.0)
        quiet = stage.now - CALM > last + stage.timing.max_shutdown + SLACK
        if quiet and not hops and self._moved_at > stage.now - CALM:
            self.breach("restless", f"a partition changed its owner {stage.now - self._moved_at:.1f} s before the end")

    def promises_even(self) -> bool:
        """Return whether the protocol ends balanced."""
        return not {"published", "fastest"} & set(self.stage.options.values()) and (
            self.stage.protocol != "ordinal" or "slices" in self.stage.options
        )

    def _judge_evenness(self, here: set[str]) -> None:
        counts = Counter(dict.fromkeys(here, 0))
        counts.update(worker_of(o) for o in self.stage.truth.owner.values() if o is not None)
        free = {w for w in here if (cap := self.stage.truth.cap(w)) is None or counts[w] < cap}
        if free and max(counts[w] for w in here) - min(counts[w] for w in free) > 1:
            self.breach("uneven", f"at the end they hold {dict(sorted(counts.items()))}")
