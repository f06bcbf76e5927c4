"""Assignors by name. Each is a pure function (snapshot, options, memory) -> Proposal: equal input gives equal bytes."""

from rota.core.assignors.known_assignors import ASSIGNORS, Assignor, Proposal, find_assignor

__all__ = ["ASSIGNORS", "Assignor", "Proposal", "find_assignor"]
