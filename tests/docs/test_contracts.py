"""No contract of the last release is gone: each name that its docs/protocol.md and docs/api.md listed is listed now.

Other tests pin these pages to the code, so a page names what there is. A name may be added. One that is removed or renamed
must be announced: by ` => NEW` behind it in contracts.txt, and in an entry "Contract:" of the changelog. At a release, write
the names anew: python -m tests.docs.test_contracts > tests/docs/contracts.txt
"""

import re
import sys
from collections.abc import Iterator

import pytest

from tests.docs.pages import ROOT

PAGES = ("protocol", "api")
RELEASED = ROOT / "tests" / "docs" / "contracts.txt"  # of 0.1.0
LISTS = ("keys", "fields", "columns", "labels")  # the columns of tables that list names, beside the first one
NAME = re.compile(r"`([^`]+)`")


def list_names(name: str, page: str) -> Iterator[str]:
    """Each name in a table of a page: page | section | head of the table | name, and the names that its row lists."""
    section, heads = "", list[str]()
    for line in page.splitlines():
        if line.startswith("#"):
            section = line.lstrip("# ").replace("`", "")
        if not line.startswith("|"):
            heads = []
        elif not heads:
            heads = split_row(line)
        else:
            cells = split_row(line)
            said = NAME.findall(cells[0])
            yield from (f"{name} | {section} | {heads[0]} | {one}" for one in said)
            for head, cell in zip(heads, cells, strict=True):
                if head in LISTS and said:
                    yield from (f"{name} | {section} | {heads[0]} | {said[0]} | {one}" for one in NAME.findall(cell))


def split_row(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def list_contracts() -> set[str]:
    return {one for name in PAGES for one in list_names(name, (ROOT / "docs" / f"{name}.md").read_text())}


def read_released() -> dict[str, str]:
    """Each name of the last release -> its name now; empty if it is the same."""
    lines = (line.partition(" => ") for line in RELEASED.read_text().splitlines())
    return {name: new for name, _, new in lines}


def test_no_contract_of_the_last_release_is_gone_unannounced() -> None:
    released = read_released()
    assert len(released) > 500
    assert released.keys() - list_contracts() == {name for name, new in released.items() if new}


def test_what_is_gone_is_in_the_changelog() -> None:
    unreleased = (ROOT / "CHANGELOG.md").read_text().partition("## [Unreleased]")[2].partition("\n## ")[0]
    entries = re.split(r"\n(?=- |#)", unreleased)
    contracts = " ".join(" ".join(one.split()) for one in entries if "Contract:" in one)
    for old, new in read_released().items():
        assert not new or f"`{old.rpartition(' | ')[2]}`" in contracts
        assert not new or f"`{new}`" in contracts


@pytest.mark.parametrize(
    ("old", "new"), [("| `ROTA_LINGER` |", "| `ROTA_LINGERING` |"), (" `needs[].since`", ""), (" `_offset` long,", "")]
)
def test_one_that_is_removed_or_renamed_is_found(old: str, new: str) -> None:
    page = (ROOT / "docs" / "protocol.md").read_text()
    assert old in page
    assert set(list_names("protocol", page)) - set(list_names("protocol", page.replace(old, new)))


def test_the_names_are_of_every_kind_of_contract() -> None:
    found = list_contracts()
    for one in (
        "protocol | Environment | name | ROTA_ZOOKEEPER",
        "protocol | ZooKeeper | znode | meta | level",
        "protocol | Tables | table | main | _partition",
        "protocol | Tables | transaction id | rota/<group>/<partition>/offset",
        "protocol | Dagster | check | no_gap",
        "protocol | CLI JSON | command | status | needs[].cause",
        "protocol | Metrics | metric | rota_needs | person",
        "api | rota.Pipeline | argument | source",
    ):
        assert one in found


if __name__ == "__main__":
    sys.stdout.writelines(f"{one}\n" for one in sorted(list_contracts()))
