"""How Spark runs a case. Both have every rule of the optimizer; `compiled` is as a worker's Spark is, `interpreted` costs
less: expressions are evaluated and not compiled to Java first, in one task a job."""

from collections.abc import Mapping

ENGINES: Mapping[str, Mapping[str, str]] = {
    "compiled": {
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.codegen.factoryMode": "FALLBACK",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.shuffle.partitions": "200",
        "spark.sql.files.minPartitionNum": "2",
    },
    "interpreted": {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.files.minPartitionNum": "1",
    },
}
