"""Situations of a group and its workers: each has a group of its own, whose one pipeline has the group's name."""

import signal

from rota.dataplane.spark.spark_server import SparkServer, SparkSettings
from rota.ids import partition_id
from tests.dataplane.world import BRIEF
from tests.face.reload import DECLARED
from tests.processes import list_below
from tests.situations.of_pipelines import spoil
from tests.situations.situation import Act, Situation
from tests.situations.stage import Stage
from tests.waiting import wait_until

TWO = {"a": ("--no-spark",), "b": ("--no-spark",)}
KEYS = ("x", "y", "z", "q")


def declare_alone(protocol: str) -> str:
    """The text of a pipeline file whose group's workers decide alone."""
    return DECLARED.replace("{protocol}", protocol)


def kill(worker: str) -> Act:
    def act(stage: Stage, name: str) -> None:
        stage.kill(f"{name}-{worker}")

    return act


def hire(worker: str, *options: str) -> Act:
    def act(stage: Stage, name: str) -> None:
        stage.hire(name, worker, *(options or ("--no-spark",)))

    return act


def rehire(worker: str, *options: str) -> Act:
    """The worker dies and comes back with these options."""

    def act(stage: Stage, name: str) -> None:
        stage.kill(f"{name}-{worker}")
        stage.hire(name, worker, *options)

    return act


def send(worker: str, how: signal.Signals) -> Act:
    def act(stage: Stage, name: str) -> None:
        stage.signal(f"{name}-{worker}", how)

    return act


def end(worker: str) -> Act:
    """The worker is asked to leave."""

    def act(stage: Stage, name: str) -> None:
        stage.workers[f"{name}-{worker}"].terminate()

    return act


def type_for(command: str, *workers: str) -> Act:
    def act(stage: Stage, name: str) -> None:
        for worker in workers:
            stage.type(command, f"{name}-{worker}", "--group", name)

    return act


def both(*acts: Act) -> Act:
    def act(stage: Stage, name: str) -> None:
        for one in acts:
            one(stage, name)

    return act


def pin(key: str, worker: str) -> Act:
    def act(stage: Stage, name: str) -> None:
        stage.type("pin", partition_id(name, key), f"{name}-{worker}", "--group", name)

    return act


def unpin(stage: Stage, name: str) -> None:
    stage.type("pin", partition_id(name, "x"), "--clear", "--group", name)


def set_protocol(protocol: str) -> Act:
    """Another version of the code location reports it."""

    def act(stage: Stage, name: str) -> None:
        (stage.pipelines / f"{name}.py").write_text(declare_alone(protocol).format(name=name))
        stage.dev.reload()

    return act


def join_again(stage: Stage, name: str) -> None:
    """A second process with the worker's id."""
    stage.run(f"{name}-second", f"{name}-w", name, "--no-spark")


def kill_second(stage: Stage, name: str) -> None:
    stage.kill(f"{name}-second")


def start_spark(stage: Stage, name: str) -> None:
    """A Spark of its own for the group's worker."""
    server = stage.own_sparks[name] = SparkServer(
        name, SparkSettings("local[1]", BRIEF), stage.folder / f"spark-{name}"
    )
    server.start()
    wait_until(server.ready)
    stage.kill(f"{name}-w")
    stage.hire(name, "w", "--spark", server.url)
    wait_until(lambda: stage.is_consumed(name), pause=1)


def restart_spark(stage: Stage, name: str) -> None:
    """As its worker would: at the address that it had."""
    stage.own_sparks[name].start()


def signal_spark(how: signal.Signals) -> Act:
    def act(stage: Stage, name: str) -> None:
        stage.find_spark(stage.own_sparks[name]).send_signal(how)

    return act


def kill_own_spark(stage: Stage, name: str) -> None:
    """That which the worker started itself."""
    below = list_below(stage.workers[f"{name}-w"].pid)
    next(one for one, command in below.items() if "SparkConnectServer" in " ".join(command)).kill()


def land(stage: Stage, name: str) -> None:
    stage.land(name, "x", 60)


def pause(stage: Stage, name: str) -> None:
    stage.type("pause", "--group", name)
    stage.hire(name, "c", "--no-spark")


