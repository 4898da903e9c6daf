"""From GGUF files to one `ModelHeader`: splits joined, fields given their meaning, the pair's vocabularies compared."""

from __future__ import annotations

import os
import re

from edgespec.errors import ModelInvalid, ModelNotFound, PairMismatch
from edgespec.modelfile.gguf import RawHeader, Value, read_header
from edgespec.types import FileIdentity, ModelHeader, Vocabulary

__all__ = ["check_pair", "read_model", "unchanged"]

_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf$")
_RECURRENT = ("mamba", "rwkv", "jamba", "falcon-h1", "granitehybrid", "nemotron_h", "plamo2", "lfm2", "arwkv", "qwen3next")
_MAX_PADDING = 128  # real families pad one half's vocabulary by up to this many unused ids


class _Fields:
    """Typed access to header fields; a wrong type is a refusal, never a crash later."""

    def __init__(self, raw: RawHeader) -> None:
        self._fields, self._name = raw.fields, os.path.basename(raw.identity.path)
        self.architecture = self.text("general.architecture") or ""
        if not self.architecture:
            raise ModelInvalid(f"{self._name}: the header names no architecture: convert the model again")

    def text(self, name: str) -> str | None:
        value = self._fields.get(name)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else None

    def number(self, suffix: str, default: int | None = None) -> int:
        """Field `<architecture>.suffix`; the largest where the model gives one number per layer."""
        name = f"{self.architecture}.{suffix}"
        value = self._fields.get(name, default)
        if isinstance(value, tuple) and value and all(type(item) is int for item in value):
            value = max(int(item) for item in value)
        if type(value) is not int or not 0 <= value < 1 << 31:
            raise ModelInvalid(f"{self._name}: field {name} is missing or not a sensible number: convert the model again")
        return value

    def per_layer(self, suffix: str, layers: int, default: int) -> tuple[int, ...]:
        value = self._fields.get(f"{self.architecture}.{suffix}")
        if isinstance(value, tuple) and len(value) == layers:
            return tuple(int(item) for item in value)
        return (self.number(suffix, default),) * layers

    def token_id(self, name: str) -> int | None:
        value = self._fields.get(f"tokenizer.ggml.{name}_token_id")
        return value if type(value) is int else None

    def has(self, suffix: str) -> bool:
        return f"{self.architecture}.{suffix}" in self._fields

    def raw(self, name: str) -> Value | None:
        return self._fields.get(name)


def read_model(path: str | os.PathLike[str]) -> ModelHeader:
    """The header of a model, all shards of it. Raises ModelNotFound or ModelInvalid; reads no weights."""
    shards = _read_shards(read_header(path))
    fields = _Fields(shards[0])
    layers = fields.number("block_count")
    if not 0 < layers <= 4096:
        raise ModelInvalid(f"{os.path.basename(path)}: {layers} layers are not sensible: convert the model again")
    heads = fields.number("attention.head_count", 0)
    width = fields.number("embedding_length")
    size = width // heads if heads else 0
    return ModelHeader(
        files=tuple(shard.identity for shard in shards),
        header_sizes=tuple(shard.size for shard in shards),
        architecture=fields.architecture,
        name=fields.text("general.name") or os.path.basename(path),
        layers=layers,
        width=width,
        ffn=fields.number("feed_forward_length", 0),
        heads=heads,
        kv_heads=fields.per_layer("attention.head_count_kv", layers, heads),
        key_size=fields.number("attention.key_length", size),
        value_size=fields.number("attention.value_length", size),
        trained_context=fields.number("context_length", 0),
        sliding_window=fields.number("attention.sliding_window", 0),
        experts=fields.number("expert_count", 0),
        recurrent=fields.has("ssm.state_size") or fields.architecture.startswith(_RECURRENT),
        vocabulary=_vocabulary(fields, os.path.basename(path)),
        chat_template=fields.text("tokenizer.chat_template"),
        tensors=tuple(tensor for shard in shards for tensor in shard.tensors),
    )


def _read_shards(first: RawHeader) -> list[RawHeader]:
    count, path = first.fields.get("split.count", 1), first.identity.path
    if not isinstance(count, int) or count <= 1:
        return [first]
    match = _SHARD.match(path)
    if not match or int(match[3]) != count:
        raise ModelInvalid(f"{os.path.basename(path)}: is one of {count} shards but not named so: restore the original name")
    if first.fields.get("split.no") != 0 or int(match[2]) != 1:
        raise ModelInvalid(f"{os.path.basename(path)}: is not the first shard: name {match[1]}-00001-of-{match[3]}.gguf")
    shards = [first]
    for number in range(1, count):
        name = f"{match[1]}-{number + 1:05d}-of-{match[3]}.gguf"
        try:
            shard = read_header(name, number)
        except ModelNotFound:
            raise ModelNotFound(f"shard {os.path.basename(name)} is missing: download it too") from None
        if shard.fields.get("split.no") != number or shard.fields.get("split.count") != count:
            raise ModelInvalid(f"shard {os.path.basename(name)} belongs to another place or model: download it again")
        shards.append(shard)
    names = [tensor.name for shard in shards for tensor in shard.tensors]
    expected = first.fields.get("split.tensors.count", len(names))
    if len(set(names)) != len(names) or expected != len(names):
        raise ModelInvalid(f"{os.path.basename(path)}: the shards do not make one model: download them again")
    return shards


def _vocabulary(fields: _Fields, name: str) -> Vocabulary:
    tokens = fields.raw("tokenizer.ggml.tokens")
    if not isinstance(tokens, tuple) or not tokens or not all(type(token) is bytes for token in tokens):
        raise ModelInvalid(f"{name}: carries no vocabulary: convert the model again")
    texts = tuple(token for token in tokens if isinstance(token, bytes))
    model, pre = fields.text("tokenizer.ggml.model") or "", fields.text("tokenizer.ggml.pre") or ""
    merges = fields.raw("tokenizer.ggml.merges")
    rules = len(merges) if isinstance(merges, tuple) else 0
    return Vocabulary(model, pre, texts, fields.token_id("bos"), fields.token_id("eos"), rules)


def check_pair(target: ModelHeader, drafter: ModelHeader) -> None:
    """Raise PairMismatch naming the first difference that would make a draft mean another text."""
    a, b = target.vocabulary, drafter.vocabulary

    def refuse(what: str) -> PairMismatch:
        return PairMismatch(f"drafter and target differ in {what}: use a drafter of the target's family, or none")

    facts = {
        "tokenizer type": (a.model, b.model),
        "pre-tokenizer": (a.pre, b.pre),
        "the BOS token": (a.bos, b.bos),
        "the EOS token": (a.eos, b.eos),
    }
    for role, (one, other) in facts.items():
        if one != other:
            raise refuse(f"{role} ({one!r}, {other!r})")
    shared = min(len(a.tokens), len(b.tokens))
    if abs(len(a.tokens) - len(b.tokens)) > _MAX_PADDING:
        raise refuse(f"vocabulary size ({len(a.tokens)}, {len(b.tokens)})")
    for token, (left, right) in enumerate(zip(a.tokens[:shared], b.tokens[:shared], strict=True)):
        if left != right:
            raise refuse(f"token {token} ({left!r}, {right!r})")


def unchanged(identity: FileIdentity) -> bool:
    """Whether the file at that path is still the one that was validated."""
    try:
        stat = os.stat(identity.path)
    except OSError:
        return False
    return FileIdentity.of(identity.path, stat) == identity
