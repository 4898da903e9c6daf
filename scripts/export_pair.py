"""Quantize a trained pair: ``python scripts/export_pair.py CHECKPOINTS models`` writes two GGUF files and the model card."""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path

CARD = Path(__file__).with_name("pair") / "card.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoints", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    write(args.checkpoints, args.out)


def write(checkpoints: Path, out: Path) -> None:
    import torch  # of an environment of its own
    from tokenizers import Tokenizer

    from pair import export, model, training

    out.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.from_file(str(checkpoints / "tokenizer.json"))
    figures = json.loads((checkpoints / "card.json").read_text())
    for role, shape in (("target", model.TARGET), ("drafter", model.DRAFTER)):
        state = torch.load(checkpoints / f"{role}.pt", weights_only=True)
        weights = {key: value.float().numpy() for key, value in state.items()}
        path = out / f"edgespec-{role}.gguf"
        export.write(path, f"edgespec {role}", shape, weights, tokenizer, training.LENGTH)
        figures[f"{role}_bytes"] = path.stat().st_size
        figures[f"{role}_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (out / "README.md").write_text(CARD.read_text().format(**figures))


if __name__ == "__main__":
    main()
