"""Where a table or a landing folder lies: a folder on a disk, or a prefix of a bucket. The only module that opens
either.

Laws:
1. A location is a text: an absolute path, or `s3://bucket/prefix` without a slash at its end, or for tables
   `az://container/prefix`. Callers name each file by its path below the location only. "Bucket" includes Azure's
   containers.
2. A client of a bucket is configured by the variables `AWS_*` or `AZURE_*` of the process, as other programs use them.
   No credential leaves the process: none is in a location, a setting of Spark, a plan or an error.
3. A custom endpoint is addressed by path (`http://host/bucket/key`), and without TLS if its URL begins with `http://`.
4. All differences between stores are in `KINDS`.
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
# Words of obstore 0.12 and of S3. If they change, an error gets longer, or does not name a missing bucket.
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
    """A kind of store: its bucket names, its variables, and the configuration of its clients."""

    bucket: re.Pattern[str]
    variables: str  # what their names begin with
    needs: str  # the variable without which the store has no address
    endpoint: str
    secrets: tuple[str, ...]
    configure_delta: Callable[[Mapping[str, str]], dict[str, str]]  # obstore gets the same
    configure_arrow: Callable[[Mapping[str, str]], dict[str, Any]]


def is_url(location: str) -> bool:
    """Return whether the location is in a store, not a path of this machine."""
    return bool(URL.match(location))


def check_url(location: str, schemes: Collection[str]) -> str:
    """Return `s3://bucket/prefix`, or the same of another scheme, without a slash at its end. Raises ConfigError."""
    scheme, _, path = location.partition("://")
    bucket, *parts = path.rstrip("/").split("/")
    known = scheme in schemes and KINDS[scheme].bucket.fullmatch(bucket)
    if not known or not parts or not all(parts) or {".", ".."} & set(parts):
        ways = " or ".join(f"{one}://bucket/prefix" for one in schemes)
        raise ConfigError(f"{location!r} is no place that rota can work in. Give the path of a folder, or {ways}")
    return f"{scheme}://{'/'.join((bucket, *parts))}"


def join(location: str, *names: str) -> str:
    """Return the location of a path below the location."""
    return "/".join((location.rstrip("/"), *names))


def name_inside(location: str) -> str:
    """Return the path of the location in its store, as Arrow expects it."""
    return location.partition("://")[2] if is_url(location) else location


def open_files(location: str) -> "fs.FileSystem":
    """Return what is below the location as an Arrow filesystem. It sends no request yet."""
    return _open_files(location, describe_client() if is_url(location) else ())


@lru_cache(maxsize=64)
def _open_files(location: str, _: Client) -> "fs.FileSystem":
    from pyarrow import fs  # a command that only asks does without

    if not is_url(location):
        return fs.SubTreeFileSystem(location, fs.LocalFileSystem())
    hide_credentials()
    return fs.SubTreeFileSystem(name_inside(location), open_executors_files(describe_to_executors(location)))


def open_executors_files(said: Mapping[str, Any]) -> "fs.FileSystem":
    """Return the disk, or all buckets, in a process that got `describe_to_executors`. Spark's tasks receive this
    function as code.
    """
    from pyarrow import fs

    found = {name: os.environ[variable] for name, variable in said["found"].items() if os.environ.get(variable)}
    opened: fs.FileSystem = getattr(fs, said["kind"])(**said["given"], **found)
    return opened


def make_folder(location: str, path: str) -> None:
    """Create a folder on a disk; a bucket has no folders to create."""
    if not is_url(location):
        open_files(location).create_dir(path, recursive=True)


def delete_folder(location: str, path: str) -> None:
    """Delete all that is below a folder, as far as it can be deleted."""
    if not is_url(location):
        shutil.rmtree(os.path.join(location, path), ignore_errors=True)
        return
    from pyarrow import fs

    with suppress(OSError):
        there = open_files(location).get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
        delete(location, [one.path for one in there if one.type == fs.FileType.File])


def delete(location: str, paths: Iterable[str]) -> None:
    """Delete those of these files that exist. A bucket needs one request per thousand. Raises OSError."""
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
        except FileNotFoundError:  # Azure raises this although other files may remain
            for name in names:
                with suppress(FileNotFoundError), as_os_errors(location):
                    obstore.delete(objects, name)


def read(location: str, path: str) -> bytes:
    """Return the content of a file of limited size. A bucket needs one request. Raises OSError."""
    if not is_url(location):
        with open(os.path.join(location, path), "rb", buffering=0) as file:
            return file.read()
    import obstore

    with as_os_errors(join(location, path)):
        return bytes(obstore.get(open_objects(location), path).bytes())


def put_new(location: str, path: str, content: bytes) -> str | None:
    """Write a small file if none exists; the first of several writers succeeds. Its folder on a disk must exist.

    Returns:
        The tag of the file, as `list_after` and `tag_file` return it; None if a file exists.

    Raises:
        OSError: the store or the disk failed.
    """
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
    """Return a text that differs for each file that was at this path of a disk. Raises OSError."""
    seen = os.stat(path)
    return f"{seen.st_ino}-{seen.st_mtime_ns}-{seen.st_size}"


def do_each(location: str, what: Callable[[T], U], things: Iterable[T]) -> Iterator[U]:
    """Yield the result of `what` for each thing, in order. In a bucket up to `AHEAD` calls run at a time, some in vain
    if the caller stops early.
    """
    each = iter(things)
    if not is_url(location):
        yield from map(what, each)
        return
    with ThreadPoolExecutor(AHEAD) as pool:
        while some := list(islice(each, AHEAD)):
            yield from pool.map(what, some)


def list_after(location: str, folder: str, after: str) -> dict[str, str]:
    """Return up to a thousand objects of a bucket below `folder/` after the key `after`, in key order, with their
    ETags. One request. Raises OSError.
    """
    import obstore

    with as_os_errors(location):
        listed = obstore.list(open_objects(location), f"{folder}/", offset=after or None, chunk_size=PAGE)
        return {str(one["path"]): str(one["e_tag"]).strip('"') for one in next(iter(listed), ())}


class OddKey(OSError):
    """The request contains a key that obstore refuses."""


@contextmanager
def as_os_errors(what: str) -> Iterator[None]:
    """Raise OSError, about `what`, for each error of obstore; OddKey for a key that it refuses."""
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
    """Return the objects below the location of a bucket, with lists from a key, puts of absent keys, and ETags. It
    sends no request yet. Raises ConfigError without the extra `s3`, or if the store's address is not set.
    """
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
    config: Any = kind.configure_delta(os.environ)
    return from_url(location, config=config, client_options=options)


def choose_options(location: str) -> dict[str, str] | None:
    """Return delta-rs's options beside the environment. Raises ConfigError if the store's address is not set."""
    if not is_url(location):
        return None
    hide_credentials()
    kind = _find_kind(location)
    return {**kind.configure_delta(os.environ), "allow_http": str(_is_plain(kind, os.environ)).lower()}


def describe_client(environ: Mapping[str, str] = os.environ) -> Client:
    """Return the settings of a store's clients: a client is cached while they are unchanged. They contain credentials."""
    begin = tuple(kind.variables for kind in KINDS.values())
    return tuple(sorted((name, value) for name, value in environ.items() if name.startswith(begin)))


