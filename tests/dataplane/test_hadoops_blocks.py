"""Why Spark must not open what `explain_misnamed` refuses: Hadoop's own reader, as Spark calls it, in a Java of its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from rota.dataplane.files import texts
from rota.java import find_java

ROOM = 64  # MB of the Java
HADOOPS = (9).to_bytes(4, "big") + (3).to_bytes(4, "big") + b"abc"  # a block of three bytes


@pytest.fixture(scope="module")
def java() -> Iterator[JavaGateway]:
    """A Java with Spark's jars, and little room."""
    port, token = launch_gateway(
        classpath=f"{Path(pyspark.__file__).parent}/jars/*",
        javaopts=[f"-Xmx{ROOM}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
        java_path=str(find_java()),
        die_on_exit=True,
        enable_auth=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    yield gateway
    gateway.shutdown()


def open_as_spark(java: JavaGateway, path: Path) -> str:
    """The error of the reader that Hadoop chooses by the file's name, at its first byte."""
    hadoop: Any = java.jvm.org.apache.hadoop
    codec = hadoop.io.compress.CompressionCodecFactory(hadoop.conf.Configuration()).getCodec(
        hadoop.fs.Path(f"file:{path}")
    )
    try:
        return str(codec.createInputStream(java.jvm.java.io.FileInputStream(str(path))).read())
    except Py4JJavaError as error:
        return str(error.java_exception.toString())


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.json.snappy", b'{"n": 1}\n'),
        ("a.json.snappy", b"\xff\x06\x00\x00sNaPpY and more"),
        ("a.csv.lz4", b"\x04\x22\x4d\x18\x64\x40\xa7 and more"),
    ],
)
def test_without_the_guard_java_has_no_room_left_for_a_file_of_few_bytes(
    java: JavaGateway, name: str, data: bytes, tmp_path: Path
) -> None:
    """Spark's process ends with it, whatever else it works on."""
    (tmp_path / name).write_bytes(data)
    assert texts.explain_misnamed(tmp_path / name)
    assert open_as_spark(java, tmp_path / name) == "java.lang.OutOfMemoryError: Java heap space"


def test_a_file_cut_short_would_be_read_as_one_without_records(java: JavaGateway, tmp_path: Path) -> None:
    (tmp_path / "a.csv.lz4").write_bytes(b"abc")
    assert texts.explain_misnamed(tmp_path / "a.csv.lz4")
    assert open_as_spark(java, tmp_path / "a.csv.lz4") == "-1"


def test_what_the_guard_lets_through_is_read_or_an_error_of_this_file_alone(java: JavaGateway, tmp_path: Path) -> None:
    for data, said in ((HADOOPS, "LZ4Exception"), (b"", "-1")):
        (tmp_path / "a.csv.lz4").write_bytes(data)
        assert not texts.explain_misnamed(tmp_path / "a.csv.lz4")
        assert said in open_as_spark(java, tmp_path / "a.csv.lz4")
