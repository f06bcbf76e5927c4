"""The commands against a real ZooKeeper that holds a small group."""

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from rota.catalog import load
from rota.coordination.group_state import GroupState
from rota.coordination.parking import park
from rota.coordination.records import Checkpoint, Parked
from rota.dataplane.delta.tables import PipelineTables
from rota.errors import RotaError
from rota.ledger.values import Batch
from tests.claiming import claim_one
from tests.demo.small_group import KEYS, Group, Run


def test_why_shows_owner_token_reason_and_what_would_move_it(group: Group, run: Run) -> None:
    seen = run.json("why", "flights:UA")
    assert (seen["owner"], seen["since_epoch"], seen["reason"]) == ("w2", 2, "w1 was 1 over its quota of 2")
    assert seen["sentence"] == "Epoch 2: w2 joined"
    assert (seen["offset"], seen["last_commit"]["rows"], seen["live"]) == (3, 2500, True)
    assert seen["token"] == group.tree.owned()["flights:UA"].token
    assert any("rota drain w2" in line for line in seen["would_move"])
    text = run("why", "flights:UA").output
    assert "w1 was 1 over its quota of 2" in text
    with pytest.raises(RotaError, match="flights:AA, flights:B6, flights:UA"):
        run("why", "flights:XX")


def test_why_shows_the_lag_even_if_only_the_table_cannot_be_read(run: Run, tmp_path: Path) -> None:
    """Five files lie there and three are consumed. What changed in consumed files is known by the table's log alone."""
    (tmp_path / "flights.py").write_text(PIPELINE.format(root=tmp_path).replace('int")', 'int", settle=0)'))
    folder = tmp_path / "landing" / "UA"
    folder.mkdir(parents=True)
    for number in range(5):
        (folder / f"{number}.csv").write_text("1\n")
    assert run.json("why", "flights:UA")["lag"] == 2
    log = tmp_path / "table" / "main" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text('{"torn')
    with pytest.raises(RotaError, match="is no table that can be read"):
        PipelineTables.of(load(tmp_path).pipelines["flights"], "default", "0" * 32).main.read_log()
    seen = run.json("why", "flights:UA")
    assert (seen["lag"], seen["rewritten"]) == (2, None)
    assert "2 behind" in run("why", "flights:UA").output


def test_an_unknown_group_is_named_with_those_there_are(run: Run) -> None:
    with pytest.raises(RotaError, match=r"No group 'absent'.*Known: default"):
        run("status", "--group", "absent")


def test_each_command_that_takes_a_partition_answers_its_key_alone(run: Run) -> None:
    for command in (("why", "UA"), ("pin", "UA", "w2"), ("retry", "UA"), ("skip", "UA"), ("history", "ua")):
        with pytest.raises(RotaError, match=r"Unknown partition '(UA|ua)'.* Did you mean flights:UA\?"):
            run(*command)


def test_check_reaches_zookeeper_and_tries_each_workers_spark(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PIPELINE.format(root=tmp_path))
    seen = run.json("check")
    probes = {p["name"]: p for p in seen["probes"]}
    assert probes["ZooKeeper"]["works"]
    assert not probes["Spark of w1"]["works"]
    assert probes["schema of mine"]["seen"] == "not tried, nor is its transform: no live worker with a Spark"
    assert probes["schema of mine"]["works"]
    assert "its runs start a local session" in probes["Spark of w2"]["seen"]


