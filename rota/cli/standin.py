"""Loads pipeline files without importing Dagster, which takes two seconds: a command asks them for their Pipeline alone.

Laws: what a file says of its Pipeline is what it says with Dagster: a file that does not load with the stand-in is loaded
with Dagster. Afterwards no module holds a stand-in, and `import dagster` gives Dagster.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from rota.catalog import Catalog


class StandIn:
    """Takes the place of anything of Dagster's that the top of a file calls, combines, decorates with or derives from. A
    file that asks what it is, in a text or a condition, does not load with it."""

    def __getattr__(self, name: str) -> "StandIn":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: object, **__: object) -> "StandIn":
        return self

    def __mro_entries__(self, _: tuple[object, ...]) -> tuple[type, ...]:
        return ()

    def _combine(self, _: object = None) -> "StandIn":
        return self

    __getitem__ = __or__ = __ror__ = __and__ = __rand__ = _combine

    def __invert__(self) -> "StandIn":
        return self

    def _tell(self, *_: object) -> NoReturn:
        raise TypeError("Dagster alone knows this value")

    __bool__ = __str__ = __format__ = __eq__ = __iter__ = _tell
    __hash__ = object.__hash__


class StandInModule(ModuleType):
    """A module each of whose names is a StandIn."""

    def __getattr__(self, name: str) -> StandIn:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn()


class _Finder(MetaPathFinder, Loader):
    """Finds Dagster, its libraries and what of rota imports it."""

    def find_spec(self, name: str, _: Sequence[str] | None, __: ModuleType | None = None) -> ModuleSpec | None:
        root = name.partition(".")[0]
        if root == "dagster" or root.startswith("dagster_") or f"{name}.".startswith("rota.dagster."):
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return StandInModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """A stand-in has no body."""


def load_plainly(folder: Path) -> "Catalog":
    """What `rota.catalog.load` returns, as far as pipelines and groups go. Raises ConfigError."""
    from rota.catalog import load

    with _without_dagster():
        catalog = load(folder)
    return load(folder) if catalog.refused else catalog


@contextmanager
def _without_dagster() -> Iterator[None]:
    """While it is open, `import dagster` gives a stand-in, unless Dagster is imported already."""
    if "dagster" in sys.modules:
        yield
        return
    before = set(sys.modules)
    sys.meta_path.insert(0, finder := _Finder())
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in sys.modules.keys() - before:
            module = sys.modules[name]
            if isinstance(module, StandInModule) or any(map(_is_stand_in, getattr(module, "__dict__", {}).values())):
                del sys.modules[name]
        if isinstance(vars(sys.modules["rota"]).get("dagster"), StandInModule):
            del sys.modules["rota"].dagster


def _is_stand_in(value: object) -> bool:
    return isinstance(value, (StandIn, StandInModule))
