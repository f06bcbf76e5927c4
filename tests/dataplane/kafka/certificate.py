"""A certificate of localhost, for servers of the tests."""

import subprocess
from pathlib import Path


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """The certificate of localhost, which signed itself, and a store of it with its key."""
    ca, key, store = folder / "ca.pem", folder / "key.pem", folder / "broker.p12"
    for command in (
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost "
        f"-keyout {key} -out {ca}",
        f"openssl pkcs12 -export -in {ca} -inkey {key} -out {store} -passout pass:storeword",
    ):
        subprocess.run(command.split(), check=True, capture_output=True)
    return ca, store
