"""Name the Parquet file of which Spark returns another number of rows than its footer states.

Spark assigns a row group to the task whose bytes hold its middle. If the footer states a wrong position or size, that
middle may be outside the file. No task then reads the row group, and Spark raises no error.

Law: a file is named only if Spark sees it at its size and still returns another number of rows, without a transform and
without a table. A file that a network disk does not show yet is a failure of the environment.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rota.dataplane.files.listed import Listed
from rota.dataplane.spark.parsing import mark_whole
from rota.record import OFFSET, PARTITION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Held = Mapping[tuple[str, int], tuple[str, int]]  # partition, offset -> path, rows by the footer


def explain_miscounts(spark: "SparkSession", listed: Listed, frame: "DataFrame", held: Held) -> dict[str, str]:
    """Read every column of the files again, and count the rows of each file.

    Args:
        listed: the files as Spark reads them.
        frame: their records, as `listed` loads them.
        held: what the footers state.

    Returns: path -> why the file cannot be read. Raises EnvironmentFailed where Spark does not see a file.
    """
    from pyspark.sql import functions as F  # noqa: N812

    listed.check_seen(spark)
    named = listed.identify(frame)
    # The second count makes Spark read the columns: for the first one alone Spark reads nothing but the footers.
    counts = F.count(F.lit(1)), F.count(mark_whole(named))
    read = {(p, offset): rows for p, offset, rows, _ in named.groupBy(PARTITION, OFFSET).agg(*counts).collect()}
    return {
        path: f"states {rows} rows in its footer, and Spark reads {read.get(at, 0)} of it. Write the file again"
        for at, (path, rows) in held.items()
        if read.get(at, 0) != rows
    }
