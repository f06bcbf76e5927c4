"""`rota protect`: every znode has the rights that ROTA_ZOOKEEPER_ACL gives."""

import click

from rota.cli import view


@click.command("protect")
def command() -> None:
    """Set who may do what with every znode that is there, as ROTA_ZOOKEEPER_ACL says; needed after it changed."""
    from rota.coordination.client import opened
    from rota.coordination.protect import protect
    from rota.settings import Settings

    with opened(Settings.from_environment()) as store:
        view.show(f"{protect(store)} znodes are as ROTA_ZOOKEEPER_ACL says")
