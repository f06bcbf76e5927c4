"""A connection to RabbitMQ, with its own thread. A caller makes one call at a time.

Law: a call returns within `PATIENCE` seconds or raises EnvironmentFailed. If the connection fails, the waiting call and each
later one raise EnvironmentFailed. Heartbeats continue while the caller does other work and stop while its process is frozen:
after about two missed ones the broker delivers the unacknowledged messages to other consumers.

Law: no error, log or record contains the password; errors name host, port and virtual host.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass, field
from threading import Lock, Thread
from typing import Any

from rota.errors import ConfigError, EnvironmentFailed, hide
from rota.settings import expand

PERSISTENT = 2  # the delivery mode of AMQP that outlives a restart of the broker
PATIENCE = 20.0  # seconds
HEARTBEAT = 10  # seconds
ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED = 403, 404, 406  # of AMQP


@dataclass(frozen=True, slots=True)
class Message:
    """A message to publish."""

    queue: str
    body: bytes
    headers: Mapping[str, object] = field(default_factory=dict)


class Link:
    """One connection with one channel, and a further channel for each request that may fail."""

    def __init__(self, url: str) -> None:
        """Connect to `url`, which is `amqp://user:password@host:port/vhost` and may hold `${VAR}`.

        Raises: ConfigError, EnvironmentFailed.
        """
        pika = _import_pika()
        try:
            parameters = pika.URLParameters(expand(url))
        except ConfigError:
            raise
        except Exception:  # its text may quote the address
            raise ConfigError(
                "The address of RabbitMQ cannot be read. Give amqp://user:password@host:5672/vhost, or amqps://"
            ) from None
        hide(parameters.credentials.password)
        parameters.heartbeat = HEARTBEAT
        parameters.socket_timeout = parameters.stack_timeout = parameters.blocked_connection_timeout = PATIENCE
        self.place = f"RabbitMQ at {parameters.host}:{parameters.port}, vhost {parameters.virtual_host!r},"
        self._lock, self._waiting = Lock(), set[Future[Any]]()
        self._ended: Exception | None = None
        opened = self._expect()
        self._connection = pika.SelectConnection(
            parameters,
            on_open_callback=lambda _: _settle(opened, None),
            on_open_error_callback=lambda _, why: self._end(why),
            on_close_callback=lambda _, why: self._end(why),
        )
        self._thread = Thread(target=self._serve, name="rabbitmq", daemon=True)
        self._thread.start()
        self._sent, self._unconfirmed = 0, set[int]()
        self._refused: list[str] = []
        self._all_confirmed: Future[Any] = Future()
        try:
            self._wait(opened)
        except EnvironmentFailed:
            self.close()
            raise
        self.channel = self._open_channel()
        self.ask(lambda done: self.channel.confirm_delivery(self._confirm, callback=done))
        self.do(lambda: self.channel.add_on_return_callback(lambda *got: self._refused.append(got[1].reply_text)))

    def ask(self, start: Callable[[Callable[[Any], None]], object]) -> Any:
        """Return the broker's answer to the call that `start` makes, given its callback.

        Raises: EnvironmentFailed.
        """
        answer = self._expect()
        self.do(lambda: start(lambda frame: _settle(answer, frame)), answer)
        return self._wait(answer)

    def do(self, act: Callable[[], object], answer: "Future[Any] | None" = None) -> None:
        """Run `act` in the thread that owns the connection. An error settles `answer`."""

        def run() -> None:
            try:
                act()
            except Exception as error:  # pika raises many types; after each nothing was sent
                if answer:
                    _settle(answer, error)

        try:
            self._connection.ioloop.add_callback_threadsafe(run)
        except Exception as error:  # the connection ended a moment ago
            if answer:
                _settle(answer, self._ended or error)

    def consume(self, queue: str, take: Callable[[int, Mapping[str, object], bytes], None], **how: object) -> str:
        """Start a consumer: the connection's thread calls `take(tag, headers, body)` for each message.

        Returns: the consumer's tag.
        """

        def take_one(_: object, method: Any, properties: Any, body: bytes) -> None:
            take(method.delivery_tag, properties.headers or {}, body)

        if "arguments" in how:  # of a stream
            self.channel.basic_reject = reject_nothing
        answer = self.ask(lambda done: self.channel.basic_consume(queue, take_one, callback=done, **how))
        return str(answer.method.consumer_tag)

    def limit(self, count: int) -> None:
        """Limit the unacknowledged messages of each consumer that starts from now on."""
        self.ask(lambda done: self.channel.basic_qos(prefetch_count=count, callback=done))

    def cancel(self, consumer: str) -> None:
        """Stop a consumer. It keeps the messages that it received."""
        self.ask(lambda done: self.channel.basic_cancel(consumer, callback=done))

    def acknowledge(self, tags: Collection[int], kept: int = 0) -> None:
        """Acknowledge messages. If the connection has ended, the broker delivers them again.

        Args:
            tags: the messages.
            kept: the least tag that stays unacknowledged; all tags below it are acknowledged by one frame.
        """
        below = [tag for tag in tags if tag < kept]

        def send() -> None:
            if below:
                self.channel.basic_ack(max(below), multiple=True)
            for tag in tags:
                if tag >= kept:
                    self.channel.basic_ack(tag)

        self.do(send)

    def declare(self, queue: str, arguments: Mapping[str, object]) -> None:
        """Declare a durable queue.

        Raises: EnvironmentFailed, also if the queue exists with other arguments.
        """
        self.ask(lambda done: self.channel.queue_declare(queue, durable=True, arguments=dict(arguments), callback=done))

    def count_ready(self, queue: str) -> int | None:
        """Return how many messages of the queue no consumer has received; None if the queue does not exist."""
        channel = self._open_channel()
        try:
            answer = self.ask(lambda done: channel.queue_declare(queue, passive=True, callback=done))
        except EnvironmentFailed as error:
            if error.facts.get("code") == NOT_FOUND:
                return None
            raise
        self.do(channel.close)
        return int(answer.method.message_count)

    def find_difference(self, queue: str, arguments: Mapping[str, object]) -> str:
        """Return the broker's text about the first argument of an existing queue that differs from these.

        It is empty if none differs, or if the broker refuses this user the request.
        """
        channel = self._open_channel()
        how = {"durable": True, "arguments": dict(arguments)}
        try:
            self.ask(lambda done: channel.queue_declare(queue, callback=done, **how))
        except EnvironmentFailed as error:
            if error.facts.get("code") not in (ACCESS_REFUSED, PRECONDITION_FAILED):
                raise
            return str(error.facts["said"]) if error.facts["code"] == PRECONDITION_FAILED else ""
        self.do(channel.close)
        return ""

    def send(self, messages: "Sequence[Message]") -> None:
        """Publish the messages and wait until the broker has confirmed each.

        Raises: EnvironmentFailed.
        """
        if not messages:
            return
        from pika import BasicProperties

        self._all_confirmed = self._expect()

        def publish() -> None:
            for one in messages:
                marks = BasicProperties(delivery_mode=PERSISTENT, headers=dict(one.headers))
                self.channel.basic_publish("", one.queue, one.body, marks, mandatory=True)
                self._sent += 1
                self._unconfirmed.add(self._sent)

        self.do(publish, self._all_confirmed)
        self._wait(self._all_confirmed)
        if refused := ", ".join(sorted(set(self._refused))):
            self._refused.clear()
            raise self._make_error(f"did not take messages ({refused})")

    def close(self) -> None:
        """Close the connection. Unacknowledged messages return to their queues."""
        if not self._ended:
            self.do(self._connection.close)
        self._thread.join(PATIENCE)

    def _serve(self) -> None:
        self._connection.ioloop.start()
        self._connection.ioloop.close()

    def _confirm(self, frame: Any) -> None:
        tag = frame.method.delivery_tag
        self._unconfirmed -= {n for n in self._unconfirmed if n <= tag} if frame.method.multiple else {tag}
        if frame.method.NAME == "Basic.Nack":
            self._refused.append("refused")
        if not self._unconfirmed:
            _settle(self._all_confirmed, None)

    def _open_channel(self) -> Any:
        channel = self.ask(lambda done: self._connection.channel(on_open_callback=done))
        self.do(lambda: channel.add_on_close_callback(lambda _, why: self._end_channel(why)))
        return channel

    def _expect(self) -> "Future[Any]":
        answer: Future[Any] = Future()
        with self._lock:
            self._waiting.add(answer)
            if self._ended:
                _settle(answer, self._ended)
        return answer

    def _wait(self, answer: "Future[Any]") -> Any:
        try:
            return answer.result(PATIENCE)
        except Late:
            raise self._make_error(f"did not answer within {PATIENCE:g} s") from None
        except EnvironmentFailed:
            raise
        except Exception as error:  # of pika; `from None`, because it may quote the address
            code = getattr(error, "reply_code", None)
            text = _find_reason(error)
            raise self._make_error(f"reports: {text}", code=code, said=text) from None
        finally:
            with self._lock:
                self._waiting.discard(answer)

    def _make_error(self, what: str, code: object = None, said: str = "") -> EnvironmentFailed:
        return EnvironmentFailed(
            f"{self.place} {what}. See whether it is up and lets this user in", code=code, said=said
        )

    def _end_channel(self, why: Exception) -> None:
        from pika.exceptions import ChannelClosedByClient

        if not isinstance(why, ChannelClosedByClient):
            self._fail(why)

    def _fail(self, why: Exception) -> None:
        """Settle each waiting answer with the error."""
        with self._lock:
            for answer in self._waiting:
                _settle(answer, why)

    def _end(self, why: Exception) -> None:
        self._ended = why
        self._fail(why)
        self._connection.ioloop.stop()


def _settle(answer: "Future[Any]", what: Any) -> None:
    if answer.done():
        return
    if isinstance(what, Exception):
        answer.set_exception(what)
    else:
        answer.set_result(what)


def _find_reason(error: BaseException) -> str:
    """Return the text of the innermost error: pika wraps one in another."""
    inside = [*error.args, *getattr(error, "exceptions", ()), getattr(error, "exception", None)]
    if inner := [one for one in inside if isinstance(one, BaseException)]:
        return _find_reason(inner[-1])
    text = getattr(error, "reply_text", "") or getattr(error, "strerror", "") or str(error)
    return text or type(error).__name__


def _import_pika() -> Any:
    try:
        import pika
    except ModuleNotFoundError:
        raise ConfigError("RabbitMQ needs the library pika. Type: pip install pika") from None
    return pika


def reject_nothing(*_: object, **__: object) -> None:
    """Reject no message. It replaces `basic_reject` of a stream's channel.

    pika 1.4 rejects messages that arrive between the cancellation of a consumer and the broker's answer. If they are of a
    stream, the broker then closes the connection. A stream keeps its messages, so none needs to be rejected.
    """
