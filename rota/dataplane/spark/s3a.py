"""Fetch the jars with which Spark reads `s3a://`: Hadoop's client, and the modules of Amazon's SDK that the client needs.

Law: each version is pinned, and Spark's own Ivy fetches the jars from the registry in its settings. The 49 jars have 18 MB.
Hadoop depends on the SDK as one bundle, which has 686 MB. Libraries that Spark has itself (netty, slf4j, Hadoop) are left
out or older: Spark loads its own classes first.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rota.dataplane.spark.words import UNRESOLVED
from rota.errors import EnvironmentFailed
from rota.java import find_java, find_spark_home, list_jars, locate_jars

SDK = "2.35.4"
PACKAGES = (
    "org.apache.hadoop:hadoop-aws:3.5.0",
    *(
        f"software.amazon.awssdk:{module}:{SDK}"
        for module in ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
    ),
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
)
LEFT_OUT = (
    "software.amazon.awssdk:bundle",
    "org.apache.hadoop:hadoop-common",
    "org.wildfly.openssl:wildfly-openssl",
    "org.slf4j:slf4j-api",
    "commons-logging:commons-logging",
)
WAITING = 900.0  # seconds for all jars


def fetch_jars() -> tuple[Path, ...]:
    """Fetch the jars for the Sparks of this installation, and return them. Raises EnvironmentFailed."""
    find_java()
    folder = locate_jars()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".rota-s3a-", dir=folder.parent) as scratch:
            fetched = _resolve(Path(scratch))
            shutil.rmtree(folder, ignore_errors=True)
            fetched.rename(folder)
    except OSError as error:
        raise EnvironmentFailed(f"{folder} cannot be made ({error}). Run it as the user that installed rota") from error
    return list_jars()


def _resolve(scratch: Path) -> Path:
    """Let a Spark with an empty program fetch the jars, and return their folder."""
    program = scratch / "nothing.py"
    program.touch()
    conf = {"spark.jars.ivy": str(scratch), "spark.ui.enabled": "false"}
    command = [str(find_spark_home() / "bin" / "spark-submit"), "--master", "local[1]"]
    command += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    command += ["--packages", ",".join(PACKAGES), "--exclude-packages", ",".join(LEFT_OUT), str(program)]
    with (scratch / "log").open("w+b") as log:
        try:
            environ = {"SPARK_HOME": str(find_spark_home()), "PYSPARK_PYTHON": sys.executable}
            subprocess.run(command, env={**os.environ, **environ}, stdout=log, stderr=log, timeout=WAITING, check=True)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            log.seek(0)
            lines = log.read().decode(errors="replace").splitlines()
            why = next((line.strip() for line in lines if UNRESOLVED in line), str(error))[:300]
            raise EnvironmentFailed(
                f"Spark's Ivy does not get the jars of s3a ({why}). Is a registry of Maven reachable? Its own settings are "
                f"in the file that spark.jars.ivySettings names"
            ) from None
    return scratch / "jars"
