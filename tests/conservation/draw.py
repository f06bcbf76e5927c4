"""A generator of random numbers that notes what it was used for, so that a run can tell what it covered."""

import random
from collections import Counter


class Draw(random.Random):
    """`noted` counts what was drawn, by name."""

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self.noted: Counter[str] = Counter()

    def note(self, what: str, kind: object) -> None:
        self.noted[f"{what}: {kind}"] += 1
