"""Plays each command before each call of each other one; `tests.dataplane.without_spark.two_at_once` has the laws.

python -m tests.chaos.two_at_once --store bucket --faults 0.08 --every 17
"""

import os
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import click

from rota.local.bucket import BucketServer, serve_buckets
from tests.bucket import in_bucket, on_disk
from tests.dataplane.without_spark.two_at_once import VERBS, Stage, play
from tests.faulty_bucket import FaultyStore, choose_at_random, serve_faults


@click.command()
@click.option("--store", type=click.Choice(["disk", "bucket"]), default="disk", show_default=True)
@click.option("--first", "firsts", multiple=True, type=click.Choice(list(VERBS)), help="Default: all.")
@click.option("--second", "seconds", multiple=True, type=click.Choice(list(VERBS)), help="Default: all.")
@click.option("--every", default=1, show_default=True, help="Plays at each so-manieth call of the first command.")
@click.option("--only", type=int, help="At this call alone.")
@click.option("--after", default="keep", show_default=True)
@click.option("--faults", default=0.0, show_default=True, help="Of so many of the bucket's answers.")
def main(
    store: str,
    firsts: tuple[str, ...],
    seconds: tuple[str, ...],
    every: int,
    only: int | None,
    after: str,
    faults: float,
) -> None:
    """Plays all pairs, with the first one going on and dying, in both states of the stage."""
    plays, broken, said = 0, 0, Counter[str]()

    struck: list[FaultyStore] = []

    def choose(seed: int) -> None:
        """Faults from now on; none for 0."""
        for one in struck:
            one.choose = choose_at_random(seed, faults) if seed and faults else lambda *_: ""

    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="two-")))
        server: BucketServer | None = None
        if store == "bucket":
            server = stack.enter_context(serve_buckets(root / "s3"))
            os.environ.update(server.environ)
            if faults:
                struck.append(stack.enter_context(serve_faults(server)))
                os.environ.update(struck[0].server.environ)
        cases = [(a, b, k, s) for a in firsts or VERBS for b in seconds or VERBS for k in (0, 1) for s in (0, 1)]
        for number, (first, second, killed, stuck) in enumerate(cases):
            for at in [only] if only else count(1 + number % every, every):
                folder = root / f"{number}-{at}"
                place = in_bucket(server) if server else on_disk(folder / "store")
                stage = Stage(folder, place, bool(stuck), after)
                choose(1000 * number + at)
                found = play(stage, first, second, at, killed=bool(killed), rest=lambda: choose(0))
                choose(0)
                if not found.struck and not found.wrong:
                    break
                plays += 1
                said.update(line.partition(": ")[2].partition(":")[0] for line in found.said)
                if found.wrong:
                    broken += 1
                    click.echo(f"BROKEN {first} {second} at {at} killed={killed} stuck={stuck}")
                    click.echo("\n".join((*found.wrong, *(f"  said {one}" for one in found.said))))
            click.echo(
                f"{first} {second} killed={killed} stuck={stuck}: {at}, plays {plays}, broken {broken}", err=True
            )
    click.echo(f"{plays} plays, {broken} broken; refused: {dict(said)}")
    for one in struck:
        click.echo(f"answers: {dict(one.struck)}")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
