"""The face loads from pipeline files alone, under the names of docs/protocol.md."""

import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from rota.ages import Ages
from rota.catalog import load
from rota.dagster.assets.names import Names
from rota.dagster.location import compose, definitions
from rota.dagster.resources.zookeeper import ZooKeeperResource
from rota.errors import ConfigError
from rota.face.unserved import find_unserved
from rota.ids import dagster_name
from tests.docs.pages import find_blocks
from tests.waiting import LONG

names = Names()

ROOT = Path(__file__).parents[2]
FILE = """
from rota import Pipeline, delta, files
pipeline = Pipeline(
    source=files("${{ROTA_LANDING}}/{name}", format="csv", schema="a int"),
    table=delta("${{ROTA_TABLES}}/{name}"), group="{group}",
)
"""


@pytest.fixture(autouse=True)
def no_zookeeper(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request for the elder of two files waits for none."""
    monkeypatch.setattr(Ages, "known", ({}, {}, " (it is unknown)"))


def write(folder: Path, **pipelines: str) -> Path:
    for name, group in pipelines.items():
        (folder / f"{name}.py").write_text(FILE.format(name=name, group=group))
    return folder


def test_two_pipelines_of_one_group_and_one_of_another_stand_side_by_side(tmp_path: Path) -> None:
    defs = compose(load(write(tmp_path, a="day", b="day", c="night-shift")))
    dg.Definitions.validate_loadable(defs)
    repository = defs.get_repository_def()
    assert {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()} == {
        *("day/membership", "day/assignment", "night-shift/membership", "night-shift/assignment"),
        *(f"{p}/{asset}" for p in "abc" for asset in ("ownership", "records", "checkpoints")),
    }
    assert {s.name for s in repository.sensor_defs} == {
        *("day__membership", "night_2dshift__membership"),
        *(f"{p}__{sensor}" for p in "abc" for sensor in ("backlog", "checks")),
    }
    assert {j.name for j in repository.get_all_jobs()} - {"__ASSET_JOB"} == {
        *("day__rebalance", "night_2dshift__rebalance", "rota__purge"),
        *(f"{p}__{job}" for p in "abc" for job in ("consume", "replay", "maintain")),
    }
    assert {s.name for s in repository.schedule_defs} == {f"{p}__maintain" for p in "abc"}
    for key in ("a/ownership", "b/ownership", "c/ownership"):
        node = repository.asset_graph.get(dg.AssetKey.from_user_string(key))
        assert isinstance(node.partitions_def, dg.DynamicPartitionsDefinition)
        assert node.partitions_def.name == f"{key[0]}/partitions"
        assert node.group_name == key[0]


def test_every_asset_has_an_owner_a_kind_a_group_and_a_description(tmp_path: Path) -> None:
    graph = compose(load(write(tmp_path, a="day"))).get_repository_def().asset_graph
    for node in graph.asset_nodes:
        assert node.owners, node.key
        assert node.kinds, node.key
        assert node.description, node.key


def test_a_launchpad_opens_with_nothing_but_what_a_person_chooses(tmp_path: Path) -> None:
    """It began with seven fields of ZooKeeper, a password's among them: what the location sets, no run may set again."""
    location = {"rota_zookeeper": ZooKeeperResource(hosts="a:1", key_password=dg.EnvVar("PASSWORD"))}
    for served in (definitions(write(tmp_path, a="day")), definitions(tmp_path, resources=location)):
        for name in ("a__consume", "a__replay", "day__rebalance"):
            job = served.get_repository_def().get_job(name)
            given = [one["config"] or {} for one in dg.validate_run_config(job, {})["ops"].values()]
            assert not any(value is not None for one in given for value in one.values())
            with pytest.raises(dg.DagsterInvalidConfigError):
                dg.validate_run_config(job, {"resources": {"rota_zookeeper": {"config": {"hosts": "b:1"}}}})


@pytest.mark.parametrize("clash", [("a-b", "a_b"), ("a.b", "a-b"), ("a_2db", "a-b"), ("a_5f2db", "a_2db")])
def test_no_two_ids_share_a_name(clash: tuple[str, str]) -> None:
    one, two = (dagster_name(part, "backlog") for part in clash)
    assert one != two


def test_a_refused_file_is_shown_and_the_others_are_served(tmp_path: Path) -> None:
    write(tmp_path, good="day")
    (tmp_path / "bad.py").write_text("raise ValueError('half written')")
    graph = compose(load(tmp_path)).get_repository_def().asset_graph
    membership = graph.get(names.membership("day"))
    assert "half written" in (membership.description or "")
    assert "bad.py" in membership.metadata["refused"]
    assert graph.has(names.records("good"))
    assert not graph.has(names.records("bad"))


OWN = """
import dagster as dg
from rota import Pipeline, delta, files
pipeline = Pipeline(source=files("l", format="csv", schema="a int"), table=delta("t-{name}"), group="day")

class House(dg.ConfigurableResource):
    street: str

{name}_house = House(street="1")

@dg.asset(key=["{name}", "late"], deps=[["{name}", "records"]], automation_condition=dg.AutomationCondition.eager())
def late({name}_house: House) -> None: ...

@dg.asset_check(asset=late)
def sane() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)

nightly = dg.define_asset_job("{name}_nightly", selection=dg.AssetSelection.groups("{name}"))
at_night = dg.ScheduleDefinition(job=nightly, cron_schedule="0 0 * * *")

@dg.sensor(job=nightly, name="{name}_watch")
def watch() -> None: ...
"""


def declare(folder: Path, name: str, text: str = OWN) -> None:
    (folder / f"{name}.py").write_text(text.replace("{name}", name).replace("deps=", f'group_name="{name}", deps='))


def test_what_a_file_declares_for_dagster_is_loaded(tmp_path: Path) -> None:
    declare(tmp_path, "p")
    repository = definitions(tmp_path).get_repository_def()
    graph = repository.asset_graph
    assert graph.get(dg.AssetKey(["p", "late"])).parent_keys == {names.records("p")}
    assert dg.AssetCheckKey(dg.AssetKey(["p", "late"]), "sane") in graph.asset_check_keys
    assert repository.has_job("p_nightly")
    assert {s.name for s in repository.schedule_defs} == {"p_nightly_schedule", "p__maintain"}
    assert {s.name for s in repository.sensor_defs} >= {"p_watch", "rota__automation"}
    automation = repository.get_sensor_def("rota__automation")
    assert automation.asset_selection == dg.AssetSelection.assets(["p", "late"]), "and no asset of a neighbour"


@pytest.mark.filterwarnings("ignore::dagster.BetaWarning")  # Dagster, of a word of its own evaluator
def test_a_check_of_a_file_with_a_condition_runs_after_batches(tmp_path: Path) -> None:
    """Nothing evaluated the condition: it was "Not Evaluated" for ever. The check is the one of docs/dagster.md."""
    (text,) = (one.text for one in find_blocks("python") if "asset_check" in one.text)
    (tmp_path / "mine.py").write_text(text)
    defs = definitions(tmp_path)
    repository = defs.get_repository_def()
    key = dg.AssetCheckKey(names.records("mine"), "no_amount_is_negative")
    selected = repository.get_sensor_def("rota__automation").asset_selection
    assert selected.resolve_checks(repository.asset_graph) == {key}
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("mine/partitions", ["mine:a", "mine:never-consumed"])
        seen = dg.evaluate_automation_conditions(defs, instance)
        assert seen.total_requested == 0
        for asked in (1, 0):
            if asked:
                instance.report_runless_asset_event(dg.AssetMaterialization(names.records("mine"), partition="mine:a"))
            seen = dg.evaluate_automation_conditions(defs, instance, cursor=seen.cursor)
            assert seen.total_requested == asked


def test_with_a_prefix_all_of_it_has_other_keys_and_names(tmp_path: Path) -> None:
    """Two deployments of a folder on one instance have no asset, partition set, check or sensor of rota's in common."""
    declare(tmp_path, "p")
    plain, staging = (definitions(tmp_path, key_prefix=p).get_repository_def() for p in (None, ["eu", "staging"]))
    graph = staging.asset_graph
    late = dg.AssetKey(["eu", "staging", "p", "late"])
    assert graph.get(late).parent_keys == {dg.AssetKey(["eu", "staging", "p", "records"])}
    assert dg.AssetCheckKey(late, "sane") in graph.asset_check_keys
    assert not graph.get_all_asset_keys() & plain.asset_graph.get_all_asset_keys()
    sets = graph.get(dg.AssetKey(["eu", "staging", "p", "records"])).partitions_def
    assert isinstance(sets, dg.DynamicPartitionsDefinition)
    assert sets.name == "eu/staging/p/partitions"
    common = {s.name for s in staging.sensor_defs} & {s.name for s in plain.sensor_defs}
    assert common == {"p_watch"}, "the file's own"
    follows = 'import dagster as dg\nkeys = dg.DynamicPartitionsDefinition(name="a/partitions")\n'
    follows += "@dg.asset(deps=[['a', 'records']], partitions_def=keys)\ndef follows() -> None: ...\n"
    (tmp_path / "a.py").write_text(FILE.format(name="a", group="day") + follows)
    graph = definitions(tmp_path, key_prefix="staging").get_repository_def().asset_graph
    of = graph.get(dg.AssetKey(["staging", "follows"])).partitions_def
    assert of == Names(("staging",)).partition_set("a"), "not the other deployment's, which has a's own"
    with pytest.raises(ConfigError, match="Bad key prefix id"):
        definitions(tmp_path, key_prefix="a/b")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("@dg.asset(key=['a', 'late'])\ndef other() -> None: ...", "AssetKey(['a', 'late'])"),
        ("@dg.asset(key=['z', 'records'])\ndef other() -> None: ...", "AssetKey(['z', 'records'])"),
        ("@dg.asset\ndef other(warehouse: dg.ResourceParam[str]) -> None: ...", "resource with key 'warehouse'"),
        ("a_house = House(street='2')", "different resources with same key 'a_house'"),
        ("bad = dg.define_asset_job('bad', selection=['nowhere'])", "bad"),
        (
            "at_night = dg.ScheduleDefinition(job=nightly, cron_schedule='0 0 * * *', name='a_nightly_schedule')",
            "a_nightly_schedule",
        ),
        ("@dg.sensor(job=nightly, name='a_watch')\ndef watch() -> None: ...", "a_watch"),
        ("late = None\n@dg.asset\ndef late(): ...\n@dg.asset(key='late')\ndef late_too(): ...", "late"),
    ],
    ids=[
        "key of another file",
        "key of rota",
        "no such resource",
        "resource of another file",
        "no such asset",
        "schedule of another file",
        "sensor of another file",
        "one key twice",
    ],
)
def test_what_dagster_does_not_take_is_left_out_and_each_pipeline_is_served(
    tmp_path: Path, more: str, why: str
) -> None:
    """A copy with the schedule of its original took a pipeline out of service."""
    declare(tmp_path, "a")
    declare(tmp_path, "m", OWN + more)
    declare(tmp_path, "z")
    repository = definitions(tmp_path).get_repository_def()
    graph = repository.asset_graph
    assert {names.records(name) for name in "amz"} <= graph.get_all_asset_keys()
    assert {dg.AssetKey([name, "late"]) for name in "az"} <= graph.get_all_asset_keys()
    assert repository.has_job("a_nightly")
    refused = graph.get(names.membership("day")).metadata["refused"]
    assert list(refused) == ["m.py"]
    assert "what it declares for Dagster is left out: " in refused["m.py"]
    assert why in refused["m.py"]
    assert refused["m.py"].endswith("Correct the file; its pipeline is served")
    assert "\n" not in refused["m.py"]


