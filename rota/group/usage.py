"""The usage of this machine, as smoothed fractions from 0 to 1 that are reported only when they changed."""

import time
from collections.abc import Callable, Mapping

import psutil

NEWS = 0.1  # the least change of a fraction that is reported
STALE = 30.0  # seconds after which unchanged fractions are reported again
EVERY = 5.0  # seconds between two samples
SMOOTH = 0.5  # weight of the newest sample


class Usage:
    """Measures cpu, memory, and bandwidth_in and bandwidth_out if the network cards report their speed.

    Law: `read_news` returns the fractions if one of them changed by `NEWS` since the last report, or after `STALE`
    seconds; else None. It samples at most once in `EVERY` seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._smooth: dict[str, float] = {}
        self._given: Mapping[str, float] | None = None
        self._given_at, self._sampled_at = float("-inf"), clock()
        self._bytes = _bytes()
        psutil.cpu_percent()  # the first call only starts the interval

    def read_news(self) -> Mapping[str, float] | None:
        """Return the fractions, or None if there is nothing new to report."""
        now = self._clock()
        if now - self._sampled_at < EVERY:
            return None
        self._fold(self._sample(now - self._sampled_at))
        self._sampled_at = now
        given = self._given
        if (
            given is not None
            and now - self._given_at < STALE
            and all(abs(value - given.get(key, 0.0)) < NEWS for key, value in self._smooth.items())
        ):
            return None
        self._given, self._given_at = {k: round(v, 3) for k, v in self._smooth.items()}, now
        return self._given

    def _fold(self, sample: Mapping[str, float]) -> None:
        for key, value in sample.items():
            before = self._smooth.get(key, value)
            self._smooth[key] = before + SMOOTH * (min(max(value, 0.0), 1.0) - before)

    def _sample(self, seconds: float) -> dict[str, float]:
        sample = {"cpu": psutil.cpu_percent() / 100, "memory": psutil.virtual_memory().percent / 100}
        speed = sum(card.speed for name, card in psutil.net_if_stats().items() if card.isup and name != "lo") * 125_000
        if speed:
            (received, sent), self._bytes = self._bytes, _bytes()
            sample["bandwidth_in"] = (self._bytes[0] - received) / seconds / speed
            sample["bandwidth_out"] = (self._bytes[1] - sent) / seconds / speed
        return sample


def _bytes() -> tuple[int, int]:
    """Return the bytes that all cards received and sent since the machine started; zeros if they are unknown."""
    count = psutil.net_io_counters()
    return (count.bytes_recv, count.bytes_sent) if count is not None else (0, 0)
