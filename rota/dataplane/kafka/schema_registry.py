"""A client of a schema registry with Confluent's API, for a run and for Spark's tasks. The module is sent to Spark's workers
as code, with `avro_schemas`. confluent-kafka's own client takes 1.1 CPU seconds to import.

Law: an id that the registry does not know is bad data (`UnknownSchema`). A registry that does not answer, refuses the login
or is another server is an error of the environment (`ConnectionError`), which `FAILED` finds in the error of a task.

A schema with an id never changes, so a client asks for each once.
"""

import json
import re
import ssl
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import HTTPSHandler, Request, build_opener

from rota.dataplane.formats import avro_schemas, protobuf

PATIENCE = 10.0  # seconds
FAILED = re.compile(r"^\s*ConnectionError: Schema registry (?P<why>.*)", re.M)
REFUSES = "refuses the login"
NO_ID = -1
MISSING = {40401: "subject", 40402: "version", 40403: "id"}  # error codes of what a registry does not have


class UnknownSchema(LookupError):
    """The registry answers, and has no such id, subject or version."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A registered schema. `references` are the name, subject and version of each schema that its text names."""

    id: int
    kind: str
    text: str
    references: tuple[tuple[str, str, int], ...] = ()


@dataclass
class SchemaRegistry:
    """The registry at one or more addresses, separated by commas. `settings` are those of `registry_client`."""

    addresses: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    _known: dict[int, Schema] = field(default_factory=dict)
    _referenced: dict[tuple[str, int], Schema] = field(default_factory=dict)
    _compiled: dict[Schema, bytes] = field(default_factory=dict, repr=False)  # of Protobuf; Spark's tasks get them, too

    def read_id(self, id: int) -> Schema:
        """Return the schema with this id. Raises: UnknownSchema, ConnectionError."""
        if id not in self._known:
            self._known[id] = _make(self._get(f"schemas/ids/{id}"), id)
        return self._known[id]

    def read_version(self, subject: str, version: str = "latest") -> Schema:
        """Return a version of a subject. Raises: UnknownSchema, ConnectionError."""
        found = _make(self._get(f"subjects/{quote(subject, safe='')}/versions/{version}"), NO_ID)
        return self._known.setdefault(found.id, found)

    def list_versions(self, subject: str) -> list[int]:
        """Return the versions of a subject, the newest first. Raises: UnknownSchema, ConnectionError."""
        return sorted(map(int, self._get(f"subjects/{quote(subject, safe='')}/versions")), reverse=True)

    def load(self, schema: Schema, kind: str) -> tuple[str, dict[str, str]]:
        """Return the text of a schema of this type, and those that it refers to, by name: see `list_references`.

        Raises: as `read_id`, and ValueError if it is of another type.
        """
        if schema.kind != kind:
            raise ValueError(f"it is of type {schema.kind}, and not {kind}")
        return schema.text, {name: one.text for name, one in self.list_references(schema).items()}

    def read_avro(self, id: int) -> Any:
        """Return the Avro schema with this id, parsed. Raises: as `load`, and an error of what is no Avro schema."""
        return self.parse_avro(self.read_id(id))

    def parse_avro(self, schema: Schema) -> Any:
        """Return a schema as `avro_schemas` has it. Raises: as `read_avro`."""
        text, references = self.load(schema, "AVRO")
        return avro_schemas.parse(json.loads(text), map(json.loads, references.values()))

    def read_protobuf(self, id: int) -> bytes:
        """Return the .proto file with this id, compiled. Raises: as `load`, and ValueError if it does not compile."""
        return self.compile_protobuf(self.read_id(id))

    def compile_protobuf(self, schema: Schema) -> bytes:
        """Return a schema as `protobuf` has it. Raises: as `read_protobuf`."""
        if schema not in self._compiled:
            self._compiled[schema] = protobuf.compile_text(*self.load(schema, "PROTOBUF"))
        return self._compiled[schema]

    def read_json(self, id: int) -> tuple[Any, dict[str, Any]]:
        """Return the JSON Schema with this id, and those that it refers to, by name. Raises: as `load`."""
        text, references = self.load(self.read_id(id), "JSON")
        return json.loads(text), {name: json.loads(one) for name, one in references.items()}

    def list_references(self, schema: Schema) -> dict[str, Schema]:
        """Return name -> schema of what a schema refers to, each behind what it refers to itself."""
        found: dict[str, Schema] = {}
        for name, subject, version in schema.references:
            if (subject, version) not in self._referenced:
                self._referenced[subject, version] = self.read_version(subject, str(version))
            one = self._referenced[subject, version]
            found |= {**self.list_references(one), name: one}
        return found

    def _get(self, path: str) -> Any:
        """Return the answer of the first address that has one. An id is unknown only if no address that answers knows it: a
        replica may be behind."""
        failed = unknown = ""
        for address in self.addresses.split(","):
            url = f"{address.strip().rstrip('/')}/{path}"
            try:
                with self._open(url) as answer:
                    return json.loads(answer.read())
            except HTTPError as error:
                with error:
                    code, why = _read_error(error)
                if code in MISSING:
                    unknown = f"the registry has no such {MISSING[code]}: {why}"
                    continue
                refuses = f"{REFUSES}: " if error.code in (401, 403) else ""
                failed = f"at {url}: {refuses}HTTP {error.code} {why or error.reason}"
            except (OSError, HTTPException, ValueError) as error:
                failed = f"at {url}: {getattr(error, 'reason', None) or error or type(error).__name__}"
        raise UnknownSchema(unknown) if unknown else ConnectionError(f"Schema registry {failed}")

    def _open(self, url: str) -> Any:
        request = Request(url, headers={"Accept": "application/vnd.schemaregistry.v1+json, application/json"})
        if login := self.settings.get("basic.auth.user.info"):
            request.add_unredirected_header("Authorization", f"Basic {b64encode(login.encode()).decode()}")
        if token := self.settings.get("bearer.auth.token"):
            request.add_unredirected_header("Authorization", f"Bearer {token}")
        handlers = [HTTPSHandler(context=self._make_tls())] if url.startswith("https:") else []
        return build_opener(*handlers).open(request, timeout=PATIENCE)

    def _make_tls(self) -> ssl.SSLContext:
        of = self.settings.get
        context = ssl.create_default_context(cafile=of("ssl.ca.location"))
        if certificate := of("ssl.certificate.location"):
            context.load_cert_chain(certificate, of("ssl.key.location"), of("ssl.key.password"))
        return context


def _make(found: Mapping[str, Any], id: int) -> Schema:
    try:
        references = [(str(r["name"]), str(r["subject"]), int(r["version"])) for r in found.get("references") or ()]
        return Schema(int(found.get("id", id)), found.get("schemaType") or "AVRO", found["schema"], tuple(references))
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ConnectionError("Schema registry answers what is no schema: its address is another server's") from None


def _read_error(error: HTTPError) -> tuple[int, str]:
    """Return the registry's code of an error and its text; 0 if the answer is not a registry's."""
    try:
        said = json.loads(error.read())
        return int(said["error_code"]), str(said.get("message", ""))
    except (OSError, HTTPException, ValueError, TypeError, KeyError):
        return 0, ""
