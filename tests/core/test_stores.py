"""Where tables lie: one text for each place, and no credential in what others receive."""

import pytest

from rota import stores
from rota.errors import ConfigError, EnvironmentFailed

ENVIRON = {
    "AWS_ENDPOINT_URL": "http://store.example:9000/",
    "AWS_ACCESS_KEY_ID": "the-access-key",
    "AWS_SECRET_ACCESS_KEY": "the-secret-key",
    "AWS_SESSION_TOKEN": "the-session-token",
    "AZURE_STORAGE_ACCOUNT_NAME": "account",
    "AZURE_STORAGE_ACCOUNT_KEY": "the-account-key",
    "AZURE_CLIENT_SECRET": "the-client-secret",
}
SCHEMES = tuple(stores.KINDS)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("end", ["", "/", "//"])
def test_a_place_in_a_bucket_has_one_text(scheme: str, end: str) -> None:
    assert stores.check_url(f"{scheme}://bucket/a/b{end}", SCHEMES) == f"{scheme}://bucket/a/b"


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("rest", ["", "bucket", "bucket//a", "bucket/a/../b", "A_b/c", "a@account/b", "-a/b", "ab/c"])
def test_what_is_no_place_is_refused(scheme: str, rest: str) -> None:
    with pytest.raises(ConfigError, match="s3://bucket/prefix or az://bucket/prefix"):
        stores.check_url(f"{scheme}://{rest}", SCHEMES)


@pytest.mark.parametrize("given", ["gs://bucket/a", "hdfs://x/y", "az://bucket/a"])
def test_a_store_that_is_not_served_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match=r"Give the path of a folder, or s3://bucket/prefix$"):
        stores.check_url(given, stores.READ_BY_SPARK)


def test_what_others_receive_has_no_credential() -> None:
    spark = stores.describe_to_spark(ENVIRON)
    given = {scheme: stores.describe_to_executors(f"{scheme}://bucket/a", ENVIRON) for scheme in SCHEMES}
    assert "the-" not in str((spark, given))
    s3 = given["s3"]["given"]
    assert (s3["endpoint_override"], s3["scheme"]) == ("store.example:9000", "http")
    assert spark["fs.s3a.connection.ssl.enabled"] == "false"


@pytest.mark.parametrize(
    ("endpoint", "authority"),
    [
        ("http://127.0.0.1:10000/account", "127.0.0.1:10000"),
        ("https://account.privatelink.example/", ".privatelink.example"),
    ],
)
def test_an_endpoint_of_azure_names_the_account_once(endpoint: str, authority: str) -> None:
    """Before the host's name or behind it; Arrow puts it there itself."""
    said = stores.describe_to_executors("az://c/a", {**ENVIRON, "AZURE_STORAGE_ENDPOINT": endpoint})["given"]
    assert said["account_name"] == "account"
    assert {said[f"{one}_storage_authority"] for one in ("blob", "dfs")} == {authority}
    assert {said[f"{one}_storage_scheme"] for one in ("blob", "dfs")} == {endpoint.partition(":")[0]}


def test_a_store_that_nothing_names_is_refused_by_the_variable_that_is_missing() -> None:
    with pytest.raises(ConfigError, match="Set AZURE_STORAGE_ACCOUNT_NAME"):
        stores.describe_to_executors("az://c/a", {})
    with pytest.raises(ConfigError, match=r"does not know. Take one of s3, az://"):
        stores.describe_to_executors("gs://c/a", {})


def test_no_error_holds_a_credential() -> None:
    stores.hide_credentials(ENVIRON)
    said = str(EnvironmentFailed(f"the store answers {ENVIRON}"))
    assert "the store answers" in said
    assert "the-" not in said
