"""`rota up --kafka --s3`: a broker and a bucket beside the stack, which end with it and keep what they have."""

import os
from pathlib import Path

import psutil

from rota.cli.up import start_sources
from rota.local.folder import StateFolder
from rota.local.stack import Stack
from tests.waiting import wait_until


def test_topics_and_objects_outlive_the_stack_and_its_processes_do_not(tmp_path: Path) -> None:
    """Twice over one state folder. Landing folders and tables stay on the disk."""
    for again in (False, True):
        before = set(psutil.Process().children(recursive=True))
        with Stack(StateFolder(tmp_path / "state"), {**os.environ, "AWS_PROFILE": "mine"}) as stack:
            kafka, bucket = start_sources(stack, kafka=True, s3=True)
            env, broker = stack.env, stack.kafka
            assert broker
            assert f"Kafka is up at {env['KAFKA_SERVERS']}," in kafka
            assert 'files("s3://rota/orders", ' in bucket
            assert env["AWS_ENDPOINT_URL"] in bucket
            assert "AWS_PROFILE" not in env
            assert {
                "KAFKA_SERVERS",
                "AWS_ENDPOINT_URL",
                "AWS_ACCESS_KEY_ID",
                "AWS_SECRET_ACCESS_KEY",
            } <= stack.sources.keys()
            assert env["ROTA_TABLES"] == str(tmp_path / "state" / "tables")
            data = tmp_path / "state" / "bucket" / "data" / "rota" / "orders"
            topics = broker.admin.list_topics(timeout=30).topics
            if again:
                assert "orders" in topics
                assert (data / "1.json").exists()
            else:
                broker.make("orders")
                data.mkdir()
                (data / "1.json").write_text("{}")
        started = set(psutil.Process().children(recursive=True)) - before
        wait_until(lambda: not [one for one in started if one.is_running() and one.status() != psutil.STATUS_ZOMBIE])  # noqa: B023
