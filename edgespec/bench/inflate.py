"""Make a big model out of a small one without changing its function.

``python -m edgespec.bench.inflate models/edgespec-target.gguf OUT.gguf --size 1GiB``

Width, heads and feed-forward are zero-padded, and layers are added whose attention output and feed-forward output
are zero. What those zeros make irrelevant is filled with random weights, so that the file has no holes and no
compressible runs: bytes and arithmetic are the big model's, text and acceptance the small one's.
RMS norms divide by the mean over the new width, so weights are scaled by sqrt(old / new) and eps by old / new.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, ReaderTensor, quants
from numpy.typing import NDArray

from edgespec.errors import ModelInvalid
from edgespec.memory.budget import parse_size

__all__ = ["inflate"]

POOL = 1 << 16  # random blocks drawn at a time; longer tensors repeat them, rotated
DEPTH = 28  # layers of a usual model of this size
BLOCK = 32  # weights a block; each has one half-precision scale, then its codes
BLOCK_BYTES = {"Q8_0": 34, "Q4_0": 18}
Blocks = NDArray[np.uint8]  # (rows, columns / 32, bytes of a block)


@dataclass(frozen=True)
class Sizes:
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    ffn: int
    vocab: int
    kind: str = "Q8_0"

    def weights(self) -> int:
        q, kv = self.heads * self.head_size, self.kv_heads * self.head_size
        return self.vocab * self.width + self.layers * self.width * (2 * q + 2 * kv + 3 * self.ffn)

    def file_bytes(self) -> int:
        return self.weights() * BLOCK_BYTES[self.kind] // BLOCK


def field(reader: GGUFReader, suffix: str) -> int:
    return int(reader.fields[f"llama.{suffix}"].contents())


def sizes_of(reader: GGUFReader) -> Sizes:
    return Sizes(
        width=field(reader, "embedding_length"),
        layers=field(reader, "block_count"),
        heads=field(reader, "attention.head_count"),
        kv_heads=field(reader, "attention.head_count_kv"),
        head_size=field(reader, "attention.key_length"),
        ffn=field(reader, "feed_forward_length"),
        vocab=field(reader, "vocab_size"),
    )


def grown(small: Sizes, target_bytes: int, depth: int = DEPTH) -> Sizes:
    """The shape of a usual model (feed-forward about 3 widths, 4 queries a key head) nearest below `target_bytes`.

    Of such shapes the one whose number of layers is nearest to `depth`.
    """
    best = small
    for width in range(small.width, 8193, 256):
        group = small.heads // small.kv_heads * (2 if width >= 1024 else 1)
        kv_heads = max(small.kv_heads, width // small.head_size // group)
        ffn = max(small.ffn, 3 * width // 256 * 256)
        shape = replace(small, width=width, heads=kv_heads * group, kv_heads=kv_heads, ffn=ffn)
        layer = replace(shape, layers=1).file_bytes() - replace(shape, layers=0).file_bytes()
        layers = (target_bytes - replace(shape, layers=0).file_bytes()) // layer
        if layers < small.layers or layers > 80:
            continue
        candidate = replace(shape, layers=int(layers))
        if abs(candidate.layers - depth) < abs(best.layers - depth) or best is small:
            best = candidate
    return best


def random_blocks(rng: np.random.Generator, kind: str, rows: int, columns: int, scale: float) -> Blocks:
    """Rows of valid blocks whose bytes do not compress; with scale 0 every weight is exactly zero."""
    count, size = rows * columns // BLOCK, BLOCK_BYTES[kind]
    pool = rng.integers(0, 256, (min(count, POOL) + 977, size), dtype=np.uint8)
    pool[:, :2] = np.frombuffer(np.float16(scale).tobytes(), np.uint8)
    pieces = [np.roll(pool, int(rng.integers(len(pool))), axis=0)[: min(POOL, count - start)] for start in range(0, count, POOL)]
    return np.concatenate(pieces).reshape(rows, columns // BLOCK, size)


def head_rows(old: Sizes, new: Sizes, queries: bool) -> NDArray[np.int64]:
    """Where each old head's rows stand among the new heads: a query keeps its key head when groups widen."""
    if not queries:
        return np.arange(old.kv_heads * old.head_size)
    group, wide = old.heads // old.kv_heads, new.heads // new.kv_heads
    heads = np.array([h // group * wide + h % group for h in range(old.heads)])
    return (heads[:, None] * old.head_size + np.arange(old.head_size)).ravel()


class Inflater:
    def __init__(self, reader: GGUFReader, new: Sizes, seed: int) -> None:
        self.old, self.new = sizes_of(reader), new
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        self.rng = np.random.default_rng(seed)

    def tensor(self, name: str) -> NDArray[np.generic]:
        """The inflated weight `name`, as the bytes that go into the file."""
        if name.endswith("norm"):
            return self.norm(f"{name}.weight")
        out = self.embedding() if name == "token_embd" else self.matrix(*_layer_and_kind(name))
        return out.reshape(out.shape[0], -1)

    def shape(self, name: str) -> tuple[int, int]:
        """(rows, columns) of matrix `name` after inflation."""
        new, kind = self.new, name.rpartition(".")[2]
        q, kv = new.heads * new.head_size, new.kv_heads * new.head_size
        return {
            "token_embd": (new.vocab, new.width),
            "attn_q": (q, new.width),
            "attn_k": (kv, new.width),
            "attn_v": (kv, new.width),
            "attn_output": (new.width, q),
            "ffn_gate": (new.ffn, new.width),
            "ffn_up": (new.ffn, new.width),
            "ffn_down": (new.width, new.ffn),
        }[kind]

    def norm(self, name: str) -> NDArray[np.float32]:
        old = self.tensors[name].data if name in self.tensors else np.ones(self.old.width, np.float32)
        out = np.zeros(self.new.width, np.float32)
        out[: self.old.width] = old * np.sqrt(self.old.width / self.new.width)
        return out

    def embedding(self) -> Blocks:
        out = random_blocks(self.rng, self.new.kind, self.new.vocab, self.new.width, scale=0)
        out[:, : self.old.width // BLOCK] = blocks(self.tensors["token_embd.weight"], self.new.kind)
        return out

    def matrix(self, layer: int, kind: str) -> Blocks:
        """One weight of one layer. Outputs into the residual stream are zero outside the old part."""
        new, old = self.new, self.old
        to_stream = kind in ("attn_output", "ffn_down")
        out = random_blocks(self.rng, new.kind, *self.shape(kind), scale=0 if to_stream else 0.0002)
        if layer >= old.layers:
            return out
        small = blocks(self.tensors[f"blk.{layer}.{kind}.weight"], new.kind)
        if kind == "attn_output":
            places = head_rows(old, new, queries=True).reshape(-1, BLOCK)[:, 0] // BLOCK
            out[: old.width, places] = small
        elif kind in ("attn_q", "attn_k", "attn_v"):
            out[head_rows(old, new, queries=kind == "attn_q"), : old.width // BLOCK] = small
        else:
            out[: small.shape[0], : small.shape[1]] = small
        return out


def _layer_and_kind(name: str) -> tuple[int, str]:
    _, layer, kind = name.split(".")
    return int(layer), kind


def blocks(tensor: ReaderTensor, kind: str) -> Blocks:
    """The tensor's blocks, quantized again if they are to be of another kind."""
    if tensor.tensor_type != GGMLQuantizationType.Q8_0:
        raise ModelInvalid(f"{tensor.name} is {tensor.tensor_type.name}: only Q8_0 models can be inflated")
    rows = int(tensor.shape[1])
    data = np.asarray(tensor.data)
    if kind != "Q8_0":
        data = quants.quantize(quants.dequantize(data, GGMLQuantizationType.Q8_0), GGMLQuantizationType[kind])
    return data.view(np.uint8).reshape(rows, -1, BLOCK_BYTES[kind])


def copy_metadata(reader: GGUFReader, writer: GGUFWriter, new: Sizes, note: str) -> None:
    """Every field of the small model, with the sizes, the norm eps and the name replaced."""
    old = sizes_of(reader)
    eps = float(reader.fields["llama.attention.layer_norm_rms_epsilon"].contents()) * old.width / new.width
    changed = {
        "general.name": f"{reader.fields['general.name'].contents()} ({note})",
        "general.description": note,
        "llama.embedding_length": new.width,
        "llama.block_count": new.layers,
        "llama.feed_forward_length": new.ffn,
        "llama.attention.head_count": new.heads,
        "llama.attention.head_count_kv": new.kv_heads,
        "llama.attention.layer_norm_rms_epsilon": eps,
    }
    for name, item in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        sub = item.types[1] if item.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(name, changed.get(name, item.contents()), item.types[0], sub_type=sub)


def layer_names(layer: int) -> list[str]:
    kinds = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
    return [f"blk.{layer}.{kind}" for kind in ["attn_norm", "ffn_norm", *kinds]]


def inflate(source: Path, out: Path, target_bytes: int, seed: int = 0, kind: str = "Q8_0", depth: int = DEPTH) -> Sizes:
    """Write `out`, about `target_bytes` long, with one tensor in memory at a time; published by rename."""
    reader = GGUFReader(source)
    old = replace(sizes_of(reader), kind=kind)
    new = grown(old, target_bytes, depth)
    note = f"inflated by zero padding from {old.width}x{old.layers} to {new.width}x{new.layers}, same function"
    note += "" if kind == "Q8_0" else f" but for rounding to {kind}"
    partial = out.with_suffix(".partial")
    writer = GGUFWriter(partial, "llama")
    copy_metadata(reader, writer, new, note)
    inflater = Inflater(reader, new, seed)
    names = ["token_embd", "output_norm", *(name for layer in range(new.layers) for name in layer_names(layer))]
    for name in names:
        if name.endswith("norm"):
            writer.add_tensor_info(f"{name}.weight", (new.width,), np.dtype(np.float32), 4 * new.width)
        else:
            rows, columns = inflater.shape(name)
            row_bytes = columns // BLOCK * BLOCK_BYTES[kind]
            writer.add_tensor_info(
                f"{name}.weight", (rows, row_bytes), np.dtype(np.uint8), rows * row_bytes, GGMLQuantizationType[kind]
            )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name in names:
        writer.write_tensor_data(inflater.tensor(name))
    writer.close()
    partial.replace(out)
    return new


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", type=parse_size, required=True, help="bytes, or with a unit: 1GiB, 150MB")
    parser.add_argument("--type", choices=list(BLOCK_BYTES), default="Q8_0", help="Q8_0 keeps the small model's text")
    parser.add_argument("--layers", type=int, default=DEPTH, help="of about so many; the small model's number adds none")
    args = parser.parse_args()
    sys.stderr.write(f"inflating {args.source.name} to about {args.size >> 20} MiB: {args.out}\n")
    sys.stderr.write(f"{inflate(args.source, args.out, args.size, kind=args.type, depth=args.layers)}\n")


if __name__ == "__main__":
    main()
