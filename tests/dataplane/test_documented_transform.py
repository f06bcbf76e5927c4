"""The test of a user's own transform, as docs/api.md shows it, on a real Spark."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.docs.pages import find_blocks


def test_the_documented_test_of_a_transform_finds_what_the_transform_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    """For the pipeline of the README. The documented test fails if the transform keeps records that it should drop."""
    (declared,) = (
        block.text for block in find_blocks("python") if block.page.name == "README.md" and "Pipeline(" in block.text
    )
    (block,) = (block.text for block in find_blocks("python") if "import pytest" in block.text)
    (tmp_path / "data").mkdir()
    for name, text, holds in (
        ("mine", declared, True),
        ("lax", declared.replace("is not null", "is null or true"), False),
    ):
        folder = tmp_path / name / "pipelines"
        folder.mkdir(parents=True)
        (folder / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path / name))
        found: dict[str, object] = {}
        exec(compile(block.replace("pipelines.mine", f"pipelines.{name}"), "docs/api.md", "exec"), found)
        test = found["test_an_order_without_an_amount_is_left_out"]
        if holds:
            test(spark, tmp_path / "data")  # type: ignore[operator]
        else:
            with pytest.raises(AssertionError):
                test(spark, tmp_path / "data")  # type: ignore[operator]
