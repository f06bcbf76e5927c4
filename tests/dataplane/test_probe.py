"""Whether a server answers: a connection that the kernel accepts for a stopped process is no answer."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.dataplane.spark.probe import HELLO, explain_silence
from rota.dataplane.spark.spark_server import QUESTIONS, SparkServer, SparkSettings

SETTINGS = b"\0\0\6\4\0\0\0\0\0" + b"\0\3\x7f\xff\xff\xff"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A listening socket: the kernel accepts its connections."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        yield one


def explain_answer(listener: socket.socket, answer: bytes | None, parameters: str = "") -> tuple[str, bytes]:
    """Probe a server that answers this to the first connection, or nothing. Return the reason and the bytes it received."""
    heard: list[bytes] = []

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            heard.append(connection.recv(len(HELLO)))
            connection.sendall(answer or b"")

    server = threading.Thread(target=serve)
    if answer is not None:
        server.start()
    said = explain_silence(f"sc://127.0.0.1:{listener.getsockname()[1]}{parameters}", 0.2 if answer is None else 60.0)
    if answer is not None:
        server.join()
    return said, b"".join(heard)


def test_what_speaks_http2_answers(listener: socket.socket) -> None:
    assert explain_answer(listener, SETTINGS) == ("", HELLO)


def test_a_stopped_process_is_silent(listener: socket.socket) -> None:
    assert explain_answer(listener, None)[0] == "it sends nothing for 0.2 s"


def test_an_encrypted_one_is_not_spoken_to(listener: socket.socket) -> None:
    assert explain_answer(listener, None, "/;use_ssl=true")[0] == ""


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_another_server_is_distinguished_from_spark(listener: socket.socket, answer: bytes) -> None:
    said, _ = explain_answer(listener, answer)
    assert said == "what listens there is no Spark Connect server"


def test_no_server_there(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    listener.close()
    assert "refused" in explain_silence(f"sc://127.0.0.1:{port}", 0.2)
    assert "invalid literal" in explain_silence("sc://host:port", 0.2)


def test_a_server_is_silent_after_questions_not_after_seconds(tmp_path: Path) -> None:
    now, answering = 0.0, True

    class Server(SparkServer):
        def ready(self) -> bool:
            return answering

    server = Server("w", SparkSettings(), tmp_path / "scratch", silence=30.0, clock=lambda: now)

    def after(seconds: float) -> bool:
        nonlocal now
        now += seconds
        return server.silent()

    assert not after(5)
    answering = False
    assert not after(3600), "the worker itself was stopped: that is one question, not an hour"
    assert not any(after(5) for _ in range(QUESTIONS - 2))
    assert not after(4.9), "not asked again yet"
    answering = True
    assert not after(0.2)
    answering = False
    assert [after(5) for _ in range(QUESTIONS)] == [False] * (QUESTIONS - 1) + [True]
    server.kill()
    assert not after(5), "its successor is asked anew"
    server.stop()


def test_a_task_that_goes_on_after_its_end_is_found_in_new_lines_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = SparkServer("w", SparkSettings(), tmp_path / "scratch")
    line = "26/11/22 03:00:56 ERROR Executor: Killed task 7 could not be stopped within 120000 ms; not killing JVM\n"

    def finds(text: str) -> str:
        with server.log.open("a") as log:
            log.write(text)
        return server.stuck()

    assert not server.stuck(), "no log yet"
    assert not finds("26/11/22 03:00:46 WARN Executor: Killed task 7 is still running after 10000 ms\n")
    assert not finds(line[:40])
    assert finds(line[40:]) == "Killed task 7 could not be stopped within 120000 ms; not killing JVM"
    assert not server.stuck()
    finds(line)
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: type("Process", (), {"pid": 1, "poll": lambda _: 0})())
    server.start()
    assert not server.stuck(), "of its predecessor"
    server.stop()
