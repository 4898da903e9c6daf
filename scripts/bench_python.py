"""What Python costs in a paged sweep, alone and beside a busy Python thread: ``python scripts/bench_python.py``.

The model is random: the shape of a small real one with a 151,936-token vocabulary, trees of 32 nodes. Compared are the
whole round, the engine's pass inside it, and the same pass without callbacks (plain mmap, everything cached).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from edgespec.engines.llamacpp.library import llama
from edgespec.engines.llamacpp.model import LlamaModel
from edgespec.memory.layout import segment_sizes, spread
from edgespec.modelfile.header import read_model
from edgespec.speculation.decoder import Decoder
from edgespec.speculation.drafting.base import NoDrafter, Worth
from edgespec.speculation.policy import FixedPolicy
from edgespec.speculation.tree import DraftTree
from edgespec.types import MemoryPlan, ModelHeader, SamplingParams

NODES = 32


def write_random(path: Path, *, vocabulary: int, width: int, layers: int) -> None:
    writer, rng = gguf.GGUFWriter(path, "llama"), np.random.default_rng(0)
    heads, ffn = width // 64, 3 * width
    writer.add_block_count(layers)
    writer.add_context_length(1024)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads // 4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([f"t{i}" for i in range(vocabulary)])
    writer.add_token_merges(["t 0"])
    writer.add_eos_token_id(0)

    def matrix(name: str, rows: int, columns: int) -> None:
        blocks = rng.integers(0, 256, (rows, columns // 32, 34), dtype=np.uint8)
        blocks[..., :2] = np.frombuffer(np.float16(0.0002).tobytes(), np.uint8)
        writer.add_tensor(name, blocks.reshape(rows, -1), raw_dtype=gguf.GGMLQuantizationType.Q8_0)

    matrix("token_embd.weight", vocabulary, width)
    writer.add_tensor("output_norm.weight", np.ones(width, np.float32))
    for layer in range(layers):
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(width, np.float32))
        for name, rows, columns in (
            ("attn_q", width, width), ("attn_k", width // 4, width), ("attn_v", width // 4, width), ("attn_output", width, width),
            ("ffn_gate", ffn, width), ("ffn_up", ffn, width), ("ffn_down", width, ffn),
        ):  # fmt: skip
            matrix(f"blk.{layer}.{name}.weight", rows, columns)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Bush(NoDrafter):
    """Drafts a fixed bush of nodes: the cost of real drafting is not in question here."""

    promise = -1.0

    def begin(self, pending: int) -> DraftTree:
        self._tree = DraftTree(pending)
        return self._tree

    def step(self, worth: Worth) -> bool:
        while worth(len(self._tree) - 1, -1.0):
            node = len(self._tree) - 1
            self._tree.add(node // 2, node + 1, -1.0)
        return False

    def commit(self, path: Sequence[int], pending: int) -> DraftTree:
        return self.begin(pending)


def plan_for(header: ModelHeader, *, paged: bool) -> MemoryPlan:
    sizes = segment_sizes(header)
    chosen = spread(list(sizes.values()), sum(sizes.values()) // 2) if paged else ()
    streamed = tuple(list(sizes)[index] for index in chosen)
    return MemoryPlan(1 << 40, "slots" if paged else "mmap", 1024, 64, NODES, "f16", (), len(sizes), streamed, 64 << 20, 0, 0)


def rounds(model: LlamaModel, count: int) -> tuple[float, float, float]:
    """Medians in seconds: a whole round, the engine's pass in it, and the waiting for the disk in that."""
    session = model.session(context=1024, chunk=64, max_nodes=NODES)
    inside: list[float] = []
    lib = llama()
    decode = lib.llama_decode

    def timed(*arguments: Any) -> int:
        started = time.perf_counter()
        code: int = decode(*arguments)
        inside.append(time.perf_counter() - started)
        return code

    lib.llama_decode = timed
    sampler = model.sampler(SamplingParams(temperature=0.8, seed=1))
    decoder = Decoder(session, Bush(), FixedPolicy(NODES), sampler, ends=lambda token: False)
    whole, waits = [], []
    started, waited = time.perf_counter(), model.wait_seconds
    for done in decoder.rounds([1, 2, 3, 4, 5], 10**6):
        whole.append(time.perf_counter() - started)
        waits.append(model.wait_seconds - waited)
        if len(whole) == count:
            break
        del done
        started, waited = time.perf_counter(), model.wait_seconds
    lib.llama_decode = decode
    session.close()
    return statistics.median(whole[1:]), statistics.median(inside[1:]), statistics.median(waits[1:])


@contextmanager
def busy() -> Iterator[None]:
    """A thread that never lets go of the GIL of its own will."""
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            pass

    thread = threading.Thread(target=spin, daemon=True)
    thread.start()
    yield
    stop.set()
    thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--width", type=int, default=1536)
    parser.add_argument("--layers", type=int, default=28)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        path = Path(folder) / "random.gguf"
        write_random(path, vocabulary=args.vocabulary, width=args.width, layers=args.layers)
        header = read_model(path)
        plain = LlamaModel(header, plan_for(header, paged=False), threads=2)
        reference = rounds(plain, args.rounds)
        with busy():
            reference_crowded = rounds(plain, args.rounds)
        plain.close()
        paged = LlamaModel(header, plan_for(header, paged=True), threads=2, strict=True)
        alone = rounds(paged, args.rounds)
        callbacks = paged.callback_seconds
        with busy():
            crowded = rounds(paged, args.rounds)
        paged.close()
    print(f"{header.weight_bytes / 1e9:.2f} GB, {args.layers} layers, half streamed, {NODES} nodes, vocabulary {args.vocabulary}")
    measured = {
        "without callbacks": reference, "the same, busy thread": reference_crowded, "paged": alone, "paged, busy thread": crowded,
    }  # fmt: skip
    for name, (whole, inside, wait) in measured.items():
        print(
            f"{name:>22}: round {whole * 1e3:.1f} ms, pass {inside * 1e3:.1f} ms, of which waiting for disk {wait * 1e3:.1f} ms"
        )
    outside = alone[0] - alone[1] + callbacks / args.rounds
    print(
        f"Python per sweep, callbacks and everything outside the pass: {outside * 1e3:.1f} ms, {outside / alone[0]:.1%}",
        file=sys.stdout,
    )
    print(f"beside a busy thread, paged pass / pass without callbacks: {crowded[1] / reference_crowded[1]:.2f}x")


if __name__ == "__main__":
    main()
