"""Sends records as bytes of the protocol: with header names that no library for Python sends."""

import socket
import struct
import time
from collections.abc import Sequence


def send(servers: str, topic: str, names: Sequence[bytes], value: bytes = b'{"n": 1}', partition: int = 0) -> None:
    """Send one record with headers of these names."""
    body = b"\0" + _vary(0) + _vary(0) + _vary(-1) + _vary(len(value)) + value + _vary(len(names))
    body += b"".join(_vary(len(name)) + name + _vary(1) + b"1" for name in names)
    now = int(time.time() * 1000)
    tail = struct.pack(">hiqqqhii", 0, 0, now, now, -1, -1, -1, 1) + _vary(len(body)) + body
    batch = struct.pack(">ibI", -1, 2, _sum(tail)) + tail
    batch = struct.pack(">qi", 0, len(batch)) + batch
    name = topic.encode()
    request = struct.pack(">hhih", 0, 7, 1, -1) + struct.pack(">hhii", -1, -1, 9000, 1)
    request += struct.pack(">h", len(name)) + name + struct.pack(">iii", 1, partition, len(batch)) + batch
    host, port = servers.split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = connection.recv(4096)
    (code,) = struct.unpack_from(">h", answer, 4 + 4 + 4 + 2 + len(name) + 4 + 4)
    assert code == 0, code


def _vary(number: int) -> bytes:
    number, out = (number << 1) ^ (number >> 63), b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def _sum(data: bytes) -> int:
    """CRC-32C."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
