"""`rota protect`: sets the rights of every znode to ROTA_ZOOKEEPER_ACL."""

import click

from rota.cli import view


@click.command("protect")
def command() -> None:
    """Set the rights of every znode to ROTA_ZOOKEEPER_ACL.

    Run it as an operator, before Dagster starts and after each change of ROTA_ZOOKEEPER_ACL.
    """
    from rota.coordination.client import opened
    from rota.coordination.protect import protect
    from rota.settings import Settings

    with opened(Settings.from_environment()) as store, view.show_wait("setting the rights of every znode"):
        count = protect(store)
    view.print_parts(f"{count} znodes have the rights that ROTA_ZOOKEEPER_ACL gives")
