"""The options of `rota worker` that name its Spark, and its labels."""

import re
from typing import TYPE_CHECKING

from rota.errors import ConfigError, hide
from rota.settings import VARIABLE, checked_endpoint, expand

if TYPE_CHECKING:
    from rota.dataplane.spark.spark_server import SparkServer

SECRET_CONF = re.compile(r"secret|password|token|access[.]?key|api[.]?key", re.IGNORECASE)  # as Spark redacts them


def make_server(
    worker: str, master: str | None, conf: tuple[str, ...], spark: str | None, no_spark: bool
) -> "SparkServer | None":
    """Return the worker's own Spark, not started yet; None if it has none. Raises ConfigError on contradicting options,
    and EnvironmentFailed without Java.
    """
    if sum((bool(spark), no_spark, bool(master or conf))) > 1:
        raise ConfigError("Give one of --spark, --no-spark, and --master with --conf")
    if spark is not None:
        checked_endpoint(spark)
    if spark or no_spark:
        return None
    from rota.dataplane.spark.spark_server import SparkServer, SparkSettings
    from rota.java import find_java

    find_java()
    return SparkServer(worker, SparkSettings(master or "local[*]", _parse_conf(conf)))


def _parse_conf(texts: tuple[str, ...]) -> dict[str, str]:
    """Return Spark's settings with each `${VAR}` replaced. Raises ConfigError if an argument holds a secret."""
    pairs = parse_pairs("--conf", texts)
    for key, value in pairs.items():
        if key == "spark.connect.authenticate.token":
            raise ConfigError(f"--conf {key}: rota sets it. Set ROTA_SPARK_TOKEN, here and for Dagster's runs")
        if SECRET_CONF.search(key):
            if value and not VARIABLE.search(value):
                raise ConfigError(
                    f"--conf {key}: every user of this machine can read arguments. Give it as '{key}=${{VAR}}', and set VAR"
                )
            hide(expand(value))
    return {key: expand(value) for key, value in pairs.items()}


def parse_pairs(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    """Return the pairs of a repeated option. Raises ConfigError for one that is not KEY=VALUE."""
    pairs = dict.fromkeys(texts, "")
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise ConfigError(f"{option} {text!r}: give it as KEY=VALUE")
        del pairs[text]
        pairs[key] = value
    return pairs
