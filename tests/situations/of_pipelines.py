"""Situations of one pipeline, in a group that works."""

import json
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from rota.ids import partition_id
from tests.face.line import PIPELINE
from tests.situations.situation import Act, Situation, nothing
from tests.situations.stage import Stage
from tests.waiting import wait_until

BOOM = """
from pyspark.sql.functions import expr


def boom(df):
    return df.withColumn("n", expr("cast(raise_error('boom') as int)"))
"""
SLOW = """
def slow(df):
    from pyspark.sql.functions import udf

    def rest(n):
        import time

        time.sleep({seconds})
        return n

    return df.withColumn("n", udf(rest, "int")("n"))
"""
TEXT = 'lambda df: df.withColumn("n", df["n"].cast("string"))'
PARQUET = PIPELINE.replace('format="json"', 'format="parquet"')


def change(more: str, functions: str = "") -> Act:
    """The pipeline's file declares more from now on, and a file lands."""

    def act(stage: Stage, name: str) -> None:
        stage.declare(stage.situations[name], more, functions)
        stage.land(name, "x", 100)

    return act


def change_back(stage: Stage, name: str) -> None:
    """The file is mended, and a person retries it."""
    stage.declare(stage.situations[name])
    stage.type("retry", partition_id(name, "x"), "--group", stage.situations[name].of)


def land_bad(stage: Stage, name: str) -> None:
    folder = stage.landing / name / "x"
    (folder / ".bad").write_text('{"n": 5}\n' + "no json\n" * 3)
    (folder / ".bad").rename(folder / "000200.json")


def take_bad(stage: Stage, name: str) -> None:
    stage.declare(stage.situations[name], "max_bad_ratio=1.0,")
    stage.type("retry", partition_id(name, "x"), "--group", "many")


def land_few_bad(stage: Stage, name: str) -> None:
    folder = stage.landing / name / "x"
    (folder / ".bad").write_text('{"n": 5}\n' * 30 + "no json\n")
    (folder / ".bad").rename(folder / "000200.json")


def rewrite(stage: Stage, name: str) -> None:
    next((stage.landing / name / "x").glob("*.json")).write_text('{"n": 77}\n{"n": 78}\n')


def replay(stage: Stage, name: str) -> None:
    stage.type("replay", partition_id(name, "x"), "--changed")


def replay_first(stage: Stage, name: str) -> None:
    stage.type("replay", partition_id(name, "x"), "--from", "0", "--to", "1")


def link(stage: Stage, name: str) -> None:
    (stage.landing / name / "x" / "link.json").symlink_to(stage.heard)


def unlink(stage: Stage, name: str) -> None:
    (stage.landing / name / "x" / "link.json").unlink()


def put_aside(where: Callable[[Stage, str], Path]) -> tuple[Act, Act]:
    """The folder is gone, and comes back."""

    def away(stage: Stage, name: str) -> None:
        where(stage, name).rename(stage.folder / "aside" / name)

    def back(stage: Stage, name: str) -> None:
        place = where(stage, name)
        if place.is_file():
            place.unlink()
        shutil.rmtree(place, ignore_errors=True)
        (stage.folder / "aside" / name).rename(place)

    return away, back


def find_landing(stage: Stage, name: str) -> Path:
    return stage.landing / name


def find_table(stage: Stage, name: str) -> Path:
    return stage.tables / name


land_away, land_back = put_aside(find_landing)
table_away, table_back = put_aside(find_table)


def land_is_file(stage: Stage, name: str) -> None:
    land_away(stage, name)
    find_landing(stage, name).write_text("")


def take_foreign(stage: Stage, name: str) -> None:
    """A table that another program wrote is in its place."""
    table_away(stage, name)
    write_deltalake(str(find_table(stage, name) / "main"), pa.table({"n": [1, 2]}))


def keep_older(stage: Stage, name: str) -> None:
    shutil.copytree(find_table(stage, name), stage.folder / "aside" / f"{name}-older")
    stage.land(name, "x", 50)
    wait_until(lambda: stage.is_consumed(name, 2), pause=1)


def take_older(stage: Stage, name: str) -> None:
    table_away(stage, name)
    shutil.copytree(stage.folder / "aside" / f"{name}-older", find_table(stage, name))


def find_log(stage: Stage, name: str) -> Path:
    return find_table(stage, name) / "main" / "_delta_log"


def add_version(stage: Stage, name: str, text: str) -> None:
    newest = max(find_log(stage, name).glob("0*.json"))
    added = newest.with_name(f"{int(newest.stem) + 1:020d}.json")
    stage.kept[name] = added
    added.write_text(text)


def spoil_log(stage: Stage, name: str) -> None:
    add_version(stage, name, "garbage\n")


def mend_log(stage: Stage, name: str) -> None:
    Path(str(stage.kept[name])).unlink()


def commit_otherwise(ranges: tuple[int, int], tokens: int) -> Act:
    """Another's program commits: the newest of ours again, moved."""

    def act(stage: Stage, name: str) -> None:
        p = partition_id(name, "x")
        for path in sorted(find_log(stage, name).glob("0*.json"), reverse=True):
            infos = [json.loads(line) for line in path.read_text().splitlines() if '"commitInfo"' in line]
            if infos and p in infos[0]["commitInfo"].get("rota.ranges", ""):
                info = infos[0]["commitInfo"]
                _, end = json.loads(info["rota.ranges"])[p]
                token = json.loads(info["rota.tokens"])[p]
                info["rota.ranges"] = json.dumps({p: [end + ranges[0], end + ranges[1]]})
                info["rota.tokens"] = json.dumps({p: token + tokens})
                add_version(stage, name, json.dumps({"commitInfo": info}) + "\n")
                return
        raise AssertionError("no commit of ours")

    return act


