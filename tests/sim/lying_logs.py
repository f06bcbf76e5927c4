"""Logs that lie: one compares less than it claims, one loses its answers, one answers late, one lists a page late."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rota.deltalog.port import Draft, Moved
from simulator.memory_log import MemoryLog, MemoryVersion

LATE = 2  # commits that an answer is behind


class TokenBlind(MemoryLog):
    """Does not compare tokens."""

    def has_moved(self, draft: Draft[Any]) -> bool:
        """Of what a draft sets, the offsets alone."""
        sets = {name: number for name, number in draft.sets.items() if not name.endswith("/token")}
        return super().has_moved(replace(draft, sets=sets))


class Blind(MemoryLog):
    """Compares nothing."""

    def has_moved(self, draft: Draft[Any]) -> bool:
        """Nothing moved."""
        return False


class Forgetful(MemoryLog):
    """Each second batch lands, and its answer is that another writer was faster: as after a put that was tried again."""

    def append(self, draft: Draft[Any]) -> None:
        """See `Version.append`."""
        super().append(draft)
        if draft.adds and self.newest % 2:
            raise Moved


class Late(MemoryLog):
    """Each second time its newest version is one that was."""

    asked = 0

    def open(self) -> MemoryVersion | None:
        """See `Log.open`."""
        self.asked += 1
        newest = super().open()
        return replace(newest, number=max(0, newest.number - LATE)) if newest and self.asked % 2 else newest


class LateList(MemoryLog):
    """The newest commits are not listed yet, each second time that a reader looks for them."""

    asked = 0

    def read_info(self, version: int) -> Mapping[str, Any]:
        """See `Log.read_info`."""
        self.asked += version == self.newest
        hidden = version > self.newest - LATE and self.asked % 2
        return {} if hidden else super().read_info(version)


class LateBlind(Late, Blind):
    """Answers late, and compares nothing."""


class LateListBlind(LateList, Forgetful, Blind):
    """Loses its answers, lists late and compares nothing."""
