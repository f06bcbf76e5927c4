"""One small group for the commands of a module."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.demo.small_group import Group, Run, open_small_group


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """See `open_small_group`."""
    with open_small_group(tmp_path_factory.mktemp("zookeeper")) as made:
        yield made


@pytest.fixture
def run(group: Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setenv("ROTA_ZOOKEEPER", group.hosts)
    monkeypatch.setenv("ROTA_PIPELINES", str(tmp_path))
    return Run()
