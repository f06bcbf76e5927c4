"""Installs the peers below `.rota/peers` on first use. If one cannot be installed, its `Command` states why."""

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
    """The command that starts a peer. `missing` states why there is none."""

    words: tuple[str, ...] = ()
    missing: str = ""


def install_python_peer(package: str, script: str) -> Command:
    """Installs the pinned version of `package` into a venv of its own, in which `script` runs."""
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
            failed = _run_step(step)
            if failed:
                return Command(missing=f"{package} cannot be installed: {failed}")
        ready.touch()
    return Command((str(python), str(PEERS / script)))


def install_java_peer() -> Command:
    """Compiles `peers/kafka_java`, which calls Kafka's own assignors, with Maven."""
    java = shutil.which("java", path=_search_path("JAVA_HOME"))
    if java is None:
        return Command(missing="no Java")
    home, source = HOME / "kafka-java", PEERS / "kafka_java"
    built = home / "classes" / "KafkaPeer.class"
    newest = max(f.stat().st_mtime for f in source.rglob("*") if f.is_file())
    if not built.exists() or built.stat().st_mtime < newest:
        maven = shutil.which("mvn")
        if maven is None:
            return Command(missing="no Maven")
        failed = _run_step([maven, "-q", "-B", "-f", str(source / "pom.xml"), f"-Dout={home}", "package"])
        if failed:
            return Command(missing=f"Maven failed: {failed}")
        built.touch()
    return Command((java, "-cp", f"{home / 'classes'}:{home / 'lib' / '*'}", "KafkaPeer"))


def _search_path(variable: str) -> str:
    home = os.environ.get(variable)
    return os.pathsep.join([*([str(Path(home) / "bin")] if home else []), os.environ.get("PATH", "")])


def _run_step(step: list[str]) -> str:
    done = subprocess.run(step, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    return lines[0][:160] if lines else f"exit code {done.returncode}"
