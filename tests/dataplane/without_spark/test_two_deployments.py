"""Two deployments that take files away from one landing folder, which docs/files.md advises against.

Law: no row is in neither table, and none is in one of them twice, whenever the second deployment consumes. Each file may be
in one table alone: rota does not report that.
"""

from collections import Counter
from pathlib import Path

import pytest

from rota.run.maintain import maintain
from tests.dataplane.conftest import log
from tests.dataplane.without_spark.trickle import Trickle
from tests.dataplane.without_spark.two_at_once import before_call

AFTER = {"delete": 'after="delete"', "archive": 'after="archive:_done"'}


def read_numbers(one: Trickle) -> Counter[int]:
    main = one.world.table / "main"
    return Counter(int(str(row["n"])) for row in log(main).rows()) if main.exists() else Counter()


def wait_long(one: Trickle) -> None:
    """No park of a partition lasts that long."""
    now = one.world.server.clock() + 3700.0
    one.world.server.clock = lambda: now


@pytest.mark.parametrize("second", AFTER)
@pytest.mark.parametrize("first", AFTER)
def test_no_row_is_in_neither_table(tmp_path: Path, first: str, second: str) -> None:
    for at in range(3, 60, 19):
        one, two = (Trickle(tmp_path / f"{at}-{n}", AFTER[after]) for n, after in enumerate((first, second)))
        for key in "aab":
            one.land(key)
        (two.world.folder / "land").symlink_to(one.world.folder / "land")

        def come_between(one: Trickle = one, two: Trickle = two) -> None:
            two.consume()
            one.land("a")

        with before_call(at, come_between):
            one.consume()
        for _ in range(2):
            for each in (one, two):
                wait_long(each)
                each.consume()
        assert not maintain(one.world.pipeline).failed + maintain(two.world.pipeline).failed
        found = [read_numbers(each) for each in (one, two)]
        assert {n for of in found for n in of} == {n for _, n in one.wanted}, at
        assert max(n for of in found for n in of.values()) == 1, at
