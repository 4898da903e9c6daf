"""Rebuild the embedded pair: ``python scripts/train_pair.py OUT --target-minutes 50 --drafter-minutes 15``.

Needs torch, numpy, tokenizers and gguf in an environment of their own; writes checkpoints, then `export_pair.py` quantizes.
"""

from __future__ import annotations

import argparse
import json
import random
from itertools import islice
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--target-minutes", type=float, default=50)
    parser.add_argument("--drafter-minutes", type=float, default=15)
    args = parser.parse_args()
    train(args.out, args.target_minutes, args.drafter_minutes)


def train(out: Path, target_minutes: float, drafter_minutes: float) -> None:
    import torch  # of an environment of its own

    from pair import corpus, model, pydocs, tokens, training

    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    stream = corpus.documents(random.Random(0), pydocs.load())
    tokenizer = tokens.train_tokenizer(text for doc in islice(stream, 20000) for _, text in doc)
    tokenizer.save(str(out / "tokenizer.json"))
    target = model.Llama(model.TARGET, training.LENGTH)
    drafter = model.Llama(model.DRAFTER, training.LENGTH)
    card: dict[str, object] = {"target_parameters": target.parameter_count(), "drafter_parameters": drafter.parameter_count()}
    print(card, flush=True)
    card["target_steps"], card["target_loss"] = training.train_target(target, tokenizer, target_minutes)
    torch.save(target.state_dict(), out / "target.pt")
    card["drafter_steps"], card["drafter_kl"] = training.distil(drafter, target, tokenizer, drafter_minutes)
    torch.save(drafter.state_dict(), out / "drafter.pt")
    card |= training.evaluate(target, drafter, tokenizer)
    (out / "card.json").write_text(json.dumps(card, indent=1) + "\n")
    print(card, flush=True)


if __name__ == "__main__":
    main()
