"""A command finds a job of the page by its tag and makes the name of its step from that, as the definitions have them."""

from pathlib import Path

import pytest

from rota.catalog import load
from rota.dagster.assets.names import Names
from rota.dagster.location import compose
from rota.ids import dagster_name

FILE = """
from rota import Pipeline, delta, files
pipeline = Pipeline(source=files("x", format="csv", schema="a int"), table=delta("y"))
"""


@pytest.mark.parametrize("prefix", [(), ("prod",), ("eu-west", "a_b")])
@pytest.mark.parametrize(("of", "kind", "step"), [("my-p", "replay", "batch"), ("rota", "purge", "remove")])
def test_a_job_and_its_step_are_found_behind_any_prefix(
    tmp_path: Path, prefix: tuple[str, ...], of: str, kind: str, step: str
) -> None:
    (tmp_path / "my-p.py").write_text(FILE)
    repository = compose(load(tmp_path), Names(prefix)).get_repository_def()
    (job,) = [job for job in repository.get_all_jobs() if f"rota/{kind}" in job.tags]
    assert job.tags[f"rota/{kind}"].split("/") == [*prefix, of]
    assert job.name == dagster_name(*prefix, of, kind)
    assert dagster_name(*prefix, of, step) in {node.name for node in job.nodes}
