"""Grammars: what may be drawn at all, as GBNF or from a JSON schema, by the engine's own converter and sampler."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from edgespec.engines.llamacpp.library import llama
from edgespec.engines.llamacpp.tokenizer import LlamaTokenizer
from edgespec.errors import UsageError

__all__ = ["grammar_of_schema", "grammar_sampler"]

_MOST_BYTES = 1 << 18
# The converter lets control characters into strings, which JSON does not.
_LOOSE, _STRICT = 'char ::= [^"\\\\] |', 'char ::= [^"\\\\\\x7F\\x00-\\x1F] |'


def grammar_of_schema(schema: Mapping[str, Any]) -> str:
    """The GBNF of texts that are JSON of this schema. Raises UsageError where there is none."""
    llama()
    from llama_cpp.llama_grammar import json_schema_to_gbnf

    try:
        grammar: str = json_schema_to_gbnf(json.dumps(schema))
    except RecursionError:
        raise UsageError("the JSON schema is nested too deeply: make it flatter") from None
    except Exception as error:  # the converter raises whatever it meets
        raise UsageError(f"the JSON schema cannot be a grammar ({error}): use a simpler one") from error
    return grammar.replace(_LOOSE, _STRICT)


def grammar_sampler(tokenizer: LlamaTokenizer, grammar: str) -> Any:
    """The engine's sampler. Raises UsageError for text that is no GBNF with a rule `root`."""
    data = grammar.encode()
    if len(data) > _MOST_BYTES:
        raise UsageError(f"a grammar of {len(data)} bytes is too long: at most {_MOST_BYTES}")
    sampler = llama().llama_sampler_init_grammar(tokenizer.vocabulary, data, b"root")
    if not sampler:
        raise UsageError("the grammar is not GBNF with a rule `root`: check its rules")
    return sampler
