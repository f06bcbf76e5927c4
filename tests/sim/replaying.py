"""A replay in virtual time: the shipped verb over a session of its own, stepped beside live consumption."""

from rota.coordination.group_state import GroupState
from rota.errors import RotaError
from rota.ledger.values import Ranges
from rota.run.replay import replay
from simulator.job import TimedJob
from simulator.journal import SteppedStore
from simulator.stage import Stage
from simulator.timeline import Process, steps, wait


class ReplayProcess:
    """A replay of a past range beside live consumption."""

    def __init__(self, stage: Stage, run_id: str, ranges: Ranges) -> None:
        self.stage, self.run_id, self.ranges = stage, run_id, ranges
        self.store = SteppedStore(stage.server, self.pause)
        self.process = Process(steps(self._live))

    def pause(self, seconds: float | None = None) -> None:
        """As a run's."""
        wait(self.stage.late("") if seconds is None else seconds)

    def _live(self) -> None:
        stage = self.stage
        job = TimedJob(lambda ranges: self.pause(stage.batch_seconds("", sum(e - s for s, e in ranges.values()))))
        try:
            for _ in replay(GroupState(self.store, stage.group), stage.ports(job), self.ranges, self.run_id):
                pass
        except RotaError as error:
            stage.note_error(self, error)
        self.store.close()
