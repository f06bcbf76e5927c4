"""The archive that a Spark starts from changes nothing but the time; tests/conformance/test_agent_spark.py sees it used."""

import shutil
import sys
from pathlib import Path

import pytest

from rota.dataplane.spark.spark_server import ARCHIVE, SparkServer, SparkSettings
from rota.errors import EnvironmentFailed
from rota.java import locate_archive
from rota.prepare import prepare
from tests.waiting import wait_until


def test_a_damaged_archive_is_left_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = locate_archive(ARCHIVE)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "a folder"))
    locate_archive(ARCHIVE).parent.mkdir(parents=True)
    shutil.copyfile(sound, locate_archive(ARCHIVE))
    with locate_archive(ARCHIVE).open("r+b") as file:
        file.seek(sound.stat().st_size // 3)
        file.write(b"not what Java wrote")
    server = SparkServer("damaged", SparkSettings("local[1]", {"spark.driver.memory": "600m"}), tmp_path / "scratch")
    server.start()
    try:
        wait_until(server.ready, 60)
        told = Path(f"/proc/{server.pid}/cmdline").read_text().split("\0")
        assert f"-XX:SharedArchiveFile={locate_archive(ARCHIVE)}" in told
        assert not server.mapped()
    finally:
        server.stop()


def test_an_installation_that_may_not_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "share").write_text("a file in the way")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(EnvironmentFailed, match=r"\.jsa cannot be made .* Run it as the user who installed rota"):
        prepare()
