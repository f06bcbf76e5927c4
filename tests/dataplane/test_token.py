"""A Spark Connect server runs code as its user: a client needs its token, which only a file of the user has.

tests/conformance/test_agent_spark.py tests that a worker's server refuses other clients.
"""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from rota.cli.worker import command
from rota.dataplane.spark import token
from rota.dataplane.spark.spark_server import ADDRESS, SparkServer, SparkSettings
from rota.errors import ConfigError, EnvironmentFailed, RotaError


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment has no token, and the test has its own folder for temporary files."""
    monkeypatch.setattr(token.tempfile, "gettempdir", lambda: str(tmp_path))
    for name in (token.NAME, f"{token.NAME}_FILE", token.SPARKS_OWN):
        monkeypatch.delenv(name, raising=False)


def test_a_random_token_is_found_by_the_runs_of_this_user_and_goes_with_its_server(tmp_path: Path) -> None:
    made, other = token.of_server("127.0.0.1", 4711), token.of_server("::1", 4712)
    assert made != other
    assert len(made) >= 32
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o077 == 0
    assert {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir()} == {"4711": 0o600, "4712": 0o600}
    assert token.add_token("sc://127.0.0.1:4711") == f"sc://127.0.0.1:4711/;authorization=Bearer%20{made}"
    assert (
        token.add_token("sc://localhost:4711/;user_id=a")
        == f"sc://localhost:4711/;user_id=a;authorization=Bearer%20{made}"
    )
    assert token.add_token("sc://127.0.0.1:4713") == "sc://127.0.0.1:4713", "no server left one"
    again = token.of_server("127.0.0.1", 4711)
    assert made not in token.add_token("sc://127.0.0.1:4711")
    assert again in token.add_token("sc://127.0.0.1:4711")
    token.forget_token(4711)
    token.forget_token(4711)
    assert token.add_token("sc://127.0.0.1:4711") == "sc://127.0.0.1:4711"


@pytest.mark.parametrize(
    "endpoint", ["sc://evil:4711", "sc://192.0.2.1:4711", "sc://127.0.0.1.evil:4711", "sc://127.0.0.1"]
)
def test_a_token_of_this_machine_goes_nowhere_else(endpoint: str) -> None:
    """A record in ZooKeeper names the endpoint: it makes no run read another file, or send a file elsewhere."""
    made = token.of_server("127.0.0.1", 4711)
    assert made not in token.add_token(endpoint)


def test_the_token_of_the_environment_goes_first_and_over_tls_as_spark_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    token.of_server("127.0.0.1", 4711)
    monkeypatch.setenv(token.NAME, "a/token=;&of mine")
    assert token.of_server("0.0.0.0", 4711) == "a/token=;&of mine"
    quoted = "a%2Ftoken%3D%3B%26of%20mine"
    assert token.add_token("sc://127.0.0.1:4711") == f"sc://127.0.0.1:4711/;authorization=Bearer%20{quoted}"
    assert token.add_token("sc://h:443/;use_ssl=true") == f"sc://h:443/;use_ssl=true;token={quoted}"
    assert quoted not in str(RotaError(f"INVALID_CONNECT_URL: {token.add_token('sc://h:443/;use_ssl=true')}"))
    monkeypatch.setenv(token.SPARKS_OWN, "theirs")
    with pytest.raises(ConfigError, match="Unset it, and set ROTA_SPARK_TOKEN"):
        token.add_token("sc://127.0.0.1:4711")


def test_the_token_of_the_environment_goes_in_clear_beyond_this_machine_without_tls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    addresses = ["sc://h", "sc://192.0.2.1:4711", "sc://h:443/;use_ssl=true", "sc://127.0.0.1:4711", "sc://[::1]:4711"]
    assert not any(map(token.sent_in_clear, addresses)), "there is none"
    monkeypatch.setenv(token.NAME, "mine")
    assert [token.sent_in_clear(address) for address in addresses] == [True, True, False, False, False]


@pytest.mark.parametrize("how", ["open", "link", "file"])
def test_a_folder_that_another_could_have_made_is_not_used(tmp_path: Path, how: str) -> None:
    folder = tmp_path / f"rota-spark-{os.getuid()}"
    if how == "open":
        folder.mkdir()
        folder.chmod(0o755)
        (folder / "4711").write_text("planted")
    elif how == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.write_text("")
    with pytest.raises(EnvironmentFailed, match="not a folder of this user alone"):
        token.of_server("127.0.0.1", 4711)
    assert token.add_token("sc://127.0.0.1:4711") == "sc://127.0.0.1:4711"


def test_a_token_that_cannot_be_kept_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token.tempfile, "gettempdir", lambda: str(tmp_path / "nowhere"))
    with pytest.raises(EnvironmentFailed, match=r"cannot be written .* or set ROTA_SPARK_TOKEN"):
        token.of_server("127.0.0.1", 4711)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])
def test_beyond_this_machine_nothing_starts_without_a_token(host: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"Spark would listen at {host} without a token"):
        SparkServer("open", SparkSettings(conf={ADDRESS: host}), tmp_path / "scratch")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--conf", f"{ADDRESS}=0.0.0.0"], "without a token"),
        (["--conf", "spark.hadoop.fs.s3a.secret.key=longsecret"], "every user of this machine can read arguments"),
        (["--conf", "spark.ssl.keyPassword=longsecret"], "every user of this machine can read arguments"),
        (["--conf", "spark.ssl.keyPassword=${NOT_SET_HERE}"], "NOT_SET_HERE"),
        (["--conf", "spark.connect.authenticate.token=longsecret"], "Set ROTA_SPARK_TOKEN"),
        (["--spark", "sc://h/;token=longsecret"], "set ROTA_SPARK_TOKEN"),
        (["--spark", "sc://user:longsecret@h:1"], "set ROTA_SPARK_TOKEN"),
    ],
)
def test_a_worker_takes_no_secret_as_an_argument(words: list[str], line: str) -> None:
    done = CliRunner().invoke(command, ["--id", "w1", *words])
    assert isinstance(done.exception, RotaError)
    assert line in str(done.exception)
    assert "longsecret" not in str(done.exception) + done.output


def test_what_its_absence_does(endpoint: str) -> None:
    """Ablation: without a token Spark's server runs code of any user of this machine."""
    stranger = SparkSession.builder.remote(endpoint).create()
    try:
        (row,) = stranger.sql("select reflect('java.lang.System', 'getProperty', 'user.name')").collect()
        assert row[0]
    finally:
        stranger.stop()
