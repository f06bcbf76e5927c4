"""Predict the load of moves that the workers' reports do not show yet.

Law: the predicted load of a move counts until the reports catch up.
- The load of a move is added to the report of the taker and subtracted from that of the giver. The largest part of this
  change that a report has shown so far is no longer predicted: it never counts again, and jitter counts once.
- Score, rate and throughput are one report. The part that one value shows counts as shown by all three: a score is the
  largest of several resources and may not change at all.
- Nine tenths of a move count as the whole, because its load is an estimate.
- `CATCH_UP_ROUNDS` rounds after the last move of a worker, only its report counts.
- A value that a worker does not report needs no prediction: it is a sum over partitions, and a move changes it at once.

Pulsar's AvgShedder predicts nothing: it assumes that reports are newer than its last move.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rota.core.assignors.pulsar.scores import Scores
from rota.core.values import Codes, Floats, Snapshot

CATCH_UP_ROUNDS = 10  # ten minutes; the longest batch and the next report take three
ENOUGH = 0.9  # this share of a move counts as the whole


@dataclass(frozen=True, slots=True, eq=False)
class PredictedLoad:
    """`rest` (3 x workers, as `Scores.now`) is the load that the reports do not show yet, on top of the values `seen`.
    `since` is the round of each worker's last move. `reported` are the reports of round `number`."""

    number: int
    reported: Scores
    seen: Floats
    rest: Floats
    since: Floats

    @classmethod
    def of(cls, snapshot: Snapshot, reported: Scores, past: Mapping[str, Any], number: int) -> "PredictedLoad":
        """Return the load that the memory `past` still expects in round `number`, after the reports `reported`."""
        seen, rest = reported.now.copy(), np.zeros_like(reported.now)
        since = np.full(len(snapshot.workers), float(number))
        for code, worker in enumerate(snapshot.workers):
            entry = past["predicted"].get(worker.id)
            at = min(past["predicted_at"].get(worker.id, number), number)
            if entry is None or number - at >= CATCH_UP_ROUNDS:
                continue
            before, wanted = np.array(entry[:3], float), np.array(entry[3:], float)
            known, report = reported.is_reported[:, code], reported.now[:, code]
            towards = (report - before) * np.sign(wanted)
            shown = np.divide(towards, np.abs(wanted), out=np.zeros(3), where=known & (towards > 0))
            rest[:, code] = wanted * (1.0 - shown.max()) if shown.max() < ENOUGH else 0.0
            seen[:, code] = np.where(shown > 0, report, before)
            since[code] = at
        return cls(number, reported, seen, rest, since)

    def add_to_reports(self) -> Scores:
        """Return the reports with the expected load added."""
        expected = np.where(self.reported.is_reported, self.rest, 0.0)
        return replace(self.reported, now=np.maximum(self.reported.now + expected, 0.0))

    def remember(self, snapshot: Snapshot, happens: Codes) -> dict[str, Any]:
        """Return the memory for the next round if the assignment becomes `happens`."""
        scores, seen, rest, since = self.add_to_reports(), self.seen.copy(), self.rest.copy(), self.since.copy()
        moves = np.flatnonzero((happens != snapshot.owner) & (happens >= 0) & (snapshot.owner >= 0))
        for i in moves.tolist():
            giver, taker = int(snapshot.owner[i]), int(happens[i])
            share = scores.traffic[0, i] / scores.now[1, giver] if scores.now[1, giver] > 0 else 0.0
            change = np.array([scores.now[0, giver] * min(share, 1.0), *scores.traffic[:, i]])
            rest[:, giver] -= np.where(scores.is_reported[:, giver], change, 0.0)
            rest[:, taker] += np.where(scores.is_reported[:, taker], change, 0.0)
        both = np.union1d(snapshot.owner[moves], happens[moves])
        seen[:, both] = np.where(scores.is_reported, self.reported.now, seen)[:, both]
        since[both] = self.number
        codes = np.flatnonzero(rest.any(axis=0)).tolist()
        names = {code: snapshot.workers[code].id for code in codes}
        return {
            "predicted": {names[c]: [*seen[:, c].tolist(), *rest[:, c].tolist()] for c in codes},
            "predicted_at": {names[c]: int(since[c]) for c in codes},
        }
