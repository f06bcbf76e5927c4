"""A command loads pipeline files without Dagster, whose import takes longer than all else that the command does."""

import subprocess
import sys
from pathlib import Path

import pytest

FILE = """
import dagster as dg
from dagster import AutomationCondition, Config
from dagster.some.module import anything
from rota import Group, Pipeline, delta, files
from rota.dagster import make_alert_sensor

class Mine(dg.ConfigurableResource, Config):
    name: str = ""

WHEN = (AutomationCondition.eager() | ~dg.AutomationCondition.missing()) & dg.AutomationCondition.newly_updated()

@dg.asset(deps=[["p", "records"]], automation_condition=WHEN)
def below(context: dg.AssetExecutionContext, theirs: dg.ResourceParam[str]) -> dg.MaterializeResult:
    ...

alerts = make_alert_sensor(print)
group = Group("g", assignor="pulsar")
pipeline = Pipeline(
    source=files("/land", format="json", schema="n int"), table=delta("/table"), group="g", freshness=WHEN, kinds=("x",)
)
"""
TELL = """
import sys
from pathlib import Path
from rota.cli.standin import StandIn, StandInModule, load_plainly
catalog = load_plainly(Path(sys.argv[1]))
fake = lambda m: isinstance(m, StandInModule) or any(isinstance(v, StandIn) for v in vars(m).values())
left = [n for n, m in sys.modules.items() if fake(m)]
print("dagster" in sys.modules, left, sorted(catalog.pipelines), sorted(catalog.groups), sorted(catalog.refused))
p = catalog.pipelines.get("p")
print(p and (p.source.path, p.table.path, p.group, p.kinds), catalog.groups["g"].assignor if "g" in catalog.groups else "")
import dagster, rota.dagster
print(dagster.AssetKey(["a"]).to_user_string(), rota.dagster.make_alert_sensor.__module__)
"""


def load(folder: Path, script: str = TELL) -> list[str]:
    """What a process of its own says."""
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.splitlines()


def test_a_file_says_the_same_of_its_pipeline_and_dagster_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(FILE.replace("from dagster.some.module import anything\n", ""))
    where, said, after = load(tmp_path)
    assert where == "False [] ['p'] ['g'] []"
    assert said == "('/land', '/table', 'g', ('x',)) pulsar"
    assert after == "a rota.dagster.sensors.alerts", "whoever imports Dagster later gets Dagster"


@pytest.mark.parametrize(
    ("line", "served"),
    [("assert [one for one in [dg.AssetKey(['a'])] if one.path[0] == 'a']", True), ("raise ValueError", False)],
)
def test_a_file_that_does_not_load_without_dagster_is_loaded_with_it(tmp_path: Path, line: str, served: bool) -> None:
    text = FILE.replace("from dagster.some.module import anything\n", f"{line}\n").replace(", Config):", "):")
    (tmp_path / "p.py").write_text(text)
    where, *_ = load(tmp_path)
    assert where == f"True [] {['p'] if served else []} {['g'] if served else []} {[] if served else ['p.py']}"


VALUES = (
    "'%s/land' % dg.EnvVar('X').get_value()",
    "'/land' if dg.EnvVar('X').get_value() else '/none'",
    "'/land' if dg.EnvVar('X').get_value() == 'x' else '/none'",
    "'/land' if len(dg.AssetKey('a').path) == 2 else '/none'",
    "'/land' if 'a' in dg.AssetKey('a').path else '/none'",
)


EACH = """
import sys
from pathlib import Path
import rota.catalog
from rota.cli import standin
load, refused = rota.catalog.load, []
def note(folder):
    catalog = load(folder)
    refused.append(sorted(catalog.refused))
    return catalog
rota.catalog.load = note
catalog = standin.load_plainly(Path(sys.argv[1]))
print("dagster" in sys.modules, *refused)
print(*(catalog.pipelines[name].source.path for name in sorted(catalog.pipelines)))
"""


def test_what_a_pipeline_takes_from_dagster_is_dagsters(tmp_path: Path) -> None:
    """A stand-in is neither true nor a text: a command would look into another folder than a run does."""
    text = FILE.replace("from dagster.some.module import anything\n", "").replace(", Config):", "):")
    names = [f"p{number}" for number in range(len(VALUES))]
    for name, value in zip(names, VALUES, strict=True):
        mine = text.replace('files("/land"', f"files({value}").replace('delta("/table")', f'delta("/{name}")')
        (tmp_path / f"{name}.py").write_text(mine.replace('Group("g"', f'Group("{name}"').replace('"g"', f'"{name}"'))
    where, said, *_ = load(tmp_path, EACH)
    assert where == f"True {[f'{name}.py' for name in names]} []", "without Dagster each is refused"
    assert "StandIn" not in said
    assert len(said.split()) == len(names)