def test_overrides_are_records_that_the_next_look_reads(group: Group, run: Run) -> None:
    run("cordon", "w2")
    assert group.tree.worker_overrides()["w2"].record.cordoned
    assert {w["id"]: w["state"] for w in run.json("status")["workers"]} == {"w1": "active", "w2": "cordoned"}
    said = run("drain", "w2").output
    assert "drains 1 partition." in said
    assert "draining: another worker gets it" in " ".join(run.json("why", "flights:UA")["would_move"])
    with pytest.raises(RotaError, match="w2 is draining, so no worker would have flights:AA"):
        run("pin", "flights:AA", "w2")
    run("uncordon", "w2")
    assert {w["state"] for w in run.json("status")["workers"]} == {"active"}
    run("pin", "flights:UA", "w1")
    assert group.tree.overrides().pins == {"flights:UA": "w1"}
    assert "pinned to w1" in run.json("why", "flights:UA")["would_move"][0]
    with pytest.raises(
        RotaError, match=r"w9 is not live, .* Live: w1, w2. Choose one that may have it, or give --wait"
    ):
        run("pin", "flights:UA", "w9")
    assert group.tree.overrides().pins == {"flights:UA": "w1"}
    assert "pinned to w9, but waits: w9 is not live" in run("pin", "flights:UA", "w9", "--wait").output
    assert "no longer pinned" in run("pin", "flights:UA", "--clear").output
    assert group.tree.overrides().pins == {}
    run("pause")
    assert run.json("status")["paused"]
    run("resume")
    assert not run.json("status")["paused"]


def test_an_override_of_an_unknown_worker_is_refused_and_names_the_known_ones(run: Run) -> None:
    for command in ("cordon", "uncordon", "drain", "forget"):
        with pytest.raises(RotaError, match=r"Unknown worker 'w9'. Known: w1, w2"):
            run(command, "w9")
    with pytest.raises(RotaError, match=r"Known: flights:AA, flights:B6, flights:UA"):
        run("pin", "flights:XX", "w1")
    with pytest.raises(RotaError, match="--clear"):
        run("pin", "flights:UA")
    with pytest.raises(RotaError, match="w1' is live"):
        run("forget", "w1")


def test_retry_lets_a_parked_partition_go_on(group: Group, run: Run) -> None:
    with pytest.raises(RotaError, match=r"Unknown partition 'flights:XX'. Known: flights:AA, "):
        run("retry", "flights:XX")
    assert "flights:UA is not parked: it needs no retry" in run("retry", "flights:UA").output
    assert "ValueError" in run("retry", "flights:B6").output
    assert group.tree.parked() == {}


def test_retry_leaves_unreadable_records_to_repair(group: Group, run: Run) -> None:
    path = group.tree.paths.parking("flights:AA")
    group.tree.store.create(path, b"\xff")
    for words in (("flights:AA",), ("--pipeline", "flights")):
        with pytest.raises(RotaError, match=f"flights:AA waits: its record {path} cannot be read.*: rota repair"):
            run("retry", *words)
    assert group.tree.store.get(path) is not None
    assert f"Removed: {path}" in run("repair", "--remove", path).output
    assert group.tree.store.get(path) is None


def test_repair_lists_a_torn_own_record_and_removes_it(group: Group, run: Run) -> None:
    tree, path = group.tree, group.tree.paths.own("flights:UA")
    before = tree.owned()["flights:UA"]
    assert "Every record of group default can be read" in run("repair").output
    tree.store.set(path, b"\xff", -1)
    probes = {p["name"]: p for p in run.json("check")["probes"]}
    assert not probes[f"record {path}"]["works"]
    assert "rota repair" in probes[f"record {path}"]["fix"]
    why = run.json("why", "flights:UA")["parked"]
    assert why == f"its record {path} cannot be read. Restore it, or remove it: rota repair"
    (listed,) = run.json("repair")["records"]
    assert (listed["path"], listed["instead"]) == (path, "")
    assert "sets an own record free" in run("repair").output
    for words, said in ((("--remove",), "Give --remove and the paths"), ((path,), "Give --remove and the paths")):
        with pytest.raises(RotaError, match=said):
            run("repair", *words)
    with pytest.raises(RotaError, match="No unreadable record of group 'default' at /rota/default/head"):
        run("repair", "--remove", "/rota/default/head")
    assert run.json("repair", "--remove", path)["removed"] == [path]
    assert tree.owned()["flights:UA"].incarnation is None
    again = claim_one(tree, group.w2, "flights:UA", tree.owned()["flights:UA"].version)
    assert again.token > before.token
    assert not [p for p in run.json("check")["probes"] if p["name"].startswith("record ")]


