"""Groups whose workers decide alone, inside Dagster: one under each protocol, side by side, seen as a person sees them."""

import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.demo.small_group import Run
from tests.face.line import Line
from tests.waiting import wait_until

PROTOCOLS = ("claim", "race", "ordinal")
KEYS = ("a", "b", "c", "d")
DECLARED = """
from rota import Group, Pipeline, delta, files
group = Group("{name}", protocol="{protocol}")
pipeline = Pipeline(
    source=files("${{ROTA_LANDING}}/{name}", format="json", schema="n int", settle=0.2),
    table=delta("${{ROTA_TABLES}}/{name}"), group="{name}",
)
"""


class Groups:
    """The group, the pipeline and the protocol have one name; its workers are `<name>-0`, `<name>-1`."""

    def __init__(self, line: Line) -> None:
        self.line, self.landed = line, dict[str, list[int]]()

    def declare(self, **protocols: str) -> None:
        for name, protocol in protocols.items():
            (self.line.pipelines / f"{name}.py").write_text(DECLARED.format(name=name, protocol=protocol))
        self.line.dev.reload()

    def join(self, number: int, *names: str) -> None:
        for name in names:
            self.line.join(f"{name}-{number}", name)

    def land(self, number: int, *names: str) -> None:
        """One record more in every partition."""
        for name in names:
            for key in KEYS:
                self.line.land(name, key, number)
            self.landed.setdefault(name, []).append(number)

    def wait_consumed(self) -> None:
        for name, numbers in self.landed.items():
            self.line.holds(name, dict.fromkeys(KEYS, numbers), 90)


@pytest.fixture(scope="module")
def groups(line: Line) -> Iterator[Groups]:
    groups = Groups(line)
    groups.declare(**dict(zip(PROTOCOLS, PROTOCOLS, strict=True)))
    yield groups
    for worker in [w for w in line.workers if w.rpartition("-")[0] in PROTOCOLS]:
        line.kill(worker)
    for name in PROTOCOLS:
        (line.pipelines / f"{name}.py").unlink()  # the next reload takes it away


@pytest.fixture
def run(line: Line, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The commands, as the line's environment has them."""
    for name, value in line.environ.items():
        monkeypatch.setenv(name, value)
    return Run()


def find_shown(line: Line, name: str, epoch: int) -> Mapping[str, Any]:
    """What the page shows of this epoch; it comes some moments after ZooKeeper has it."""
    shown = (one["metadata"] for one in line.dev.materializations(name, "assignment"))
    return next((one for one in shown if one["epoch"] == epoch), {})


def see_the_fill(groups: Groups, line: Line) -> None:
    groups.join(0, *PROTOCOLS)
    groups.land(1, *PROTOCOLS)
    groups.wait_consumed()
    for name in PROTOCOLS:
        filled = line.epoch_where(name, lambda e, name=name: e.after == {f"{name}-0": len(KEYS)})
        assert filled.joined == (f"{name}-0",), name


def see_the_share(groups: Groups, line: Line, run: Run) -> None:
    """A second worker takes its half from runs that serve."""
    groups.join(1, *PROTOCOLS)
    for name in PROTOCOLS:
        first, second = f"{name}-0", f"{name}-1"
        shared = line.epoch_where(name, lambda e, two=second: e.after.get(two) == 2)
        assert (shared.joined, shared.before, len(shared.moves)) == ((second,), {first: 4}, 2)
        why = f"{second} claimed it from {first}, which held 4 while the quota is 2"
        if name == "ordinal":
            why = f"{second}'s slice has it, and {first}'s no longer"
        assert {move.reason for move in shared.moves} == {why}
        told = run.json("why", shared.moves[0].partition, "--group", name)
        assert (told["owner"], told["target"], told["reason"], told["lag"]) == (second, second, why, 0)
        status: Any = run.json("status", "--group", name)
        assert {one["id"]: one["owned"] for one in status["workers"]} == {first: 2, second: 2}
        assert status["sentence"] == shared.sentence
        shown = wait_until(lambda name=name, epoch=shared.epoch: find_shown(line, name, epoch), 30, pause=0.5)
        assert shown["what happened"] == shared.sentence
        path = str(shown["picture"]).partition("](")[2].removesuffix(")")
        with urllib.request.urlopen(line.dev.url + path, timeout=30) as picture:
            assert picture.read(4) == b"\x89PNG"


def see_the_death(groups: Groups, line: Line, run: Run) -> None:
    """The second worker dies, and what it had goes on."""
    groups.land(2, *PROTOCOLS)
    groups.wait_consumed()
    for name in PROTOCOLS:
        line.kill(f"{name}-1")
    for name in PROTOCOLS:
        alone = line.epoch_where(name, lambda e, name=name: e.left == (f"{name}-1",))
        assert {move.reason for move in alone.moves} == {f"{name}-1 left"}
        assert alone.after == {f"{name}-0": len(KEYS)}
    groups.land(3, *PROTOCOLS)  # not before: until its session ends, the dead worker's run works on
    groups.wait_consumed()
    for name in PROTOCOLS:
        history: Any = run.json("history", "--group", name)
        assert [len(e["moves"]) for e in history["epochs"]] == [4, 2, 2]
        assert {c["partition"] for c in history["commits"]} == {f"{name}:{key}" for key in KEYS}


def test_what_workers_do_alone_is_seen_as_what_a_controller_does(groups: Groups, line: Line, run: Run) -> None:
    see_the_fill(groups, line)
    see_the_share(groups, line, run)
    see_the_death(groups, line, run)
