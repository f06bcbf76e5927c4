"""A file is a pipeline; one bad file stops no other."""

import os
import re
import sys
from pathlib import Path

import pytest

import rota
from rota.ages import Ages
from rota.catalog import load
from rota.errors import ConfigError
from rota.pipeline import Files
from rota.settings import Settings, expand

GOOD = """
from rota import Group, Pipeline, delta, files
def transform(df): return df
source = files("${{ROTA_LANDING}}/x", format="csv", schema="a int")
pipeline = Pipeline(source=source, table=delta("${{ROTA_TABLES}}/{table}"), transform=transform, group="{group}")
"""


@pytest.fixture(autouse=True)
def no_zookeeper(monkeypatch: pytest.MonkeyPatch) -> None:
    """The question which of two files is older waits for no ZooKeeper."""
    monkeypatch.setattr(Ages, "known", ({}, {}, " (unknown)"))


def test_two_pipelines_of_one_group_and_one_of_another_load_side_by_side(tmp_path: Path) -> None:
    for name, group in (("a", "day"), ("b", "day"), ("c", "night")):
        (tmp_path / f"{name}.py").write_text(GOOD.format(table=name, group=group))
    (tmp_path / "_hidden.py").write_text("raise SystemExit")
    catalog = load(tmp_path)
    assert list(catalog.pipelines) == ["a", "b", "c"]
    assert [p.name for p in catalog.of_group("day")] == ["a", "b"]
    assert list(catalog.groups) == ["day", "night"]
    assert not catalog.refused


def test_a_changed_file_is_read_again_however_soon_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytecode was used, which Python takes for current if second and size are equal."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for number in (2, 8):
        (tmp_path / "p.py").write_text(GOOD.format(table=number, group="g"))
        os.utime(tmp_path / "p.py", (1e9, 1e9))
        assert load(tmp_path).pipelines["p"].table.path.endswith(f"/{number}")
    assert not (tmp_path / "__pycache__").exists()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("raise ValueError('no')", "raised ValueError: no"),
        ("import sys\nsys.exit('no')", "raised SystemExit: no"),
        ("raise RuntimeError('[SESSION_OR_CONTEXT_NOT_EXISTS] x')", "Make UDFs and columns inside transform"),
        ("x = 1", "declares neither"),
        (GOOD.format(table="good", group="g"), "is the one of pipeline 'good'"),
        (GOOD.format(table="other", group="bad group"), "Bad group id"),
        ("from rota import files\nfiles('x', format='xml', schema='')", "Known: csv, json, parquet"),
        ("from rota import files\nfiles('x', format='csv', schema='', start='sometime')", "'earliest' or 'latest' or"),
        (
            "from rota import files\nfiles('x', format='csv', schema='', max_job_files=0)",
            "max_job_files of files('x'): give 1",
        ),
        (GOOD.format(table="other", group="g").replace("group=", "deadline=float('nan'), group="), "seconds above 0"),
    ],
)
def test_a_bad_file_is_refused_by_itself(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "good.py").write_text(GOOD.format(table="good", group="g"))
    (tmp_path / "other.py").write_text(text)
    catalog = load(tmp_path)
    assert list(catalog.pipelines) == ["good"]
    assert line in catalog.refused["other.py"]


@pytest.mark.parametrize(
    "spelled", ["${ROTA_TABLES}/good/", "${ROTA_TABLES}/x/../good", "${OTHER}/good", "{folder}//good", "{folder}/link"]
)
def test_another_spelling_of_a_table_is_the_same_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelled: str
) -> None:
    """Two pipelines would each write every row they read into it."""
    folder = tmp_path / "tables"
    (folder / "good").mkdir(parents=True)
    (folder / "link").symlink_to("good")
    for name in ("ROTA_TABLES", "OTHER"):
        monkeypatch.setenv(name, str(folder))
    (tmp_path / "good.py").write_text(GOOD.format(table="good", group="g"))
    text = GOOD.format(table="good", group="g").replace("${ROTA_TABLES}/good", spelled.replace("{folder}", str(folder)))
    (tmp_path / "other.py").write_text(text)
    assert "is the one of pipeline 'good'" in load(tmp_path).refused["other.py"]


