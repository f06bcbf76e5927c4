"""The commands as a person meets them: quick to answer, one red line for an expected error, one JSON document a reader."""

import json
import os
import pty
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rota.cli import VERBS
from rota.cli.shown_settings import mask_setting
from rota.errors import ConfigError
from rota.settings import check_known
from tests.waiting import LONG

ROOT = Path(__file__).parents[2]
HEAVY = {
    "dagster", "deltalake", "kazoo", "matplotlib", "numpy", "ortools", "pandas", "psutil", "pyarrow", "pydantic", "pyspark",
}  # fmt: skip


def rota(*arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    env = {k: v for k, v in os.environ.items() if not k.startswith("ROTA_")}
    return subprocess.run(
        [sys.executable, "-m", "rota", *arguments],
        env={**env, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", **environ},
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('\\n' + ' '.join(sys.modules)))\n"
        "sys.argv = ['rota', '--help']\n"
        "from rota.cli import main; main()"
    )
    said = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    modules = {name.split(".")[0] for name in said.splitlines()[-1].split()}
    assert "click" in modules
    assert not modules & HEAVY
    assert "Show what happened: epochs with their moves, commits, refused writes." in " ".join(said.split()), "not cut"
    for verb in ("demo", "up", "status", "why", "history", "check"):
        assert f"  {verb} " in said


def test_a_typo_is_answered_with_the_command_that_was_meant() -> None:
    assert "Did you mean `rota status`?" in rota("staus").stderr
    assert "Did you mean" not in rota("zzz").stderr


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ((), "Choose what to replay: --from and --to, or --files, or --since and --until, or --changed"),
        (("--from", "3"), "Give --to, too: the offset after the last, such as --from 3 --to 4"),
        (
            ("--from", "0", "--to", "3", "--changed"),
            "Choose what to replay: --from and --to, or --files, or --since and --until, or --changed",
        ),
    ],
)
def test_a_replay_that_cannot_be_is_refused_as_it_was_typed(typed: tuple[str, ...], said: str) -> None:
    """Each was launched, and was a failed run in Dagster."""
    done = rota("replay", "flights:UA", *typed, ROTA_DAGSTER="http://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(said), done.stderr


def test_help_lists_the_commands_by_what_they_are_for() -> None:
    said = rota("--help").stdout
    headings = re.findall(r"^(\w[\w ]*):$", said, re.MULTILINE)
    assert headings == ["Options", "Inspect", "Run", "Workers", "Partitions", "Repair and upkeep", "Try out"]
    assert sorted(re.findall(r"^  ([a-z]+) ", said, re.MULTILINE)) == sorted(VERBS)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("UA", "Did you mean flights:UA or trains:UA?"),
        ("ua", "Did you mean flights:UA or trains:UA?"),
        ("flights:ua", "Did you mean flights:UA?"),
        ("flights-UA", "Did you mean flights:UA?"),
        ("flight:UA", "Did you mean flights:UA or trains:UA?"),
        ("airports:UA", "Did you mean flights:UA or trains:UA?"),
        ("flights:Zurich", "Did you mean flights:Zürich?"),
        ("flights:nothing like it", None),
        ("zzzzz", None),
    ],
)
def test_an_unknown_partition_is_answered_with_those_that_may_be_meant(typed: str, meant: str | None) -> None:
    """It listed twenty names of another pipeline."""
    names = [*(f"airports:{i:02}" for i in range(70)), "flights:UA", "flights:Zürich", "trains:UA"]
    with pytest.raises(ConfigError) as refused:
        check_known("partition", typed, names)
    said = str(refused.value)
    assert said.endswith(meant) if meant else "Did you mean" not in said
    assert len(said) < 200
    if typed.startswith("flights:"):
        assert "airports" not in said


def test_plan_without_input_names_both_inputs() -> None:
    """It was "Not a JSON document: Expecting value: line 1 column 1"."""
    said = subprocess.run(
        [sys.executable, "-m", "rota", "plan"], input="", capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
    )  # fmt: skip
    assert said.returncode == 2
    assert said.stderr.strip() == (
        "No input. Give a file or standard input with a JSON document, or --from-zookeeper for the live group"
    )


