"""Where a table or a landing folder lies: a folder on a disk, or a prefix of a bucket. The only module that opens either.

Laws:
1. A location is a text: an absolute path, or `s3://bucket/prefix` without a slash at its end; or, of a table,
   `az://container/prefix`. Whoever works below one names what is there by its path below it, and by nothing else. "A bucket"
   is a container of Azure, too.
2. A bucket is spoken to as the variables `AWS_*` or `AZURE_*` of the process say, as other programs read them. No credential
   leaves the process: none is in a location, a setting of Spark, a plan or an error.
3. An endpoint of one's own is asked by path (`http://host/bucket/key`), and without TLS where its URL says `http`.
4. What differs between stores is in `KINDS`, and nowhere else.
"""

import errno
import os
import re
import shutil
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rota.errors import ConfigError, hide

if TYPE_CHECKING:
    from obstore.store import ObjectStore
    from pyarrow import fs

T = TypeVar("T")
U = TypeVar("U")
Client = tuple[tuple[str, str], ...]  # the variables of which one is made
URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
ACCOUNT = "AZURE_STORAGE_ACCOUNT_NAME"
AHEAD, PAGE = 16, 1000  # objects that are read at a time; keys that a store lists at once
CONNECTING = 10.0  # seconds in which a store takes a connection
SILENCE = 60.0  # seconds in which it sends another byte of an answer
# Words of obstore 0.12 and of S3. Where one is another, an error is longer, or does not say that its bucket is not there.
DETAILS, NO_BUCKET = "\n\nDebug source", "NoSuchBucket"
# Without keys obstore asks the machine for those of its role. Not seen, a missing key is reported as that address.
ROLE = "/latest/api/token"
NO_CREDENTIALS = (
    "this process has no AWS credentials. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY here, or export the line that "
    "`rota up` prints"
)
REGION = "us-east-1"  # where no region is named: what a server other than AWS takes
READ_BY_SPARK = ("s3",)  # of what files may land in: Spark needs jars to read each


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of store: what a bucket is called there, which variables say what, and what a client is told besides."""

    bucket: re.Pattern[str]
    variables: str  # what their names begin with
    needs: str  # the one without which nobody finds the store
    endpoint: str
    secrets: tuple[str, ...]
    tell_delta: Callable[[Mapping[str, str]], dict[str, str]]  # obstore is told the same
    tell_arrow: Callable[[Mapping[str, str]], dict[str, Any]]


def is_url(location: str) -> bool:
    """Whether the location is in a store, and no path of this machine."""
    return bool(URL.match(location))


def check_url(location: str, schemes: Collection[str]) -> str:
    """Returns `s3://bucket/prefix`, or another of the schemes, without a slash at its end. Raises ConfigError for another
    address."""
    scheme, _, path = location.partition("://")
    bucket, *parts = path.rstrip("/").split("/")
    known = scheme in schemes and KINDS[scheme].bucket.fullmatch(bucket)
    if not known or not parts or not all(parts) or {".", ".."} & set(parts):
        ways = " or ".join(f"{one}://bucket/prefix" for one in schemes)
        raise ConfigError(f"{location!r} is no place that rota can work in. Give the path of a folder, or {ways}")
    return f"{scheme}://{'/'.join((bucket, *parts))}"


def join(location: str, *names: str) -> str:
    """What is called so below the location."""
    return "/".join((location.rstrip("/"), *names))


def open_files(location: str) -> "fs.FileSystem":
    """What is below the location, as Arrow has files. Nothing is asked yet."""
    return _open_files(location, describe_client() if is_url(location) else ())


@lru_cache(maxsize=64)
def _open_files(location: str, _: Client) -> "fs.FileSystem":
    from pyarrow import fs  # a command that only asks does without

    if not is_url(location):
        return fs.SubTreeFileSystem(location, fs.LocalFileSystem())
    hide_credentials()
    return fs.SubTreeFileSystem(location.partition("://")[2], open_executors_files(describe_to_executors(location)))


def open_executors_files(said: Mapping[str, Any]) -> "fs.FileSystem":
    """The disk, or all buckets, in a process that was told so by `describe_to_executors`. It is sent to tasks of Spark as
    code."""
    from pyarrow import fs

    found = {name: os.environ[variable] for name, variable in said["found"].items() if os.environ.get(variable)}
    opened: fs.FileSystem = getattr(fs, said["kind"])(**said["given"], **found)
    return opened


def make_folder(location: str, path: str) -> None:
    """Makes a folder on a disk; in a bucket there is none to make."""
    if not is_url(location):
        open_files(location).create_dir(path, recursive=True)


def delete_folder(location: str, path: str) -> None:
    """Deletes all that is below a folder, as far as it can be deleted."""
    if not is_url(location):
        shutil.rmtree(os.path.join(location, path), ignore_errors=True)
        return
    from pyarrow import fs

    with suppress(OSError):
        there = open_files(location).get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
        delete(location, [one.path for one in there if one.type == fs.FileType.File])


def delete(location: str, paths: Iterable[str]) -> None:
    """Deletes the files of these names that are there. In a bucket it takes one request for up to a thousand. Raises
    OSError."""
    if not is_url(location):
        for path in paths:
            with suppress(FileNotFoundError):
                open_files(location).delete_file(path)
    elif names := list(paths):
        import obstore

        objects = open_objects(location)
        try:
            with as_os_errors(location):
                obstore.delete(objects, names)
        except FileNotFoundError:  # Azure says so, and the rest may be left
            for name in names:
                with suppress(FileNotFoundError), as_os_errors(location):
                    obstore.delete(objects, name)


def read(location: str, path: str) -> bytes:
    """A file of some size at most, whole. In a bucket it takes one request. Raises OSError."""
    if not is_url(location):
        with open(os.path.join(location, path), "rb", buffering=0) as file:
            return file.read()
    import obstore

    with as_os_errors(join(location, path)):
        return bytes(obstore.get(open_objects(location), path).bytes())


def put_new(location: str, path: str, content: bytes) -> str | None:
    """Writes a small file where there is none; whoever is first has written it. Its tag, as `list_after` and `tag_file`
    say it; None where one is there. On a disk its folder must be there. Raises OSError."""
    if not is_url(location):
        whole = os.path.join(location, path)
        made = f"{whole}#{uuid.uuid4().hex}"  # what is left of it where one dies here a vacuum finds by `#`
        try:
            with open(made, "wb") as file:
                file.write(content)
            tag = tag_file(made)
            with suppress(FileExistsError):
                os.link(made, whole)
                return tag
        finally:
            with suppress(FileNotFoundError):
                os.unlink(made)
        return None
    import obstore

    with suppress(FileExistsError), as_os_errors(join(location, path)):
        put = obstore.put(open_objects(location), path, content, mode="create")
        return str(put["e_tag"]).strip('"')  # which Azure puts around it here, and not in a list
    return None


def tag_file(path: str) -> str:
    """What is another text for another file at this path of a disk. Raises OSError."""
    seen = os.stat(path)
    return f"{seen.st_ino}-{seen.st_mtime_ns}-{seen.st_size}"


def do_each(location: str, what: Callable[[T], U], things: Iterable[T]) -> Iterator[U]:
    """What `what` gives of each thing, in order. For a bucket it is done for `AHEAD` at a time, and for some in vain where
    not all are asked for."""
    each = iter(things)
    if not is_url(location):
        yield from map(what, each)
        return
    with ThreadPoolExecutor(AHEAD) as pool:
        while some := list(islice(each, AHEAD)):
            yield from pool.map(what, some)


def list_after(location: str, folder: str, after: str) -> dict[str, str]:
    """Objects of a bucket below `folder/`, in the order of their keys, with their ETags: those that come after the key
    `after`, a thousand at most. It takes one request. Raises OSError."""
    import obstore

    with as_os_errors(location):
        listed = obstore.list(open_objects(location), f"{folder}/", offset=after or None, chunk_size=PAGE)
        return {str(one["path"]): str(one["e_tag"]).strip('"') for one in next(iter(listed), ())}


class OddKey(OSError):
    """A key that obstore refuses is among those that were asked for."""


@contextmanager
def as_os_errors(what: str) -> Iterator[None]:
    """Raises OSError, of `what`, for whatever obstore raises; OddKey for a key that it refuses."""
    from obstore.exceptions import AlreadyExistsError, BaseError, InvalidPathError, NotFoundError

    try:
        yield
    except (FileNotFoundError, NotFoundError):
        raise FileNotFoundError(errno.ENOENT, "there is no such object", what) from None
    except AlreadyExistsError:
        raise FileExistsError(errno.EEXIST, "there is one already", what) from None
    except InvalidPathError:
        raise OddKey(errno.EINVAL, "it refuses a key", what) from None
    except BaseError as error:
        if ROLE in str(error):
            raise OSError(errno.EACCES, NO_CREDENTIALS, what) from None
        said = str(error).partition(DETAILS)[0].partition(" in ")
        raise OSError(errno.EIO, " ".join(f"{said[0]}: {said[2]}".split())[:300], what) from None


def open_objects(location: str) -> "ObjectStore":
    """The objects below the location of a bucket: with lists from a key on, puts of what is absent, and ETags. Nothing is
    asked yet. Raises ConfigError without the extra `s3`, or without what says where the store is."""
    return _open_objects(location, describe_client())


@lru_cache(maxsize=64)
def _open_objects(location: str, _: Client) -> "ObjectStore":
    try:
        from obstore.store import from_url
    except ImportError:
        raise ConfigError(f"{location} is in a bucket. Install what reads it: pip install obstore") from None
    hide_credentials()
    kind = _find_kind(location)
    trusted = {"root_certificate": Path(bundle).read_bytes()} if (bundle := os.environ.get("AWS_CA_BUNDLE")) else {}
    options: Any = {"allow_http": _is_plain(kind, os.environ), **trusted}
    config: Any = kind.tell_delta(os.environ)
    return from_url(location, config=config, client_options=options)


def choose_options(location: str) -> dict[str, str] | None:
    """What delta-rs is told beside the environment. Raises ConfigError without what says where the store is."""
    if not is_url(location):
        return None
    hide_credentials()
    kind = _find_kind(location)
    return {**kind.tell_delta(os.environ), "allow_http": str(_is_plain(kind, os.environ)).lower()}


def describe_client(environ: Mapping[str, str] = os.environ) -> Client:
    """What a client of a store is made of: one is kept for as long as this is the same. It holds credentials."""
    begin = tuple(kind.variables for kind in KINDS.values())
    return tuple(sorted((name, value) for name, value in environ.items() if name.startswith(begin)))


def hide_credentials(environ: Mapping[str, str] = os.environ) -> None:
    """From now on no error of this process holds what of the credentials is in its environment."""
    for kind in KINDS.values():
        for name in kind.secrets:
            hide(environ.get(name, ""))


def describe_to_executors(location: str, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """What `open_executors_files` is given in another process, which finds its credentials by itself."""
    if not is_url(location):
        return {"kind": "LocalFileSystem", "given": {}, "found": {}}
    return _find_kind(location, environ).tell_arrow(environ)


def _find_kind(location: str, environ: Mapping[str, str] = os.environ) -> Kind:
    kind = KINDS.get(location.partition("://")[0])
    if kind is None:
        raise ConfigError(f"{location} is in a store that rota does not know. Take one of {', '.join(KINDS)}://")
    if kind.needs and not environ.get(kind.needs):
        raise ConfigError(f"{location} is in a store that is named nowhere. Set {kind.needs}")
    return kind


def _tell_s3_to_arrow(environ: Mapping[str, str]) -> dict[str, Any]:
    given: dict[str, Any] = {
        "allow_delayed_open": True,  # a small file is one request to write
        "region": _region(environ),
        "connect_timeout": CONNECTING,
        "request_timeout": SILENCE,
    }
    if endpoint := environ.get("AWS_ENDPOINT_URL"):
        scheme, _, host = endpoint.rpartition("://")
        given |= {"endpoint_override": host.rstrip("/"), "scheme": scheme or "https"}
    if bundle := environ.get("AWS_CA_BUNDLE"):
        given["tls_ca_file_path"] = bundle
    return {"kind": "S3FileSystem", "given": given, "found": {}}


def _tell_azure_to_arrow(environ: Mapping[str, str]) -> dict[str, Any]:
    """Arrow does not read the variable of the key by itself; without it it goes by Azure's own chain."""
    account = environ[ACCOUNT]
    given = {"account_name": account}
    if endpoint := environ.get("AZURE_STORAGE_ENDPOINT"):
        scheme, _, host = endpoint.rstrip("/").rpartition("://")
        name = re.escape(account)  # Arrow itself puts it before `.host`, or behind `host`
        authority = re.sub(rf"^{name}(?=\.)|/{name}$", "", host)
        for service in ("blob", "dfs"):
            given |= {f"{service}_storage_authority": authority, f"{service}_storage_scheme": scheme or "https"}
    return {"kind": "AzureFileSystem", "given": given, "found": {"account_key": "AZURE_STORAGE_ACCOUNT_KEY"}}


