"""Whether a world without one of its guards comes to damage."""

from collections.abc import Callable

from simulator.stage import Stage


class Broken(Exception):
    """The rule that should be broken was."""


def breaks(stage: Stage, play: Callable[[], object], rule: str) -> bool:
    """Whether `play` breaks the rule in this world. It ends with the event that does: what follows is not judged."""
    check = stage.timeline.check

    def check_until_broken() -> None:
        check()
        if stage.checker.found[rule]:
            raise Broken

    stage.timeline.check = check_until_broken
    try:
        play()
    except Broken:
        return True
    return stage.checker.found[rule] > 0
