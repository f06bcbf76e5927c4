"""Groups whose workers decide alone, inside Dagster: one under each protocol, side by side, seen as a person sees them."""

import signal
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from rota.coordination.parking import park
from rota.coordination.views import RunView
from tests.demo.small_group import Run
from tests.face.line import Line, find_newest
from tests.face.reload import PROTOCOLS, Reload, declare_alone
from tests.waiting import LONG, wait_until

KEYS = ("a", "b", "c", "d")
PARKED = "claim:a"
CHANGED = {"race": "assigned", "ordinal": "claim"}


class Groups:
    """The group, the pipeline and the protocol have one name; its workers are `<name>-0`, `<name>-1`."""

    def __init__(self, line: Line) -> None:
        self.line, self.landed, self.parked = line, dict[str, list[int]](), frozenset[str]()

    def join(self, number: int, *names: str) -> None:
        for name in names:
            self.line.join(f"{name}-{number}", name)

    def leave(self, number: int, *names: str) -> None:
        """SIGTERM, and it waits until they ended."""
        leaving = [self.line.workers.pop(f"{name}-{number}") for name in names]
        for process in leaving:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(LONG) for process in leaving] == [0] * len(names)

    def land(self, number: int, *names: str) -> None:
        """One record more in every partition."""
        for name in names:
            for key in KEYS:
                self.line.land(name, key, number)
            self.landed.setdefault(name, []).append(number)

    def wait_consumed(self) -> None:
        """Every row that landed is there once, but of what is parked."""
        for name, numbers in self.landed.items():
            expected = {key: numbers for key in KEYS if f"{name}:{key}" not in self.parked}
            self.line.holds(name, expected)


@pytest.fixture
def groups(line: Line, reload: Reload) -> Iterator[Groups]:
    yield Groups(line)
    for worker in [w for w in line.workers if w.rpartition("-")[0] in PROTOCOLS]:
        line.kill(worker)


