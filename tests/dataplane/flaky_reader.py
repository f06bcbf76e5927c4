"""Reads that fail although every record is good."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal

import pytest

from rota.dataplane.spark.bisection import Bisection

Range = tuple[int, int]
Cause = Literal["once", "in company"]
CAUSES: tuple[Cause, ...] = ("once", "in company")
SAID = "ValueError: no record is to blame"


class Flaky:
    """Fails the first read of every range ("once"), or every read of two or more offsets ("in company")."""

    def __init__(self, cause: Cause) -> None:
        self.cause, self.seen = cause, set[tuple[str, Range]]()

    def __call__(self, partition: str, one: Range) -> str | None:
        first = (partition, one) not in self.seen
        self.seen.add((partition, one))
        return SAID if (first if self.cause == "once" else one[1] - one[0] > 1) else None


def fail_reader(monkeypatch: pytest.MonkeyPatch, source: type[Any], cause: Cause) -> None:
    """Let `read` and `read_directly` of `source` fail for this cause before the first record."""
    flaky = Flaky(cause)
    for name in {"read", "read_directly"} & set(dir(source)):
        monkeypatch.setattr(source, name, _fail(getattr(source, name), flaky))


def _fail(real: Callable[..., AbstractContextManager[Any]], flaky: Flaky) -> Callable[..., AbstractContextManager[Any]]:
    @contextmanager
    def read(self: Any, spark: Any, ranges: Mapping[str, Range], *more: Any) -> Iterator[Any]:
        for one in ranges.items():
            if said := flaky(*one):
                raise RuntimeError(said)
        with real(self, spark, ranges, *more) as records:
            yield records

    return read


def read_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablation: the first read of an offset decides."""
    monkeypatch.setattr(Bisection, "read_again", lambda _, failed, __: failed)
