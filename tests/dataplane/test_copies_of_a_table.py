"""A copy that replaces a table, or a damaged log, stops a run that claimed before."""

import shutil
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest

from rota.deltalog.delta_log import DeltaVersion
from rota.errors import EnvironmentFailed
from rota.ledger.ledger import Ledger
from rota.ledger.replacing import replace_rows
from rota.ledger.values import Batch, TableClaim
from tests.dataplane.conftest import damage, log
from tests.dataplane.delta_tables import batch, expect_rows, fill, ledger


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_copy_that_took_the_place_of_the_table_refuses_what_was_claimed_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """A backup is restored while a run works, and another partition is consumed into it up to the version of the claim:
    without the check, offsets that the copy lacks are skipped."""
    if not guarded:
        monkeypatch.setattr(DeltaVersion, "list_later", lambda _: {})
    table = ledger(tmp_path)
    first = table.claim({"p": 1}, {"p": 0})
    table.commit(first, batch(table, first))
    shutil.copytree(Path(table.location), tmp_path / "copy")
    second = table.claim({"p": 1}, {"p": 0})
    table.commit(second, batch(table, second))
    late = table.claim({"p": 1}, {"p": 0})
    made = batch(table, late)
    shutil.rmtree(Path(table.location))
    (tmp_path / "copy").rename(Path(table.location))
    table.claim({"q": 1}, {"q": 0})
    with pytest.raises(EnvironmentFailed, match="is not the one of version 3") if guarded else nullcontext():
        table.commit(late, Batch(**{**{f: getattr(made, f) for f in made.__slots__}, "files": ()}))
    offset = table.read_positions(("p",))["p"].offset or 0
    wrong = damage(Path(table.location), expect_rows(p=offset))
    assert (wrong["lost"] > 0, wrong["gaps"]) == ((False, 0) if guarded else (True, 2))


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
@pytest.mark.parametrize("verb", ["commit", "replay", "bad records of a replay"])
def test_a_copy_without_what_the_run_wrote_is_not_made_to_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, guarded: bool
) -> None:
    """No reader can read a table that names missing files."""
    if not guarded:
        monkeypatch.setattr(DeltaVersion, "list_later", lambda _: {})
        monkeypatch.setattr(Ledger, "check_on_disk", lambda *_: None)
    table = fill(tmp_path)
    claimed = table.claim({"p": 1}, {"p": 0})
    shutil.copytree(Path(table.location), tmp_path / "copy")
    made = batch(table, claimed if verb == "commit" else TableClaim(None, 0, "", "", {}, {"p": 2}, {}))
    shutil.rmtree(Path(table.location))
    (tmp_path / "copy").rename(Path(table.location))
    with pytest.raises(EnvironmentFailed, match=r"which this run wrote .* is gone") if guarded else nullcontext():
        if verb == "commit":
            table.commit(claimed, made)
        else:
            (partial(replace_rows, table) if verb == "replay" else table.append)(made)
    missing = [file for file in log(Path(table.location)).files if not file.exists()]
    assert bool(missing) != guarded


@pytest.mark.parametrize("torn", [True, False], ids=["half a commit", "a commit missing"])
def test_a_damaged_log_is_one_line_with_the_way_on(tmp_path: Path, torn: bool) -> None:
    table = fill(tmp_path)
    newest, *_, oldest = sorted((Path(table.location) / "_delta_log").glob("*.json"), reverse=True)
    if torn:
        newest.write_bytes(newest.read_bytes()[:50])
    else:
        newest.with_name(oldest.name.replace("0.json", "1.json")).unlink()
        table = ledger(tmp_path)  # an open log does not read it again
    for look in (
        table.read_log,
        lambda: table.find_foreign_commits(["p"]),
        table.adopt,
        lambda: table.read_positions(("p",)),
    ):
        with pytest.raises(
            EnvironmentFailed, match=r"main is no table that can be read \(.*Bring its _delta_log back"
        ) as said:
            look()
        assert "\n" not in str(said.value)
        assert "unknown" not in str(said.value)
