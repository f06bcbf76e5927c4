"""`dagster dev` as a test sees it: a page with GraphQL behind it, a daemon, and its own folder."""

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rota.local.dagster_services import SETTINGS
from rota.machine import free_port
from tests.waiting import LONG, wait_until

ROOT = Path(__file__).parents[2]
OWN = ROOT / "dagster_project"  # what `rota up` serves


class DagsterDev:
    """The page, the daemon and the code server of one DAGSTER_HOME; started and stopped as often as wanted."""

    def __init__(
        self,
        home: Path,
        environ: Mapping[str, str],
        workspace: Path = OWN / "workspace.yaml",
        settings: Path = OWN / "dagster.yaml",
    ) -> None:
        self.home, self.workspace, self.port = home, workspace, free_port()
        self.environ = {
            **os.environ,
            **SETTINGS,
            "PYTHONPATH": str(ROOT),
            **environ,
            "DAGSTER_HOME": str(home),
        }
        home.mkdir(parents=True, exist_ok=True)
        shutil.copy(settings, home / "dagster.yaml")
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns when the page answers and the code location is loaded."""
        command = ["-m", "dagster", "dev", "-w", str(self.workspace), "-h", "127.0.0.1", "-p", str(self.port)]
        with (self.home / "dev.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                cwd=self.home,
                env=self.environ,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # `dagster dev` maps SIGTERM onto SIGINT's handler: it must not be the inherited "ignore".
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
            )
        wait_until(self.is_loaded, pause=0.5)

    def stop(self, kill: bool = False) -> None:
        """Ends the processes; with `kill` at once, as a machine that loses power."""
        if self.process is None:
            return
        if kill:
            os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.send_signal(signal.SIGINT)
        self.process.wait(LONG)
        self.process = None

    def is_loaded(self) -> bool:
        if self.process is None or self.process.poll() is not None:
            raise AssertionError(f"dagster dev ended: {self.log()[-3000:]}")
        try:
            found = self.query(
                "{ locationStatusesOrError { ... on WorkspaceLocationStatusEntries { entries { loadStatus } } } }"
            )
        except OSError:
            return False
        entries = found["locationStatusesOrError"]["entries"]
        return bool(entries) and all(e["loadStatus"] == "LOADED" for e in entries)

    def log(self) -> str:
        return (self.home / "dev.log").read_text(errors="replace")

    def query(self, text: str, **variables: Any) -> dict[str, Any]:
        """The data of a GraphQL query; its errors raise."""
        body = json.dumps({"query": text, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=LONG) as answer:
            found = json.load(answer)
        assert not found.get("errors"), found["errors"]
        return dict(found["data"])

    def runs(self, **tags: str) -> list[dict[str, Any]]:
        """The runs that carry the tags, newest first."""
        wanted = [{"key": k.replace("__", "/"), "value": v} for k, v in tags.items()]
        found = self.query(
            """query R($filter: RunsFilter) { runsOrError(filter: $filter) { ... on Runs { results {
                 runId jobName status startTime endTime tags { key value } } } } }""",
            filter={"tags": wanted} if wanted else {},
        )
        return list(found["runsOrError"]["results"])

    def find_status(self, run: str) -> str:
        """The status of one run."""
        found = self.query("query O($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }", id=run)
        return str(found["runOrError"]["status"])

    def materializations(self, *key: str, limit: int = 50) -> list[dict[str, Any]]:
        """The asset's materializations, newest first: partition, run id, and metadata by label."""
        found = self.query(
            """query M($key: AssetKeyInput!, $limit: Int!) { assetOrError(assetKey: $key) { ... on Asset {
                 assetMaterializations(limit: $limit) { partition runId timestamp metadataEntries { label
                   ... on IntMetadataEntry { intValue } ... on FloatMetadataEntry { floatValue }
                   ... on TextMetadataEntry { text } ... on MarkdownMetadataEntry { mdStr } } } } } }""",
            key={"path": list(key)},
            limit=limit,
        )
        return [
            {**m, "metadata": {e["label"]: _value(e) for e in m["metadataEntries"]}}
            for m in found["assetOrError"].get("assetMaterializations", [])
        ]

    def launch(self, job: str, config: Mapping[str, Any] | None = None, assets: Sequence[str] = (), **tags: str) -> str:
        """Launches a job, or these assets of Dagster's own job, as a Launchpad does; its run id."""
        chosen: dict[str, Any] = {"assetSelection": [{"path": [name]} for name in assets]} if assets else {}
        found = self.query(
            """mutation L($params: ExecutionParams!) { launchRun(executionParams: $params) { __typename
                 ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
                 ... on RunConfigValidationInvalid { errors { message } } } }""",
            params={
                "selector": {**self._selector(jobName=job), **chosen},
                "runConfigData": config or {},
                "executionMetadata": {"tags": [{"key": k.replace("__", "/"), "value": v} for k, v in tags.items()]},
            },
        )["launchRun"]
        assert found["__typename"] == "LaunchRunSuccess", found
        return str(found["run"]["runId"])

    def execute_again(self, run: str) -> str:
        """The button "Re-execute from failure" of a run; the new run's id."""
        found = self.query(
            """mutation E($params: ReexecutionParams!) { launchRunReexecution(reexecutionParams: $params) { __typename
                 ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }""",
            params={"parentRunId": run, "strategy": "FROM_FAILURE"},
        )["launchRunReexecution"]
        assert found["__typename"] == "LaunchRunSuccess", found
        return str(found["run"]["runId"])

    def cancel(self, run: str) -> None:
        """The button "Terminate" of a run."""
        found = self.query(
            """mutation C($runs: [String!]!) { terminateRuns(runIds: $runs, terminatePolicy: SAFE_TERMINATE) {
                 ... on TerminateRunsResult { terminateRunResults { __typename
                   ... on TerminateRunFailure { message } } } ... on PythonError { message } } }""",
            runs=[run],
        )["terminateRuns"]
        assert [one["__typename"] for one in found["terminateRunResults"]] == ["TerminateRunSuccess"], found

    def backfill(
        self, assets: list[list[str]], partitions: list[str] | None, config: Mapping[str, Any] | None = None
    ) -> str:
        """A backfill of the assets' partitions, or of all with None, as the page's dialog asks for it; its id."""
        found = self.query(
            """mutation B($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
                 __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }""",
            params={
                "assetSelection": [{"path": path} for path in assets],
                **({"allPartitions": True} if partitions is None else {"partitionNames": partitions}),
                **({"runConfigData": config} if config else {}),
            },
        )["launchPartitionBackfill"]
        assert found["__typename"] == "LaunchBackfillSuccess", found
        return str(found["backfillId"])

    def backfill_job(self, job: str, partitions: list[str]) -> str:
        """A backfill of a job's partitions, from the job's own page; its id."""
        place = {"repositoryLocationName": "rota", "repositoryName": "__repository__"}
        found = self.query(
            """mutation B($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
                 __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }""",
            params={
                "selector": {"partitionSetName": f"{job}_partition_set", "repositorySelector": place},
                "partitionNames": partitions,
            },
        )["launchPartitionBackfill"]
        assert found["__typename"] == "LaunchBackfillSuccess", found
        return str(found["backfillId"])

    def open_launchpad(self, job: str) -> str:
        """What a job's Launchpad opens with, as YAML."""
        found = self.query(
            """query L($s: PipelineSelector!) { runConfigSchemaOrError(selector: $s) {
                 ... on RunConfigSchema { rootDefaultYaml } ... on PythonError { message } } }""",
            s=self._selector(pipelineName=job),
        )["runConfigSchemaOrError"]
        return str(found["rootDefaultYaml"])

    def fill_in(self, job: str, partition: str, assets: list[list[str]]) -> str:
        """What an asset job's Launchpad is filled in with when a partition is chosen there, as YAML."""
        found = self.query(
            """query P($s: PipelineSelector!, $p: String!, $a: [AssetKeyInput!]!) { pipelineOrError(params: $s) {
                 ... on Pipeline { partition(partitionName: $p, selectedAssetKeys: $a) { runConfigOrError {
                   ... on PartitionRunConfig { yaml } ... on PythonError { message } } } } } }""",
            s=self._selector(pipelineName=job),
            p=partition,
            a=[{"path": path} for path in assets],
        )["pipelineOrError"]["partition"]["runConfigOrError"]
        return str(found["yaml"])

    def backfill_status(self, backfill: str) -> str:
        found = self.query(
            "query S($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status } } }",
            id=backfill,
        )
        return str(found["partitionBackfillOrError"]["status"])

    def read_ticks(self, sensor: str) -> list[dict[str, Any]]:
        """The sensor's latest ticks, newest first: when each began and ended (None: it goes on), its status, and its error
        as the page shows it."""
        found = self.query(
            """query T($s: SensorSelector!) { sensorOrError(sensorSelector: $s) { ... on Sensor { sensorState {
                 ticks(limit: 5) { timestamp endTimestamp status
                   error { message className stack cause { message } } } } } } }""",
            s=self._selector(sensorName=sensor),
        )
        return list(found["sensorOrError"]["sensorState"]["ticks"])

    def read_failures(self, run: str) -> list[dict[str, Any]]:
        """The errors of the run's steps, as the page shows them."""
        found = self.query(
            """query F($id: ID!) { logsForRun(runId: $id) { ... on EventConnection { events {
                 ... on ExecutionStepFailureEvent { error { message className stack cause { message } } } } } } }""",
            id=run,
        )
        return [e["error"] for e in found["logsForRun"]["events"] if e.get("error")]

    def reload(self) -> None:
        """The button "Reload definitions"."""
        found = self.query(
            """mutation R { reloadRepositoryLocation(repositoryLocationName: "rota") { __typename
                 ... on PythonError { message } } }"""
        )["reloadRepositoryLocation"]
        assert found["__typename"] == "WorkspaceLocationEntry", found

    def messages(self, run: str) -> str:
        """The run's log, a line a message."""
        found = self.query(
            """query L($id: ID!) { logsForRun(runId: $id) { ... on EventConnection { events {
                 ... on MessageEvent { message } } } } }""",
            id=run,
        )
        return "\n".join(e["message"] for e in found["logsForRun"]["events"] if e.get("message"))

    def _selector(self, **more: str) -> dict[str, str]:
        return {"repositoryLocationName": "rota", "repositoryName": "__repository__", **more}


def _value(entry: Mapping[str, Any]) -> Any:
    return next((entry[k] for k in ("intValue", "floatValue", "text", "mdStr") if entry.get(k) is not None), None)
