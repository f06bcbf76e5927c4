"""The peers' own homes below `.rota/peers`, made on first use. A peer that cannot be had says why; the rest runs."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PEERS = HERE / "peers"
HOME = HERE.parent / ".rota" / "peers"
VERSIONS = {
    "kafka-python": "3.0.12",
    "kazoo": "2.11.0",
    "kafka-utils": "4.1.0",
    "azure-eventhub": "5.15.1",
}


@dataclass(frozen=True, slots=True)
class Command:
    """How to start a peer, or why it cannot be started."""

    words: tuple[str, ...] = ()
    missing: str = ""


def python_peer(package: str, script: str) -> Command:
    """The peer `script` in a venv that holds `package` at its pinned version and nothing of ours."""
    home = HOME / package
    python = home / "bin" / "python"
    ready = home / f".ready-{VERSIONS[package]}"
    if not ready.exists():
        shutil.rmtree(home, ignore_errors=True)
        steps = (
            [sys.executable, "-m", "venv", str(home)],
            [
                str(python),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                f"{package}=={VERSIONS[package]}",
            ],
        )
        for step in steps:
            failed = _failed(step)
            if failed:
                return Command(missing=f"{package} cannot be installed: {failed}")
        ready.touch()
    return Command((str(python), str(PEERS / script)))


def java_peer() -> Command:
    """Kafka's own assignors, compiled once by Maven from `peers/kafka_java`."""
    java = shutil.which("java", path=_path("JAVA_HOME"))
    if java is None:
        return Command(missing="no Java")
    home, source = HOME / "kafka-java", PEERS / "kafka_java"
    built = home / "classes" / "KafkaPeer.class"
    newest = max(f.stat().st_mtime for f in source.rglob("*") if f.is_file())
    if not built.exists() or built.stat().st_mtime < newest:
        maven = shutil.which("mvn")
        if maven is None:
            return Command(missing="no Maven")
        failed = _failed([maven, "-q", "-B", "-f", str(source / "pom.xml"), f"-Dout={home}", "package"])
        if failed:
            return Command(missing=f"Maven failed: {failed}")
        built.touch()
    return Command((java, "-cp", f"{home / 'classes'}:{home / 'lib' / '*'}", "KafkaPeer"))


def _path(variable: str) -> str:
    home = os.environ.get(variable)
    return os.pathsep.join([*([str(Path(home) / "bin")] if home else []), os.environ.get("PATH", "")])


def _failed(step: list[str]) -> str:
    done = subprocess.run(step, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    return lines[0][:160] if lines else f"exit code {done.returncode}"
