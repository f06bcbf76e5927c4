"""A build "from the future": a copy of the package with one more field in each record and one more level. What each build
does as Dagster, as a run and as a command is `Build`: this one in this process, the future one in a process of its own.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol

from click.testing import CliRunner

from rota.cli import cli
from rota.coordination import membership
from rota.coordination.checkpoint import Entry, carry_load, write_checkpoints
from rota.coordination.client import connect
from rota.coordination.group_state import GroupState
from rota.coordination.ownership import Ownership
from rota.coordination.records import Checkpoint
from rota.group.rebalance import rebalance

ROOT = Path(__file__).parents[2]
FIELD, VERSION = "of_the_future", "9.0.0"
CHANGES = {  # file -> what is replaced in it, and by what
    "levels.py": ("\nLEVEL = 1\n", "\nLEVEL = 2\n"),
    "records.py": ("    v: Literal[1] = 1\n", f"    v: Literal[1] = 1\n    {FIELD}: str = {VERSION!r}\n"),
}


def make_future_build(folder: Path) -> Path:
    """The folder to import that build from."""
    shutil.copytree(ROOT / "rota", folder / "rota", ignore=shutil.ignore_patterns("__pycache__"))
    for name, (old, new) in CHANGES.items():
        file = folder / "rota" / "coordination" / name
        text = file.read_text()
        assert text.count(old) == 1, f"{name} has no {old!r}"
        file.write_text(text.replace(old, new))
    about = folder / f"rota-{VERSION}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: rota\nVersion: {VERSION}\n")
    return folder


class Build(Protocol):
    """One build at work in a group."""

    def rebalance(self) -> None:
        """Publish the next epoch, as a run of Dagster does."""
        ...

    def consume(self) -> Mapping[str, int]:
        """Move the checkpoint of each owned partition by one, as a run does. Returns the offsets."""
        ...

    def command(self, *words: str) -> tuple[int, str]:
        """Call `rota`. Returns its exit code and what it printed."""
        ...


class ThisBuild:
    """The build that is imported here."""

    def __init__(self, tree: GroupState) -> None:
        self.tree = tree
        self._runs = 0

    def rebalance(self) -> None:
        """See `Build`."""
        rebalance(self.tree, "run")

    def consume(self) -> Mapping[str, int]:
        """See `Build`."""
        tree, found = self.tree, dict[str, int]()
        self._runs += 1
        run = f"run-{self._runs}"
        membership.create_liveness_node(tree, run)
        live = {view.incarnation for view in tree.live()}
        for incarnation in sorted(live):
            mine = {p: own for p, own in tree.owned().items() if own.incarnation == incarnation}
            node = membership.register_run(tree, run, incarnation, mine)
            seen = tree.checkpoints(mine)
            entries = []
            for p, own in mine.items():
                offset = 1 + (seen[p].record.offset if p in seen else 0)
                done = carry_load(seen.get(p), Checkpoint(offset=offset, token=own.token, run_id=run, rows=1))
                entries.append(Entry(Ownership(p, incarnation, own.version, own.token), done, seen.get(p)))
                found[p] = offset
            refused = write_checkpoints(tree, node, entries)
            assert not any(refused.values()), refused
            membership.end_run(tree, node)
        membership.remove_node(tree, tree.paths.liveness(run, tree.store.session))
        return found

    def command(self, *words: str) -> tuple[int, str]:
        """See `Build`."""
        done = CliRunner().invoke(cli, [*words, "--group", self.tree.group])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            return 2, str(done.exception)
        return done.exit_code, done.output


class OtherBuild:
    """A build in a process of its own."""

    def __init__(self, into: IO[str], out: IO[str]) -> None:
        self._into, self._out = into, out

    def rebalance(self) -> None:
        """See `Build`."""
        self._ask("rebalance")

    def consume(self) -> Mapping[str, int]:
        """See `Build`."""
        return dict(self._ask("consume"))  # type: ignore[call-overload, no-any-return]

    def command(self, *words: str) -> tuple[int, str]:
        """See `Build`."""
        code, text = self._ask("command", *words)  # type: ignore[misc]
        return code, text

    def _ask(self, *words: str) -> object:
        self._into.write(json.dumps(words) + "\n")
        self._into.flush()
        answer = json.loads(self._out.readline())
        assert "error" not in answer, answer["error"]
        return answer["done"]


@contextmanager
def open_build(folder: Path, hosts: str, group: str) -> Iterator[OtherBuild]:
    """A process of the build in this folder."""
    environ = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "ROTA_ZOOKEEPER": hosts}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.conformance.future_build", hosts, group],
        env=environ, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        assert json.loads(process.stdout.readline()) == str(folder / "rota")
        yield OtherBuild(process.stdin, process.stdout)
        process.stdin.close()


def serve(hosts: str, group: str) -> None:
    """Answer each line of standard input with what this build did."""
    import rota

    sys.stdout.write(json.dumps(str(Path(rota.__file__).parent)) + "\n")
    sys.stdout.flush()
    with connect(hosts) as store:
        build = ThisBuild(GroupState(store, group))
        for line in sys.stdin:
            verb, *words = json.loads(line)
            try:
                answer = {"done": getattr(build, verb)(*words)}
            except Exception as error:  # the test raises it
                answer = {"error": re.sub(r"\s+", " ", repr(error))}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    serve(*sys.argv[1:])