def hide_credentials(environ: Mapping[str, str] = os.environ) -> None:
    """From now on no error of this process contains the credentials in its environment."""
    for kind in KINDS.values():
        for name in kind.secrets:
            hide(environ.get(name, ""))


def describe_to_executors(location: str, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the argument of `open_executors_files` for another process, which finds its credentials by itself."""
    if not is_url(location):
        return {"kind": "LocalFileSystem", "given": {}, "found": {}}
    return _find_kind(location, environ).configure_arrow(environ)


def _find_kind(location: str, environ: Mapping[str, str] = os.environ) -> Kind:
    kind = KINDS.get(location.partition("://")[0])
    if kind is None:
        raise ConfigError(f"{location} is in a store that rota does not know. Take one of {', '.join(KINDS)}://")
    if kind.needs and not environ.get(kind.needs):
        raise ConfigError(f"{location} is in a store without an address. Set {kind.needs}")
    return kind


def _configure_arrow_for_s3(environ: Mapping[str, str]) -> dict[str, Any]:
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


def _configure_arrow_for_azure(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return Arrow's settings. Arrow does not read the variable of the key; without a key it uses Azure's credential
    chain.
    """
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
    """Return Spark's settings to read objects by `s3a://`. Spark's credentials are those of its own machine, by the
    chain of Amazon's SDK: environment, profile, role.
    """
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
        configure_delta=lambda environ: {"aws_region": _region(environ)},
        configure_arrow=_configure_arrow_for_s3,
    ),
    "az": Kind(
        bucket=re.compile(r"[a-z0-9](?:-?[a-z0-9]){2,62}"),
        variables="AZURE_",
        needs=ACCOUNT,
        endpoint="AZURE_STORAGE_ENDPOINT",
        secrets=("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_CLIENT_SECRET"),
        configure_delta=lambda _: {},
        configure_arrow=_configure_arrow_for_azure,
    ),
}
