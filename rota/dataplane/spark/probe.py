"""Check without Spark whether a Spark Connect server answers: by the bytes with which any gRPC connection begins.

Law: a process that is stopped, or collects garbage without end, does not answer, although the kernel accepts connections
for it. A process that is merely busy answers (measured with both cores taken: within 12 ms). The probe does not notice a
Spark that hangs inside while its server still answers.
"""

import socket

DEFAULT_PORT = 15002
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # the preface of HTTP/2 and an empty SETTINGS
HEADER, SETTINGS = 9, 4  # bytes before a frame's payload, the fourth is its type; the type that must come first


def explain_silence(endpoint: str, timeout: float) -> str:
    """Return why no server answers at `sc://host:port` within `timeout` seconds; empty if one answers. An encrypted server
    counts as answering once it accepts the connection."""
    place, _, parameters = endpoint.removeprefix("sc://").partition("/")
    host, _, port = place.rpartition(":")
    try:
        address = ((host or port).strip("[]"), int(port) if host else DEFAULT_PORT)
        with socket.create_connection(address, timeout) as connection:
            if "use_ssl=true" in parameters.lower():
                return ""
            connection.sendall(HELLO)
            said = connection.recv(HEADER)
    except TimeoutError:
        return f"it sends nothing for {timeout:g} s"
    except (OSError, ValueError) as error:
        return str(error)
    return "" if said[3:4] == bytes([SETTINGS]) else "what listens there is no Spark Connect server"