def test_of_two_files_with_one_schedule_the_one_that_runs_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cp shoporders.py copyorders.py`, with a table of its own."""
    for name in ("copyorders", "shoporders"):
        declare(
            tmp_path, name, OWN + "at_night = dg.ScheduleDefinition('nightly', job=nightly, cron_schedule='0 0 * * *')"
        )
    runs = {"shoporders": 1}
    monkeypatch.setattr(Ages, "rank", lambda _, name: (runs.get(name, 9), name))
    repository = definitions(tmp_path).get_repository_def()
    assert repository.get_schedule_def("nightly").job_name == "shoporders_nightly"
    refused = repository.asset_graph.get(names.membership("day")).metadata["refused"]
    assert list(refused) == ["copyorders.py"]
    assert "what it declares for Dagster is left out" in refused["copyorders.py"]
    assert "nightly" in refused["copyorders.py"]


@pytest.mark.parametrize("bad", ["owners=('a@b.c',)", "tags={'a b!': 'x'}", "freshness=3", "automation=3"])
def test_a_pipeline_that_dagster_does_not_take_is_refused_alone(tmp_path: Path, bad: str) -> None:
    """No pipeline was served any more, and no check was there that could have said so."""
    write(tmp_path, a="day", m="night", z="day")
    text = (tmp_path / "m.py").read_text()
    (tmp_path / "m.py").write_text(text.replace("group=", f"{bad}, group="))
    graph = definitions(tmp_path).get_repository_def().asset_graph
    assert {key.path[0] for key in graph.get_all_asset_keys()} == {"a", "z", "day", "night"}
    for group in ("day", "night"):
        assert list(graph.get(names.membership(group)).metadata["refused"]) == ["m.py"]


def test_what_two_files_import_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "elsewhere"
    shared.mkdir()
    (shared / "both_need.py").write_text("import dagster as dg\n\n@dg.asset\ndef common() -> None: ...\n")
    monkeypatch.syspath_prepend(str(shared))
    for name in ("a", "b"):
        declare(tmp_path, name, OWN + "from both_need import common\n")
    for prefix in (None, "staging"):
        graph = definitions(tmp_path, key_prefix=prefix).get_repository_def().asset_graph
        assert graph.has(dg.AssetKey([*filter(None, [prefix]), "common"]))
        assert graph.has(dg.AssetKey([*filter(None, [prefix]), "b", "late"]))


def test_a_resource_of_the_location_is_there_for_the_files(tmp_path: Path) -> None:
    declare(tmp_path, "p", OWN + "@dg.asset\ndef other(warehouse: dg.ResourceParam[str]) -> None: ...")
    served = definitions(tmp_path, resources={"warehouse": "w"})
    assert served.get_repository_def().asset_graph.has(dg.AssetKey("other"))
    mine = dg.Definitions(resources={"rota_zookeeper": ZooKeeperResource(hosts="zk:2181")})
    own = definitions(tmp_path, resources={**(mine.resources or {}), "warehouse": "w"})
    assert dg.Definitions.merge(mine, own).get_repository_def()


def test_a_process_without_dagster_can_ask_what_dagster_does_not_serve(tmp_path: Path) -> None:
    declare(tmp_path, "a")
    needs = "@dg.asset\ndef other(warehouse: dg.ResourceParam[str]) -> None: ...\n"
    declare(tmp_path, "m", f"{OWN}{needs}@dg.asset(key=['a', 'late'])\ndef also() -> None: ...")
    (tmp_path / "z.py").write_text("raise ValueError('half written')")
    found = find_unserved(tmp_path)
    assert list(found) == ["m.py", "z.py"]
    assert "AssetKey(['a', 'late'])" in found["m.py"]
    assert "warehouse" not in found["m.py"], "the location may have it"


def test_the_checkout_loads_from_any_directory_with_no_zookeeper_and_no_java(tmp_path: Path) -> None:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("ROTA_") and k != "JAVA_HOME"}
    done = subprocess.run(
        [sys.executable, "-m", "dagster", "definitions", "validate", "-w", str(ROOT / "workspace.yaml")],
        cwd=tmp_path,
        env={**environ, "PATH": "/nowhere", "ROTA_ZOOKEEPER": "127.0.0.1:1", "DAGSTER_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=LONG,
    )
    assert done.returncode == 0, done.stderr
    assert "Validation successful for code location rota" in done.stderr + done.stdout


def test_loading_the_face_imports_nothing_heavy() -> None:
    heavy = ["pyspark", "pandas", "deltalake", "matplotlib", "kazoo", "pyarrow", "ortools"]
    code = f"import sys, dagster_project.own; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=LONG)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
