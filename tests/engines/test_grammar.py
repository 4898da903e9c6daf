import json
import re
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgespec.engines.llamacpp.grammar import grammar_of_schema
from edgespec.engines.llamacpp.integers import MOST_DIGITS, integers_between
from edgespec.engines.llamacpp.sampler import LlamaSampler
from edgespec.engines.llamacpp.tokenizer import LlamaTokenizer, opened_tokenizer
from edgespec.errors import UsageError
from edgespec.types import SamplingParams

LARGEST = 10**MOST_DIGITS - 1
BOUND = st.none() | st.integers(-LARGEST, LARGEST) | st.integers(-120, 120)
INTEGER = st.fixed_dictionaries({"type": st.just("integer"), "minimum": st.integers(-99, 9), "maximum": st.integers(10, 999)})
LEAF = INTEGER | st.sampled_from([
    {"enum": ["a", "b", 3, None]}, {"type": "boolean"}, {"type": "string", "pattern": "^[a-c]{1,3}$"}, {"const": {"x": [1]}},
    {"type": ["string", "null"], "enum": ["a", None]}, {"type": ["integer", "null"], "minimum": 3, "exclusiveMaximum": 6},
])  # fmt: skip
SCHEMA = st.recursive(
    LEAF,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda all_of: {"anyOf": all_of}),
        inner.map(lambda item: {"type": "array", "items": item, "minItems": 1, "maxItems": 2}),
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1).map(
            lambda named: {"type": "object", "properties": named, "required": sorted(named), "additionalProperties": False}
        ),
    ),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def tokenizer(target_path: Path) -> Iterator[LlamaTokenizer]:
    with opened_tokenizer(str(target_path)) as opened:
        yield opened


@given(BOUND, BOUND, st.data())
def test_integers_between_two_bounds_are_said_and_no_others(low: int | None, high: int | None, data: st.DataObject) -> None:
    expression = integers_between(low, high)
    pattern = re.compile(expression.replace('"', "").replace(" ", "") or "(?!)")
    least, most = -LARGEST if low is None else low, LARGEST if high is None else high
    near = [value + step for value in (least, most) for step in (-1, 0, 1) if abs(value + step) <= LARGEST]
    for value in (*near, data.draw(st.integers(-LARGEST, LARGEST)), 0, -1):
        assert bool(pattern.fullmatch(str(value))) == (least <= value <= most), value
    assert not pattern.fullmatch("-0")
    assert not pattern.fullmatch("01")


def said(tokenizer: LlamaTokenizer, schema: dict[str, Any], seed: int) -> Any:
    """JSON of random tokens that the grammar allows, nothing else deciding."""
    rng = np.random.default_rng(seed)
    tokens: list[int] = []
    params = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=seed, grammar=grammar_of_schema(schema))
    with closing(LlamaSampler(params, tokenizer, tokenizer.size, rounding=0.0)) as sampler:
        while len(tokens) < 200:
            token = sampler.draw(rng.normal(size=tokenizer.size).astype(np.float32))
            if tokenizer.ends(token):
                return json.loads(b"".join(map(tokenizer.piece, tokens)))
            sampler.accept(token)
            tokens.append(token)
    raise AssertionError("it never ends")


@given(SCHEMA, st.integers(0, 2**31))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_drawn_is_json_of_the_schema(tokenizer: LlamaTokenizer, schema: dict[str, Any], seed: int) -> None:
    jsonschema.validate(said(tokenizer, schema, seed), schema)


@pytest.mark.parametrize("schema", [
    {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
    {"type": "object", "properties": {"a": {"type": "number", "maximum": 3}}},
    {"anyOf": [{"type": "object", "minProperties": 2}, {"type": "null"}]},
    {"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer", "multipleOf": 3}}},
])  # fmt: skip
def test_strict_refuses_what_a_grammar_cannot_hold(schema: dict[str, Any]) -> None:
    assert "root ::=" in grammar_of_schema(schema)
    with pytest.raises(UsageError, match="cannot be held"):
        grammar_of_schema(schema, strict=True)


def test_strict_takes_names_of_properties_for_names() -> None:
    schema = {"type": "object", "properties": {"not": {"type": ["integer", "null"], "minimum": 0}}, "required": ["not"]}
    assert "root ::=" in grammar_of_schema(schema, strict=True)


def test_bounds_that_leave_nothing_are_refused() -> None:
    with pytest.raises(UsageError, match="no integer"):
        grammar_of_schema({"type": "integer", "minimum": 3.2, "maximum": 3.8})
    with pytest.raises(UsageError, match="cannot be a grammar"):
        grammar_of_schema({"type": "integer", "minimum": "many"})


def test_a_schema_fetches_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        with pytest.raises(UsageError, match="cannot be a grammar"):
            grammar_of_schema({"$ref": f"https://127.0.0.1:{listener.getsockname()[1]}/schema.json"})
        with pytest.raises(TimeoutError):
            listener.accept()
