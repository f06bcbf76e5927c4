"""Situations of what all pipelines stand on: ZooKeeper, Dagster's processes, the folder of pipelines. One after another.

A reporter that is dead is left out: a dead daemon sends no alert, and a dead page does not turn red.
"""

import shutil
import signal
import sqlite3

from tests.face.line import PIPELINE
from tests.situations.of_pipelines import many
from tests.situations.situation import Act, Situation, nothing
from tests.situations.stage import Stage
from tests.waiting import wait_until

DAEMON, PAGE, CODE = ("dagster._daemon",), ("dagster_webserver",), ("code-server start",)
TURN = """mutation T($id: String!) { %s { __typename ... on PythonError { message } } }"""


def kill_zookeeper(stage: Stage, name: str) -> None:
    stage.server.kill()


def start_zookeeper(stage: Stage, name: str) -> None:
    stage.server.start()


def freeze_zookeeper(stage: Stage, name: str) -> None:
    stage.server.kill(signal.SIGSTOP)


def thaw_zookeeper(stage: Stage, name: str) -> None:
    stage.server.kill(signal.SIGCONT)


def restart_zookeeper(stage: Stage, name: str) -> None:
    stage.server.kill()
    stage.server.start()


def wipe_zookeeper(stage: Stage, name: str) -> None:
    stage.server.kill()
    shutil.rmtree(stage.server.data_dir / "data")
    stage.server.start()


def adopt(stage: Stage, name: str) -> None:
    def is_adopted() -> bool:
        try:
            return bool(stage.type("adopt", "--group", "many", "--yes"))
        except RuntimeError:  # the group is not there yet
            return False

    wait_until(is_adopted, pause=3)


def signal_parts(words: tuple[str, ...], how: signal.Signals) -> Act:
    """To each process of Dagster's whose command holds the words."""

    def act(stage: Stage, name: str) -> None:
        found = stage.find_parts(*words)
        assert found, words
        for one in found:
            one.send_signal(how)

    return act


def restart_dagster(stage: Stage, name: str) -> None:
    stage.dev.stop(kill=True)
    stage.dev.start()


def read_sensor(stage: Stage, sensor: str) -> str:
    found = stage.dev.query(
        "query S($s: SensorSelector!) { sensorOrError(sensorSelector: $s) { ... on Sensor { sensorState { id } } } }",
        s={"repositoryLocationName": "rota", "repositoryName": "__repository__", "sensorName": sensor},
    )
    return str(found["sensorOrError"]["sensorState"]["id"])


def turn_off(stage: Stage, name: str) -> None:
    sensor = f"{name}__backlog"
    stage.dev.query(TURN % "stopSensor(id: $id)", id=read_sensor(stage, sensor))
    stage.land(name, "x", 90)


def turn_on(stage: Stage, name: str) -> None:
    stage.dev.query(
        "mutation T($s: SensorSelector!) { startSensor(sensorSelector: $s) { __typename } }",
        s={"repositoryLocationName": "rota", "repositoryName": "__repository__", "sensorName": f"{name}__backlog"},
    )


def add_file(text: str, reload: bool = True) -> Act:
    """A file of that name comes into the folder of pipelines."""

    def act(stage: Stage, name: str) -> None:
        (stage.landing / f"new-{name}" / "x").mkdir(parents=True, exist_ok=True)
        (stage.pipelines / f"new-{name}.py").write_text(text.replace("NAME", f"new-{name}").replace("OWN", name))
        if reload:
            stage.dev.reload()

    return act


def take_file(stage: Stage, name: str) -> None:
    (stage.pipelines / f"new-{name}.py").unlink()
    stage.dev.reload()


def reload(stage: Stage, name: str) -> None:
    stage.dev.reload()


def folder_away(stage: Stage, name: str) -> None:
    stage.pipelines.rename(stage.folder / "aside" / name)


def folder_back(stage: Stage, name: str) -> None:
    (stage.folder / "aside" / name).rename(stage.pipelines)


def break_location(stage: Stage, name: str) -> None:
    """It is loaded while its folder is away, and not again when that is back: the folder is not what is to be said."""
    folder_away(stage, name)
    reload(stage, name)
    folder_back(stage, name)


