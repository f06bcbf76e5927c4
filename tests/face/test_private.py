"""What of Dagster is used that it does not promise. When a release of it changes, this is where it is seen."""

import re
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
from dagster._core.storage import tags

from dagster_project.warm import PRELOADED
from rota.dagster import private
from rota.face.dagster_state import LOST

ROOT = Path(__file__).parents[2]
PRIVATE = re.compile(r"^\s*(?:from|import) dagster(?:_\w+)?(?:\.\w+)*\._\S+", re.M)
TEXTS = {  # what depends on a text of Dagster's -> the module that has it, and the text
    "threads of the code server": ("dagster._grpc.server", [f'name="{name}"' for name in private.GUARDS]),
    "threads it may have": ("dagster._cli.api", [f'envvar="{private.SERVERS[0]}"']),
    "and those of the second": ("dagster._cli.code_server", [f'envvar="{private.SERVERS[1]}"']),
    "events of runs": ("dagster._core.storage.sqlite_storage", [", ".join(f'"{name}"' for name in private.EVENTS)]),
    "logs of runs on the page": ("dagster_webserver.webserver", [f'"/{private.LOGS}/{{path:path}}"']),
    "the process of a run": ("dagster._core.executor.in_process", ["(pid: {os.getpid()})"]),
}


def test_one_module_imports_what_dagster_keeps_to_itself() -> None:
    found = {
        str(path.relative_to(ROOT))
        for folder in ("assets", "sensors", "resources", "dagster_project", "rota")
        for path in (ROOT / folder).rglob("*.py")
        if PRIVATE.search(path.read_text())
    }
    assert found == {"rota/dagster/private.py"}


def test_dagster_writes_the_tags_that_we_read() -> None:
    """Tried with 1.13; pyproject.toml lets in no other."""
    assert version("dagster").startswith("1.13.")
    assert tags.HIDDEN_TAG_PREFIX == private.HIDDEN_TAG
    assert private.DagsterUserCodeUnreachableError.__name__ == LOST
    assert (private.GRPC_INFO_TAG, private.LOCATION_TAG) == (tags.GRPC_INFO_TAG, tags.REPOSITORY_LABEL_TAG)


@pytest.mark.parametrize("what", TEXTS)
def test_dagster_has_the_text_that_rota_reads(what: str) -> None:
    """A release with another text fails here, and not by a run that is never found dead."""
    module, texts = TEXTS[what]
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    text = Path(spec.origin).read_text()
    assert all(one in text for one in texts)


def test_what_runs_are_to_find_imported_is_there() -> None:
    """Python passes over a name that it cannot import, and each run would import it anew."""
    assert not [name for name in PRELOADED if find_spec(name) is None]
