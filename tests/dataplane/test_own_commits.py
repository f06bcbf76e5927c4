"""delta-rs reads and keeps what rota writes into a Delta log; rota refuses what must not be written."""

import json
import multiprocessing
import re
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from rota.deltalog import delta_log, packing, packs
from rota.deltalog.delta_log import DeltaLog
from rota.deltalog.features import WRITTEN
from rota.deltalog.port import Draft
from rota.errors import EnvironmentFailed, ForeignTable
from rota.ledger.change import commit_change
from rota.ledger.merging import FEW, merge_beside_run
from rota.ledger.schema import FIRST
from tests.dataplane.conformance.histories import SOON
from tests.dataplane.conformance.log_suite import append, make_file
from tests.dataplane.conftest import NO_DAMAGE, damage
from tests.dataplane.delta_tables import append_batch, expect_rows, fill

FEATURES = [
    "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns",
    "identityColumns", "columnMapping", "deletionVectors", "timestampNtz", "typeWidening",
    "typeWidening-preview", "rowTracking", "domainMetadata", "clustering", "inCommitTimestamp",
    "v2Checkpoint", "vacuumProtocolCheck", "allowColumnDefaults", "icebergCompatV1", "icebergCompatV2",
    "icebergCompatV3", "variantType", "variantType-preview", "checkpointProtection", "coordinatedCommits-preview",
    "materializePartitionColumns", "catalogManaged", "catalogOwned-preview", "icebergWriterCompatV1",
    "variantShredding-preview", "collations-preview", "redirectReaderWriter-preview", "redirectWriterOnly-preview",
    "nobodyKnowsIt",
]  # fmt: skip
OF_READERS = {
    "columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview", "v2Checkpoint",
    "vacuumProtocolCheck", "variantType", "variantType-preview", "variantShredding-preview", "catalogManaged",
    "catalogOwned-preview",
}  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "main"


@pytest.fixture
def log(table: Path) -> DeltaLog:
    one = DeltaLog(str(table))
    one.create(FIRST, {"delta.checkpointInterval": "3"})
    return one


def write_protocol(table: Path, version: int, *features: str, writer: int = 7) -> None:
    """Raise the table's protocol as another program does."""
    said = {"minReaderVersion": 1, "minWriterVersion": writer}
    if features:
        readers = sorted(OF_READERS.intersection(features))
        said |= {"writerFeatures": features} | ({"minReaderVersion": 3, "readerFeatures": readers} if readers else {})
    (table / f"_delta_log/{version:020}.json").write_text(json.dumps({"protocol": said}))


def is_refused(by: type[Exception], log: DeltaLog, table: Path) -> bool:
    """Return whether rota, or delta-rs, refuses to add a file."""
    try:
        if by is EnvironmentFailed:
            append(log, adds=(make_file("p", 0, 1),))
        else:
            there, add = DeltaTable(table), AddAction("x.parquet", 7, {}, 1, True, json.dumps({"numRecords": 1}))
            there.create_write_transaction([add], "append", there.schema(), partition_by=[])
    except by as error:
        return by is DeltaError or bool(
            re.search("rota does not write|a feature that delta-rs does not read", str(error))
        )
    return False


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_is_written_if_delta_rs_writes_it(log: DeltaLog, table: Path, feature: str) -> None:
    write_protocol(table, 1, feature)
    refused = [is_refused(by, log, table) for by in (EnvironmentFailed, DeltaError)]
    assert refused == [feature not in WRITTEN] * 2
    assert len(list(table.glob("_delta_log/*.json"))) == (2 if refused[0] else 4)


@pytest.mark.parametrize("version", [2, 3, 4, 5, 6])
def test_so_is_a_version_of_writers(log: DeltaLog, table: Path, version: int) -> None:
    write_protocol(table, 1, writer=version)
    assert [is_refused(by, log, table) for by in (EnvironmentFailed, DeltaError)] == [version == 6] * 2


