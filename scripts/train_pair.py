"""Rebuild the embedded pair: ``python scripts/train_pair.py OUT --target-minutes 50 --drafter-minutes 15``.

Needs torch, numpy, tokenizers and gguf in an environment of their own; writes checkpoints, then `export_pair.py` quantizes.
"""

from __future__ import annotations

import argparse
import json
import random
from itertools import islice
from pathlib import Path

import torch

from pair import corpus, model, pydocs, tokens, training


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--target-minutes", type=float, default=50)
    parser.add_argument("--drafter-minutes", type=float, default=15)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    stream = corpus.documents(random.Random(0), pydocs.load())
    tokenizer = tokens.train_tokenizer(text for doc in islice(stream, 20000) for _, text in doc)
    tokenizer.save(str(args.out / "tokenizer.json"))
    target = model.Llama(model.TARGET, training.LENGTH)
    drafter = model.Llama(model.DRAFTER, training.LENGTH)
    card: dict[str, object] = {"target_parameters": target.parameter_count(), "drafter_parameters": drafter.parameter_count()}
    print(card, flush=True)
    card["target_steps"], card["target_loss"] = training.train_target(target, tokenizer, args.target_minutes)
    torch.save(target.state_dict(), args.out / "target.pt")
    card["drafter_steps"], card["drafter_kl"] = training.distil(drafter, target, tokenizer, args.drafter_minutes)
    torch.save(drafter.state_dict(), args.out / "drafter.pt")
    card |= training.evaluate(target, drafter, tokenizer)
    (args.out / "card.json").write_text(json.dumps(card, indent=1) + "\n")
    print(card, flush=True)


if __name__ == "__main__":
    main()