def hold_storage(stage: Stage, name: str) -> None:
    """As a run that is frozen in the middle of a write: no event of any run is stored."""
    index = stage.dev.home / "history" / "runs" / "index.db"
    holder = stage.kept[name] = sqlite3.connect(index, timeout=60, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    stage.land(name, "x", 80)


def let_storage_go(stage: Stage, name: str) -> None:
    holder = stage.kept.pop(name)
    assert isinstance(holder, sqlite3.Connection)
    holder.rollback()
    holder.close()


def freeze_spark(how: signal.Signals) -> Act:
    def act(stage: Stage, name: str) -> None:
        stage.find_spark(stage.spark).send_signal(how)

    return act


def forget_new(stage: Stage, name: str) -> None:
    take_file(stage, name)
    stage.type("forget", "--pipeline", f"new-{name}", "--group", "many")


NEW = PIPELINE.format(name="NAME", group="many")
JOB = NEW + '\nimport dagster as dg\n\nlate = dg.define_asset_job("late", selection=["missing/records"])\n'
COPY = PIPELINE.format(name="OWN", group="many")
SENSORS, ANY = r"sensor|ZooKeeper", r"."
UNHEARD = {"check": "-", "alerts": False}  # what reports it on the page, and the pager, is dead


def on_base(name: str, cause: str, words: str, strike: Act, heal: Act = nothing, **more: object) -> Situation:
    """All of them on one pipeline."""
    return many(name, cause, words, strike, heal, on="base", **more)


STACK = (
    on_base("page-killed", "silent", "ROTA_DAGSTER", signal_parts(PAGE, signal.SIGKILL), restart_dagster, **UNHEARD),
    on_base(
        "page-frozen",
        "silent",
        "ROTA_DAGSTER",
        signal_parts(PAGE, signal.SIGSTOP),
        signal_parts(PAGE, signal.SIGCONT),
        **UNHEARD,
    ),
    on_base(
        "daemon-frozen",
        "daemon",
        "daemon",
        signal_parts(DAEMON, signal.SIGSTOP),
        signal_parts(DAEMON, signal.SIGCONT),
        **UNHEARD,
    ),
    on_base(
        "daemon-killed", "silent", "ROTA_DAGSTER", signal_parts(DAEMON, signal.SIGKILL), restart_dagster, **UNHEARD
    ),
    on_base("code-killed", "", "", signal_parts(CODE, signal.SIGKILL), alert=ANY),  # Dagster starts it again
    on_base("zookeeper-restarted", "", "", restart_zookeeper, alert=ANY),
    on_base("code-reloaded", "", "", reload, alert=ANY),
    on_base("pipeline-added", "", "", add_file(NEW), forget_new, alert=ANY),
    on_base("zookeeper-killed", "zookeeper", "ZooKeeper", kill_zookeeper, start_zookeeper, check="-", alert=SENSORS),
    on_base("zookeeper-frozen", "zookeeper", "ZooKeeper", freeze_zookeeper, thaw_zookeeper, check="-", alert=SENSORS),
    on_base("sensor-off", "off", "turn it on", turn_off, turn_on, check="checkpoints:keeps_up"),
    on_base(
        "file-raises", "refused", "Correct the file", add_file("raise ValueError('boom')"), take_file, alert="new-base"
    ),
    on_base("job-left-out", "refused", "left out", add_file(JOB), forget_new, alert="new-base"),
    on_base("same-table", "refused", "table", add_file(COPY), take_file, alert="new-base"),
    on_base("not-reloaded", "unserved", "reload", add_file(NEW, reload=False), take_file, **UNHEARD),
    on_base("folder-gone", "refused", "ROTA_PIPELINES", folder_away, folder_back, **UNHEARD),
    on_base("location-broken", "location", "repair it", break_location, reload, **UNHEARD),
    on_base("zookeeper-wiped", "table", "rota adopt", wipe_zookeeper, adopt, alert="adopt|table"),
    on_base(
        "code-frozen",
        "location",
        "code server",
        signal_parts(CODE, signal.SIGSTOP),
        signal_parts(CODE, signal.SIGKILL),  # what the line advises: Dagster does not always go on with one that thaws
        **UNHEARD,
    ),
    on_base("storage-held", "fails", "locked", hold_storage, let_storage_go, **UNHEARD),
    on_base(  # the last: ten minutes after it was frozen, a Spark without a worker of its own ends
        "shared-spark-frozen",
        "spark",
        "does not answer",
        freeze_spark(signal.SIGSTOP),
        freeze_spark(signal.SIGCONT),
        alert="spark",
    ),
)
