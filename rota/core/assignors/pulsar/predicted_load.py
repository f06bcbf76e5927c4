"""What moved and no report shows yet.

Law: predicted load counts until reports catch up. What moves is added to what its two workers report: all of it, while
their reports stand still or go the other way; less by as much as they have moved towards it, at the furthest so far (so
a report that jitters takes away its jitter once, not every round, and what has been shown is never expected again). A
report is one thing: what share of a move one of score, rate and throughput shows, all show, for a score is the largest
of its resources and need not change at all; nine tenths are the whole, for what moves is an estimate. After
`CATCH_UP_ROUNDS` without a move the report is the truth. Of what a worker does not report nothing is predicted: sums over
its partitions follow a move at once.

AvgShedder has no such thing; it trusts to reports being newer than its last move.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rota.core.assignors.pulsar.scores import Scores
from rota.core.values import Codes, Floats, Snapshot

CATCH_UP_ROUNDS = 10  # ten minutes: the longest batch and the next report take three
ENOUGH = 0.9  # of a move


@dataclass(frozen=True, slots=True, eq=False)
class Predicted:
    """`rest` (3 x workers, as scores) is yet to be shown since the report was `seen` and the round was `since`."""

    number: int
    reported: Scores
    seen: Floats
    rest: Floats
    since: Floats

    @classmethod
    def of(cls, snapshot: Snapshot, reported: Scores, past: Mapping[str, Any], number: int) -> "Predicted":
        """What the memory `past` still expects in round `number`, after these reports."""
        seen, rest = reported.now.copy(), np.zeros_like(reported.now)
        since = np.full(len(snapshot.workers), float(number))
        for code, worker in enumerate(snapshot.workers):
            entry = past["predicted"].get(worker.id)
            at = min(past["predicted_at"].get(worker.id, number), number)
            if entry is None or number - at >= CATCH_UP_ROUNDS:
                continue
            before, wanted = np.array(entry[:3], float), np.array(entry[3:], float)
            told, report = reported.told[:, code], reported.now[:, code]
            towards = (report - before) * np.sign(wanted)
            shown = np.divide(towards, np.abs(wanted), out=np.zeros(3), where=told & (towards > 0))
            rest[:, code] = wanted * (1.0 - shown.max()) if shown.max() < ENOUGH else 0.0
            seen[:, code] = np.where(shown > 0, report, before)
            since[code] = at
        return cls(number, reported, seen, rest, since)

    def added(self) -> Scores:
        """The reports with it."""
        expected = np.where(self.reported.told, self.rest, 0.0)
        return replace(self.reported, now=np.maximum(self.reported.now + expected, 0.0))

    def remembered(self, snapshot: Snapshot, happens: Codes) -> dict[str, Any]:
        """What the next round must expect if this happens now."""
        scores, seen, rest, since = self.added(), self.seen.copy(), self.rest.copy(), self.since.copy()
        moves = np.flatnonzero((happens != snapshot.owner) & (happens >= 0) & (snapshot.owner >= 0))
        for i in moves.tolist():
            giver, taker = int(snapshot.owner[i]), int(happens[i])
            share = scores.traffic[0, i] / scores.now[1, giver] if scores.now[1, giver] > 0 else 0.0
            change = np.array([scores.now[0, giver] * min(share, 1.0), *scores.traffic[:, i]])
            rest[:, giver] -= np.where(scores.told[:, giver], change, 0.0)
            rest[:, taker] += np.where(scores.told[:, taker], change, 0.0)
        both = np.union1d(snapshot.owner[moves], happens[moves])
        seen[:, both] = np.where(scores.told, self.reported.now, seen)[:, both]
        since[both] = self.number
        codes = np.flatnonzero(rest.any(axis=0)).tolist()
        names = {code: snapshot.workers[code].id for code in codes}
        return {
            "predicted": {names[c]: [*seen[:, c].tolist(), *rest[:, c].tolist()] for c in codes},
            "predicted_at": {names[c]: int(since[c]) for c in codes},
        }
