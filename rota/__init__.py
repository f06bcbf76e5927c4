"""rota: balanced, sticky, fenced assignment of source partitions to live Spark workers."""

from typing import TYPE_CHECKING, Any

from rota.pipeline import Group, Pipeline, delta, files

if TYPE_CHECKING:
    from rota.history import history

__all__ = ["Group", "Pipeline", "delta", "files", "history"]


def __getattr__(name: str) -> Any:
    """`rota.history` on first use: who declares a pipeline does not wait for ZooKeeper's client."""
    if name == "history":
        from importlib import import_module

        return import_module("rota.history")
    raise AttributeError(f"module 'rota' has no attribute {name!r}")
