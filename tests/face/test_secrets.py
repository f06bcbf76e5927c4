"""No secret is left anywhere: a marked one in every setting, and a search through all that a line leaves behind.

The line runs under credentials, over TLS, each process as its own role: a worker with its own Spark, Dagster's jobs, a
person's commands.
"""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import dagster as dg
import psutil
import pytest
from deltalake import DeltaTable

from rota.catalog import load
from rota.coordination import client
from rota.coordination.group_state import GroupState
from rota.dagster.assets.names import Names
from rota.dagster.location import compose
from rota.dagster.resources.zookeeper import ZooKeeperResource
from rota.group.found import follow
from rota.settings import Settings
from tests.guarded import ROLES, Guarded, guard, password
from tests.processes import list_below, strike_host
from tests.waiting import wait_until

names = Names()

ROOT = Path(__file__).parents[2]
MARKS = {
    "ROTA_ZOOKEEPER_KEY_PASSWORD": "m4rked-key-password",
    "ROTA_SPARK_TOKEN": "m4rked/spark+token=",
    "LANDING_PASSWORD": "m4rked-landing-password",
    "S3_SECRET": "m4rked s3=secret#key",
}
FILE = """
from rota import Pipeline, delta, files
pipeline = Pipeline(
    source=files("{folder}/${{LANDING_PASSWORD}}/{name}", format="json", schema="n int", settle=0),
    table=delta("{folder}/tables/{name}"), group="g",
)
"""
SECRET_CONF = "spark.hadoop.fs.s3a.secret.key"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    """Certificates whose keys have a password, and a server that wants one and a password too."""
    folder = tmp_path / "kept"
    folder.mkdir()
    with guard(folder, MARKS["ROTA_ZOOKEEPER_KEY_PASSWORD"]) as server:
        yield server


def environment(guarded: Guarded, role: str, folder: Path) -> dict[str, str]:
    """Everything that a process of the role receives: its SASL password too, over TLS with its certificate."""
    mine = {**guarded.environment("x509", role), **guarded.environment("sasl", role), "ROTA_ZOOKEEPER": guarded.secure}
    return mine | MARKS | {"ROTA_PIPELINES": str(folder / "pipelines"), "PYTHONPATH": str(ROOT)}


def land(folder: Path, name: str, text: str) -> None:
    file = folder / MARKS["LANDING_PASSWORD"] / name / "a" / "0.json"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    (folder / "pipelines").mkdir(exist_ok=True)
    (folder / "pipelines" / f"{name}.py").write_text(FILE.format(folder=folder, name=name))


def test_what_a_line_leaves_behind_holds_no_secret(
    guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(tmp_path, "p", "".join(f'{{"n": {n}}}\n' for n in range(20)) + "not a record\n")
    land(tmp_path, "q", '{"n": 1}\n')
    for name, value in environment(guarded, "controller", tmp_path).items():
        monkeypatch.setenv(name, value)
    log, home = tmp_path / "worker.log", tmp_path / "dagster"
    home.mkdir()
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        with client.opened(Settings.from_environment()) as store, log.open("wb") as out:
            catalog = load(tmp_path / "pipelines")
            follow(store, catalog, "g")
            words = ["--group", "g", "--id", "w1", "--conf", "spark.driver.memory=600m", "--master", "local[1]"]
            worker = subprocess.Popen(
                [sys.executable, "-m", "rota", "worker", *words, "--conf", f"{SECRET_CONF}=${{S3_SECRET}}"],
                env=os.environ | environment(guarded, "worker", tmp_path), stdout=out, stderr=out,
            )  # fmt: skip
            try:
                consume(GroupState(store, "g"), catalog, instance, tmp_path)
                check_arguments(worker)
                check_resource(guarded, "g")
                said = run_commands(guarded, tmp_path)
                scratch = Path(log.read_text().partition("log=")[2].split()[0]).parent
                seen = {"spark.log": (scratch / "spark.log").read_bytes()}
                assert stat.S_IMODE((scratch / "spark.properties").stat().st_mode) == 0o600
            finally:
                strike_host(worker.pid, signal.SIGKILL)
                worker.wait()
        with client.opened(
            Settings.from_environment({**os.environ, **environment(guarded, "person", tmp_path)})
        ) as store:
            seen |= read_znodes(store, "/rota")
    assert {
        f"/rota/g/{name}" for name in ("meta", "own/p:a", "checkpoints/p:a", "assign/w1", "epochs/0000000001")
    } <= set(seen)
    seen |= {f"what {name} said": text for name, text in said.items()}
    seen |= {
        str(path): path.read_bytes()
        for part in ("dagster", "tables", "pipelines")
        for path in list_files(tmp_path / part)
    }
    seen |= {"worker.log": log.read_bytes(), "rows": read_rows(tmp_path / "tables")}
    marks = [*MARKS.values(), *map(password, ROLES)]
    marks += [coded for mark in marks if (coded := quote(mark, safe="")) != mark]  # as an address has it
    assert not [(name, mark) for name, text in seen.items() for mark in marks if mark.encode() in text]
    assert b"***" in b"".join(text for name, text in seen.items() if "dagster" in name), (
        "the error that named one is there"
    )


def check_resource(guarded: Guarded, group: str) -> None:
    """Credentials by Dagster's way: in a process whose environment calls them otherwise."""
    given = {**environment(guarded, "controller", Path()), "ROTA_ZOOKEEPER_HOSTS": guarded.secure}
    fields = ("hosts", "auth", "ca_file", "cert_file", "key_file", "key_password")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("ROTA_")]:
            patch.delenv(name)
        for field in fields:
            patch.setenv(f"MINE_{field}", given[f"ROTA_ZOOKEEPER_{field.upper()}"])
        mine = ZooKeeperResource(**{field: dg.EnvVar(f"MINE_{field}") for field in fields})
        assert not [mark for mark in (*MARKS.values(), *map(password, ROLES)) if mark in repr(mine)]
        with mine.process_config_and_initialize().tree(group) as tree:
            assert tree.exists()


