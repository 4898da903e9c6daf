"""The self-test of an engine build: `python -m edgespec.engines.llamacpp.selftest`, the child process of `proof`.

The embedded pair must compute what its golden file has: one row, trees, with its weights resident and paged, and the drafter.
Then the same text is read in passes of different widths, to see how far this build's logits differ by that alone.

It prints what it is doing, for whoever finds it dead, and last one JSON object: the fields of a `Proof`, or the `failure`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import numpy as np

from edgespec.engines.golden import GoldenFile, GoldenPass
from edgespec.engines.llamacpp.kernels import steady_layouts
from edgespec.engines.llamacpp.model import LlamaModel
from edgespec.engines.llamacpp.proof import GOLDEN
from edgespec.engines.llamacpp.session import LlamaSession
from edgespec.errors import EdgespecError, EngineError, EngineMissing, ModelInvalid
from edgespec.memory.layout import segment_sizes
from edgespec.modelfile.header import read_model
from edgespec.shipped import embedded_model, shipped
from edgespec.speculation.tree import DraftTree
from edgespec.types import Floats, MemoryPlan, ModelHeader

__all__ = ["main", "measured_rounding", "paged_plan", "scored"]

_THREADS = 2  # kernels share their work among threads: one alone would leave that out
_CONTEXT, _CHUNK, _NODES = 512, 64, 32
_RING = 4 << 20
_SAFETY = 2.0  # where a build rounds at all, rows of other texts differed by twice as much: 0.24 where 0.11 was measured
_STEP, _DECOYS = 3, 4  # of the measurement's trees: nodes that are right, and others beside each of them


def main() -> int:
    try:
        rounding = _tested(GoldenFile.read(shipped(GOLDEN)))
        _say("products of different widths")
        _say(json.dumps({"rounding": rounding, "steady": steady_layouts()}))
    except EngineMissing as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except EdgespecError as error:
        _say(json.dumps({"failure": str(error)}))
    return 0


def _tested(golden: GoldenFile) -> float:
    """How much this build rounds. Raises EdgespecError where it computes wrongly."""
    for role, digest in golden.models.items():
        if hashlib.sha256(embedded_model(role).read_bytes()).hexdigest() != digest:
            raise ModelInvalid(f"the embedded {role} is damaged")
    for role, weights in (("drafter", "resident"), ("target", "paged"), ("target", "resident")):
        passes = [one for one in golden.passes if one.model == role]
        with _loaded(role, weights) as model:
            for one in passes:
                _say(f"{one.name}, {role}, {weights}")
                if wrong := one.difference(scored(model, one)):
                    raise EngineError(f"{wrong} in {one.name}, {role}, {weights}")
    with _loaded("target", "resident") as model:
        _say("passes of different widths")
        return measured_rounding(model, [one for one in passes if max(one.parents) > 0])


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()  # whoever finds this process dead reads it


@contextmanager
def _loaded(role: str, weights: str) -> Iterator[LlamaModel]:
    """Where this system has no slots, or this engine another layout, paged weights are mapped ones."""
    _say(f"loading the {role}, {weights}")
    header = read_model(embedded_model(role))
    with closing(LlamaModel(header, paged_plan(header) if weights == "paged" else None, threads=_THREADS)) as model:
        yield model


def paged_plan(header: ModelHeader) -> MemoryPlan:
    """Every second segment streams, which no budget would make of a model that small."""
    sizes = segment_sizes(header)
    return MemoryPlan(
        budget=0, paging="slots", context=_CONTEXT, chunk=_CHUNK, max_nodes=_NODES, kv_type="f16", items=(), segments=len(sizes),
        streamed=tuple(sizes)[::2], ring_bytes=_RING, streamed_bytes=0, minimum=0,
    )  # fmt: skip


def scored(model: LlamaModel, one: GoldenPass) -> Floats:
    """The pass's logits, (nodes, vocabulary)."""
    session = _session(model)
    session.extend(one.prompt)
    rows = np.array(session.score(one.tree))
    session.close()
    return rows


def measured_rounding(model: LlamaModel, passes: list[GoldenPass]) -> float:
    """How far logits of one row a pass and of trees whose cells lie scattered may be apart, by the largest difference here."""
    largest = 0.0
    for one in passes:
        text = [*one.prompt, *one.tokens]
        narrow, wide = _read(model, text, 1, 0), _read(model, text, _STEP, _DECOYS)
        for row, other in zip(narrow, wide, strict=True):
            largest = max(largest, float(np.abs(row - other).max()))
    return _SAFETY * largest


def _read(model: LlamaModel, text: list[int], step: int, decoys: int) -> Iterator[Floats]:
    """The rows of all of `text`, read in trees: `step` of its tokens in a row, each beside `decoys` others."""
    session = _session(model)
    for start in range(0, len(text), step):
        piece = text[start : start + step]
        tree, path = DraftTree(piece[0]), [0]
        for token in piece[1:]:
            for other in range(decoys):
                tree.add(path[-1], (token + other + 1) % len(model.header.vocabulary.tokens), -1.0)
            path.append(tree.add(path[-1], token, -1.0))
        rows = np.array(session.score(tree))
        session.commit(path, piece)
        yield from rows[path]
    session.close()


def _session(model: LlamaModel) -> LlamaSession:
    return model.session(context=_CONTEXT, chunk=_CHUNK, max_nodes=_NODES)


if __name__ == "__main__":
    sys.exit(main())
