"""`python -m tests.situations`: situations that need a person, and healthy ones, played on real parts. For each it prints
the seconds until `rota status --check` exits with 1, the page is red, an alert came and, once mended, its end was reported.

Exit code 1 if one of them is silent, late or wrong.
"""

import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from rota.local.stack import end_on_sigterm
from tests.situations import of_groups, of_pipelines, of_the_stack
from tests.situations.play import Play
from tests.situations.row import Row
from tests.situations.situation import Situation
from tests.situations.stage import Stage
from tests.situations.table import write_table

ACTS: dict[str, Sequence[Situation]] = {
    "pipelines": (*of_pipelines.PIPELINES[:10], *of_pipelines.HEALTHY[:4]),
    "tables": (*of_pipelines.PIPELINES[10:], *of_pipelines.HEALTHY[4:]),
    "groups": (*of_groups.GROUPS[:10], *of_groups.HEALTHY[:4]),
    "records": (*of_groups.GROUPS[10:], *of_groups.HEALTHY[4:]),
    "stack": of_the_stack.STACK,
}


def list_situations() -> list[Situation]:
    """All of them, act by act."""
    return [one for of in ACTS.values() for one in of]


HEAD = f"{'situation':<22} {'cause':<12} {'status':>6} {'page':>6} {'alert':>6} {'over':>6} {'load':>5}"


@click.command()
@click.option(
    "--act", "acts", multiple=True, type=click.Choice(sorted(ACTS)), help="By default all, one after another."
)
@click.option("--only", multiple=True, help="Situations by name.")
@click.option("--keep", type=click.Path(path_type=Path), help="The folder of logs; it stays.")
@click.option("--write", type=click.Path(path_type=Path), help="The page whose table of situations gets the rows.")
def main(acts: tuple[str, ...], only: tuple[str, ...], keep: Path | None, write: Path | None) -> None:
    """Plays the situations."""
    logging.disable(logging.WARNING)
    rows: list[Row] = []
    tell(HEAD)
    for act in acts or tuple(ACTS):
        chosen = [one for one in ACTS[act] if not only or one.name in only]
        if not chosen:
            continue
        with tempfile.TemporaryDirectory(prefix="situations-") as made, end_on_sigterm():
            folder = (keep or Path(made)) / act
            folder.mkdir(parents=True)
            stage = Stage(folder, chosen)
            try:
                stage.start()
                for together in [chosen] if act != "stack" else [[one] for one in chosen]:
                    rows += Play(stage, together, tell).play()
                    if write:
                        write_table(write, list_situations(), rows)
            finally:
                stage.stop()
    right = [row for row in rows if row.judge() == "right"]
    tell(f"{len(right)} of {len(rows)} right")
    sys.exit(len(right) != len(rows))


def tell(line: str) -> None:
    """A line, at once."""
    click.echo(line)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