def consume(tree: GroupState, catalog: object, instance: dg.DagsterInstance, folder: Path) -> None:
    """A rebalance, a run with a bad record, and one that fails with a line that names where it read."""
    repository = compose(catalog).get_repository_def()  # type: ignore[arg-type]
    for name in ("p", "q"):
        instance.add_dynamic_partitions(str(names.partition_set(name).name), [f"{name}:a"])
    wait_until(tree.live)
    assert repository.get_job(names.rebalance_job("g")).execute_in_process(instance=instance).success
    wait_until(lambda: all(view.incarnation for view in tree.owned().values()))
    consume = {name: repository.get_job(names.consume_job(name)) for name in ("p", "q")}
    assert consume["p"].execute_in_process(instance=instance, partition_key="p:a").success
    (folder / MARKS["LANDING_PASSWORD"] / "q" / "a" / "0.json").unlink()
    (folder / MARKS["LANDING_PASSWORD"] / "q" / "a").rmdir()
    consume["q"].execute_in_process(instance=instance, partition_key="q:a", raise_on_error=False)
    shutil.rmtree(folder / MARKS["LANDING_PASSWORD"] / "q")
    (folder / MARKS["LANDING_PASSWORD"] / "q").write_text("a file where the folder was")
    assert not consume["q"].execute_in_process(instance=instance, partition_key="q:a", raise_on_error=False).success


def check_arguments(worker: "subprocess.Popen[bytes]") -> None:
    """What every user of the machine can read: the argument lists."""
    family = [psutil.Process(worker.pid).cmdline(), *list_below(worker.pid).values()]
    words = " ".join(" ".join(command) for command in family)
    assert "SparkConnectServer" in words
    assert not [mark for mark in MARKS.values() if mark in words]


def run_commands(guarded: Guarded, folder: Path) -> dict[str, bytes]:
    (folder / "pipelines" / "typo.py").write_text(FILE.format(folder=folder, name="typo").replace("n int", "n itn"))
    amout = FILE.format(folder=folder, name="amout").replace(
        "\n)", "\n    transform=lambda df: df.where(df.amout > 0),\n)"
    )
    (folder / "pipelines" / "amout.py").write_text(amout)
    said = {}
    for words in (
        ["status", "--group", "g", "--json"],
        ["check", "--json"],
        ["history", "--group", "g", "--json"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "rota", *words],
            env=os.environ | environment(guarded, "reader", folder),
            capture_output=True,
            stdin=subprocess.DEVNULL,
        )
        said[" ".join(words)] = done.stdout + done.stderr
    assert said["check --json"].startswith(b"{"), said["check --json"]
    probes = {probe["name"]: probe for probe in json.loads(said["check --json"])["probes"]}
    assert "pipelines in Dagster" not in probes, probes["pipelines in Dagster"]
    assert probes["rights"]["works"], probes["rights"]
    assert probes["Spark of w1"]["works"]
    assert probes["schema of p"]["works"]
    assert not probes["schema of typo"]["works"]
    assert '"ITN"' in probes["schema of typo"]["seen"]
    assert probes["schema of amout"]["works"]
    assert not probes["transform of amout"]["works"]
    assert "amout.py, line 6" in probes["transform of amout"]["seen"]
    assert "/***/p has 1 partition" in probes["source of p"]["seen"]
    return said


def read_znodes(store: client.ZooKeeperStore, path: str) -> dict[str, bytes]:
    node = store.get(path)
    found = {path: node.data if node is not None else b""}
    for name in store.children(path):
        found |= read_znodes(store, f"{path}/{name}")
    return found


def list_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]


def read_rows(tables: Path) -> bytes:
    """What is compressed in the files."""
    found = [path.parent for path in tables.rglob("_delta_log")]
    return repr([DeltaTable(str(path)).to_pyarrow_table().to_pylist() for path in found]).encode()
