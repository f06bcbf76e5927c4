"""How a pipeline file declares a Kafka topic as its source."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

from rota.errors import ConfigError, hide
from rota.pipeline import Start, check_format, check_limits, check_start, name_columns
from rota.settings import VARIABLE, expand, explain_renewal

Format = Literal["csv", "json", "bytes", "avro", "json-schema", "protobuf"]
Beside = Literal["key", "timestamp", "headers"]
Tombstones = Literal["bad", "keep", "skip"]
BESIDE = {"key": "_key", "timestamp": "_timestamp", "headers": "_headers"}  # name in `columns` -> column of the table
OURS = {
    "bootstrap.servers", "metadata.broker.list", "enable.auto.commit", "enable.auto.offset.store", "auto.offset.reset",
    "isolation.level", "enable.partition.eof", "plugin.library.paths", "group.instance.id", "group.protocol",
}  # fmt: skip
SECRET = re.compile(
    r"(?i).*(password|passphrase|secret|jaas|\.pem$|oauthbearer\.config)"
)  # `ssl.ca.pem` is no secret; to hide it does no harm
REGISTERED = ("avro", "json-schema", "protobuf")  # formats whose schemas a registry holds
OPTIONS = {"avro": ("subject", "version", "avroSchema"), "protobuf": ("subject", "version", "message")}
REGISTRY_CLIENT = (
    "basic.auth.user.info", "bearer.auth.token", "ssl.ca.location", "ssl.certificate.location", "ssl.key.location",
    "ssl.key.password",
)  # fmt: skip
REGISTRY_SECRET = re.compile(r"basic\.auth\.user\.info|bearer\.auth\.token|ssl\.key\.password")
LOGIN = re.compile(r"(?:[^:]*:)?\$\{\w+\}")  # `user:${PASSWORD}`, or `${VAR}` alone


@dataclass(frozen=True, slots=True)
class Kafka:
    """A topic of Kafka as a source. Partition 3 of the topic is the partition of key `3`; offsets are the broker's own.

    Args:
        servers: `host:port`, several separated by commas. `servers` and `topic` may hold `${VAR}`, which a run reads from
            its environment.
        topic: the name of the topic.
        schema: Spark DDL of a record's value, such as "id long, shop string".
        format: "json", one object, in which a missing column is null; "csv", one line without header; "bytes", the value
            as it is, in the one column of the schema, such as "value binary"; or "avro", "json-schema" and "protobuf",
            Confluent's wire format, with the schemas of `registry`.
        start: the first offset of a partition that the pipeline reads for the first time: "earliest", "latest" or a number.
            Records that the retention deleted are left out. "latest" applies to the partitions that exist at the
            pipeline's first run; a partition that is added later is read from its beginning.
        columns: fields of a record beside its value: "key" as `_key binary`, "timestamp" as `_timestamp timestamp`,
            "headers" as `_headers array<struct<key string, value binary>>`.
        tombstones: what a record without a value becomes: "bad", a record in `quarantine/`; "keep", a row whose declared
            columns are null; "skip", no row. With format "bytes", "bad" means "keep".
        max_records: upper bound of the offsets that a batch takes from one partition.
        max_job_records: upper bound of the offsets of one Spark job, over all partitions.
        max_job_bytes: upper bound of the bytes of one Spark job, keys and headers included, estimated from the first records
            of each partition. A Spark task holds some tens of MB of records at a time, whatever the bound is.
        options: options of Spark's parser of the format. Of "avro": `subject`, by default `<topic>-value`, and `version`, by
            default the newest one with each declared column, of the reader's schema; or the schema itself, `avroSchema`.
            Of "protobuf": `subject`, `version`, and `message`, by default the first one of the file.
        client: settings of librdkafka, such as "security.protocol" and "sasl.mechanism"; a secret is "${VAR}" and nothing
            else. Dagster, runs and Spark's workers use them: a file that a setting names must exist on each machine.
        registry: the address of a schema registry with Confluent's API, several separated by commas; may hold `${VAR}`.
        registry_client: its login and TLS: "basic.auth.user.info" as `user:${PASSWORD}`, "bearer.auth.token",
            "ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password".

    Raises: ConfigError, on a value that no run could use.
    """

    servers: str
    topic: str
    _: KW_ONLY
    schema: str
    format: Format = "json"
    start: Start = "earliest"
    columns: Sequence[Beside] = ()
    tombstones: Tombstones = "bad"
    max_records: int = 1_000_000
    max_job_records: int = 4_000_000
    max_job_bytes: int = 4 << 30
    options: Mapping[str, str] = field(default_factory=dict)
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    registry: str = ""
    registry_client: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        where = f"kafka(topic={self.topic!r})"
        if not self.servers.strip() or not self.topic.strip():
            raise ConfigError(f"servers={self.servers!r}, topic={self.topic!r}: give host:port and the name of a topic")
        check_format(self.format, ("csv", "json", "bytes", *REGISTERED), self.schema, self.options, where)
        if unknown := [one for one in self.columns if one not in BESIDE] or len(set(self.columns)) != len(self.columns):
            raise ConfigError(f"columns={self.columns!r} of {where}: {unknown}. Known, each once: {', '.join(BESIDE)}")
        declared = {name.lower() for name in name_columns(self.schema)}
        if taken := sorted(declared.intersection(self.beside.values())):
            raise ConfigError(
                f"Column {', '.join(taken)} of {where} is in columns= too. Leave it out of one of the two"
            )
        if self.tombstones not in ("bad", "keep", "skip"):
            raise ConfigError(f"tombstones={self.tombstones!r} of {where}. Known: bad, keep, skip")
        check_start(self.start, ("earliest", "latest"), where)
        check_limits(self, ("max_records", "max_job_records", "max_job_bytes"), where)
        for name, text in self.client.items():
            if name in OURS or name.endswith("_cb"):
                raise ConfigError(f"client={{{name!r}: ...}} of {where} is for rota to set. Leave it out")
            if SECRET.match(name) and not VARIABLE.fullmatch(str(text)):
                raise ConfigError(
                    f"client={{{name!r}: ...}} of {where} is a secret: it comes from the environment alone. Give '${{VAR}}'"
                )
        self._check_registry(where)

    def _check_registry(self, where: str) -> None:
        if bool(self.registry.strip()) != (self.format in REGISTERED):
            raise ConfigError(
                f"registry={self.registry!r} of {where}: give an address with format {', '.join(REGISTERED)}"
            )
        if "@" in self.registry:
            raise ConfigError(f"registry= of {where} has a login. Give registry_client={{'basic.auth.user.info': ...}}")
        known = OPTIONS.get(self.format, self.options)
        if unknown := [name for name in self.options if name not in known]:
            raise ConfigError(f"options of {where}: {', '.join(unknown)}. Known: {', '.join(known)}")
        for name, text in self.registry_client.items():
            if name not in REGISTRY_CLIENT or not self.registry:
                raise ConfigError(f"registry_client={{{name!r}: ...}} of {where}. Known: {', '.join(REGISTRY_CLIENT)}")
            if REGISTRY_SECRET.fullmatch(name) and not LOGIN.fullmatch(str(text)):
                raise ConfigError(f"registry_client={{{name!r}: ...}} of {where} is a secret. Give '${{VAR}}'")

    @property
    def beside(self) -> dict[str, str]:
        """Name in `columns` -> column of the table."""
        return {str(name): BESIDE[name] for name in self.columns}

    @property
    def texts(self) -> tuple[str, ...]:
        """See `DeclaredSource.texts`."""
        settings = (*self.options.values(), *self.client.values(), *self.registry_client.values())
        return self.servers, self.topic, self.registry, *map(str, settings)

    def explain_login(self) -> str:
        """Return the step after the broker refused the login of `client`."""
        login = [str(text) for name, text in self.client.items() if name.startswith("sasl.") or SECRET.match(name)]
        return explain_renewal(login) or "Correct client= of kafka(...)"

    def read_client(self) -> dict[str, str]:
        """Return the settings of a client, filled in from the environment. Errors of this process hide the secrets."""
        return {"bootstrap.servers": expand(self.servers), **_fill_in(self.client, SECRET.match)}

    def explain_registry_login(self) -> str:
        """Return the step after the registry refused the login of `registry_client`."""
        login = [str(text) for name, text in self.registry_client.items() if REGISTRY_SECRET.fullmatch(name)]
        return explain_renewal(login) or "Correct registry_client= of kafka(...)"

    def read_registry_client(self) -> dict[str, str]:
        """Return the settings of the registry's client, filled in. Errors of this process hide the secrets."""
        found = _fill_in(self.registry_client, REGISTRY_SECRET.fullmatch)
        for name in filter(REGISTRY_SECRET.fullmatch, found):
            hide(found[name].partition(":")[2])  # the password of `user:password`
        return found


def _fill_in(settings: Mapping[str, object], is_secret: Callable[[str], object]) -> dict[str, str]:
    """Return the settings, filled in from the environment. Errors of this process hide the secrets."""
    found = {name: expand(str(text)) for name, text in settings.items()}
    for name in filter(is_secret, found):
        hide(found[name])
    return found


kafka = Kafka  # as pipeline files call it
