"""Train the target on the corpus, then the drafter on the target's own distribution."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

from . import corpus, pydocs, tokens
from .model import Llama

LENGTH = 2048  # trained context length
TOKENS_PER_STEP = 4096
Batch = tuple[Tensor, Tensor, Tensor]  # inputs, labels, mask: each (rows, length)


def batches(tokenizer: Tokenizer, seed: int, holdout: bool = False, long_share: float = 0.2) -> Iterator[Batch]:
    """Documents packed end to end; every step is rows of 512, or with `long_share` rows of the full length."""
    rng, stream = random.Random(seed), corpus.documents(random.Random(seed + 1), pydocs.load(holdout))
    ids: list[int] = []
    learn: list[bool] = []
    while True:
        length = LENGTH if rng.random() < long_share else 512
        rows = TOKENS_PER_STEP // length
        need = rows * (length + 1)
        while len(ids) < need:
            new_ids, new_learn = tokens.encode(tokenizer, next(stream))
            ids, learn = ids + new_ids, learn + new_learn
        x = torch.tensor(ids[:need]).view(rows, length + 1)
        mask = torch.tensor(learn[:need]).view(rows, length + 1)
        ids, learn = ids[need:], learn[need:]
        yield x[:, :-1], x[:, 1:], mask[:, 1:]


def optimizers(model: nn.Module, rate: float) -> list[torch.optim.Optimizer]:
    """Muon (Jordan et al., 2024) for the matrices, AdamW for embedding and norms."""
    matrices = [w for n, w in model.named_parameters() if w.ndim == 2 and "embd" not in n]
    others = [w for n, w in model.named_parameters() if w.ndim != 2 or "embd" in n]
    return [
        torch.optim.Muon(matrices, lr=rate, momentum=0.95, weight_decay=0.05, ns_steps=5, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def schedule(progress: float) -> float:
    """Warm-up 2 %, constant, then linear to zero over the last 40 %."""
    return min(1.0, progress / 0.02 + 0.01, max(0.0, (1.0 - progress) / 0.4))


def cross_entropy(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    return F.cross_entropy(logits[mask].float(), labels[mask])


def fit(
    model: Llama, data: Iterator[Batch], minutes: float, rate: float, loss_of: Callable[[Tensor, Batch], Tensor], name: str
) -> tuple[int, float]:
    """Train for `minutes` of wall time; returns steps done and the last smoothed loss."""
    opts, fast, step, smooth = optimizers(model, rate), torch.compile(model, dynamic=False), 0, 0.0
    start = time.monotonic()
    while (progress := (time.monotonic() - start) / (60 * minutes)) < 1:
        batch = next(data)
        for opt in opts:
            for group in opt.param_groups:
                group["lr"] = rate * schedule(progress)
        with torch.autocast("cpu", torch.bfloat16):
            logits = fast(batch[0])
        loss = loss_of(logits, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for opt in opts:
            opt.step()
            opt.zero_grad()
        step += 1
        smooth = loss.item() if step == 1 else 0.98 * smooth + 0.02 * loss.item()
        if step % 20 == 0:
            elapsed = time.monotonic() - start
            print(
                f"{name} step {step} loss {smooth:.3f} {step * TOKENS_PER_STEP / elapsed:.0f} tok/s {elapsed / 60:.1f} min",
                flush=True,
            )
    return step, smooth


def train_target(model: Llama, tokenizer: Tokenizer, minutes: float) -> tuple[int, float]:
    return fit(model, batches(tokenizer, seed=1), minutes, 3e-3, lambda out, b: cross_entropy(out, b[1], b[2]), "target")


def distil(drafter: Llama, target: Llama, tokenizer: Tokenizer, minutes: float) -> tuple[int, float]:
    """The drafter learns the target's next-token distribution (KL), which is what acceptance rewards."""

    def divergence(out: Tensor, batch: Batch) -> Tensor:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            wanted = target(batch[0])[batch[2]].float().log_softmax(-1)
        return F.kl_div(out[batch[2]].float().log_softmax(-1), wanted, reduction="batchmean", log_target=True)

    return fit(drafter, batches(tokenizer, seed=2), minutes, 4e-3, divergence, "drafter")


@torch.no_grad()
def evaluate(target: Llama, drafter: Llama, tokenizer: Tokenizer, steps: int = 24) -> dict[str, float]:
    """Held-out loss of the target and greedy agreement of the two, over the tokens a reply is made of."""
    data, loss, agree, count = batches(tokenizer, seed=1234, holdout=True), 0.0, 0, 0
    for _ in range(steps):
        ids, labels, mask = next(data)
        wanted, guess = target(ids), drafter(ids)
        loss += cross_entropy(wanted, labels, mask).item() / steps
        agree += int((wanted[mask].argmax(-1) == guess[mask].argmax(-1)).sum())
        count += int(mask.sum())
    return {"heldout_loss": loss, "greedy_agreement": agree / count, "heldout_tokens": count}