PLAIN = {"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]}


def add_field(kind: Any = "long", *, nullable: bool = True, **metadata: Any) -> Callable[[dict[str, Any]], object]:
    """Add the column `c` as another program does."""

    def change(said: dict[str, Any]) -> None:
        schema = json.loads(said["schemaString"])
        field = {"name": "c", "type": kind, "nullable": nullable, "metadata": metadata}
        said["schemaString"] = json.dumps({**schema, "fields": [*schema["fields"], field]})

    return change


def add_setting(name: str, text: str) -> Callable[[dict[str, Any]], object]:
    return lambda said: said["configuration"].update({name: text})


NOT_NULL = {**PLAIN, "fields": [{**PLAIN["fields"][0], "nullable": False}]}  # type: ignore[dict-item]
ASKED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {  # requirement -> how a table states it, and the line
    "CHECK constraint": (add_setting("delta.constraints.small", "n < 3"), "DROP CONSTRAINT small"),
    "invariant": (
        add_field(**{"delta.invariants": '{"expression": {"expression": "c > 3"}}'}), "an invariant on c,"
    ),
    "NOT NULL": (add_field(nullable=False), "ALTER COLUMN c DROP NOT NULL"),
    "NOT NULL within": (add_field(NOT_NULL), "ALTER COLUMN c.n DROP NOT NULL"),
    "NOT NULL deep within": (
        add_field({"type": "array", "elementType": NOT_NULL, "containsNull": True}), "ALTER COLUMN c.n DROP NOT NULL",
    ),
    "elements that are not null": (
        add_field({"type": "array", "elementType": "long", "containsNull": False}), "values of c that may not be null",
    ),
    "values that are not null": (
        add_field({"type": "map", "keyType": "long", "valueType": "long", "valueContainsNull": False}),
        "values of c that may not be null",
    ),
    "generated column": (add_field(**{"delta.generationExpression": "n + 1"}), "a generated column c,"),
    "identity column": (
        add_field(**{"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.allowExplicitInsert": True}),
        "an identity column c,",
    ),
    "default value": (add_field(CURRENT_DEFAULT="7"), "ALTER COLUMN c DROP DEFAULT"),
    "partition columns": (lambda said: said.update(partitionColumns=["_partition"]), "the partition columns _partition,"),
}  # fmt: skip
ALLOWED: dict[str, Callable[[dict[str, Any]], object]] = {
    "a column": add_field(),
    "a list": add_field({"type": "array", "elementType": PLAIN, "containsNull": True}),
    "a change data feed": add_setting("delta.enableChangeDataFeed", "true"),
    "deletion vectors": add_setting("delta.enableDeletionVectors", "true"),
    "another checkpoint": add_setting("delta.checkpointPolicy", "v2"),
    "only appends": add_setting("delta.appendOnly", "true"),
    "a comment": add_field(comment="of c"),
}


def change_metadata(table: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Set it as another program does."""
    version = DeltaTable(table).version()
    lines = (line for name in sorted((table / "_delta_log").glob("*.json")) for line in name.read_text().splitlines())
    said = [json.loads(line)["metaData"] for line in lines if line.startswith('{"metaData"')][-1]
    change(said)
    (table / f"_delta_log/{version + 1:020}.json").write_text(json.dumps({"metaData": said}))


@pytest.mark.parametrize("checkpoint", [False, True], ids=["from commits", "from a checkpoint"])
@pytest.mark.parametrize("name", [*ASKED, *ALLOWED])
def test_what_a_table_requires_of_rows_is_refused_in_one_line(
    log: DeltaLog, table: Path, name: str, checkpoint: bool
) -> None:
    change, said = ASKED[name] if name in ASKED else (ALLOWED[name], "")
    write_protocol(table, 1, "checkConstraints", "columnMapping", "v2Checkpoint", "deletionVectors", "changeDataFeed")
    change_metadata(table, change)
    if checkpoint and name != "another checkpoint":
        DeltaTable(table).create_checkpoint()
        log = DeltaLog(log.location)
    refused = pytest.raises((EnvironmentFailed, ForeignTable), match=rf"^.*{re.escape(said)}[^\n]*$")
    with refused if name in ASKED else nullcontext():
        append(log, adds=(make_file("p", 0, 1),))
    assert DeltaTable(table).version() == (2 if name in ASKED else 3)


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_constraint_stops_the_pipeline_before_its_job_and_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    ledger = fill(tmp_path)
    DeltaTable(ledger.location).alter.add_constraint({"small": "_offset < 6"})
    if not guarded:
        monkeypatch.setattr("rota.deltalog.features.check_table", lambda *_: None)
        append_batch(ledger)
        assert max(DeltaTable(ledger.location).to_pyarrow_table()["_offset"].to_pylist()) == 7
        return
    with pytest.raises(EnvironmentFailed, match="has the CHECK constraint small, by another program"):
        ledger.claim({"p": 1}, {"p": 0})
    assert "DROP CONSTRAINT small" in ledger.explain_harm()
    DeltaTable(ledger.location).alter.drop_constraint("small")
    append_batch(ledger)
    assert not ledger.explain_harm()


def test_of_a_table_that_only_grows_no_row_is_taken_and_files_are_put_together(log: DeltaLog, table: Path) -> None:
    file = make_file("p", 0, 1)
    append(log, adds=(file,))
    DeltaTable(table).alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(EnvironmentFailed, match=r"may only grow, by another program. Nothing was replaced"):
        append(log, removes={file.path: 7})
    append(log, removes={file.path: 7}, adds=(make_file("p", 0, 1),), changes=False)
    assert log.open().files().num_rows == 1  # type: ignore[union-attr]


def test_a_file_of_any_name_is_added_and_removed(log: DeltaLog, table: Path) -> None:
    names = ["a b", "100%", "%41", "ü", "x=1", "it's", "#?[]{}~", "a+b&c=d", ":;,@!()"]
    files = tuple(replace(make_file("p", 0, 1), path=f"data/{name}.parquet") for name in names)
    append(log, adds=files)
    there = DeltaTable(table).file_uris()
    assert sorted(there) == sorted(f"{table}/data/{name}.parquet" for name in names)
    paths = log.open().files()["path"].to_pylist()  # type: ignore[union-attr]
    append(log, removes=dict.fromkeys(paths, 7))
    assert DeltaTable(table).file_uris() == []


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_run_that_paused_until_its_version_was_packed_writes_nothing(
    log: DeltaLog, table: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Then the next number is free, but no reader would see a commit there."""
    monkeypatch.setattr(packs, "PACKED", 2)
    if not guarded:
        monkeypatch.setattr(delta_log.DeltaVersion, "list_later", lambda _: {})
    old = append(log, sets={"a": 1})
    for number in range(12):
        append(log, sets={"b": number})
    packing.pack(log, SOON)
    assert not (table / f"_delta_log/{old.number + 1:020}.json").exists()
    with pytest.raises(EnvironmentFailed, match="is not the one of version 1") if guarded else nullcontext():
        commit_change(log, lambda _: Draft(old, {"a": 2}, result=True))
    assert (table / f"_delta_log/{old.number + 1:020}.json").exists() == (not guarded), "reported as in, and not there"
    log = DeltaLog(log.location)
    assert DeltaTable(table).transaction_version("a") == log.open().transaction("a") == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_hole_in_the_log_is_not_filled(
    log: DeltaLog, table: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """The disk lost a commit of another writer, but not a later one. A commit in the gap would be before the later one."""
    if not guarded:
        monkeypatch.setattr(DeltaLog, "has_hole", lambda *_: False)
    old = append(log, sets={"a": 1})
    for number in range(2, 4):
        append(log, sets={"a": number})
    assert not log.has_hole(old.number), "what came while it looked is none"
    assert not log.has_hole(3, (1, 3)), "nor what a list passed over"
    (table / f"_delta_log/{old.number + 1:020}.json").unlink()
    with pytest.raises(EnvironmentFailed, match="lacks a commit behind version 1") if guarded else nullcontext():
        old.append(Draft(old, {"b": 1}))
    assert (table / f"_delta_log/{old.number + 1:020}.json").exists() == (not guarded)


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_writer_that_finds_its_own_commit_has_written_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """The answer to a put was lost, and the store's client repeated the put. The writer then deleted the file of rows
    although the log names it."""
    table = fill(tmp_path, FEW + 2)
    put, read = DeltaLog.put_commit, DeltaLog.read_commit
    monkeypatch.setattr(DeltaLog, "put_commit", lambda *given: put(*given) and None)
    if not guarded:
        monkeypatch.setattr(DeltaLog, "read_commit", lambda *given: read(*given) + b"\n")
    done = merge_beside_run(table)
    assert done.after == (1 if guarded else 0)
    lost = [file for file in DeltaTable(Path(table.location)).file_uris() if not Path(file).exists()]
    assert len(lost) == (0 if guarded else 1)
    if guarded:
        ends = table.read_positions(("p",))["p"].offset or 0
        assert damage(Path(table.location), expect_rows(p=ends)) == NO_DAMAGE


def test_a_checkpoint_that_fails_fails_no_commit(
    log: DeltaLog, table: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: DeltaTable) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "create_checkpoint", fail)
        for number in range(4):
            assert append(log, sets={"a": number}).number == number + 1
    assert "No space left" in caplog.text
    assert not list(table.glob("_delta_log/*.checkpoint.parquet"))
    monkeypatch.setattr(delta_log, "TAIL", 1)
    assert log.checkpoint()
    assert len(list(table.glob("_delta_log/*.checkpoint.parquet"))) == 1


EACH = 25  # commits of a writer


def count_by_rota(location: str) -> None:
    log = DeltaLog(location)
    for _ in range(EACH):

        def make(_: int) -> Draft[bool]:
            base = log.open()
            assert base
            return Draft(base, {"a": (base.transaction("a") or 0) + 1}, result=True)

        commit_change(log, make)


def count_by_delta_rs(location: str) -> None:
    done = 0
    while done < EACH:
        there = DeltaTable(location)
        moved = CommitProperties(app_transactions=[Transaction("a", (there.transaction_version("a") or 0) + 1)])
        with suppress(CommitFailedError):
            there.create_write_transaction([], "append", there.schema(), partition_by=[], commit_properties=moved)
            done += 1


def test_processes_of_rota_and_of_delta_rs_count_together(log: DeltaLog, table: Path) -> None:
    """On a disk, all at once: each commit is made once, and a commit is refused only because another came first."""
    kinds = [count_by_rota] * 3 + [count_by_delta_rs] * 2
    processes = [multiprocessing.get_context("spawn").Process(target=one, args=(str(table),)) for one in kinds]
    for one in processes:
        one.start()
    for one in processes:
        one.join()
    assert [one.exitcode for one in processes] == [0] * len(kinds)
    theirs, ours = DeltaTable(table), log.open()
    assert ours
    assert theirs.version() == theirs.transaction_version("a") == ours.transaction("a") == len(kinds) * EACH
