"""A store with a certificate of one's own authority, an endpoint of one's own, and a region that is not the default."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rota.local.bucket import serve_buckets

REGION = "eu-central-9"
SCRIPT = """
import sys
import obstore
from rota import stores
from rota.dataplane.files.bucket import BucketLanding
from rota.ledger.delta_log import DeltaLog
from rota.ledger.schema import FIRST
from tests.dataplane.conformance.log_suite import append
place = sys.argv[1]
stores.open_files(place).open_output_stream("files").close()
obstore.put(stores.open_objects(place), "objects", b"1", mode="create")
assert BucketLanding(place).find_place() == place
log = DeltaLog(place + "/main")
log.create(FIRST)
assert append(log, sets={"a": 1}).transaction("a") == 1
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `ca.pem`, and with a certificate of it for loopback."""
    folder = tmp_path_factory.mktemp("authority")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    for line in (
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=authority",
        "req -newkey rsa:2048 -nodes -keyout key.pem -out asked -subj /CN=store",
        "x509 -req -in asked -CA ca.pem -CAkey ca.key -CAcreateserial -out cert.pem -days 2 -extfile names",
    ):
        subprocess.run(["openssl", *line.split()], cwd=folder, check=True, capture_output=True)
    return folder


def test_all_that_speak_to_a_store_trust_the_authority_that_is_named(authority: Path, tmp_path: Path) -> None:
    """`AWS_CA_BUNDLE` for what rota opens, and `SSL_CERT_FILE` for delta-rs, which knows no other; without them nobody
    speaks to it."""
    ca = str(authority / "ca.pem")
    keys = ("--cert", str(authority / "cert.pem"), "--key", str(authority / "key.pem"), "--region", REGION)
    with serve_buckets(tmp_path / "s3", *keys) as server:
        place = f"s3://{server.make_bucket()}/p"
        environ = {**os.environ, **server.environ, "AWS_REGION": REGION}
        trusting = {**environ, "AWS_CA_BUNDLE": ca, "SSL_CERT_FILE": ca}

        def run(told: dict[str, str]) -> "subprocess.CompletedProcess[bytes]":
            return subprocess.run([sys.executable, "-c", SCRIPT, place], env=told, capture_output=True, check=False)

        done = run(trusting)
        assert done.returncode == 0, done.stderr[-2000:]
        assert (server.data / place.removeprefix("s3://") / "main" / "_delta_log" / f"{1:020}.json").exists()
        assert b"ertificate" in run(environ).stderr
