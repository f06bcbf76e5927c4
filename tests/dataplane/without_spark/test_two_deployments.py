"""Two deployments that take files away from one landing folder: the first one owns the folder, and the second is refused.

Law: every row is in the table of the owner, once, and none is in the other table, whenever the second one comes in between.
"""

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rota.dataplane.files import owner
from rota.dataplane.files.opening import open_landing
from rota.errors import ForeignTable
from rota.run.maintain import maintain
from tests.dataplane.conftest import log
from tests.dataplane.without_spark.trickle import Trickle
from tests.dataplane.without_spark.two_at_once import before_call

AFTER = {"delete": 'after="delete"', "archive": 'after="archive:_done"'}


def read_numbers(one: Trickle) -> Counter[int]:
    main = one.world.table / "main"
    return Counter(int(str(row["n"])) for row in log(main).rows()) if main.exists() else Counter()


def open_two(folder: Path, *after: str) -> tuple[Trickle, Trickle]:
    one, two = (Trickle(folder.with_name(f"{folder.name}-{n}"), AFTER[each]) for n, each in enumerate(after))
    for key in "aab":
        one.land(key)
    (two.world.folder / "land").symlink_to(one.world.folder / "land")
    return one, two


def is_refused(one: Trickle) -> bool:
    try:
        one.consume()
    except ForeignTable as error:
        return re.search(r"would divide the rows.*delete .*/\.rota-owner$", str(error)) is not None
    return False


@pytest.mark.parametrize("second", AFTER)
@pytest.mark.parametrize("first", AFTER)
def test_one_of_two_is_refused_and_the_other_has_every_row(tmp_path: Path, first: str, second: str) -> None:
    owners = set()
    for at in (3, 30, 45, 50, 55):
        one, two = open_two(tmp_path / str(at), first, second)

        def come_between(one: Trickle = one, two: Trickle = two) -> None:
            is_refused(two)
            one.land("a")

        with before_call(at, come_between):
            is_refused(one)
        refused = is_refused(one), is_refused(two)
        assert refused in ((True, False), (False, True))
        (mine, other) = (one, two) if refused[1] else (two, one)
        assert not maintain(mine.world.pipeline).failed
        assert read_numbers(mine) == {n: 1 for _, n in one.wanted}, at
        assert not read_numbers(other)
        owners.add(refused[1])
    assert owners == {True, False}


def test_the_folder_changes_hands_once_the_mark_is_deleted(tmp_path: Path) -> None:
    one, two = open_two(tmp_path / "x", "delete", "delete")
    one.consume()
    (tmp_path / "x-0" / "land" / owner.MARK).unlink()
    more = one.land("b")[1]
    two.consume()
    assert read_numbers(two) == dict.fromkeys(more, 1)
    assert is_refused(one)
    _, numbers = one.land("a")
    assert maintain(one.world.pipeline).failed, "the former owner takes nothing away"
    assert not (read_numbers(one) + read_numbers(two)).keys() & set(numbers)


def test_the_ablation_divides_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "claim", lambda *_: None)
    one, two = open_two(tmp_path / "x", "delete", "delete")
    one.consume()
    more = one.land("b")[1]
    two.consume()
    one.consume()
    assert not read_numbers(one).keys() & set(more)
    assert not read_numbers(two).keys() - set(more)


@pytest.mark.parametrize("where", ["disk", "bucket"])
def test_of_indexes_that_claim_at_once_one_wins(where: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    place = str(tmp_path) if where == "disk" else f"{request.getfixturevalue('bucket')}/land"
    landing = open_landing(place)

    def claim(index: int) -> bool:
        try:
            owner.claim(landing, f"{index:032}", f"/table{index}")
        except ForeignTable:
            return False
        return True

    (tmp_path / "a").mkdir()
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(claim, range(8))) == 1


def test_a_folder_that_is_away_or_cannot_be_written_gets_no_mark(tmp_path: Path) -> None:
    """`Trickle` may run as root, for which every folder can be written: so a folder lies where the mark would."""
    one = Trickle(tmp_path / "x", AFTER["delete"])
    (tmp_path / "x" / "land").mkdir()
    owner.claim(open_landing(str(tmp_path / "x" / "land")), "1", "/t")
    assert not (tmp_path / "x" / "land" / owner.MARK).exists()
    one.land("a")
    (tmp_path / "x" / "land" / owner.MARK).mkdir()
    one.consume()
    assert read_numbers(one) == {n: 1 for _, n in one.wanted}
    assert len(list((tmp_path / "x" / "land" / "a").iterdir())) == 1, "no file is taken away without the mark"
