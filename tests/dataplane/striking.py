"""Let something happen in the middle of a run, at a chosen call."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch


@contextmanager
def strike_at(place: object, name: str, act: Callable[[], object], *, before: bool) -> Iterator[None]:
    """Call `act` once: `before` the first call of this function of `place`, else after it. Fail if there is no such call."""
    real, armed = getattr(place, name), [True]

    def meanwhile(*args: object, **more: object) -> object:
        if before and armed and armed.pop():
            act()
        found = real(*args, **more)
        if armed and armed.pop():
            act()
        return found

    with patch.object(place, name, meanwhile):
        yield
    assert not armed, "nothing happened"
