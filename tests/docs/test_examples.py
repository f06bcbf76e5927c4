"""The examples of the package's docstring run."""

import doctest

import rota


def test_the_examples_of_the_package_run() -> None:
    tried = doctest.testmod(rota, extraglobs={"rota": rota})
    assert tried.attempted >= 5
    assert tried.failed == 0
