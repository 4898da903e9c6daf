"""Pure: what an engine holds beside a model's weights, by what its header says.

The sizes are llama.cpp's on a CPU, found by letting it reserve graphs of many shapes; a test compares what is said here with
what it reports. They err on the high side.
"""

from __future__ import annotations

from edgespec.memory.layout import PAGE
from edgespec.memory.resident import ROW_BUDGET, embedding_by_rows
from edgespec.types import KvType, ModelHeader

__all__ = [
    "CELLS_STEP", "KEY_BLOCK", "compute_bytes", "context_bytes", "core_bytes", "kv_bytes", "output_bytes", "sampling_bytes",
    "tokenizer_bytes",
]  # fmt: skip

CELLS_STEP = 256  # the engine rounds contexts up to this
KEY_BLOCK = 32  # a head's keys are quantized in blocks of this many
_KEY_BYTES = {"f16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}  # per cached number
_FLOAT, _HALF = 4, 2
_CONVERTED = 1.2  # bytes of a number that a matrix product takes as eight bits, scales included
_TAG_BYTES = 48  # of a cell, for each sequence that sees it
_NODE_BYTES = 2700  # of a node of the graph, in the scheduler and in graphs that are kept
_LEAST_NODES, _NODES_A_WEIGHT = 1024, 8
_TOKEN_BYTES, _MERGE_BYTES = 165, 105  # in a tokenizer's tables
_SAMPLED_BYTES = 40  # of a token while it is drawn: candidates of the engine, and our copies of a row


def kv_bytes(header: ModelHeader, context: int, keys: KvType) -> int:
    """Keys as asked and values in half precision, of `context` tokens; layers that look at a window keep all, too."""
    return int(_cells(context) * sum(header.kv_heads) * (header.key_size * _KEY_BYTES[keys] + header.value_size * _HALF))


def context_bytes(header: ModelHeader, context: int, chunk: int, rows: int, *, flash: bool = False) -> int:
    """A context of so many cells beside its KV cache, for passes of `chunk` tokens, `rows` of them with logits.

    There are as many sequences as rows. With `flash` attention no scores are kept.
    """
    tags = _TAG_BYTES * rows * _cells(context) * _caches(header)
    nodes = _NODE_BYTES * max(_LEAST_NODES, _NODES_A_WEIGHT * len(header.tensors))
    work = _work_bytes(header, context, chunk, flash=flash)
    return compute_bytes(header, context, chunk, rows, flash=flash) + output_bytes(header, rows) + work + tags + nodes


def compute_bytes(header: ModelHeader, context: int, chunk: int, rows: int, *, flash: bool = False) -> int:
    """Activations of one pass: whatever stage of a layer, or the logits, needs the most at a time."""
    cells, tokens = _cells(context), _reserved(context, chunk, rows)
    width, queries = header.width, header.heads * header.key_size
    values = max(header.kv_heads) * header.value_size
    masks = _caches(header) * (cells // 2 + 8 if flash else cells + 2 * values + 4)  # and where keys and values go
    scores = 0 if flash else header.heads * cells
    attention = 4 * width + (3 if flash else 2) * queries + scores + masks
    feed_forward = 4 * width + queries + 3 * header.ffn + masks
    logits = rows * (len(header.vocabulary.tokens) + 2 * width) + tokens * 3 * width
    return _FLOAT * max(tokens * max(attention, feed_forward), logits)


def output_bytes(header: ModelHeader, rows: int) -> int:
    """Where the engine puts logits; zeroed, and so there, from the beginning. Beside them the vocabulary's ids."""
    return _FLOAT * (rows + 1) * len(header.vocabulary.tokens)


def _work_bytes(header: ModelHeader, context: int, chunk: int, *, flash: bool) -> int:
    """The CPU's copy of what a matrix product multiplies weights, or values, with."""
    scores = 0 if flash else _HALF * header.heads * _cells(context)
    return int(_reserved(context, chunk, 1) * max(scores, _CONVERTED * max(header.ffn, header.heads * header.key_size)))


def tokenizer_bytes(header: ModelHeader) -> int:
    """Of an engine's tables to encode and decode with."""
    return _TOKEN_BYTES * len(header.vocabulary.tokens) + _MERGE_BYTES * header.vocabulary.merges


def sampling_bytes(header: ModelHeader) -> int:
    """Of drawing one token."""
    return _SAMPLED_BYTES * len(header.vocabulary.tokens)


def core_bytes(header: ModelHeader) -> int:
    """Of weights that belong to no layer, as they lie in memory."""
    sizes = {tensor.name: tensor.size for tensor in header.core_tensors}
    if by_rows := embedding_by_rows(header):
        sizes[by_rows.name] = ROW_BUDGET
    return sum(-(-size // PAGE) * PAGE + PAGE for size in sizes.values())


def _cells(context: int) -> int:
    return -(-context // CELLS_STEP) * CELLS_STEP


def _reserved(context: int, chunk: int, rows: int) -> int:
    """Tokens of the graph that is reserved: whole multiples of the sequences."""
    return -(-min(chunk, _cells(context)) // rows) * rows


def _caches(header: ModelHeader) -> int:
    """Layers that look at a window have a cache and a mask of their own."""
    return 2 if header.sliding_window else 1
