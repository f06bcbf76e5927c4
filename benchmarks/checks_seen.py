"""Measures how often the page shows a check as "Not Evaluated": it sends the query of the page a few times a second."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from rota.errors import EnvironmentFailed
from rota.local.page import DagsterPage

PAUSE = 0.25  # seconds between two samples
ASSETS = ("ownership", "records", "checkpoints")
ASK = """query Checks($keys: [AssetKeyInput!]) { assetNodes(assetKeys: $keys) { assetKey { path } assetChecksOrError {
  ... on AssetChecks { checks { name executionForLatestMaterialization { status } } } } } }"""


@contextmanager
def sample_checks(page: DagsterPage, pipeline: str) -> Iterator[dict[str, float]]:
    """Take samples while the block runs. The yielded mapping then has asset -> percent of samples without an evaluation."""
    found: dict[str, float] = {}
    seen, grey, over = Counter[str](), Counter[str](), threading.Event()
    keys = [{"path": [pipeline, asset]} for asset in ASSETS]

    def sample() -> None:
        while not over.wait(PAUSE):
            try:
                nodes = page.ask(ASK, keys=keys)["assetNodes"]
            except EnvironmentFailed:
                continue
            for node in nodes:
                for check in node["assetChecksOrError"].get("checks", []):
                    seen[node["assetKey"]["path"][-1]] += 1
                    grey[node["assetKey"]["path"][-1]] += check["executionForLatestMaterialization"] is None

    sampling = threading.Thread(target=sample, daemon=True)
    sampling.start()
    try:
        yield found
    finally:
        over.set()
        sampling.join()
        found |= {asset: 100 * grey[asset] / seen[asset] for asset in seen}