def test_a_worker_prints_at_once_its_id_and_how_it_ends(tmp_path: Path) -> None:
    """Typing the command only to try it moved a third of a group, without a warning before."""
    terminal, inner = pty.openpty()
    started = subprocess.Popen(
        [sys.executable, "-m", "rota", "worker", "--no-spark", "--zookeeper", "127.0.0.1:1"],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=inner, stdout=subprocess.DEVNULL, cwd=tmp_path,
    )  # fmt: skip
    os.close(inner)
    try:
        with os.fdopen(terminal, errors="replace") as said:
            first = said.readline()
    finally:
        started.kill()
        started.wait(LONG)
    assert f"joins group default as {socket.gethostname()}" in first
    assert "Ctrl-C hands them over. To join without any: --max-partitions 0" in first
    assert "under the host's name without --id" in " ".join(rota("worker", "--help").stdout.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_line_on_the_page_prints_what_a_shell_reads(shell: str) -> None:
    installed = Path(sys.executable).with_name("rota")
    environ = {**os.environ, "_ROTA_COMPLETE": f"{shell}_source"}
    assert "_ROTA_COMPLETE" in subprocess.run([installed], env=environ, capture_output=True, text=True).stdout


def test_a_partition_of_any_script_is_printed_on_any_terminal() -> None:
    """A terminal without its letters ended the command in a traceback."""
    document = json.dumps({"workers": [{"id": "w1"}], "partitions": [{"id": "p:Zürich 日本"}]})
    for encoding, shown in (
        ("utf-8", "p:Zürich 日本"),
        ("latin-1", r"p:Zürich \u65e5\u672c"),
        ("ascii", r"p:Z\xfcrich"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "rota", "plan"],
            input=document.encode(),
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": encoding},
            capture_output=True,
            check=True,
        )
        assert shown in done.stdout.decode(encoding)


def test_without_zookeeper_a_command_that_reads_reports_it_in_one_line(tmp_path: Path) -> None:
    done = rota("status", ROTA_ZOOKEEPER="127.0.0.1:1", ROTA_PIPELINES=str(tmp_path), ROTA_SESSION_TIMEOUT="2")
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert "127.0.0.1:1" in done.stderr
    assert "rota up" in done.stderr


def test_what_dagster_thinks_of_a_pipeline_files_assets_is_no_line_of_a_command(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from dagster import BackfillPolicy, asset\n"
        "from rota import Pipeline, delta, files\n"
        "pipeline = Pipeline(files('/nowhere', format='csv', schema='a int'), delta('/nowhere/table'))\n"
        "asset(backfill_policy=BackfillPolicy.single_run())(lambda: None)  # in beta: it warns\n"
    )
    done = rota(
        "replay", "mine:a", "--from", "0", "--to", "1", ROTA_PIPELINES=str(tmp_path), ROTA_ZOOKEEPER="127.0.0.1:1"
    )
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_check_names_each_setting_its_origin_and_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text(
        "from rota import Pipeline, delta, files\n"
        "pipeline = Pipeline(source=files('${NOWHERE}/orders', format='csv', schema='a int'), table=delta('/tmp/orders'))\n"
    )
    environ = {"ROTA_ZOOKEEPER": "127.0.0.1:1", "ROTA_PIPELINES": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    done = rota("check", "--json", **environ)
    assert done.returncode == 2
    said = json.loads(done.stdout)
    assert said["works"] is False
    settings = {s["name"]: (s["value"], s["origin"]) for s in said["settings"]}
    assert settings["ROTA_ZOOKEEPER"] == ("127.0.0.1:1", "environment")
    assert settings["ROTA_MAX_SHUTDOWN"] == ("120 s", "default")
    assert settings["NOWHERE"] == ("", "missing")
    probes = {p["name"]: p for p in said["probes"]}
    assert not probes["Java"]["works"]
    assert "apt install" in probes["Java"]["seen"]
    assert not probes["ZooKeeper"]["works"]
    assert not probes["source of orders"]["works"]
    assert "NOWHERE" in probes["source of orders"]["seen"]


def test_what_a_pipeline_file_prints_is_no_part_of_the_document(tmp_path: Path) -> None:
    """By `print`, by the file descriptor and by a process of its own; without `--json` all of it is printed as it is."""
    prints = "import os\nprint('one')\nos.write(1, b'two\\n')\nos.system('echo three')\n"
    (tmp_path / "p.py").write_text(prints + "raise ValueError('no pipeline')")
    environ = {"ROTA_PIPELINES": str(tmp_path), "ROTA_ZOOKEEPER": "127.0.0.1:1"}
    done = rota("check", "--json", **environ)
    assert "no pipeline" in str(json.loads(done.stdout))
    assert all(f"{word}\n" in done.stderr for word in ("one", "two", "three"))
    assert all(f"{word}\n" in rota("check", **environ).stdout for word in ("one", "two", "three"))


def test_check_reports_what_is_wrong_with_a_source(tmp_path: Path) -> None:
    """It said ok where the folder was not there, and nothing of what is never read."""
    source = "files({}, format='csv', schema='a int')"
    declared = f"from rota import Pipeline, delta, files\npipeline = Pipeline(source={source}, table=delta({{}}))\n"
    (tmp_path / "code").mkdir()
    (tmp_path / "code/gone.py").write_text(declared.format(repr(str(tmp_path / "nowhere")), repr(str(tmp_path / "t1"))))
    (tmp_path / "code/kept.py").write_text(declared.format(repr(str(tmp_path / "land")), repr(str(tmp_path / "t2"))))
    (tmp_path / "code/file.py").write_text(declared.format(repr(str(tmp_path / "plain")), repr(str(tmp_path / "t3"))))
    (tmp_path / "plain").write_text("1\n")
    (tmp_path / "land/a").mkdir(parents=True)
    (tmp_path / "land/lone.csv").write_text("1\n")
    done = rota("check", "--json", ROTA_ZOOKEEPER="127.0.0.1:1", ROTA_PIPELINES=str(tmp_path / "code"))
    probes = {p["name"]: (p["works"], p["seen"]) for p in json.loads(done.stdout)["probes"]}
    assert probes["source of gone"] == (
        False,
        f"{tmp_path}/nowhere is not there. Make the folder, mount its disk, or mend the path of files(...)",
    )
    assert probes["source of file"][1].startswith(f"{tmp_path}/plain is no folder. Make the folder")
    aside = "not read: 1, such as lone.csv (it lies in no partition's folder; move it into one)"
    assert probes["source of kept"] == (True, f"{tmp_path}/land has 1 partition: a; {aside}")
    assert probes["files of kept"] == (True, "no file changed after it was consumed")
    assert probes["clock of kept"] == (True, f"The disk of {tmp_path} and this machine agree on the time")


def test_secrets_never_show() -> None:
    assert mask_setting("AWS_SECRET_ACCESS_KEY", "hunter2") == "***"
    assert mask_setting("ROTA_TABLES", "s3://me:hunter2@host/x") == "s3://***@host/x"
    assert mask_setting("ROTA_TABLES", "/data/tables") == "/data/tables"