def resume(stage: Stage, name: str) -> None:
    stage.type("resume", "--group", name)


OF_TWO = ("--no-spark", "--replicas", "2")
GPU = {"w": ("--no-spark", "--label", "gpu=yes")}
GROUPS = (
    Situation("no-worker", "workers", "rota worker --id", kill("w"), hire("w")),
    Situation("frozen-worker", "workers", "rota worker --id", send("w", signal.SIGSTOP), send("w", signal.SIGCONT)),
    Situation("all-drained", "unplaceable", "rota uncordon", type_for("drain", "w"), type_for("uncordon", "w")),
    Situation(
        "all-capped",
        "unplaceable",
        "raise a cap",
        rehire("w", "--no-spark", "--max-partitions", "0"),
        rehire("w", "--no-spark"),
    ),
    Situation(
        "cordoned-and-dead",
        "unplaceable",
        "rota uncordon",
        both(type_for("cordon", "a"), kill("b")),
        type_for("uncordon", "a"),
        workers=TWO,
        keys=KEYS,
    ),
    Situation("pinned-away", "unplaceable", "--clear", kill("b"), unpin, ready=pin("x", "b"), workers=TWO, keys=KEYS),
    Situation(
        "no-label",
        "unplaceable",
        "gpu",
        rehire("w", "--no-spark"),
        rehire("w", *GPU["w"]),
        workers=GPU,
        more='requires={"gpu": "yes"},',
    ),
    Situation(
        "new-protocol",
        "protocol",
        "start it again",
        set_protocol("claim"),
        set_protocol("assigned"),
        declared=declare_alone("assigned"),
    ),
    Situation("same-id", "twice", "another --id", join_again, kill_second),
    Situation(
        "frozen-spark",
        "spark",
        "does not answer",
        signal_spark(signal.SIGSTOP),
        signal_spark(signal.SIGCONT),
        ready=start_spark,
    ),
    Situation("dead-spark", "spark", "does not answer", signal_spark(signal.SIGKILL), restart_spark, ready=start_spark),
    Situation(
        "claim-drained",
        "unplaceable",
        "rota uncordon",
        type_for("drain", "w"),
        type_for("uncordon", "w"),
        declared=declare_alone("claim"),
    ),
    Situation(
        "ordinal-missing",
        "unowned",
        "ordinal is missing",
        kill("ord-1"),
        hire("ord-1", *OF_TWO),
        workers=dict.fromkeys(("ord-0", "ord-1"), OF_TWO),
        keys=KEYS,
        declared=declare_alone("ordinal"),
    ),
    Situation("overrides-garbage", "record", "repair", *spoil("overrides", "")),
    Situation("meta-garbage", "record", "repair", *spoil("meta", "")),
    Situation("head-garbage", "record", "repair", *spoil("head", "")),
    Situation("controller-garbage", "record", "repair", *spoil("controller", "")),
    Situation("partitions-garbage", "record", "repair", *spoil("partitions", "{name}")),
    Situation("worker-garbage", "record", "repair", *spoil("workers", "{name}-w")),
)
HEALTHY = (
    Situation("worker-joins", "", "", hire("c"), workers=TWO, keys=KEYS),
    Situation("worker-leaves", "", "", end("b"), workers=TWO, keys=KEYS),
    Situation("killed-with-taker", "", "", kill("b"), workers=TWO, keys=KEYS),
    Situation("one-drained", "", "", type_for("drain", "b"), workers=TWO, keys=KEYS),
    Situation("moves-paused", "", "", pause, resume, workers=TWO, keys=KEYS),
    Situation("pin-live", "", "", both(pin("x", "a"), pin("y", "b")), workers=TWO, keys=KEYS),
    Situation("pin-moved", "", "", pin("x", "a"), ready=pin("x", "b"), workers=TWO, keys=KEYS),
    Situation("first-minute", "", "", both(kill("w"), hire("w"))),
    Situation("assign-garbage", "", "", spoil("assign", "{name}-w")[0]),
    Situation("claim-killed", "", "", kill("b"), workers=TWO, keys=KEYS, declared=declare_alone("claim")),
    Situation("spark-killed", "", "", both(land, kill_own_spark), lands=True, workers={"w": ("--master", "local[1]")}),
)