@pytest.fixture
def run(line: Line, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The commands, as the line's environment has them."""
    for name, value in line.environ.items():
        monkeypatch.setenv(name, value)
    return Run()


def checks(line: Line, *key: str) -> Mapping[str, bool]:
    """Name -> whether its newest evaluation passed."""
    asset = ", ".join(f'"{part}"' for part in key)
    listed = line.dev.query(
        f"""{{ assetNodeOrError(assetKey: {{path: [{asset}]}}) {{ ... on AssetNode {{ assetChecksOrError {{
              ... on AssetChecks {{ checks {{ name }} }} }} }} }} }}"""
    )["assetNodeOrError"]["assetChecksOrError"]["checks"]
    found = {}
    for name in (one["name"] for one in listed):
        said = line.dev.query(
            f"""{{ assetCheckExecutions(assetKey: {{path: [{asset}]}}, checkName: "{name}", limit: 1) {{
                  evaluation {{ success }} }} }}"""
        )["assetCheckExecutions"]
        found.update((name, one["evaluation"]["success"]) for one in said if one["evaluation"])
    return found


def find_shown(line: Line, name: str, epoch: int) -> Mapping[str, Any]:
    """What the page shows of this epoch; it comes some moments after ZooKeeper has it."""
    shown = (one["metadata"] for one in line.dev.materializations(name, "assignment"))
    return next((one for one in shown if one["epoch"] == epoch), {})


def see_the_fill(groups: Groups, line: Line) -> None:
    """Then one partition waits for a person: the observation that finds it comes within half a minute."""
    groups.land(1, *PROTOCOLS)
    for name in PROTOCOLS:  # a worker that joined before would get them one by one
        with line.tree(name) as tree:
            wait_until(lambda tree=tree: tree.exists() and len(tree.ids()) == len(KEYS), pause=0.3)
    groups.join(0, *PROTOCOLS)
    groups.wait_consumed()
    for name in PROTOCOLS:
        filled = line.epoch_where(name, lambda e, name=name: e.after == {f"{name}-0": len(KEYS)})
        assert filled.joined == (f"{name}-0",), name
    with line.tree(PARKED.partition(":")[0]) as tree:
        park(tree, PARKED, "an operator has to look")
    groups.parked |= {PARKED}


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
        shown = run.json("why", shared.moves[0].partition, "--group", name)
        assert (shown["owner"], shown["target"], shown["reason"], shown["lag"]) == (second, second, why, 0)
        status: Any = run.json("status", "--group", name)
        assert {one["id"]: one["owned"] for one in status["workers"]} == {first: 2, second: 2}
        assert status["sentence"] == shared.sentence
        shown = wait_until(lambda name=name, epoch=shared.epoch: find_shown(line, name, epoch), pause=0.5)
        assert shown["what happened"] == shared.sentence
        path = str(shown["picture"]).partition("](")[2].removesuffix(")")
        with urllib.request.urlopen(line.dev.url + path, timeout=LONG) as picture:
            assert picture.read(4) == b"\x89PNG"


def see_the_death(groups: Groups, line: Line, run: Run) -> None:
    """The second worker dies, and what it had goes on."""
    for name in PROTOCOLS:
        line.kill(f"{name}-1")
    for name in PROTOCOLS:
        alone = line.epoch_where(name, lambda e, name=name: e.left == (f"{name}-1",))
        assert {move.reason for move in alone.moves} == {f"{name}-1 left"}
        assert alone.after == {f"{name}-0": len(KEYS)}
    groups.land(2, *PROTOCOLS)  # not before: until its session ends, the dead worker's run works on
    groups.wait_consumed()
    for name in PROTOCOLS:
        history: Any = run.json("history", "--group", name)
        assert [len(e["moves"]) for e in history["epochs"]] == [4, 2, 2]
        assert {c["partition"] for c in history["commits"]} == {f"{name}:{key}" for key in KEYS}


def see_what_waits(groups: Groups, line: Line, run: Run) -> None:
    """The page shows that it waits; then it is retried."""
    name = PARKED.partition(":")[0]
    wait_until(lambda: checks(line, name, "records").get("none_parked") is False, pause=1)
    well = dict.fromkeys(
        ("no_stale_epoch", "all_owned", "group_works"), True
    )  # an observation during the hand-over may have shown another state before
    wait_until(lambda: checks(line, name, "ownership") == well, pause=1)
    assert "is tried again" in run("retry", PARKED, "--group", name).output
    groups.parked = frozenset()


def lose_power(line: Line, **changed: str) -> None:
    """All of Dagster dies in the middle of a run. What happened meanwhile is found when it is back: a worker that died, a
    file that landed, pipeline files that changed."""
    landed, keys = [9], ("dawn", "dead", "dusk")  # of several some are the new worker's
    for key in keys:
        line.land("c", key, *landed)
    line.holds("c", dict.fromkeys(keys, landed))
    line.join("n3", "night")
    before = line.epoch_where("night", lambda e: "n3" in e.after).epoch

    def find_at_work() -> tuple[RunView, ...]:
        """The runs that have a batch in hand. Where all that landed went by unseen, more lands."""
        if not (going := tree.runs()) and [n for p, n in line.rows("c") if p == "c:dead"] == landed:
            landed.append(landed[-1] + 1)
            line.land("c", "dead", landed[-1])
        return going

    with line.tree("night") as tree:
        wait_until(find_at_work, pause=0.05)  # a batch is over soon
    line.dev.stop(kill=True)
    line.kill("n3")
    landed.append(landed[-1] + 1)
    line.land("c", "dead", landed[-1])
    declare_alone(line, **changed)
    line.dev.start()
    line.epoch_where("night", lambda e: e.epoch > before and "n3" in e.left)
    line.holds("c", {"dead": landed})


def change_protocols(groups: Groups, line: Line, **changed: str) -> None:
    """Drain, change, continue. A worker that starts too early is refused in one line until the others are gone."""
    for name, protocol in changed.items():
        with line.tree(name) as tree:
            wait_until(lambda tree=tree, wanted=protocol: tree.meta().protocol == wanted, pause=0.3)
    groups.join(1, *changed)
    logs = {name: line.folder / "logs" / f"{name}-1.log" for name in changed}
    for name, protocol in changed.items():
        wait_until(lambda name=name: "event=refused" in logs[name].read_text(), pause=0.3)
        assert f"the group's protocol is {protocol}, and {name}-0 still run {name}" in logs[name].read_text()
    groups.leave(0, *changed)
    groups.land(3, *PROTOCOLS)
    groups.wait_consumed()
    for name, protocol in changed.items():
        assert logs[name].read_text().count("event=refused") == 1
        line.epoch_where(name, lambda e, name=name: e.after == {f"{name}-1": len(KEYS)})
        with line.tree(name) as tree:
            assert {one.record.protocol for one in tree.live() if one.record} == {protocol}


def see_the_page(line: Line) -> None:
    """Lineage and checks, and every consuming run was launched by the backlog sensor."""
    for name in PROTOCOLS:
        at = wait_until(lambda name=name: find_whole(line, name), pause=0.5)
        assert {one["run"] for one in find_newest(line, name, "ownership").values()} >= {
            one["run"] for one in at.values()
        }
        assert checks(line, name, "assignment") == {"one_owner_each": True, "balance_within_bound": True}
        for asset in ("ownership", "records", "checkpoints"):
            wait_until(lambda name=name, asset=asset: set(checks(line, name, asset).values()) == {True}, pause=1)
        runs = [one for one in line.dev.runs() if one["jobName"] == f"{name}__consume"]
        assert {t["value"] for one in runs for t in one["tags"] if t["key"] == "dagster/sensor_name"} == {
            f"{name}__backlog"
        }


def find_whole(line: Line, name: str) -> Mapping[str, Mapping[str, Any]]:
    """What the page shows of each checkpoint, once it shows three files of each partition."""
    at = find_newest(line, name, "checkpoints")
    return at if [one["offset"] for one in at.values()] == [3] * len(KEYS) else {}


def test_what_workers_do_alone_is_seen_as_what_a_controller_does_also_where_dagster_died_in_between(
    groups: Groups, line: Line, run: Run
) -> None:
    see_the_fill(groups, line)
    see_the_share(groups, line, run)
    see_the_death(groups, line, run)
    see_what_waits(groups, line, run)
    lose_power(line, **CHANGED)
    change_protocols(groups, line, **CHANGED)
    see_the_page(line)
