"""The past of a partition: `rota why --at`, `rota history --since`, and the function that finds an owner in the epochs."""

import random
import re
import time
from collections.abc import Iterator
from datetime import datetime

import pytest
from rich.console import Console

from rota.cli import view
from rota.coordination.records import Epoch, Moved, encode
from rota.errors import ConfigError
from rota.face.past import find_past_owner
from tests.demo.small_group import Group, Run
from tests.docs.pages import ROOT

NAMES = ("f:a", "f:b", "f:c")
NINE, ELEVEN = (datetime.fromisoformat(f"2026-01-31T{hour}:00+01:00").timestamp() for hour in ("09", "11"))
WINDOW = (
    "ZooKeeper has the epochs since 2026-01-31 09:00:00 CET (epoch 41). Dagster keeps older ones, but Dagster's page "
)


def make_epoch(number: int, at: float, moves: list[Moved], **more: object) -> Epoch:
    fields = {"moved": len(moves), "sentence": f"Epoch {number}.", "moves": tuple(moves), **more}
    return Epoch(epoch=number, at=at, **fields)  # type: ignore[arg-type]


def move(partition: str, giver: str | None, taker: str, reason: str = "r") -> Moved:
    return Moved(partition=partition, from_worker=giver, to_worker=taker, reason=reason)


@pytest.fixture
def past(group: Group, monkeypatch: pytest.MonkeyPatch) -> Iterator[Group]:
    """Two epochs are in the past, and the ones before them are no longer in ZooKeeper. Dagster does not answer."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    monkeypatch.setenv("ROTA_DAGSTER", "http://127.0.0.1:1")
    time.tzset()
    tree = group.tree
    placed = [move(f"flights:{key}", "w2", "w1", "w2 left") for key in ("AA", "B6", "UA")]
    pinned = [move("flights:UA", "w1", "w2", "pinned to w2")]
    for name in tree.store.children(tree.paths.epochs):
        tree.store.delete(f"{tree.paths.epochs}/{name}")
    for epoch in (
        make_epoch(41, NINE, placed, sentence="Epoch 41: w2 left. 3 of 3 partitions moved (3 unavoidable)."),
        make_epoch(57, ELEVEN, pinned, sentence="Epoch 57: flights:UA is pinned to w2. 1 of 3 partitions moved."),
    ):
        tree.store.create(tree.paths.epoch(epoch.epoch), encode(epoch))
    yield group
    monkeypatch.undo()
    time.tzset()


def test_the_example_of_the_docs_is_what_the_command_prints(
    past: Group, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "console", Console(width=120, highlight=False, emoji=False))
    page = (ROOT / "docs" / "operations.md").read_text()
    words, printed = re.findall(r"    rota (why [^\n]* --at [^\n]*)\n\n```\n(.*?)```", page, re.S)[0]
    assert words == "why flights:UA --at 2026-01-31T10:00"
    assert [line.rstrip() for line in run(*words.split()).output.strip().splitlines()] == printed.splitlines()


@pytest.mark.parametrize(
    ("at", "owner", "since", "until", "epoch"),
    [
        ("2026-01-31T10:59:59", "w1", 41, 57, 41),
        ("2026-01-31T11:00", "w2", 57, None, 57),
        ("2026-01-31T10:00Z", "w2", 57, None, 57),
        ("2026-01-31T09:59:59+00:00", "w1", 41, 57, 41),
        ("2026-02-01", "w2", 57, None, 57),
    ],
)
def test_a_time_is_local_or_has_a_zone(
    past: Group, run: Run, at: str, owner: str, since: int, until: int | None, epoch: int
) -> None:
    seen = run.json("why", "flights:UA", "--at", at)
    found = (seen["known"], seen["owner"], seen["since_epoch"], seen["until_epoch"], seen["epoch"], seen["note"])
    assert found == (True, owner, since, until, epoch, "")


def test_what_no_store_has_is_reported_in_one_line(past: Group, run: Run) -> None:
    seen = run.json("why", "flights:UA", "--at", "2026-01-31T08:00")
    assert (seen["known"], seen["owner"], seen["until_epoch"], seen["epoch"]) == (False, None, 41, None)
    assert str(seen["note"]).startswith(f"{WINDOW}at http://127.0.0.1:1 does not answer")
    assert "owner unknown" in " ".join(run("why", "flights:UA", "--at", "2026-01-31T08:00").output.split())
    said = run("history", "--since", "2026-01-31T08:00").output.splitlines()[-1]
    assert said.startswith(WINDOW)
    assert run.json("history", "--since", "2026-01-31T08:00")["note"] == said


def test_history_since_a_time_begins_there_and_counts_what_it_leaves_out(past: Group, run: Run) -> None:
    def epochs(*words: str) -> list[object]:
        return [epoch["epoch"] for epoch in run.json("history", *words)["epochs"]]

    assert epochs("--since", "2026-01-31T09:00") == [41, 57]
    assert epochs("--since", "2026-01-31T09:00:01") == [57]
    assert epochs("flights:AA", "--since", "2026-01-31T09:00") == [41]
    assert epochs("--since", "2026-01-31T09:00", "--last", "1") == [57]
    shown = run("history", "flights:UA", "--since", "2026-01-31T09:00", "--last", "1").output
    assert "2 earlier events since then: --last 3" in shown, "two epochs and a refused write"
    every = run("history", "flights:UA", "--since", "2026-01-31T09:00").output
    assert "2026-01-31 11:00:00 CET" in " ".join(every.split())


@pytest.mark.parametrize(
    "text", ["yesterday", "12", "2026-13-01", "0001-01-01T00:00+14:00", "99999-01-01", "", "2999-01-01"]
)
def test_a_bad_time_is_refused_in_one_line(past: Group, run: Run, text: str) -> None:
    for words in (("why", "flights:UA", "--at", text), ("history", "--since", text)):
        with pytest.raises(ConfigError, match=r"(is no time|is not between 1970 and now)\. Give one like") as refused:
            run(*words)
        assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("seed", range(200))
def test_an_owner_that_is_known_is_the_true_one_whatever_the_epochs_leave_out(seed: int) -> None:
    """And it is known at each time, if nothing is left out."""
    chance = random.Random(seed)
    owners: dict[str, str | None] = dict.fromkeys(NAMES)
    epochs: list[Epoch] = []
    truth: list[tuple[float, dict[str, str | None]]] = [(0.0, dict(owners))]
    for number in range(1, chance.randint(2, 12)):
        moves, dropped = [], []
        for partition in chance.sample(NAMES, chance.randint(1, 3)):
            taker = chance.choice(("w1", "w2", None))
            if taker is None and owners[partition] is not None:
                dropped.append(partition)
            elif taker is not None and taker != owners[partition]:
                moves.append(move(partition, owners[partition], taker))
            owners[partition] = taker
        epochs.append(make_epoch(number, number * 10.0, moves, dropped=tuple(dropped)))
        truth.append((number * 10.0, dict(owners)))
    whole = chance.random() < 0.3
    if not whole:  # the oldest are gone, and some list a part of their moves
        epochs = epochs[chance.randint(0, len(epochs) - 1) :]
        epochs = [e.model_copy(update={"moves": e.moves[chance.randint(0, 1) :]}) for e in epochs]
    for at in (chance.uniform(0.0, 140.0) for _ in range(30)):
        now = next(state for begun, state in reversed(truth) if begun <= at)
        for partition in NAMES:
            found = find_past_owner(epochs, partition, at, owners[partition])
            assert found.known or not whole
            if found.known:
                assert found.owner == now[partition]
