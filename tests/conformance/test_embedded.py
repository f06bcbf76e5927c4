"""Laws of the embedded server: it ends with its parent, keeps what it acknowledged, and reports a fault in one line."""

import os
import shutil
import signal
import socket
import sys
from pathlib import Path

import pytest

from rota import java
from rota.coordination import embedded
from rota.coordination.client import connect
from rota.coordination.embedded import EmbeddedZooKeeper, four_letters
from rota.errors import ConfigError, EnvironmentFailed
from rota.java import find_java, locate_archive, read_java_version
from rota.machine import free_port, lock_file
from tests.conformance.processes import start_script
from tests.waiting import LONG, wait_until

ROOT = Path(__file__).parents[2]
PARENT = """
import sys, threading, time
from rota.coordination.embedded import EmbeddedZooKeeper
server = EmbeddedZooKeeper(sys.argv[1])
starter = threading.Thread(target=server.start)
starter.start()
starter.join()
print(server.port, server.process.pid, flush=True)
sys.stdin.readline()
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, None], ids=["kill", "term", "exit"])
def test_it_ends_with_its_parent_and_not_before(folder: Path, how: signal.Signals | None) -> None:
    parent, stdin, stdout = start_script(PARENT, str(folder))
    port, pid = map(int, stdout.readline().split())
    assert "Mode:" in four_letters(port, "srvr"), "the thread that started it has ended, and it serves"
    assert alive(pid)
    if how is None:
        stdin.write("\n")
        stdin.flush()
    else:
        parent.send_signal(how)
    parent.wait(LONG)
    stdin.close()
    stdout.close()
    wait_until(lambda: not alive(pid))
    held = lock_file(folder / "lock")
    assert held is not None, "the folder is free again"
    held.close()


def test_it_is_the_real_one_on_loopback_only_with_few_commands(zookeeper: EmbeddedZooKeeper) -> None:
    assert "Zookeeper version: 3.9" in four_letters(zookeeper.port, "srvr")
    assert four_letters(zookeeper.port, "ruok") == "imok"
    assert "not in the whitelist" in four_letters(zookeeper.port, "conf")
    assert zookeeper.process is not None
    listening = {local for local, pid in listeners() if pid == zookeeper.process.pid}
    assert listening
    assert all(address in ("0100007F", "0000000000000000FFFF00000100007F") for address in listening), listening


def listeners() -> list[tuple[str, int]]:
    """(local address in hex, pid) of every listening TCP socket that this user's processes hold."""
    inodes = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == "0A":
                inodes[columns[9]] = columns[1].partition(":")[0]
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            links = [os.readlink(link) for link in (process / "fd").iterdir()]
        except OSError:
            continue
        found += [(inodes[i], int(process.name)) for link in links if (i := link[8:-1]) in inodes]
    return found


def mapped(server: EmbeddedZooKeeper) -> bool:
    """Whether the server started from the archive of `rota prepare`."""
    assert server.process is not None
    return str(locate_archive(embedded.ARCHIVE).resolve()) in Path(f"/proc/{server.process.pid}/maps").read_text()


def test_a_damaged_archive_is_left_aside(
    zookeeper: EmbeddedZooKeeper, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mapped(zookeeper), "it started from the archive of `rota prepare`: make prepare"
    sound = locate_archive(embedded.ARCHIVE)
    monkeypatch.setattr(sys, "prefix", str(folder / "a prefix"))
    damaged = locate_archive(embedded.ARCHIVE)
    damaged.parent.mkdir(parents=True)
    shutil.copyfile(sound, damaged)
    damaged.chmod(0o600)
    with damaged.open("r+b") as file:
        file.seek(sound.stat().st_size // 3)
        file.write(b"not what Java wrote")
    with EmbeddedZooKeeper(folder) as server:
        assert f"-XX:SharedArchiveFile={damaged}" in server.archive
        assert not mapped(server)
        assert server.answers()


def test_what_was_acknowledged_survives_a_kill(folder: Path) -> None:
    with EmbeddedZooKeeper(folder) as server:
        with connect(server.hosts) as store:
            store.ensure("/rota/a")
            kept = store.set("/rota/a", b"kept", 0)
        port = server.port
        server.kill()
        assert not server.answers()
        server.start()
        assert server.port == port
        with connect(server.hosts) as store:
            assert store.get("/rota/a") == kept
    with EmbeddedZooKeeper(folder) as server, connect(server.hosts) as store:
        assert store.get("/rota/a") == kept


def test_a_folder_serves_one_server(folder: Path) -> None:
    with EmbeddedZooKeeper(folder, heap="64m") as server:
        assert server.process is not None
        assert b"-Xmx64m" in Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
        with pytest.raises(EnvironmentFailed, match="Another embedded ZooKeeper holds"):
            EmbeddedZooKeeper(folder).start()


def test_a_taken_port_is_one_line_and_leaves_nothing_behind(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = EmbeddedZooKeeper(folder, port=taken.getsockname()[1])
        with pytest.raises(EnvironmentFailed, match=r"Address already in use|BindException") as refused:
            server.start()
        assert "\n" not in str(refused.value)
        assert server.process is None
    with server:
        assert server.answers()


def test_a_free_port_that_was_snatched_is_replaced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = iter([taken.getsockname()[1], free_port()])
        monkeypatch.setattr(embedded, "free_port", lambda: next(ports))
        with EmbeddedZooKeeper(folder) as server:
            assert server.port != taken.getsockname()[1]


def fake_java(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return java


def test_no_java_is_one_line_with_the_package_to_install(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentFailed) as refused:
        EmbeddedZooKeeper(folder).start()
    line = str(refused.value)
    assert line.startswith("Java 17+ not found (looked in PATH).")
    assert "apt install openjdk-17" in line
    assert "\n" not in line


def test_java_is_looked_up_in_java_home_then_on_the_path(tmp_path: Path) -> None:
    home, path = fake_java(tmp_path / "home" / "bin", "21.0.1"), fake_java(tmp_path / "path", "17.0.9")
    on_path = {"PATH": str(path.parent)}
    assert find_java(on_path) == path
    assert find_java(on_path | {"JAVA_HOME": str(tmp_path / "home")}) == home
    with pytest.raises(EnvironmentFailed, match=r"looked in JAVA_HOME=.*nowhere"):
        find_java(on_path | {"JAVA_HOME": str(tmp_path / "nowhere")})
    old = fake_java(tmp_path / "old", "1.8.0_392")
    assert read_java_version(old) == 8
    with pytest.raises(EnvironmentFailed, match=r"Java 17\+ is needed, .* is 8"):
        find_java({"PATH": str(old.parent)})


def test_without_pysparks_jars_the_error_names_pyspark(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "find_spark_home", lambda: folder)
    with pytest.raises(EnvironmentFailed, match="Install pyspark"):
        EmbeddedZooKeeper(folder).start()
    monkeypatch.undo()
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install 'pyspark"):
        EmbeddedZooKeeper(folder).start()
