"""Requests drawn from the published document: every answer is one that it announces."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from conftest_server import Running, served
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

import edgespec
from edgespec.server.openapi import document

schema = schemathesis.openapi.from_dict(document())


@pytest.fixture(scope="module")
def small() -> Iterator[Running]:
    """A context so short that no answer is long."""
    with edgespec.load(budget="1GiB", context=256) as runtime, served(runtime) as server:
        yield server


@schema.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_answers_are_as_the_document_says(case: schemathesis.Case[Any], small: Running) -> None:
    # whether a model has such tokens, tools or grammars no schema says: a valid request may be refused
    case.call_and_validate(base_url=small.url, timeout=120, excluded_checks=[positive_data_acceptance])
