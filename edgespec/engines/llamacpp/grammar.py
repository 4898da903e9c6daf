"""Grammars: what may be drawn at all, as GBNF or from a JSON schema, by the engine's own converter and sampler."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from edgespec.engines.llamacpp.integers import integers_between
from edgespec.engines.llamacpp.library import llama
from edgespec.engines.llamacpp.tokenizer import LlamaTokenizer
from edgespec.errors import UsageError

__all__ = ["grammar_of_schema", "grammar_sampler"]

_MOST_BYTES = 1 << 18
_BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
_LOOSE_KEYWORDS = {
    "multipleOf", "uniqueItems", "contains", "minContains", "maxContains", "minProperties", "maxProperties", "propertyNames",
    "patternProperties", "dependentRequired", "dependentSchemas", "not", "if", "then", "else", "unevaluatedItems",
    "unevaluatedProperties",
}  # fmt: skip
_NESTED = {"items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties"}  # schemas, or lists of them
_NAMED = {"properties", "$defs", "definitions"}
# The converter lets control characters into strings, which JSON does not.
_LOOSE, _STRICT = 'char ::= [^"\\\\] |', 'char ::= [^"\\\\\\x7F\\x00-\\x1F] |'


def grammar_of_schema(schema: Mapping[str, Any], *, strict: bool = False) -> str:
    """The GBNF of texts that are JSON of this schema.

    Keywords that a grammar cannot hold are left out, unless `strict`. Raises UsageError where there is no such grammar.
    """
    if strict and (loose := next(_loose_keywords(schema), None)):
        raise UsageError(f"the JSON schema's {loose!r} cannot be held while text is made: leave it out, or do not ask for strict")
    try:
        converter = _converter_class()(prop_order={}, allow_fetch=False, dotall=False, raw_pattern=False)
        converter.visit(converter.resolve_refs(json.loads(json.dumps(schema)), "schema"), "")
        grammar: str = converter.format_grammar()
    except RecursionError:
        raise UsageError("the JSON schema is nested too deeply: make it flatter") from None
    except Exception as error:  # the converter raises whatever it meets
        raise UsageError(f"the JSON schema cannot be a grammar ({error}): use a simpler one") from error
    return grammar.replace(_LOOSE, _STRICT)


@functools.cache
def _converter_class() -> Any:
    """The engine's converter, taught bounds of integers, and what else is said of a value that may have several types."""
    llama()
    from llama_cpp.llama_grammar import RESERVED_NAMES, SchemaConverter

    class Converter(SchemaConverter):  # type: ignore[misc]
        def visit(self, schema: dict[str, Any], name: str) -> Any:
            if isinstance(kinds := schema.get("type"), list):
                return super().visit({"anyOf": [schema | {"type": kind} for kind in kinds]}, name)
            if schema.get("type") != "integer" or not _BOUNDS & set(schema) or {"enum", "const", "$ref"} & set(schema):
                return super().visit(schema, name)
            ways = integers_between(*_bounds(schema))
            if not ways:
                raise ValueError("no integer is within its bounds")
            return self._add_rule(f"{name}-" if name in RESERVED_NAMES else name or "root", f"({ways}) space")

    return Converter


def _bounds(schema: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """The least and the greatest integer that are allowed."""
    lows = [math.ceil(schema["minimum"])] if "minimum" in schema else []
    lows += [math.floor(schema["exclusiveMinimum"]) + 1] if "exclusiveMinimum" in schema else []
    highs = [math.floor(schema["maximum"])] if "maximum" in schema else []
    highs += [math.ceil(schema["exclusiveMaximum"]) - 1] if "exclusiveMaximum" in schema else []
    return max(lows, default=None), min(highs, default=None)


def _loose_keywords(schema: Any) -> Iterator[str]:
    """Keywords of the schema and those within it that the grammar does not hold."""
    if isinstance(schema, list):
        for one in schema:
            yield from _loose_keywords(one)
    elif isinstance(schema, dict):
        kinds = schema.get("type")
        kinds = [kinds] if isinstance(kinds, str) else kinds or []
        whole = "integer" in kinds and "number" not in kinds
        yield from sorted((_LOOSE_KEYWORDS | (set() if whole else _BOUNDS)) & set(schema))
        for keyword in _NESTED & set(schema):
            yield from _loose_keywords(schema[keyword])
        for keyword in _NAMED & set(schema):
            yield from _loose_keywords(list(schema[keyword].values()))


def grammar_sampler(tokenizer: LlamaTokenizer, grammar: str) -> Any:
    """The engine's sampler. Raises UsageError for text that is no GBNF with a rule `root`."""
    data = grammar.encode()
    if len(data) > _MOST_BYTES:
        raise UsageError(f"a grammar of {len(data)} bytes is too long: at most {_MOST_BYTES}")
    sampler = llama().llama_sampler_init_grammar(tokenizer.vocabulary, data, b"root")
    if not sampler:
        raise UsageError("the grammar is not GBNF with a rule `root`: check its rules")
    return sampler
