"""The nouns of edgespec: frozen, named once, shared by every room. Sizes are bytes and times seconds throughout."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from edgespec.errors import UsageError

__all__ = [
    "MOST_TOP_LOGPROBS", "ROW_BLOCK", "Acceptance", "Chunk", "Completion", "Expected", "FileIdentity", "FinishReason", "Floats",
    "Item", "KvType", "MemoryPlan", "ModelHeader", "Pages", "Paging", "Round", "SamplingParams", "Speculation", "Stage",
    "Statistics", "Tables", "TensorExtent", "TokenLogprob", "Vocabulary",
]  # fmt: skip

Floats = NDArray[np.float32]
_COLDEST, _WHOLE = 1e-3, ("top_k", "seed", "max_tokens", "top_logprobs")
MOST_TOP_LOGPROBS = 20  # as the OpenAI API has it
ROW_BLOCK = 4  # the engine's matrix kernels work on this many rows at a time: three nodes cost about what four do
Paging = Literal["slots", "mmap", "resident"]
Speculation = Literal["auto", "tree", "chain", "llmcad", "off"]
KvType = Literal["f16", "q8_0", "q4_0"]
Pages = Literal["auto", "off"]
Stage = Literal["ngram", "datastore", "layers", "drafter", "self"]
Tables = dict[str, dict[int, float]]  # what running teaches: name of a table -> row count, or another small key -> value
FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True)
class FileIdentity:
    """Which file was validated; a file that differs in any of these is another file."""

    path: str
    device: int
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: str, stat: os.stat_result) -> FileIdentity:
        return cls(path, stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)


@dataclass(frozen=True)
class TensorExtent:
    """Where a weight's bytes lie: `offset` counts from the start of file number `file` of the model."""

    name: str
    shape: tuple[int, ...]  # fastest dimension first, as GGUF writes it
    kind: str  # quantization type, "Q4_0"
    file: int
    offset: int
    size: int


@dataclass(frozen=True)
class Vocabulary:
    """What decides whether two models speak of the same tokens."""

    model: str  # "gpt2" (byte-level BPE), "llama" (SentencePiece) ...
    pre: str
    tokens: tuple[bytes, ...] = field(repr=False)
    bos: int | None
    eos: int | None
    merges: int = 0  # rules of how tokens are put together, which a tokenizer holds too


@dataclass(frozen=True)
class ModelHeader:
    """Everything known about a model without reading a weight."""

    files: tuple[FileIdentity, ...]
    header_sizes: tuple[int, ...]  # bytes before the first weight, per file
    architecture: str
    name: str
    layers: int
    width: int
    ffn: int
    heads: int
    kv_heads: tuple[int, ...]  # per layer
    key_size: int
    value_size: int
    trained_context: int
    sliding_window: int
    experts: int
    recurrent: bool
    vocabulary: Vocabulary
    chat_template: str | None
    tensors: tuple[TensorExtent, ...] = field(repr=False)

    @property
    def path(self) -> str:
        return self.files[0].path

    @property
    def weight_bytes(self) -> int:
        return sum(tensor.size for tensor in self.tensors)

    def layer_tensors(self, layer: int) -> tuple[TensorExtent, ...]:
        return tuple(tensor for tensor in self.tensors if tensor.name.startswith(f"blk.{layer}."))

    @property
    def core_tensors(self) -> tuple[TensorExtent, ...]:
        """Embedding, head and final norms: whatever belongs to no layer."""
        return tuple(tensor for tensor in self.tensors if not tensor.name.startswith("blk."))


@dataclass(frozen=True)
class Expected:
    """Tokens per second to expect: without drafts, and with them from mostly wrong to mostly right; None where nothing drafts."""

    plain: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Item:
    """One line of the plan."""

    name: str
    size: int
    note: str = ""


@dataclass(frozen=True)
class MemoryPlan:
    """Where every byte of the budget goes. `streamed` are segment keys (see `memory.layout`); the others are pinned."""

    budget: int
    paging: Paging
    context: int
    chunk: int  # prompt tokens per sweep
    max_nodes: int
    kv_type: KvType
    items: tuple[Item, ...]
    segments: int
    streamed: tuple[int, ...]
    ring_bytes: int
    streamed_bytes: int  # read from disk in every sweep
    minimum: int
    notes: tuple[str, ...] = ()
    kept: tuple[int, ...] = ()  # layers that are pinned whole, to draft with
    draft_cells: int = 0  # of the drafter's context are in memory, the others in a file; 0: all are in memory

    @property
    def total(self) -> int:
        return sum(item.size for item in self.items)


