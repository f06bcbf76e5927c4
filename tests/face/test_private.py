"""What of Dagster is used that it does not promise. When a release of it changes, this is where it is seen."""

import re
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from dagster._core.storage import tags

from dagster_project.warm import PRELOADED
from rota.dagster.sensors import runs

ROOT = Path(__file__).parents[2]
PRIVATE = re.compile(r"^\s*(?:from|import) dagster(?:_\w+)?(?:\.\w+)*\._\S+", re.M)
KNOWN = {
    # Keys in a run's config are no partition tag, so Dagster plans nothing for them: a run that fails would show none of
    # them red, and one that works none in progress. Dagster has no public way to say what a run is about to materialize, nor
    # of which materialization an evaluation is that no step of Dagster's made.
    "assets/provenance.py": [
        "from dagster._core.definitions.asset_checks.asset_check_evaluation",
        "from dagster._core.events",
    ],
    # Dagster stores the traceback of whatever a tick raises, and of a step's Failure too. This error alone carries what is
    # stored in its place.
    "assets/failure.py": ["from dagster._core.errors"],
    # Whether Dagster's limits keep a run in the queue: this is what its daemon asks.
    "assets/ending.py": ["from dagster._utils.tags"],
    # A run coordinator of one's own is documented, and what it is made from stands here alone.
    "rota/dagster/run_queue.py": ["from dagster._core.run_coordinator"],
}


def test_four_modules_import_what_dagster_keeps_to_itself() -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for folder in ("assets", "sensors", "resources", "dagster_project", "rota")
        for path in (ROOT / folder).rglob("*.py")
        if (lines := [line.strip() for line in PRIVATE.findall(path.read_text())])
    }
    assert found == KNOWN


def test_dagster_writes_the_tags_that_we_read() -> None:
    """Tried with 1.13; pyproject.toml lets in no other."""
    assert version("dagster").startswith("1.13.")
    assert (runs.GRPC_INFO_TAG, runs.LOCATION_TAG) == (tags.GRPC_INFO_TAG, tags.REPOSITORY_LABEL_TAG)


def test_what_runs_are_to_find_imported_is_there() -> None:
    """Python passes over a name that it cannot import, and each run would import it anew."""
    assert not [name for name in PRELOADED if find_spec(name) is None]