def test_retry_takes_many_partitions_or_one_pipeline(group: Group, run: Run) -> None:
    for partition in ("flights:AA", "flights:B6"):
        park(group.tree, partition, "bad")
    assert run("retry", "flights:AA", "flights:B6").output.count("is tried again") == 2
    assert group.tree.parked() == {}
    for words in ((), ("flights:AA", "--pipeline", "flights")):
        with pytest.raises(RotaError, match="Give partitions, or --pipeline"):
            run("retry", *words)
    with pytest.raises(RotaError, match=r"Unknown pipeline 'mine'. Known: flights"):
        run("retry", "--pipeline", "mine")


PIPELINE = """
from rota import Pipeline, delta, files
pipeline = Pipeline(source=files("{root}/landing", format="csv", schema="a int"), table=delta("{root}/table"))
"""


@pytest.mark.parametrize(("reads", "ends"), [(1, True), (9, False)])
def test_forget_is_for_good_although_a_sensor_still_has_the_file(
    group: Group, run: Run, monkeypatch: pytest.MonkeyPatch, reads: int, ends: bool
) -> None:
    """It said so, and an observation that had begun before the reload brought the partitions back."""
    group.tree.grow("old", ["x"])
    left, real = [reads], GroupState.pipelines

    def looked(tree: GroupState) -> object:
        if "old" not in (found := real(tree)) and tree is not group.tree and left[0]:
            left[0] -= 1
            group.tree.grow("old", ["x"])
        return found

    monkeypatch.setattr("rota.cli.forget.OBSERVED_FOR", 1.0)
    monkeypatch.setattr(GroupState, "pipelines", looked)
    if ends:
        assert (
            "1 partition of old left group default; its workers release them. The assets stay in Dagster's catalog"
            in run("forget", "--pipeline", "old").output
        )
        assert "old" not in real(group.tree)
    else:
        with pytest.raises(RotaError, match=r"A code location still declares 'old'.*reload the code location"):
            run("forget", "--pipeline", "old")


