"""The published table, as far as exactly-once goes: a token and an offset for each partition, set in one commit.

Law: a commit happens only under the token that the table holds, from the offset that it holds. `fence=False` takes the
token away from that law, to show what it is for.
"""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Table:
    """Token and offset by partition; `refused` counts the commits that were fenced."""

    fence: bool = True
    tokens: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    commits: int = 0
    refused: int = 0
    on_commit: Callable[[str, int, int], None] | None = None  # told partition, start, and where the table stood

    def claim(self, partition: str, token: int) -> int | None:
        """Enters the token and gives the offset to start from; None if a newer one is there."""
        if self.fence and self.tokens.get(partition, 0) > token:
            self.refused += 1
            return None
        self.tokens[partition] = max(token, self.tokens.get(partition, 0))
        return self.offsets.get(partition, 0)

    def commit(self, partition: str, token: int, start: int, end: int) -> bool:
        """Publishes [start, end); False: a newer token came in between, nothing was written."""
        if self.fence and self.tokens[partition] != token:
            self.refused += 1
            return False
        if self.on_commit is not None:
            self.on_commit(partition, start, self.offsets.get(partition, 0))
        self.offsets[partition] = end
        self.commits += 1
        return True
