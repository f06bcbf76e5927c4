"""The manifest for Kubernetes is one, and what it starts is a worker.

`kubernetes-1.37.json` is the part of Kubernetes' own OpenAPI schema (Apache-2.0) that a StatefulSet and a Service need,
without descriptions, and strict: a field that Kubernetes does not know is refused.
"""

import json
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest
import yaml

from rota.cli.worker import command
from rota.settings import Settings

ROOT = Path(__file__).parents[2]
KINDS = {"Service": "io.k8s.api.core.v1.Service", "StatefulSet": "io.k8s.api.apps.v1.StatefulSet"}
SCHEMA = json.loads((Path(__file__).parent / "kubernetes-1.37.json").read_text())


def check(manifest: Any) -> None:
    """Raises JsonSchemaException where Kubernetes would refuse it."""
    schema = {"$ref": f"#/definitions/{KINDS[manifest['kind']]}", **SCHEMA}
    fastjsonschema.compile(schema, use_formats=False)(manifest)


@pytest.fixture
def manifests() -> dict[str, Any]:
    return {one["kind"]: one for one in yaml.safe_load_all((ROOT / "deploy" / "statefulset.yaml").read_text())}


def test_kubernetes_takes_it(manifests: dict[str, Any]) -> None:
    assert manifests.keys() == KINDS.keys()
    for manifest in manifests.values():
        check(manifest)


def test_what_kubernetes_does_not_know_is_refused(manifests: dict[str, Any]) -> None:
    pod = manifests["StatefulSet"]["spec"]["template"]["spec"]
    pod["containers"][0]["volumeMount"] = pod["containers"][0].pop("volumeMounts")
    with pytest.raises(fastjsonschema.JsonSchemaException, match="volumeMount"):
        check(manifests["StatefulSet"])


def test_the_service_is_headless_and_is_that_of_the_pods(manifests: dict[str, Any]) -> None:
    service, of = manifests["Service"], manifests["StatefulSet"]["spec"]
    assert service["spec"]["clusterIP"] == "None"
    assert of["serviceName"] == service["metadata"]["name"]
    assert of["template"]["metadata"]["labels"] == of["selector"]["matchLabels"] == service["spec"]["selector"]


def test_a_pod_is_one_worker_that_hands_over_before_it_is_killed(manifests: dict[str, Any]) -> None:
    pod = manifests["StatefulSet"]["spec"]["template"]["spec"]
    (worker,) = pod["containers"]
    assert worker["command"] == ["rota", "worker"]
    said = command.make_context("worker", list(worker["args"])).params
    conf = dict(one.split("=", 1) for one in said["conf"])
    assert conf["spark.connect.grpc.binding.port"] == str(worker["ports"][0]["containerPort"])
    assert said["probe_port"] == next(one["containerPort"] for one in worker["ports"] if one["name"] == "probes")
    paths = [worker[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
    assert [(one["path"], one["port"]) for one in paths] == [(p, "probes") for p in ("/livez", "/livez", "/readyz")]
    given = {one["name"]: one.get("value") for one in worker["env"]}
    settings = Settings.from_environment({name: value for name, value in given.items() if value})
    assert pod["terminationGracePeriodSeconds"] > settings.max_shutdown.total_seconds()
    assert given["ROTA_SPARK_TOKEN"] is None, "it comes from a Secret"
