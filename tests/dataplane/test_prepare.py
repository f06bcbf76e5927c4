"""`rota prepare` reports a failure in one line. tests/conformance/test_agent_spark.py tests that its archive is used,
test_disturbed_spark that a damaged archive is ignored."""

import sys
from pathlib import Path

import pytest

from rota.errors import EnvironmentFailed
from rota.prepare import prepare


def test_an_installation_that_may_not_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "share").write_text("a file in the way")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(EnvironmentFailed, match=r"\.jsa cannot be made .* Run it as the user that installed rota"):
        prepare()
