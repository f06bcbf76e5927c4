"""`rota protect`: sets the rights of every znode as ROTA_ZOOKEEPER_ACL says."""

import click

from rota.cli import view


@click.command("protect")
def command() -> None:
    """Set the rights of every znode as ROTA_ZOOKEEPER_ACL says.

    Run it as a person, before Dagster starts and whenever ROTA_ZOOKEEPER_ACL changed.
    """
    from rota.coordination.client import opened
    from rota.coordination.protect import protect
    from rota.settings import Settings

    with opened(Settings.from_environment()) as store, view.show_wait("setting the rights of every znode"):
        count = protect(store)
    view.print_parts(f"{count} znodes have the rights that ROTA_ZOOKEEPER_ACL gives")
