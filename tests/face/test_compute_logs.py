"""What a run prints is in the files that the page reads, and no process copies it elsewhere."""

import subprocess
from pathlib import Path

import dagster as dg
import pytest

from dagster_project import compute_logs

QUIET = "{telemetry: {enabled: false}, python_logs: {python_log_level: CRITICAL}}"


@pytest.mark.parametrize("own", [True, False], ids=["as `rota up` has it", "as Dagster has it"])
def test_what_a_run_prints_is_in_its_files(
    own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each run started four processes, two of them a Python, for an output that nobody looks at."""
    dagsters = compute_logs.compute_logs
    monkeypatch.setattr(dagsters, "tail_to_stream", dagsters.tail_to_stream)  # put back at the end
    started, popen = list[str](), subprocess.Popen

    def start(command: list[str], **options: object) -> object:
        started.append(command[0])
        return popen(command, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "Popen", start)
    if own:
        compute_logs.capture_in_files()
    (tmp_path / "dagster.yaml").write_text(QUIET)

    @dg.asset
    def printing() -> None:
        print("what it says")  # noqa: T201

    with capfd.disabled(), dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert dg.materialize([printing], instance=instance).success
    files = [path.read_text() for path in (tmp_path / "storage").glob("*/compute_logs/*.out")]
    assert files == ["what it says\n"]
    assert len(started) == (0 if own else 4), "Dagster captures in another way now"
