"""Write models/golden/passes.json: what the embedded pair computes, for the self-test of every engine build.

    python scripts/make_golden.py

To be run after the pair has changed, with an engine that is trusted: `scripts/build_engine.sh FOLDER baseline`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from pathlib import Path

from edgespec.engines.golden import GoldenFile, GoldenPass
from edgespec.engines.llamacpp.model import LlamaModel
from edgespec.engines.llamacpp.selftest import scored
from edgespec.modelfile.header import read_model
from edgespec.speculation.tree import DraftTree
from edgespec.text.prompt import Prompter

MODELS = Path(__file__).parent.parent / "models"
QUESTIONS = ("What is edgespec?", "Tell me a short story about Anna.")
ANSWER = 32  # tokens at most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    os.environ["EDGESPEC_UNPROVEN"] = "1"  # there is nothing yet to prove an engine with
    files = {role: MODELS / f"edgespec-{role}.gguf" for role in ("target", "drafter")}
    passes = [one for role, file in files.items() for one in golden_passes(role, file)]
    digests = {role: hashlib.sha256(file.read_bytes()).hexdigest() for role, file in files.items()}
    (MODELS / "golden").mkdir(exist_ok=True)
    GoldenFile(digests, tuple(passes)).write(MODELS / "golden/passes.json")


def golden_passes(role: str, file: Path) -> list[GoldenPass]:
    """Of each question: one row, the answer as a chain, and a tree of what else could have been said."""
    model = LlamaModel(read_model(file), None, threads=2)
    passes = []
    for question in QUESTIONS:
        *prompt, last = Prompter(model.header).tokens([{"role": "user", "content": question}], model.tokenizer)
        answer = greedy(model, prompt, last)
        for name, tree in (("one row", DraftTree(last)), ("a chain", chain(answer)), ("a tree", bush(model, prompt, last))):
            empty = GoldenPass(f"{name} after {question!r}", role, tuple(prompt), tuple(tree.tokens), tuple(tree.parents), (), ())
            passes.append(GoldenPass.of(empty.name, role, prompt, tree, scored(model, empty)))
    model.close()
    return passes


def greedy(model: LlamaModel, prompt: list[int], last: int) -> list[int]:
    """The pending token and the answer, to its end."""
    session = model.session(context=512, chunk=64, max_nodes=0)
    session.extend(prompt)
    tokens = [last]
    while len(tokens) < ANSWER and not model.tokenizer.ends(tokens[-1]):
        tokens.append(int(session.score(DraftTree(tokens[-1]))[0].argmax()))
        session.commit([0], tokens[-2:-1])
    session.close()
    return tokens


def chain(tokens: list[int]) -> DraftTree:
    tree = DraftTree(tokens[0])
    for node, token in enumerate(tokens[1:]):
        tree.add(node, token, -1.0)
    return tree


def bush(model: LlamaModel, prompt: list[int], last: int, size: int = 16) -> DraftTree:
    """The two likeliest successors of every node, until there are `size` nodes."""
    tree = DraftTree(last)
    session = model.session(context=512, chunk=64, max_nodes=size)
    session.extend(prompt)
    node = 0
    while len(tree) < size:
        likeliest = (-session.score(tree)[node]).argsort()[:2].tolist()
        for token in likeliest[: size - len(tree)]:
            tree.add(node, token, -1.0)
        node += 1
    session.close()
    return tree


if __name__ == "__main__":
    main()
