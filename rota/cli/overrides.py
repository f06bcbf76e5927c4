"""`rota drain`, `cordon`, `uncordon`, `pause` and `resume`: each sets one override, of a worker or of the group."""

import click

from rota.cli import view
from rota.cli.group import group_option, open_group
from rota.errors import counted
from rota.ids import worker_of

HELP = {
    "drain": "Move all partitions of WORKER to other workers.\n\nIt gets no new ones until `rota uncordon`.",
    "cordon": "Give WORKER no new partitions.\n\nIt keeps those that it has, and gets new ones after `rota uncordon`.",
    "uncordon": "Give WORKER partitions again: end its cordon or drain.",
    "pause": "Stop voluntary moves until `rota resume`.\n\nA partition whose worker is gone or drains still moves.",
    "resume": "Allow voluntary moves again, after `rota pause`.",
}
DONE = {  # `{}` is the worker, or the group
    "drain": "{} drains {left}. See `rota status --watch`; `rota uncordon {}` ends it",
    "cordon": "{} is cordoned: it keeps its partitions and gets no new ones until `rota uncordon {}`",
    "uncordon": "{} gets partitions again",
    "pause": "Group {} is paused: no partition moves voluntarily. `rota resume` ends it",
    "resume": "Group {} is balanced again",
}


def make_command(verb: str) -> click.Command:
    """Return the command for this verb of `rota.coordination.overrides`."""

    @click.command(verb, help=HELP[verb])
    @group_option
    def command(group: str, worker: str = "") -> None:
        from rota.coordination import overrides

        with open_group(group) as tree:
            getattr(overrides, verb)(tree, *([worker] if worker else []))
            owned = tree.owned().values() if verb == "drain" else ()
            left = counted(sum(worker_of(own.incarnation or "") == worker for own in owned), "partition")
        view.print_line(DONE[verb].replace("{}", worker or group).replace("{left}", left))

    return command if verb in ("pause", "resume") else click.argument("worker")(command)