def test_forget_takes_a_pipeline_out_of_the_group_once_its_file_is_gone(
    group: Group, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.cli.forget.OBSERVED_FOR", 0.0)
    group.tree.grow("mine", ["x", "y"])
    file = tmp_path / "mine.py"
    for declared in (PIPELINE.format(root=tmp_path), "raise ValueError"):
        file.write_text(declared)
        with pytest.raises(RotaError, match=r"mine\.py is still in the folder of pipelines"):
            run("forget", "--pipeline", "mine")
    file.write_text(PIPELINE.format(root=tmp_path).replace("))", '), group="other")'))
    assert "2 partitions of mine left group default" in run("forget", "--pipeline", "mine").output
    assert {p["id"] for p in run.json("status")["partitions"]} == {f"flights:{key}" for key in KEYS}
    for words in ((), ("w1", "--pipeline", "mine")):
        with pytest.raises(RotaError, match="Give a worker, partitions, or --pipeline"):
            run("forget", *words)


def test_rename_requires_a_renamed_file_and_lists_what_it_renamed(group: Group, run: Run, tmp_path: Path) -> None:
    mine, yours = tmp_path / "mine.py", tmp_path / "yours.py"
    mine.write_text(PIPELINE.format(root=tmp_path))
    pipeline = load(tmp_path).pipelines["mine"]
    main = PipelineTables.of(pipeline, "default", group.tree.meta().id).main
    main.commit(main.claim({"mine:x": 1}, {"mine:x": 0}), Batch("c", "r", "w", "a", 1, {"mine:x": (0, 1)}))
    yours.write_text(mine.read_text())
    for old, new, line in (
        ("mine", "yours", r"mine\.py is still in the folder of pipelines\. Remove it"),
        ("other", "yours", r"yours\.py: its table .* is the one of pipeline 'mine'"),
        ("other", "new", r"Unknown pipeline 'new'\. Known: mine"),
    ):
        with pytest.raises(RotaError, match=line):
            run("rename", old, new)
    mine.unlink()
    (probe,) = (p for p in run.json("check")["probes"] if p["name"] == "table of yours")
    assert "is the table of pipeline 'mine'. Give 'yours' another path" in probe["seen"]
    with pytest.raises(RotaError, match="is the table of pipeline 'mine', not of 'other'"):
        run("rename", "other", "yours")
    assert "mine is yours now, with the offsets of 1 partition." in run("rename", "mine", "yours").output
    assert "nothing is left to do" in run("rename", "mine", "yours").output
    assert group.tree.checkpoints(["yours:x"])["yours:x"].record.offset == 1
    group.tree.store.delete(group.tree.paths.checkpoint("yours:x"))


def test_forget_takes_single_partitions_out_once_their_folders_are_gone(
    group: Group, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that is full, of folders that come and go, must be able to let go of those that went."""
    tree = group.tree
    (tmp_path / "landing" / "day-1").mkdir(parents=True)
    (tmp_path / "landing" / "day-9").mkdir()
    (tmp_path / "mine.py").write_text(PIPELINE.format(root=tmp_path))
    tree.grow("mine", ["day-0", "day-1"])
    for path, record in (
        (tree.paths.parking("mine:day-0"), Parked(reason="bad")),
        (tree.paths.checkpoint("mine:day-0"), Checkpoint(offset=3, token=1, run_id="r")),
    ):
        tree.put(path, record)
    monkeypatch.setattr("rota.coordination.limits.MAX_IDS", len(tree.ids()))
    full = next(probe for probe in run.json("check")["probes"] if "No room" in probe["seen"])
    assert (full["works"], "mine:day-9" in full["seen"]) == (False, True)
    with pytest.raises(RotaError, match="mine:day-1 is still in the source of mine"):
        run("forget", "mine:day-0", "mine:day-1")
    with pytest.raises(RotaError, match="Unknown partition 'mine:day-7'"):
        run("forget", "mine:day-0", "mine:day-7")
    assert "1 partition left group default; its workers" in run("forget", "mine:day-0").output
    assert tree.partitions()["mine"].keys == ("day-1",)
    assert "mine:day-0" not in tree.parked()
    assert tree.checkpoints(["mine:day-0"])["mine:day-0"].record.offset == 3, (
        "should it come back, it goes on from there"
    )
    assert tree.grow("mine", ["day-1", "day-9"]) == ("day-9",)
    assert not [probe for probe in run.json("check")["probes"] if "No room" in probe["seen"]]
    (tmp_path / "mine.py").unlink()
    monkeypatch.setattr("rota.cli.forget.OBSERVED_FOR", 0.0)
    run("forget", "--pipeline", "mine")


def test_vacuum_lists_what_it_would_delete_and_deletes_only_by_option(run: Run, tmp_path: Path) -> None:
    (tmp_path / "flights.py").write_text(PIPELINE.format(root=tmp_path))
    write_deltalake(tmp_path / "table" / "main", pa.table({"a": [1]}))
    orphan = tmp_path / "table" / "main" / "data" / "died" / "part-0.parquet"
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"half")
    long_ago = time.time() - 30 * 86400
    os.utime(orphan, (long_ago, long_ago))
    assert run.json("vacuum")["files"]["flights"]
    assert orphan.exists()
    assert "1 file deleted" in run("vacuum", "flights", "--delete").output
    assert not orphan.exists()
    with pytest.raises(RotaError, match=r"Unknown pipeline 'absent'. Known: flights"):
        run("vacuum", "absent")
    assert run("vacuum", "--days", "1").exit_code == 2  # a run may still be writing


def test_what_no_run_ever_looked_at_is_not_skipped(run: Run, tmp_path: Path) -> None:
    (tmp_path / "flights.py").write_text(PIPELINE.format(root=tmp_path))
    with pytest.raises(RotaError, match="No run ever looked at flights:AA"):
        run("skip", "flights:AA")
    with pytest.raises(RotaError, match="Known: flights:AA, flights:B6, flights:UA"):
        run("skip", "flights:XX")


def test_adopt_asks_before_it_takes_tables_over(run: Run, group: Group, tmp_path: Path) -> None:
    (tmp_path / "flights.py").write_text(PIPELINE.format(root=tmp_path))
    with pytest.raises(RotaError, match=r"nothing was changed\. To confirm: rota adopt --group \w+ --yes"):
        run("adopt")  # without a terminal it said "Aborted!" alone
    assert "Adopted the tables of flights" in run("adopt", "--yes").output
