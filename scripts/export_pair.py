"""Quantize a trained pair: ``python scripts/export_pair.py CHECKPOINTS models`` writes two GGUF files and the model card."""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path

import torch
from tokenizers import Tokenizer

from pair import export, model, training

CARD = Path(__file__).with_name("pair") / "card.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoints", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.from_file(str(args.checkpoints / "tokenizer.json"))
    figures = json.loads((args.checkpoints / "card.json").read_text())
    for role, shape in (("target", model.TARGET), ("drafter", model.DRAFTER)):
        state = torch.load(args.checkpoints / f"{role}.pt", weights_only=True)
        weights = {key: value.float().numpy() for key, value in state.items()}
        path = args.out / f"edgespec-{role}.gguf"
        export.write(path, f"edgespec {role}", shape, weights, tokenizer, training.LENGTH)
        figures[f"{role}_bytes"] = path.stat().st_size
        figures[f"{role}_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (args.out / "README.md").write_text(CARD.read_text().format(**figures))


if __name__ == "__main__":
    main()
