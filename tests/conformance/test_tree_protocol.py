"""docs/protocol.md lists what is in ZooKeeper: every node, whether it is ephemeral, every field; and the multis."""

import re
from collections.abc import Sequence
from pathlib import Path

from rota.coordination import alone, membership
from rota.coordination.group_state import GroupState
from rota.coordination.levels import Levels
from rota.coordination.pipeline_records import rename_pipeline
from rota.coordination.records import (
    Checkpoint,
    Controller,
    Epoch,
    Grab,
    GroupOverrides,
    Head,
    Live,
    Meta,
    Own,
    Parked,
    Partitions,
    Record,
    Refusal,
    Refusals,
    RunNode,
    Slots,
    WorkerOverrides,
    decode,
)
from rota.coordination.store import Check, Node, Op
from rota.coordination.upgrade import finalize
from simulator.memory_store import MemoryServer, MemoryStore
from tests.conformance.life import Life, P

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
SECTION = PAGE.partition("## ZooKeeper")[2].partition("\n## ")[0]
MODELS: dict[str, type[Record]] = {
    "meta": Meta,
    "workers/<worker>": WorkerOverrides,
    "overrides": GroupOverrides,
    "live/<incarnation>": Live,
    "live/<incarnation>=waiting": Live,
    "partitions/<pipeline>": Partitions,
    "controller": Controller,
    "head": Head,
    "assign/<worker>": Slots,
    "own/<partition>": Own,
    "grab/<name>": Grab,
    "checkpoints/<partition>": Checkpoint,
    "runs/<incarnation>@<run id>@<session>": RunNode,
    "runs/<run id>@<session>=going": RunNode,
    "parked/<partition>": Parked,
    "epochs/<epoch, 10 digits>": Epoch,
    "refused": Refusals,
}
PATTERNS = {
    "<worker>": r"w1",
    "<incarnation>": r"w1@[0-9a-f]{16}",
    "<pipeline>": "flights",
    "<partition>": "flights:AA",
    "<name>": "flights:AA",
    "<run id>@<session>": r"run-1@[0-9a-f]{16}",
    "<epoch, 10 digits>": r"\d{10}",
}


def rows(first: str) -> list[list[str]]:
    """The cells of the table whose head starts with `first`."""
    table = SECTION.partition(f"| {first} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table if line.startswith("|")]


class Listening(MemoryStore):
    """Keeps the multis that it sends."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.sent: list[list[str]] = []

    def multi(self, ops: Sequence[Op]) -> tuple[Node | None, ...]:
        self.sent.append([f"{type(op).__name__} {op.path}{'' if free(op) else ' at a version'}" for op in ops])
        return super().multi(ops)


def free(op: Op) -> bool:
    return not isinstance(op, Check) or op.version == -1


def fill(store: MemoryStore) -> GroupState:
    """One group with every node there is."""
    tree = GroupState(store, "default")
    tree.levels = Levels(1, 2, "0.2.0")
    tree.found()
    life = Life(tree)
    membership.wait_beside(tree, "w1", Live())
    membership.create_liveness_node(tree, "run-1")
    alone.write_target(tree, life.w1, [P], life.version)
    return tree


def test_every_node_and_field_is_on_the_page(memory: MemoryServer) -> None:
    tree = fill(memory.connect())
    documented = {row[0].strip("`"): row for row in rows("znode")}
    assert set(documented) == set(MODELS)
    seen = set()
    for path, entry in memory.entries.items():
        if path in ("/", "/rota", "/rota/clock", tree.paths.root, *tree.paths.folders):
            assert entry.node.data == b""
            continue
        name = path.removeprefix(f"{tree.paths.root}/")
        (template,) = [t for t in MODELS if re.fullmatch(pattern(t), name)]
        seen.add(template)
        model = MODELS[template]
        decode(path, model, entry.node.data)
        _, lives, _, fields = documented[template]
        fields = documented[same[1]][3] if (same := re.fullmatch(r"as `(.+)`", fields)) else fields
        assert lives.startswith("ephemeral") == bool(entry.node.owner), path
        assert fields.startswith("deflated") == model.deflated, path
        assert set(re.findall(r"`([a-z_]+)`", fields)) == list_fields(model), path
    assert seen == set(MODELS)


def pattern(template: str) -> str:
    for name, regex in PATTERNS.items():
        template = template.replace(name, regex)
    return template


def list_fields(model: type[Record]) -> set[str]:
    """The fields of the record, and of what it lists where the page names those too."""
    more = {Own: {"token_base"}, Slots: {"epoch", "bytes"}, Refusals: set(Refusal.model_fields)}
    return set(model.model_fields) - {"v"} | more.get(model, set())


def test_every_multi_is_on_the_page(memory: MemoryServer) -> None:
    store = Listening(memory)
    tree = fill(store)
    root = tree.paths.root
    rename_pipeline(tree, "flights", "planes", {P: "planes:AA"}, {})
    assert finalize(tree).level == 2
    names = (
        "meta",
        "live",
        "runs",
        "own",
        "assign",
        "grab",
        "controller",
        "head",
        "epochs",
        "checkpoints",
        "partitions",
        "load",
    )
    shapes = {
        tuple(re.sub(rf"(\w+) {root}/(\w+)[^ ]*", r"\1 \2", op).lower() for op in ops)
        for ops in store.sent
        if len(ops) > 1 and all(op.count("/") > 2 and op.split("/")[3].split(" ")[0] in names for op in ops)
    }
    assert {row[0]: row[1] for row in rows("multi")}.keys() == {
        "join",
        "upgrade",
        "claim",
        "release",
        "choose",
        "grab",
        "checkpoint",
        "park",
        "slots",
        "rename",
        "flip",
    }
    assert shapes == {
        ("check meta at a version", "create live"),
        ("check meta at a version", "create runs"),
        ("check controller at a version", "set meta"),
        ("check live", "check assign at a version", "set own"),
        ("check live", "set assign"),
        ("check live", "create grab"),
        ("check runs", "check own at a version", "create checkpoints"),
        ("check controller at a version", "create own"),
        ("check controller at a version", "create assign"),
        ("delete partitions", "create partitions"),
        ("set controller", "set head", "create epochs"),
    }


def test_the_limits_are_on_the_page() -> None:
    from rota.coordination.id_set import MAX_IDS
    from rota.coordination.limits import MAX_PACKED
    from rota.coordination.membership import MAX_RUN
    from rota.coordination.publication import KEEP_EPOCHS
    from rota.coordination.records import MAX_MOVES, MAX_REFUSALS
    from rota.coordination.store import CLOCK, MAX_DATA

    for number in (MAX_DATA, MAX_IDS, MAX_PACKED):
        assert f"{number:,}" in SECTION
    assert f"at most {MAX_RUN:,} at a time" in SECTION
    assert f"the last {KEEP_EPOCHS}" in SECTION
    assert f"the last {MAX_REFUSALS} of" in SECTION
    assert f"the first {MAX_MOVES}" in SECTION
    assert f"`{CLOCK}`" in SECTION
