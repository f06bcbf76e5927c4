"""A line of a file that holds a list of objects: each record has the texts of its own object."""

import pytest
from pyspark.sql import SparkSession

from rota.dataplane.formats import values

LINES = {
    b'[{"s": 1.10}, {"s": 2.20}, {"s": {"a" : 1}}, {"s": "x"}]': ["1.10", "2.20", '{"a" : 1}', "x"],
    b'[{"s": 1.10}, {"s": [[[[[[[[[[2.2]]]]]]]]]]}]': ["1.1", "[[[[[[[[[[2.2]]]]]]]]]]"],  # deeper than is searched
    b'{"s": "1.10", "more": 2.50, "s": 3.30}': ["3.30"],
    b'{"\\u0073": 1.50, "t": 0}': ["1.50"],
}


@pytest.mark.parametrize("schema", ["s string", "s string, o struct<s:string>"])
def test_each_record_has_the_texts_of_its_own_object(schema: str, spark: SparkSession) -> None:
    rows = [(line, "p", offset) for offset, line in enumerate(LINES)]
    frame = spark.createDataFrame(rows, values.DDL)
    found = values.parse(frame, schema, "json", {}, lines_of_files=True).collect()
    assert [[row["s"] for row in found if row["_offset"] == offset] for offset in range(len(LINES))] == [
        *LINES.values()
    ]
