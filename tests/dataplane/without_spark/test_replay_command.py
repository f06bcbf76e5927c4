"""`rota replay` launches no run that would only be refused: a failed run is red on the page, and alerts a person."""

from contextlib import nullcontext

import pytest
from click.testing import CliRunner

from rota.cli import cli
from tests.dataplane.renamed_tables import fill
from tests.dataplane.world import World


@pytest.fixture(autouse=True)
def zookeeper(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.cli.replay.open_group", lambda _: nullcontext(world.tree))


def replay(world: World, *words: str) -> str:
    environ = {
        "ROTA_PIPELINES": str(world.folder / "pipelines"),
        "ROTA_DAGSTER": "http://127.0.0.1:1",
        "ROTA_TABLES": str(world.folder),
        "ROTA_LANDING": str(world.folder),
    }
    answer = CliRunner().invoke(cli, ["replay", "p:a", *words], env=environ)
    assert answer.exit_code != 0
    return f"{answer.output}{answer.exception or ''}"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--from", "5", "--to", "3"), "p:a was not replayed: [5, 3) is no range. Give 0 <= from < to"),
        (("--to", "99"), "p:a was not replayed: only offsets below 2 were consumed"),
        (("--files", "nope.csv"), "No file 'nope.csv' was consumed"),
        (("--since", "yesterday"), "'yesterday' is no time"),
        (("--until", "2100-01-01", "--changed"), "One of them"),
        (("--to", "2", "--stamped"), "stamped needs a time"),
        (("--since", "2020-01-01", "--stamped"), "The records of p:a have no time of their own"),
        (("--since", "2020-01-01", "--until", "2100-01-01"), "127.0.0.1:1"),
        (("--from", "0", "--to", "2"), "127.0.0.1:1"),
    ],
)
def test_a_wrong_argument_is_one_line_before_anything_is_launched(
    world: World, words: tuple[str, ...], said: str
) -> None:
    world.give("a")
    fill(world, "0", "1")
    assert said in replay(world, *words)


def test_what_cannot_be_read_here_is_left_to_the_run(world: World) -> None:
    world.give("a")
    assert "127.0.0.1:1" in replay(world, "--to", "99"), "there is no table here"
