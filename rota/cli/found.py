"""`rota found`: founds a group and adds the partitions of its sources, as Dagster's sensor does at each tick."""

import click

from rota.cli import view
from rota.cli.group import group_option, load_catalog
from rota.errors import ConfigError, counted


@click.command("found")
@group_option
def command(group: str) -> None:
    """Found a group, or add the partitions that were declared or landed since.

    After that, a group whose workers decide alone needs no Dagster. Existing partitions stay. Exit code 1: a source cannot
    be listed, or the group has no room for its partitions.
    """
    from rota.coordination import client
    from rota.coordination.group_state import GroupState
    from rota.core.protocols.known_protocols import ASSIGNED
    from rota.group.found import found_group, list_sources
    from rota.settings import Settings

    catalog, settings = load_catalog(), Settings.from_environment()
    if group not in catalog.groups:
        known = ", ".join(sorted(catalog.groups)) or "none"
        raise ConfigError(
            f"No pipeline of {settings.pipelines} is in group {group!r}. Known: {known}. Name one of them with --group, or "
            f"declare the group in a pipeline file"
        )
    listed = list_sources(catalog, group)
    with view.show_wait(f"waiting for ZooKeeper at {settings.zookeeper}"):
        store = client.opened(settings)
    with store:
        tree = GroupState(store, group)
        before = len(tree.ids()) if tree.exists() else 0
        problems = {**catalog.refused, **found_group(tree, catalog, listed)}
        now, protocol = len(tree.ids()), tree.meta().protocol
    decided = "Dagster assigns them: `rota up`" if protocol == ASSIGNED else f"its workers decide by {protocol}"
    view.print_line(f"Group {group}: {counted(now, 'partition')}, {now - before} new; {decided}")
    for name, why in problems.items():
        view.print_error(f"{name}: {why}")
    if problems:
        raise SystemExit(1)
