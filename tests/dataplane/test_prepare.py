"""What `rota prepare` cannot do is one line; tests/conformance/test_agent_spark.py sees its archive used, and
test_disturbed_spark a damaged one left aside."""

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
