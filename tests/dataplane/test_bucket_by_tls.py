"""A store with a certificate of a private authority, its own endpoint, and a region that is not the default."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.java import LIGHT, find_java
from rota.local.bucket import BucketServer, serve_buckets
from rota.local.cluster import QUICK_START

REGION = "eu-central-9"
SCRIPT = """
import sys
import obstore
from rota import stores
from rota.dataplane.files.bucket import BucketLanding
from rota.deltalog.delta_log import DeltaLog
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

SPARK = """
import sys
from pyspark.sql import SparkSession, functions as F
from rota import stores
from rota.dataplane import columns
from rota.dataplane.spark import writing
from rota.java import list_jars
place, options = sys.argv[1:]
said = {"driver.extraJavaOptions": options, "executor.extraJavaOptions": options, "executor.memory": "512m",
        "jars": ",".join(map(str, list_jars())), "ui.enabled": "false"}
made = SparkSession.builder.master("local-cluster[1,1,512]")
for name, value in said.items():
    made = made.config(f"spark.{name}", value)
spark = made.getOrCreate()
stores.open_objects(place).put("in/a.json", b'{"n": 1}\\n{"n": 2}\\n')
landed = f"s3a://{place.partition('://')[2]}/in/a.json"
read = spark.read.schema("n int").options(**stores.describe_to_spark()).json(landed)
rows = read.select("n", F.lit("p:a").alias("_partition"), F.lit(0).cast("long").alias("_offset"))
(file,) = writing.write(rows, f"{place}/main", "data/x")
assert file.rows == 2, file
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `ca.pem`, and a certificate for loopback that this authority signed."""
    folder = tmp_path_factory.mktemp("authority")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    for line in (
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=authority",
        "req -newkey rsa:2048 -nodes -keyout key.pem -out asked -subj /CN=store",
        "x509 -req -in asked -CA ca.pem -CAkey ca.key -CAcreateserial -out cert.pem -days 2 -extfile names",
    ):
        subprocess.run(["openssl", *line.split()], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def server(authority: Path, tmp_path: Path) -> Iterator[BucketServer]:
    keys = ("--cert", str(authority / "cert.pem"), "--key", str(authority / "key.pem"), "--region", REGION)
    with serve_buckets(tmp_path / "s3", *keys) as server:
        yield server


def run(script: str, environ: dict[str, str], *words: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run([sys.executable, "-c", script, *words], env=environ, capture_output=True, check=False)


def test_all_that_speak_to_a_store_trust_the_authority_that_is_named(authority: Path, server: BucketServer) -> None:
    """`AWS_CA_BUNDLE` is for stores that rota opens, `SSL_CERT_FILE` for delta-rs, which reads no other. Without them,
    both refuse the store."""
    place = f"s3://{server.make_bucket()}/p"
    environ = {**os.environ, **server.environ, "AWS_REGION": REGION}
    ca = str(authority / "ca.pem")
    done = run(SCRIPT, {**environ, "AWS_CA_BUNDLE": ca, "SSL_CERT_FILE": ca}, place)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (server.data / place.removeprefix("s3://") / "main" / "_delta_log" / f"{1:020}.json").exists()
    assert b"ertificate" in run(SCRIPT, environ, place).stderr


@pytest.mark.release  # the other test covers TLS, and test_landing_in_bucket.py covers Spark on a bucket
def test_spark_reads_and_its_tasks_write_by_a_trust_store_of_java(authority: Path, server: BucketServer) -> None:
    """As in docs/tables.md: driver and executors get the trust store; `AWS_CA_BUNDLE` is for Arrow in the tasks."""
    words = "-importcert -noprompt -alias store -file ca.pem -keystore trusted.jks -storetype jks -storepass changeit"
    keytool = Path(find_java()).with_name("keytool")
    subprocess.run([str(keytool), *words.split()], cwd=authority, check=True, capture_output=True)
    own = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}  # of other tests' Spark
    environ = {**own, **server.environ, "AWS_REGION": REGION, "AWS_CA_BUNDLE": str(authority / "ca.pem")}
    options = f"{QUICK_START} -Djavax.net.ssl.trustStore={authority / 'trusted.jks'}"
    environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LAUNCHER_OPTS": " ".join(LIGHT)}
    done = run(SPARK, environ, f"s3://{server.make_bucket()}/p", options)
    assert done.returncode == 0, done.stderr[-2000:]