def describe_to_spark(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What a reader of Spark is told that reads objects by `s3a://`. Its credentials are those of the machine it runs on, by
    the chain of Amazon's SDK: environment, profile, role."""
    said = {
        "fs.s3a.endpoint.region": _region(environ),
        "fs.s3a.aws.credentials.provider": "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
    }
    if endpoint := environ.get("AWS_ENDPOINT_URL"):
        said |= {
            "fs.s3a.endpoint": endpoint,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": str(not _is_plain(KINDS["s3"], environ)).lower(),
        }
    return said


def _region(environ: Mapping[str, str]) -> str:
    return environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or REGION


def _is_plain(kind: Kind, environ: Mapping[str, str]) -> bool:
    return environ.get(kind.endpoint, "").startswith("http://")


KINDS = {
    "s3": Kind(
        bucket=re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"),
        variables="AWS_",
        needs="",
        endpoint="AWS_ENDPOINT_URL",
        secrets=("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID"),
        tell_delta=lambda environ: {"aws_region": _region(environ)},
        tell_arrow=_tell_s3_to_arrow,
    ),
    "az": Kind(
        bucket=re.compile(r"[a-z0-9](?:-?[a-z0-9]){2,62}"),
        variables="AZURE_",
        needs=ACCOUNT,
        endpoint="AZURE_STORAGE_ENDPOINT",
        secrets=("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_CLIENT_SECRET"),
        tell_delta=lambda _: {},
        tell_arrow=_tell_azure_to_arrow,
    ),
}