def test_variables_that_are_not_set_make_no_two_tables_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROTA_TABLES", "OTHER"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "good.py").write_text(GOOD.format(table="x", group="g"))
    (tmp_path / "other.py").write_text(GOOD.format(table="x", group="g").replace("ROTA_TABLES", "OTHER"))
    assert not load(tmp_path).refused


@pytest.mark.parametrize(
    ("landing", "table"),
    [
        ("lake/stage", "lake"),
        ("lake", "lake"),
        ("", "lake"),
        ("lake/quarantine/raw", "lake/link"),
        ("lake/x/../x", "lake"),
    ],
)
def test_a_landing_folder_and_a_table_within_each_other_are_refused(tmp_path: Path, landing: str, table: str) -> None:
    """A vacuum would delete what landed, or the table would be read as data."""
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "link").symlink_to(".")
    head = 'from rota import Pipeline, delta, files\npipeline = Pipeline(source=files({!r}, format="csv", schema="a int"), '
    text = f"{head}table=delta({{!r}}))\n"
    pipelines = tmp_path / "pipelines"
    pipelines.mkdir()
    (pipelines / "one.py").write_text(text.format(str(tmp_path / landing), str(tmp_path / table)))
    assert "lie within each other" in load(pipelines).refused["one.py"]
    (pipelines / "one.py").write_text(text.format(str(tmp_path / landing), "/elsewhere/one"))
    (pipelines / "two.py").write_text(text.format("/elsewhere/two", str(tmp_path / table)))
    catalog = load(pipelines)
    assert list(catalog.pipelines) == ["two"], "no table exists yet: the pipeline that reads the folder is refused"
    assert "of pipeline 'two'" in catalog.refused["one.py"]


@pytest.mark.parametrize(
    ("inner", "refused"), [("x", ()), ("main", ["i.py"]), ("stage/x", ["i.py"]), ("index/y", ["i.py"])]
)
def test_a_table_in_a_folder_that_a_vacuum_looks_through_is_refused(
    tmp_path: Path, inner: str, refused: list[str]
) -> None:
    for name, table in (("i", f"lake/{inner}"), ("o", "lake")):
        (tmp_path / f"{name}.py").write_text(GOOD.format(table=table, group="g"))
    assert list(load(tmp_path).refused) == list(refused)


def test_no_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Set ROTA_PIPELINES"):
        load(tmp_path / "none")


def test_settings_say_which_variable_is_wrong() -> None:
    assert Settings.from_environment({"ROTA_SESSION_TIMEOUT": "4"}).session_timeout.total_seconds() == 4
    with pytest.raises(ConfigError, match="ROTA_SESSION_TIMEOUT='soon'"):
        Settings.from_environment({"ROTA_SESSION_TIMEOUT": "soon"})
    with pytest.raises(ConfigError, match="below ROTA_MAX_SHUTDOWN"):
        Settings.from_environment({"ROTA_SESSION_TIMEOUT": "200"})


def test_a_variable_comes_from_the_file_that_is_named_for_it_unless_it_is_set(tmp_path: Path) -> None:
    file = tmp_path / "word"
    for word in ("first horse", "second horse"):  # a file that changes is read again
        file.write_text(f"{word}\n")
        assert expand("${A}/${B}", {"A_FILE": str(file), "B": "set", "B_FILE": "unread"}) == f"{word}/set"
    with pytest.raises(ConfigError, match=r"A_FILE=.*cannot be read"):
        expand("${A}", {"A_FILE": str(tmp_path / "none")})


def test_variables_are_expanded_late_and_named_when_missing() -> None:
    assert expand("${A}/x", {"A": "/data"}) == "/data/x"
    with pytest.raises(ConfigError, match="Set the environment variable B"):
        expand("${B}/x", {})


def test_the_public_names() -> None:
    assert sorted(rota.__all__) == ["Group", "Pipeline", "delta", "files", "read_moves"]


def test_files_declares_every_option_with_its_default() -> None:
    """An editor completes them, and an unknown option is refused at the call."""
    from dataclasses import fields
    from inspect import Parameter, signature

    options = signature(rota.files).parameters
    assert list(options) == [one.name for one in fields(Files)]
    assert {one.kind for one in options.values()} == {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}
    assert all(re.search(rf"\b{name}\b", rota.files.__doc__ or "") for name in options)
    with pytest.raises(TypeError, match="setle"):
        rota.files("x", format="csv", schema="a int", setle=1)  # type: ignore[call-arg]
