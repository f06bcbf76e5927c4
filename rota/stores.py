"""Where a table or a landing folder lies: a folder on a disk, or a prefix of a bucket. The only module that opens either.

Laws:
1. A location is a text: an absolute path, or `s3://bucket/prefix` without a slash at its end. Whoever works below one names
   what is there by its path below it, and by nothing else.
2. A bucket is spoken to as the variables `AWS_*` of the process say, as every program of AWS reads them. No credential
   leaves the process: none is in a location, a setting of Spark, a plan or an error.
3. An endpoint of one's own is asked by path (`http://host/bucket/key`), and without TLS where its URL says `http`.
"""

import errno
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rota.errors import ConfigError, hide

if TYPE_CHECKING:
    from obstore.store import S3Store
    from pyarrow import fs

T = TypeVar("T")
U = TypeVar("U")
Client = tuple[tuple[str, str], ...]  # the variables of which one is made
URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
BUCKET = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(.*))?", re.DOTALL)
SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID")
AHEAD, PAGE = 16, 1000  # objects that are read at a time; keys that a store lists at once
CONNECTING = 10.0  # seconds in which a store takes a connection
SILENCE = 60.0  # seconds in which it sends another byte of an answer
# Words of obstore 0.12 and of S3. Where one is another, an error is longer, or does not say that its bucket is not there.
DETAILS, NO_BUCKET = "\n\nDebug source", "NoSuchBucket"
REGION = "us-east-1"  # where no region is named: what a server other than AWS takes


def is_url(location: str) -> bool:
    """Whether the location is in a store, and no path of this machine."""
    return bool(URL.match(location))


def check_url(location: str) -> str:
    """Returns `s3://bucket/prefix` without a slash at its end. Raises ConfigError for another address."""
    found = BUCKET.fullmatch(location)
    parts = (found[2] or "").rstrip("/").split("/") if found else [""]
    if not found or not all(parts) or {".", ".."} & set(parts):
        raise ConfigError(
            f"{location!r} is no place that rota can work in. Give the path of a folder, or s3://bucket/prefix"
        )
    return f"s3://{found[1]}/{'/'.join(parts)}"


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
    return fs.SubTreeFileSystem(location.partition("://")[2], open_executors_files(describe_to_executors()))


def open_executors_files(said: Mapping[str, Any]) -> "fs.S3FileSystem":
    """All buckets, in a process that was told so by `describe_to_executors`: a small file is one request to write."""
    from pyarrow import fs

    return fs.S3FileSystem(allow_delayed_open=True, **said)


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

        with suppress(FileNotFoundError), as_os_errors(location):
            obstore.delete(open_objects(location), names)


def read(location: str, path: str) -> bytes:
    """A file of some size at most, whole. In a bucket it takes one request. Raises OSError."""
    if not is_url(location):
        with open_files(location).open_input_file(path) as file:
            return bytes(file.readall())
    import obstore

    with as_os_errors(join(location, path)):
        return bytes(obstore.get(open_objects(location), path).bytes())


def put_new(location: str, path: str, content: bytes) -> None:
    """Writes a small file where there is none; whoever is first has written it. Raises OSError."""
    if not is_url(location):
        make_folder(location, os.path.dirname(path) or ".")
        made = os.path.join(location, f".{uuid.uuid4().hex}")
        with open(made, "wb") as file:
            file.write(content)
        with suppress(FileExistsError):
            os.link(made, os.path.join(location, path))
        os.unlink(made)
        return
    import obstore

    with suppress(FileExistsError), as_os_errors(join(location, path)):
        obstore.put(open_objects(location), path, content, mode="create")


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
        return {str(one["path"]): str(one["e_tag"]) for one in next(iter(listed), ())}


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
        said = str(error).partition(DETAILS)[0].partition(" in ")
        raise OSError(errno.EIO, " ".join(f"{said[0]}: {said[2]}".split())[:300], what) from None


def open_objects(location: str) -> "S3Store":
    """The objects below the location of a bucket: with lists from a key on, puts of what is absent, and ETags. Nothing is
    asked yet. Raises ConfigError without the extra `s3`."""
    return _open_objects(location, describe_client())


@lru_cache(maxsize=64)
def _open_objects(location: str, _: Client) -> "S3Store":
    try:
        from obstore.store import S3Store
    except ImportError:
        raise ConfigError(f"{location} is in a bucket. Install what reads it: pip install 'rota[s3]'") from None
    hide_credentials()
    trusted = {"root_certificate": Path(bundle).read_bytes()} if (bundle := os.environ.get("AWS_CA_BUNDLE")) else {}
    options = {"allow_http": _is_plain(os.environ), **trusted}
    return S3Store.from_url(location, region=_region(os.environ), client_options=options)


def choose_options(location: str) -> dict[str, str] | None:
    """What delta-rs is told beside the environment."""
    if not is_url(location):
        return None
    hide_credentials()
    return {"aws_region": _region(os.environ), "allow_http": str(_is_plain(os.environ)).lower()}


def describe_client(environ: Mapping[str, str] = os.environ) -> Client:
    """What a client of a store is made of: one is kept for as long as this is the same. It holds credentials."""
    return tuple(sorted((name, value) for name, value in environ.items() if name.startswith("AWS_")))


def hide_credentials(environ: Mapping[str, str] = os.environ) -> None:
    """From now on no error of this process holds what of the credentials is in its environment."""
    for name in SECRETS:
        hide(environ.get(name, ""))


def describe_to_executors(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """What `pyarrow.fs.S3FileSystem` is given in another process, which finds its credentials by itself."""
    said: dict[str, Any] = {"region": _region(environ), "connect_timeout": CONNECTING, "request_timeout": SILENCE}
    if endpoint := environ.get("AWS_ENDPOINT_URL"):
        scheme, _, host = endpoint.rpartition("://")
        said |= {"endpoint_override": host.rstrip("/"), "scheme": scheme or "https"}
    if bundle := environ.get("AWS_CA_BUNDLE"):
        said["tls_ca_file_path"] = bundle
    return said


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
            "fs.s3a.connection.ssl.enabled": str(not _is_plain(environ)).lower(),
        }
    return said


def _region(environ: Mapping[str, str]) -> str:
    return environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or REGION


def _is_plain(environ: Mapping[str, str]) -> bool:
    return environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
