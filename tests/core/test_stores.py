"""Where tables lie: one text for each place, and no credential in what others are told."""

import pytest

from rota import stores
from rota.errors import ConfigError, EnvironmentFailed

ENVIRON = {
    "AWS_ENDPOINT_URL": "http://store.example:9000/",
    "AWS_ACCESS_KEY_ID": "the-access-key",
    "AWS_SECRET_ACCESS_KEY": "the-secret-key",
    "AWS_SESSION_TOKEN": "the-session-token",
}


@pytest.mark.parametrize("given", ["s3://bucket/a/b", "s3://bucket/a/b/", "s3://bucket/a/b//"])
def test_a_place_in_a_bucket_has_one_text(given: str) -> None:
    assert stores.check_url(given) == "s3://bucket/a/b"


@pytest.mark.parametrize(
    "given",
    ["s3://", "s3://bucket", "s3://bucket//a", "s3://bucket/a/../b", "gs://bucket/a", "s3://A_b/c", "hdfs://x/y"],
)
def test_what_is_no_place_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match="s3://bucket/prefix"):
        stores.check_url(given)


def test_what_others_are_told_has_no_credential() -> None:
    said = {**stores.describe_to_spark(ENVIRON), **stores.describe_to_executors(ENVIRON)}
    assert not [value for value in said.values() if "the-" in str(value)]
    assert said["endpoint_override"] == "store.example:9000"
    assert said["scheme"] == "http"
    assert said["fs.s3a.connection.ssl.enabled"] == "false"


def test_no_error_holds_a_credential() -> None:
    stores.hide_credentials(ENVIRON)
    said = str(EnvironmentFailed(f"the store says {ENVIRON}"))
    assert "the-secret" not in said
    assert "the-access" not in said
    assert "the-session" not in said
