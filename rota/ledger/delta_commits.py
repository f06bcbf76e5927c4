"""What a commit of a Delta log says, from its bytes."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

# What a commit says of itself, with its number, and the transactions that it sets; None: some of them expire.
Said = tuple[Mapping[str, Any], Mapping[str, int] | None]


def parse_said(version: int, commit: bytes) -> Said:
    """All of it. Raises ValueError."""
    info = find_info(version, commit)
    with suppress(ValueError, KeyError, TypeError):
        return info, dict(list_transactions(commit))
    return info, None


def find_info(version: int, commit: bytes) -> dict[str, Any]:
    """What it says of itself, and its number. Raises ValueError."""
    infos = (json.loads(line).get("commitInfo") for line in commit.split(b"\n") if b'"commitInfo"' in line)
    return {**next(filter(None, infos), {}), "version": version}


def list_transactions(commit: bytes) -> Iterator[tuple[str, int]]:
    """Those that it sets. Of one id twice in a commit delta-rs takes the first. Raises ValueError, KeyError, TypeError."""
    found = [txn for line in commit.split(b"\n") if b'"txn"' in line and (txn := json.loads(line).get("txn"))]
    yield from map(check_lasting, reversed(found))


def check_lasting(txn: Mapping[str, Any]) -> tuple[str, int]:
    """Its id and number. Raises ValueError where it may expire."""
    if txn.get("lastUpdated") is not None:
        raise ValueError("it may expire; ours never do")
    return txn["appId"], int(txn["version"])
