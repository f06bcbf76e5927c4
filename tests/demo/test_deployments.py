"""`rota replay` and `rota purge` act in the one deployment that is meant, or in none."""

import pytest

from rota.cli.page import choose_job
from rota.errors import ConfigError
from rota.local.page import FoundJobs, PlacedJob

HAVE = r"at http://page have the job p__replay"


def place(location: str, *prefix: str) -> PlacedJob:
    return PlacedJob("__".join((*prefix, "p__replay")), location, "__repository__", prefix, "p")


def find(*jobs: PlacedJob, unloaded: tuple[str, ...] = ()) -> FoundJobs:
    return FoundJobs("http://page", "p", "replay", jobs, unloaded)


STAGING, PRODUCTION = place("staging", "pre"), place("production")
TWICE = place("one"), place("one", "pre"), place("one", "pre", "a b")


def test_the_only_one_needs_no_choice_whatever_its_prefix() -> None:
    assert choose_job(find(STAGING), None) == STAGING
    assert choose_job(find(PRODUCTION), None) == PRODUCTION


@pytest.mark.parametrize(
    ("found", "location", "meant"),
    [
        (find(STAGING, PRODUCTION), "staging", STAGING),
        (find(STAGING, PRODUCTION), "production", PRODUCTION),
        (find(STAGING, PRODUCTION), "staging/pre", STAGING),
        (find(*TWICE), "one", TWICE[0]),
        (find(*TWICE), "one/pre", TWICE[1]),
        (find(*TWICE), "one/pre/a b", TWICE[2]),
        (find(PRODUCTION, unloaded=("staging",)), "production", PRODUCTION),
    ],
)
def test_the_one_that_is_named_is_meant(found: FoundJobs, location: str, meant: PlacedJob) -> None:
    assert choose_job(found, location) == meant


@pytest.mark.parametrize(
    ("found", "location", "said"),
    [
        (
            find(STAGING, PRODUCTION),
            None,
            f"2 deployments {HAVE}: production, staging. Give --location production or --",
        ),
        (find(*TWICE), None, f"3 deployments {HAVE}: one, one/pre, one/pre/a b. Give .* or --location 'one/pre/a b'$"),
        (find(*TWICE[1:]), "one", rf"2 deployments {HAVE}: one/pre, one/pre/a b\. Give --location one/pre or --"),
        (
            find(PRODUCTION, unloaded=("staging",)),
            None,
            "and staging is not loaded and may have it, too. Give --location p",
        ),
        (find(PRODUCTION, unloaded=("staging",)), "staging", "The code location staging at http://page is not loaded"),
        (find(PRODUCTION), "stagin", "No code location 'stagin' .* Give --location production$"),
        (find(unloaded=("staging",)), None, "No code location .*; not loaded: staging. Look at the code locations"),
        (find(), None, "No code location at http://page has the job p__replay. Look .*, or set ROTA_DAGSTER$"),
        (find(), "production", "No code location 'production' at .* has the job p__replay. Look at"),
    ],
)
def test_an_ambiguous_location_is_refused_in_one_line_with_the_option(
    found: FoundJobs, location: str | None, said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        choose_job(found, location)
    assert "\n" not in str(refused.value)
