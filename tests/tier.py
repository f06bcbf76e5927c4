"""Two tiers of tests: `make test` before each push, `make test-all` before each release.

The push tier runs one share of the cases of each test in `SHARES`, another share each day, and every other test of `TURNS`,
the rest the next day. It leaves out tests marked `release`. pytest without these commands runs everything. `TEST_DAY=N make
test` repeats the choice of a day, which the first lines print.
"""

import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from random import Random
from typing import TypeVar

T = TypeVar("T")

PUSH = os.environ.get("TEST_TIER") == "push"
DAY = int(os.environ.setdefault("TEST_DAY", str(datetime.now(UTC).toordinal())))  # the processes of xdist inherit it

SHARES = {  # long tables of cases, and in how many shares they are divided
    "chaos/test_kills_and_pauses.py::test_a_frozen_run_of_a_topic_writes_nothing_after_it_was_overtaken": 2,
    "chaos/test_kills_and_pauses.py::test_nothing_is_lost_or_doubled": 3,
    "chaos/test_kills_and_pauses.py::test_without_the_tables_fence_rows_are_doubled_and_counted": 2,
    "cluster/test_executors_elsewhere.py::test_what_executors_lack_is_one_line_and_parks_no_partition": 2,
    "conformance/test_upgrade.py::test_in_any_order_nothing_is_lost_and_each_part_may_go_back": 3,
    "dataplane/kafka/test_cluster.py::"
    "test_a_leader_that_is_lost_in_a_batch_is_followed_by_another_and_each_record_is_there_once": 2,
    "dataplane/kafka/test_conservation.py::test_each_committed_record_is_in_the_table_once_and_no_other": 2,
    "dataplane/kafka/test_conservation.py::test_without_isolation_or_without_reading_to_the_end_there_is_damage": 2,
    "dataplane/kafka/test_faults.py::test_every_record_is_in_the_table_once": 2,
    "dataplane/kafka/test_secured.py::"
    "test_a_password_that_changes_while_a_run_serves_ends_it_and_the_next_run_reads_the_new_one": 2,
    "dataplane/rabbitmq/test_scaling.py::test_ten_queues_over_three_workers_then_four": 2,
    "dataplane/conformance/test_logs.py::test_so_they_do_in_a_bucket": 2,
    "dataplane/test_between_listing_and_reading.py::test_no_record_is_lost_and_none_that_came_later_is_taken_for_it": 3,
    "dataplane/test_fates.py::test_the_fate_of_a_line_of_a_file": 2,
    "dataplane/test_landing_anywhere.py::test_each_record_is_in_the_table_once_under_its_own_offset": 2,
    "dataplane/test_landing_anywhere.py::test_what_is_overwritten_or_deleted_on_the_way_is_not_committed": 3,
    "dataplane/test_landing_in_bucket.py::test_a_row_stays_under_its_object_where_one_thread_reads_several": 3,
    "dataplane/test_lists_of_a_bucket.py::test_a_list_along_the_folders_finds_what_a_list_of_each_finds": 2,
    "dataplane/test_matrix_of_writers.py::test_beside_a_run_that_archives": 2,
    "dataplane/test_matrix_of_writers.py::test_no_cell_is_silent": 2,
    "dataplane/test_parsing.py::test_a_wrong_value_in_any_column_whatever_the_transform_uses": 3,
    "dataplane/test_racing_writers_of_a_bucket.py::test_ten_writers_lose_and_double_nothing": 3,
    "dataplane/test_writing.py::test_files_are_what_spark_itself_would_have_written": 2,
    "dataplane/without_spark/test_foreign_programs.py::test_a_program_that_changes_no_row_stops_no_run": 3,
    "dataplane/without_spark/test_foreign_programs.py::test_a_program_that_changes_rows_is_reported_and_they_come_back": 3,
    "dataplane/without_spark/test_orders_of_two.py::test_any_two_lose_and_double_nothing": 2,
    "dataplane/without_spark/test_two_at_once.py::test_any_two_at_once_lose_and_double_nothing": 2,
    "face/test_assignors.py::test_a_changed_option_is_another_assignment": 4,
    "sim/test_alone.py::test_every_protocol_holds_every_world_together": 4,
    "sim/test_clock_steps.py::test_by_count_nothing_moves": 2,
    "sim/test_handover.py::test_no_fault_between_any_two_steps_does_damage": 2,
    "sim/test_handover.py::test_each_guard_that_is_taken_away_does_damage": 2,
    "sim/test_handover.py::test_without_faults_nothing_is_fenced_or_forced_or_broken": 2,
    "sim/test_watch.py::test_after_no_event_a_world_that_heals_calls_a_person": 3,
    "sim/test_watch.py::test_no_world_that_heals_calls_a_person": 2,
    "sim/test_worlds.py::test_every_assignor_runs_in_every_world_and_breaks_nothing": 4,
    "sim/test_worlds.py::test_over_placement_many_give_to_one_and_the_lowest_becomes_the_highest": 5,
    "sim/test_worlds.py::test_sticky_settles_in_every_world_and_wastes_nothing": 3,
}


