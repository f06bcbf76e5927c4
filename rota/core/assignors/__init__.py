"""Assignors by name: pure functions (snapshot, options, memory) -> Proposal. Same input, same bytes out."""

from rota.core.assignors.registry import ASSIGNORS, Assignor, Proposal, find

__all__ = ["ASSIGNORS", "Assignor", "Proposal", "find"]
