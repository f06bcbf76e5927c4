"""A partition that was measured for long: its checkpoint."""

from rota.coordination.records import Checkpoint


def make_measured(load: float, now: float) -> Checkpoint:
    """The checkpoint of a partition that carries so many rows a second, written at `now` in server seconds."""
    return Checkpoint(offset=1, token=1, run_id="r", load=load, load_at=now, since=max(0.0, now - 1e6))
