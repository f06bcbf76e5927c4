"""Runs that end before they need Spark: a stand-in session lets a test change the world during the run."""

from pathlib import Path

import pytest

from tests.dataplane.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