@dataclass(frozen=True)
class SamplingParams:
    """One sampler chain. The defaults are greedy; order and meaning are llama-cpp-python's. The token drawn for a seed is
    edgespec's own: tokens share the draw in the order of their ids.

    Temperatures below 0.001 are 0: divided by less, logits are no numbers any more.
    """

    temperature: float = 0.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0  # taken from a token's logit each time it was said lately
    presence_penalty: float = 0.0  # once, if it was
    seed: int = 0
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    logprobs: bool = False
    top_logprobs: int = 0  # that many of the likeliest tokens come with each token's log-probability
    grammar: str = ""  # GBNF; nothing it does not allow is drawn

    def __post_init__(self) -> None:
        try:
            self._check()
        except TypeError as error:
            raise UsageError(f"a sampling option has a value of the wrong kind ({error})") from None
        for name in _WHOLE:
            object.__setattr__(self, name, int(getattr(self, name)))  # JSON has 5.0 for 5
        if self.temperature < _COLDEST:
            object.__setattr__(self, "temperature", 0.0)

    def _check(self) -> None:
        checks = {
            "temperature": 0 <= self.temperature <= 100,
            "top_k": 0 <= self.top_k < 2**31,
            "top_p": 0 < self.top_p <= 1,
            "min_p": 0 <= self.min_p <= 1,
            "repeat_penalty": 0.01 <= self.repeat_penalty <= 100,
            "frequency_penalty": -2 <= self.frequency_penalty <= 2,
            "presence_penalty": -2 <= self.presence_penalty <= 2,
            "seed": 0 <= self.seed < 2**32 - 1,  # the largest value asks the engine for a random seed
            "max_tokens": 1 <= self.max_tokens < 2**31,
            "top_logprobs": 0 <= self.top_logprobs <= MOST_TOP_LOGPROBS,
            "stop": all(isinstance(text, str) and text for text in self.stop),
        }
        for name, good in checks.items():
            if not good:
                raise UsageError(f"{name}={getattr(self, name)!r} is out of range")
        if fraction := [name for name in _WHOLE if getattr(self, name) % 1]:
            raise UsageError(f"{fraction[0]}={getattr(self, fraction[0])!r} is not a whole number")


@dataclass(frozen=True)
class TokenLogprob:
    """Of an emitted token: its log-probability (nats), and the likeliest tokens of its place with theirs, by falling ones."""

    logprob: float
    top_logprobs: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Acceptance:
    """What a verifier made of a tree: the accepted path from node 0, and the tokens to emit.

    `tokens[-1]` is the target's own next token, in no cache yet: the next tree's node 0.
    """

    path: tuple[int, ...]
    tokens: tuple[int, ...]
    near_ties: int
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class Round:
    """One pass of the decode loop."""

    tokens: tuple[int, ...]
    from_draft: tuple[bool, ...]
    nodes: int  # drafted nodes the target scored, the pending token not counted
    accepted: int  # of these
    near_ties: int
    logprobs: tuple[TokenLogprob, ...]
    draft_seconds: float  # outside the target's stalls
    sweep_seconds: float
    drafted_ahead: int = 0  # nodes drafted in stalls, since the generation began
    kept_ahead: int = 0  # of these, how many the next tree could use


@dataclass(frozen=True)
class Statistics:
    """Running totals of one generation."""

    prompt_tokens: int = 0
    cached_tokens: int = 0  # of these, what was not read again
    tokens: int = 0
    passes: int = 0
    drafted: int = 0
    accepted: int = 0
    drafted_ahead: int = 0  # nodes drafted while the target waited for the disk
    kept_ahead: int = 0  # of these, how many the next tree could use
    near_ties: int = 0
    bytes_paged: int = 0
    load_seconds: float = 0.0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    draft_seconds: float = 0.0
    wait_seconds: float = 0.0  # the target waiting for the disk
    idle_seconds: float = 0.0  # such waits spent drafting
    read_seconds: float = 0.0  # the disk reading, whether waited for or not
    callback_seconds: float = 0.0  # Python at layer boundaries, waiting not counted
    ceiling_tokens_per_second: float = 0.0  # by calibrated costs of the trees that were verified, and what earlier rounds took
    speculation: str = "off"
    stages: tuple[Stage, ...] = ()
    draft_view: str = "full"
    verify: str = "match"  # how guesses were judged; "lossy ..." where the text is not the target's own
    policy_reason: str = ""

    @property
    def draft_acceptance(self) -> float:
        """Share of the verified nodes that were accepted."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def draft_seconds_per_token(self) -> float:
        """Of drafting, stalls included, per node."""
        return (self.draft_seconds + self.idle_seconds) / self.drafted if self.drafted else 0.0

    @property
    def tokens_per_pass(self) -> float:
        return self.tokens / self.passes if self.passes else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Tokens after the first, over the time after the first."""
        return (self.tokens - 1) / self.decode_seconds if self.decode_seconds > 0 and self.tokens > 1 else 0.0


@dataclass(frozen=True)
class Chunk:
    """A piece of a streamed answer: whole characters, and the tokens that arrived with them.

    `spans` are the same characters, each with whether the token that completed it was drafted.
    """

    text: str
    tokens: tuple[int, ...]
    from_draft: tuple[bool, ...]
    statistics: Statistics
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None
    spans: tuple[tuple[str, bool], ...] = ()


@dataclass(frozen=True)
class Completion:
    text: str
    tokens: tuple[int, ...]
    finish_reason: FinishReason
    statistics: Statistics
    logprobs: tuple[TokenLogprob, ...] = ()
