"""Finds the Java for the embedded ZooKeeper and for Spark, and the files that `rota prepare` made for them."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from rota.errors import ConfigError, EnvironmentFailed

NEEDED = 17
# For a Java that ends soon or does little: halves the cost of its start.
LIGHT = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
CHECKED = "-XX:+VerifySharedSpaces"  # a damaged archive is detected by its checksum and not used


def find_java(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the `java` of JAVA_HOME, else of PATH. Raises EnvironmentFailed if it is missing or older than version 17."""
    home = environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environ.get("PATH"))
    where = f"JAVA_HOME={home}" if home else "PATH"
    if found is None or not os.access(found, os.X_OK):
        raise EnvironmentFailed(
            f"Java {NEEDED}+ not found (looked in {where}). Spark and the embedded ZooKeeper need it. "
            f"Try: apt install openjdk-{NEEDED}-jre-headless"
        )
    version = read_java_version(Path(found))
    if version < NEEDED:
        raise EnvironmentFailed(
            f"Java {NEEDED}+ is needed, {found} is {version or 'of unknown version'}. "
            f"Try: apt install openjdk-{NEEDED}-jre-headless, and set JAVA_HOME to it",
            version=version,
        )
    return Path(found)


@cache  # each call starts a Java
def read_java_version(java: Path) -> int:
    """Return the major version that this `java` reports; 0 if it reports none."""
    try:
        said = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(match[1]) if match else 0


def join_options(options: Iterable[str]) -> str:
    """Return the options as one line that Spark splits again; a path may contain a blank."""
    return " ".join(f'"{one}"' for one in options)


def find_spark_home() -> Path:
    """Return the folder of the installed PySpark without importing it. Raises ConfigError if it is not installed."""
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("PySpark is not installed. Try: pip install 'pyspark[connect]>=4.3,<4.4'")
    return Path(spec.submodule_search_locations[0])


def locate_archive(program: str) -> Path:
    """Return where `rota prepare` writes the class data archive of this program."""
    return Path(sys.prefix, "share", "rota", f"{program}.jsa")


def use_archive(program: str) -> tuple[str, ...]:
    """Return the options with which Java starts the program from its archive; none if there is no archive."""
    made = locate_archive(program)
    return (CHECKED, f"-XX:SharedArchiveFile={made}") if made.exists() else ()


def locate_jars() -> Path:
    """Return where `rota prepare --s3` stores the jars with which Spark reads `s3a://`."""
    return Path(sys.prefix, "share", "rota", "s3a")


def list_jars() -> tuple[Path, ...]:
    """Return those jars; none if they were not fetched."""
    return tuple(sorted(locate_jars().glob("*.jar")))