def spoil(folder: str, key: str = "x") -> tuple[Act, Act]:
    """A record of the partition, or of what `key` names, is written by something else; and is as it was."""

    def act(stage: Stage, name: str) -> None:
        stage.spoil(stage.path(name, folder, key.format(name=name)))

    def back(stage: Stage, name: str) -> None:
        stage.restore(stage.path(name, folder, key.format(name=name)))

    return act, back


def remove_file(stage: Stage, name: str) -> None:
    (stage.pipelines / f"{name}.py").unlink()
    stage.dev.reload()


def redeclare(stage: Stage, name: str) -> None:
    stage.declare(stage.situations[name])
    stage.dev.reload()


def land_no_parquet(stage: Stage, name: str) -> None:
    folder = stage.landing / name / "x"
    (folder / ".bad").write_text("no parquet")
    (folder / ".bad").rename(folder / "1.parquet")


def take_away_bad(stage: Stage, name: str) -> None:
    stage.type("skip", partition_id(name, "x"), "--group", "many")
    stage.type("retry", partition_id(name, "x"), "--group", "many")


def land_more(stage: Stage, name: str) -> None:
    stage.land(name, "x", 60)


def land_new(stage: Stage, name: str) -> None:
    stage.land(name, "new", 1)


def land_slowly(stage: Stage, name: str) -> None:
    stage.declare(stage.situations[name], "transform=slow,", SLOW.format(seconds=40))
    stage.land(name, "x", 100)


def fail_once(stage: Stage, name: str) -> None:
    stage.declare(stage.situations[name], "transform=boom,", BOOM)
    stage.land(name, "x", 100)
    wait_until(lambda: stage.group_tree(name).parked(), pause=0.2)
    stage.declare(stage.situations[name])


def kill_run(stage: Stage, name: str) -> None:
    """SIGKILL to the run that works on the pipeline."""
    stage.declare(stage.situations[name], "transform=slow,", SLOW.format(seconds=10))
    stage.land(name, "x", 100)

    def find_working() -> int:
        going = (run for run in stage.dev.runs(rota__consume=name) if run["status"] == "STARTED")
        return next((find_pid(stage.dev.messages(run["runId"])) for run in going), 0)

    os.kill(wait_until(find_working, pause=1), signal.SIGKILL)


def find_pid(words: str) -> int:
    """The process id in a run's log; 0 if it is not there yet."""
    found = re.search(r"pid: (\d+)", words)
    return int(found[1]) if found else 0


def many(name: str, cause: str, words: str, strike: Act, heal: Act = nothing, **more: object) -> Situation:
    """One in the group that all share, whose pipeline has consumed a file before."""
    return Situation(name, cause, words, strike, heal, group="many", lands=True, **more)  # type: ignore[arg-type]


PIPELINES = (
    many("poison", "parked", "boom", change("transform=boom,", BOOM), change_back),
    many("typo", "parked", "nn", change('transform=lambda df: df.select("_partition", "_offset", "nn"),'), change_back),
    many("type-changed", "parked", "Cast it back", change(f"transform={TEXT},"), change_back),
    many(
        "hung-batch",
        "runs",
        "not done after",
        change("deadline=5.0, transform=slow,", SLOW.format(seconds=200)),
        change_back,
    ),
    many("bad-ratio", "parked", "max_bad_ratio", land_bad, take_bad),
    Situation(
        "no-parquet", "parked", "Bring a whole file", land_no_parquet, take_away_bad, group="many", declared=PARQUET
    ),
    many("file-rewritten", "rewritten", "--changed", rewrite, replay),
    many("link-left", "left out", "link.json", link, unlink),
    many("no-landing", "source", "is not there. Make the folder", land_away, land_back),
    many("landing-is-file", "source", "is no folder. Make the folder", land_is_file, land_back),
    many("foreign-table", "table", "rota adopt", take_foreign, table_back),
    many("no-table", "restored", "adopt", table_away, table_back),
    many("older-table", "restored", "adopt", take_older, table_back, ready=keep_older),
    many("table-garbage", "table", "Bring its _delta_log back", spoil_log, mend_log),
    many("table-gap", "gap", "version", commit_otherwise((5, 6), 0), mend_log),
    many("token-stale", "stale", "token", commit_otherwise((0, 0), -5), mend_log),
    many("parked-garbage", "record", "repair", *spoil("parked")),
    many("checkpoint-garbage", "record", "repair", *spoil("checkpoints")),
    many("own-garbage", "record", "repair", *spoil("own")),
    many("file-removed", "unserved", "forget", remove_file, redeclare, check="-", alerts=False),
)
HEALTHY = (
    many("rests", "", "", nothing),
    many("new-partition", "", "", land_new),
    many("few-bad", "", "", land_few_bad),
    many("replays", "", "", replay_first),
    many("slow-batch", "", "", land_slowly),
    many("fails-once", "", "", fail_once),
    many("run-killed", "", "", kill_run),
    many("new-file", "", "", land_more),
)
