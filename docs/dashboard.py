"""Makes the dashboard for Grafana, deploy/grafana/rota.json, of the metrics of `rota export`: `python docs/dashboard.py`.

Laws:
1. A panel of a healthy group shows values, zeros too. A panel without an answer shows what that means, not "No data".
2. A number at the top is the answer of this moment. It is not the last one of an exporter that is gone.
3. Queries are sums and maxima by pipeline, so that the dashboard fits groups of any size.

No Grafana has shown it: the tests let a Prometheus answer each query, and compare the file with what this program makes.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import BigValueGraphMode, LegendDisplayMode, StackingMode
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    DataTransformerConfig,
    Threshold,
    VariableOption,
    VariableRefresh,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

FILE = Path(__file__).parents[1] / "deploy" / "grafana" / "rota.json"
SOURCE = DataSourceRef(type_val="prometheus", uid="${source}")
OF = 'group=~"$group"'
UNKNOWN = "unknown: no exporter of this group answers"
NUMBER = "none"  # Grafana's unit of plain numbers


@dataclass(frozen=True)
class Panel:
    """A panel.

    Args:
        title: its title.
        about: what it shows, in the corner of the panel.
        queries: each query with the legend of its series.
        unit: Grafana's unit of the values.
        kind: `timeseries`, or what shows this moment: `stat` and `table`.
        empty: what is shown if there is no answer.
        bad: the value from which a number is red; below it, it is green.
        good: the value from which a number is green; below it, it is red.
        stacked: whether the areas of the series are on top of each other.
        width: its columns.
    """

    title: str
    about: str
    queries: Sequence[tuple[str, str]]
    unit: str = NUMBER
    kind: Any = timeseries
    empty: str = UNKNOWN
    bad: float | None = None
    good: float | None = None
    stacked: bool = False
    width: int = 12


ROWS: dict[str, Sequence[Panel]] = {
    "Now": (
        Panel(
            "Needs of an operator",
            "Faults that need an operator now, as `rota status --check` reports them.",
            [(f'sum by (group) (rota_needs{{{OF}, person="true"}})', "{{group}}")],
            kind=stat,
            bad=1,
            width=4,
        ),
        Panel(
            "The exporter observes the group",
            "1: the last observation succeeded. 0: it failed; the log of `rota export` has the reason.",
            [(f"max by (group) (rota_export_up{{{OF}}})", "{{group}}")],
            kind=stat,
            good=1,
            width=4,
        ),
        Panel(
            "Oldest waiting record",
            "How long the oldest record that is not in a table is known to wait. 0: no record waits.",
            [(f"max by (group) (rota_pipeline_freshness_seconds_max{{{OF}}})", "{{group}}")],
            unit="s",
            kind=stat,
            width=4,
        ),
        Panel(
            "Rows a second",
            "Rows that were committed, mean of the last 5 minutes.",
            [(f"sum by (group) (rate(rota_rows_total{{{OF}}}[5m]))", "{{group}}")],
            unit="rowsps",
            kind=stat,
            width=4,
        ),
        Panel(
            "Active workers",
            "Live workers that take partitions.",
            [(f'sum by (group) (rota_workers{{{OF}, state="active"}})', "{{group}}")],
            kind=stat,
            good=1,
            width=4,
        ),
        Panel(
            "Partitions without a live owner",
            "Partitions that no live worker owns. Above 0 for some seconds after a worker died.",
            [(f'sum by (group) (rota_partitions{{{OF}, state="unowned"}})', "{{group}}")],
            kind=stat,
            bad=1,
            width=4,
        ),
        Panel(
            "What needs an operator",
            "Each cause and how often it exists. `rota status` lists each fault with its next step; "
            "docs/troubleshooting.md has a section for each cause.",
            [(f'sum by (group, kind, cause) (rota_needs{{{OF}, person="true"}}) > 0', "")],
            kind=table,
            empty="Nothing needs an operator, or no exporter answers",
        ),
        Panel(
            "The ten partitions whose records wait longest",
            "Seconds for which the oldest record that is not in the table is known to wait.",
            [(f"topk(10, sum by (group, pipeline, partition) (rota_freshness_seconds{{{OF}}}))", "")],
            unit="s",
            kind=table,
            empty="No series of partitions: a group of more than 1,000 partitions has those of pipelines only",
        ),
    ),
    "Needs": (
        Panel(
            "Needs",
            "Faults that need an operator, and faults that are expected to heal.",
            [
                (f'sum by (group) (rota_needs{{{OF}, person="true"}})', "{{group}}: need an operator"),
                (f'sum by (group) (rota_needs{{{OF}, person="false"}})', "{{group}}: expected to heal"),
            ],
        ),
        Panel(
            "Causes",
            "The causes of all needs, those that are expected to heal too.",
            [(f"sum by (group, cause) (rota_needs{{{OF}}}) > 0", "{{group}}: {{cause}}")],
            empty="There is no need, or no exporter answers",
            stacked=True,
        ),
    ),
    "Lag": (
        Panel(
            "Offsets behind",
            "Offsets that the table does not have yet, over all partitions. An offset is a record of a topic, or a file.",
            [(f"sum by (group, pipeline) (rota_pipeline_lag_offsets{{{OF}}})", "{{group}} {{pipeline}}")],
        ),
        Panel(
            "Oldest waiting record",
            "Freshness: how long the oldest record that is not in the table is known to wait. It is a lower bound.",
            [(f"max by (group, pipeline) (rota_pipeline_freshness_seconds_max{{{OF}}})", "{{group}} {{pipeline}}")],
            unit="s",
        ),
    ),
    "Rows": (
        Panel(
            "Rows a second",
            "Rows in the commits of the table's log, mean of 5 minutes.",
            [(f"sum by (group, pipeline) (rate(rota_rows_total{{{OF}}}[5m]))", "{{group}} {{pipeline}}")],
            unit="rowsps",
        ),
        Panel(
            "Commits a minute",
            "Commits of batches in the table's log, mean of 5 minutes.",
            [(f"sum by (group, pipeline) (60 * rate(rota_commits_total{{{OF}}}[5m]))", "{{group}} {{pipeline}}")],
        ),
        Panel(
            "Bad records in an hour",
            "Records that were put into the quarantine in the hour before.",
            [
                (
                    f"sum by (group, pipeline) (increase(rota_quarantined_rows_total{{{OF}}}[1h]))",
                    "{{group}} {{pipeline}}",
                )
            ],
        ),
        Panel(
            "Refused writes in an hour",
            "Writes that a table refused in the hour before: another worker had taken the partition over. Nothing is lost.",
            [
                (
                    f"sum by (group, pipeline) (increase(rota_writes_refused_total{{{OF}}}[1h]))",
                    "{{group}} {{pipeline}}",
                )
            ],
        ),
    ),
    "Workers and partitions": (
        Panel(
            "Workers by state",
            "Live workers.",
            [(f"sum by (group, state) (rota_workers{{{OF}}})", "{{group}}: {{state}}")],
            stacked=True,
        ),
        Panel(
            "Partitions by state",
            "Each partition is in one state.",
            [(f"sum by (group, state) (rota_partitions{{{OF}}})", "{{group}}: {{state}}")],
            stacked=True,
        ),
        Panel(
            "Partitions that no worker consumes",
            "Parked, without a live owner, or with a record that cannot be read.",
            [
                (
                    f'sum by (group, pipeline, state) (rota_partitions{{{OF}, state=~"parked|unowned|unreadable"}})',
                    "{{group}} {{pipeline}}: {{state}}",
                )
            ],
        ),
        Panel(
            "Epoch",
            "The number of the assignment in force. A staircase is a group that does not come to rest.",
            [(f"max by (group) (rota_epoch{{{OF}}})", "{{group}}")],
        ),
    ),
    "Moves": (
        Panel(
            "Moves in an hour",
            "Partitions that epochs assigned in the hour before. Unavoidable: their worker was gone. "
            "Voluntary: for balance. Placement: they had no owner.",
            [(f"sum by (group, kind) (increase(rota_moves_total{{{OF}}}[1h]))", "{{group}}: {{kind}}")],
        ),
        Panel(
            "Hand-overs in an hour, by duration",
            "Partitions that moved in the hour before, and how many of them were claimed within some seconds of the epoch.",
            [
                (
                    f"sum by (group, le) (increase(rota_handover_seconds_bucket"
                    f'{{{OF}, le=~"1.0|5.0|20.0|[+]Inf"}}[1h]))',
                    "{{group}}: within {{le}} s",
                )
            ],
        ),
        Panel(
            "Duration of hand-overs",
            "Seconds from an epoch to the claim of a partition that it moved: half of them, and 95 % of them, take at most "
            "this. There is no line while no partition moved for an hour.",
            [
                (
                    f"histogram_quantile({share}, sum by (group, le) (rate(rota_handover_seconds_bucket{{{OF}}}[1h])))",
                    f"{{{{group}}}}: {name}",
                )
                for share, name in ((0.5, "50 %"), (0.95, "95 %"))
            ],
            unit="s",
        ),
    ),
    "Exporter": (
        Panel(
            "The exporter observes the group",
            "1: the last observation succeeded. 0: it failed, and the group's metrics have no values.",
            [(f"max by (group) (rota_export_up{{{OF}}})", "{{group}}")],
        ),
        Panel(
            "Duration of an observation",
            "Prometheus has to wait longer than this: see `scrape_timeout`.",
            [(f"max by (group) (rota_export_observation_seconds{{{OF}}})", "{{group}}")],
            unit="s",
        ),
    ),
}


def make_panel(panel: Panel) -> Any:
    """Return the builder of a panel."""
    made = panel.kind.Panel().title(panel.title).description(panel.about).datasource(SOURCE)
    made = made.unit(panel.unit).no_value(panel.empty).span(panel.width).height(4 if panel.kind is stat else 8)
    for number, (query, legend) in enumerate(panel.queries):
        target = prometheus.Dataquery().expr(query).legend_format(legend).ref_id("AB"[number])
        if panel.kind is table:
            target = target.format(PromQueryFormat.TABLE)
        made = made.with_target(target.range() if panel.kind is timeseries else target.instant())
    if panel.kind is table:
        columns = {"excludeByName": {"Time": True}, "renameByName": {"Value": "value"}}
        return made.show_header(True).with_transformation(DataTransformerConfig("organize", options=columns))
    if panel.kind is stat:
        below, above = ("green", "red") if panel.good is None else ("red", "green")
        bound = panel.bad if panel.good is None else panel.good
        steps = [Threshold(None, below), *([] if bound is None else [Threshold(bound, above)])]
        last = common.ReduceDataOptions().calcs(["lastNotNull"])
        made = made.thresholds(dashboard.ThresholdsConfig().steps(steps))
        return made.reduce_options(last).graph_mode(BigValueGraphMode.NONE)
    legend = common.VizLegendOptions().show_legend(True).display_mode(LegendDisplayMode.LIST)
    made = made.min(0).legend(legend)
    stacking = common.StackingConfig().mode(StackingMode.NORMAL)
    return made.stacking(stacking).fill_opacity(30) if panel.stacked else made


def make_dashboard() -> str:
    """Return the dashboard as JSON."""
    made = dashboard.Dashboard("rota").uid("rota").tags(["rota"]).editable().tooltip(DashboardCursorSync.CROSSHAIR)
    made = made.refresh("30s").time("now-6h", "now").timezone("browser")
    made = made.with_variable(dashboard.DatasourceVariable("source").label("Prometheus").type("prometheus"))
    groups = dashboard.QueryVariable("group").label("Group").datasource(SOURCE).multi(True).include_all(True)
    groups = groups.current(VariableOption(True, ["All"], ["$__all"])).refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    made = made.with_variable(groups.query("label_values(rota_export_up, group)").all_value(".*"))
    for title, panels in ROWS.items():
        made = made.with_row(dashboard.Row(title))
        for panel in panels:
            made = made.with_panel(make_panel(panel))
    built = made.build()
    for number, panel in enumerate(built.panels or (), 1):
        panel.id_val = number
    return json.dumps(json.loads(JSONEncoder().encode(built)), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(make_dashboard())
