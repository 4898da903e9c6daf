"""How much does this engine round? ``python scripts/report_rounding.py [--target T.gguf --answers 12]``

Answers are sampled in trees, after other generations, so that their keys and values lie scattered among the cells; each row of
logits that a token was drawn from is then computed again by plain decoding, one row a pass. Prints how many are equal to the
last bit, and the largest difference of a logit in the others.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import edgespec
from edgespec.engines.llamacpp.model import LlamaModel
from edgespec.engines.llamacpp.session import LlamaSession
from edgespec.modelfile.header import read_model
from edgespec.shipped import embedded_model
from edgespec.speculation.tree import DraftTree
from edgespec.types import Floats


class Witness:
    """Notes what a session scored of the tokens it committed: (nodes of the pass, token, row) since `clear`."""

    def __init__(self, session: LlamaSession) -> None:
        self.seen: list[tuple[int, int, Floats]] = []
        self._score, self._commit = session.score, session.commit
        self._rows = np.empty((0, 0), np.float32)
        session.score, session.commit = self.score, self.commit  # type: ignore[method-assign]

    def score(self, tree: DraftTree, start: int = 0) -> Floats:
        rows = self._score(tree, start)
        self._rows = rows.copy()
        return rows

    def commit(self, path: Sequence[int], tokens: Sequence[int], keep: Sequence[int] = ()) -> None:
        self.seen += [(len(self._rows), token, self._rows[node]) for node, token in zip(path, tokens, strict=True)]
        self._commit(path, tokens, keep)


def differences(plain: LlamaSession, prompt: Sequence[int], seen: Sequence[tuple[int, int, Floats]]) -> list[tuple[int, float]]:
    """Nodes of the pass, and the largest difference of a logit, for each row."""
    plain.rewind(0)
    plain.extend(prompt[:-1])
    found = []
    for nodes, token, row in seen:
        found.append((nodes, float(np.abs(plain.score(DraftTree(token))[0] - row).max())))
        plain.commit([0], [token])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, default=embedded_model("target"))
    parser.add_argument("--answers", type=int, default=12)
    args = parser.parse_args()
    replay = LlamaModel(read_model(args.target), None, threads=1)
    plain = replay.session(context=512, chunk=128, max_nodes=0)
    found: list[tuple[int, float]] = []
    with edgespec.load(
        args.target, embedded_model("drafter"), budget="2GiB", context=512, speculation="tree", threads=1
    ) as model:
        witness = Witness(model._target)
        for number in range(args.answers):
            messages = [{"role": "user", "content": f"Tell a story about {number}"}]
            model.generate("Once upon a time", max_tokens=8)
            witness.seen.clear()
            model.chat(messages, seed=number, temperature=1.0, max_tokens=60)
            found += differences(plain, model.prompt_tokens(messages), witness.seen)
    replay.close()
    report(found)


def report(found: list[tuple[int, float]]) -> None:
    print(
        "| rows a pass | rows | equal to the last bit | difference of a logit: median, 90 %, 99 %, largest |\n|---|---|---|---|"
    )
    for name, few, many in (("all", 1, 999), ("1", 1, 1), ("2 to 8", 2, 8), ("9 and more", 9, 999)):
        off = np.array([difference for nodes, difference in found if few <= nodes <= many])
        if off.size:
            quantiles = ", ".join(f"{one:.3f}" for one in np.quantile(off, [0.5, 0.9, 0.99, 1]))
            print(f"| {name} | {off.size} | {int((off == 0).sum())} | {quantiles} |")


if __name__ == "__main__":
    main()
