"""`rota prepare`: makes archives of classes, so that Spark and ZooKeeper start sooner, or fetches the jars of s3a."""

import click

from rota.cli import view


@click.command("prepare")
@click.option("--s3", "for_s3", is_flag=True, help="Fetch the jars with which a worker's Spark reads s3://: 18 MB.")
def command(for_s3: bool) -> None:
    """Make a worker's Spark start in half the time, and the ZooKeeper of `rota up` sooner.

    It makes two archives of Java classes, once per installation: 250 MB, 45 s. With --s3 it fetches jars instead, once per
    installation: workers that start from then on read landing folders in a bucket.
    """
    if for_s3:
        from rota.dataplane.spark.s3a import fetch_jars

        with view.show_wait("fetching the jars of s3a by Spark's own Ivy: some 40 s"):
            jars = fetch_jars()
        view.print_line(f"{jars[0].parent} ({len(jars)} jars): every worker that starts from now on reads s3://")
        return
    from rota.java import find_java
    from rota.prepare import prepare

    find_java()
    progress = view.Progress()
    with progress.show_spinner():
        archives = prepare(progress.say)
    for made in archives:
        size = made.stat().st_size / 1e6
        view.print_line(f"{made} ({size:.0f} MB): every {made.stem} of this installation starts from it")
