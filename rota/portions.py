"""Splits a sequence into portions of bounded size."""

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import TypeVar

T = TypeVar("T")


def take_portions(
    things: Iterable[T], most: float, measure: Callable[[T], int], many: float = inf
) -> Iterator[list[T]]:
    """Yield the things in order, in portions.

    A portion measures at most `most` in total and has at most `many` things, but always at least one.
    """
    some: list[T] = []
    size = 0
    for one in things:
        more = measure(one)
        if some and (len(some) >= many or size + more > most):
            yield some
            some, size = [], 0
        some.append(one)
        size += more
    if some:
        yield some