TURNS = (  # single tests that take long, from 120 s down to 20 s: neighbours take about as long
    "face/test_alone.py::test_what_workers_do_alone_is_seen_as_what_a_controller_does_also_where_dagster_died_in_between",
    "face/test_secrets.py::test_what_a_line_leaves_behind_holds_no_secret",
    "face/test_lasting.py::test_under_a_trickle_all_is_materialized_and_a_reload_ends_no_run",
    "face/test_clicks.py::test_what_changed_is_replayed_by_commands_launchpad_and_backfill_and_old_runs_are_purged",
    "demo/test_commands.py::test_forget_takes_single_partitions_out_once_their_folders_are_gone",
    "demo/test_commands.py::test_repair_lists_a_torn_own_record_and_removes_it",
    "cluster/test_cores_for_one.py::test_a_worker_for_which_the_cluster_has_no_core_owns_nothing_until_it_has_one",
    "dataplane/test_origins.py::test_what_becomes_of_a_record_depends_on_its_offset_alone",
    "face/test_line.py::test_while_zookeeper_is_gone_ticks_and_runs_fail_with_the_line_of_a_command_and_then_go_on",
    "face/test_lasting.py::test_one_run_consumes_what_comes_reports_sums_hands_over_and_ends_when_nothing_comes",
    "demo/test_cli.py::test_what_a_pipeline_file_prints_is_no_part_of_the_document",
    "dataplane/kafka/test_cluster.py::test_a_partition_without_a_leader_waits_alone_with_one_line",
    "dataplane/test_tryout.py::test_a_tryout_reports_what_a_run_does",
    "dataplane/test_wide_tables.py::test_parquet_of_nine_thousand_columns",
    "dataplane/kafka/test_faults.py::test_what_dies_while_it_gives_records_ends_the_batch",
    "dataplane/test_pushed_filters.py::test_a_pushed_filter_leaves_out_no_row_that_fits",
)


def find_left_out(tests: Sequence[str]) -> set[str]:
    """Return those of the tests (paths below tests/) that run on another day. None outside the push tier."""
    left = {test for place, test in enumerate(TURNS) if PUSH and (place + DAY) % 2}
    for test, parts in SHARES.items():
        cases = sorted(one for one in tests if one.startswith(f"{test}["))
        left.update(set(cases) - set(choose(cases, parts)))
    return left


def choose(cases: Iterable[T], parts: int) -> list[T]:
    """Return all cases; in the push tier one of `parts` shares, so that each case runs within `parts` days."""
    found = list(cases)
    if not PUSH:
        return found
    order = list(range(len(found)))
    Random(0).shuffle(order)
    return [found[place] for place in sorted(order[DAY % parts :: parts])]
