"""A plain Llama in PyTorch, small enough to train on a laptop; the shapes are those llama.cpp expects."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    vocab: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    ffn: int
    rope_base: float = 10000.0
    eps: float = 1e-5


TARGET = Shape(vocab=3072, width=256, layers=6, heads=4, kv_heads=2, head_size=64, ffn=800)
DRAFTER = Shape(vocab=3072, width=96, layers=2, heads=2, kv_heads=1, head_size=64, ffn=256)


def rope_table(shape: Shape, length: int) -> tuple[Tensor, Tensor]:
    """cos and sin, each (length, head_size / 2)."""
    rate = shape.rope_base ** (-torch.arange(0, shape.head_size, 2).float() / shape.head_size)
    angle = torch.arange(length).float()[:, None] * rate[None]
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding over neighbouring pairs (the layout of llama.cpp's `llama` architecture)."""
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2).type_as(x)


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        q, kv = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
        self.attn_norm, self.ffn_norm = nn.RMSNorm(shape.width, shape.eps), nn.RMSNorm(shape.width, shape.eps)
        self.attn_q, self.attn_k, self.attn_v = (nn.Linear(shape.width, n, bias=False) for n in (q, kv, kv))
        self.attn_output = nn.Linear(q, shape.width, bias=False)
        self.ffn_gate, self.ffn_up = (nn.Linear(shape.width, shape.ffn, bias=False) for _ in range(2))
        self.ffn_down = nn.Linear(shape.ffn, shape.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, _ = x.shape
        h = self.attn_norm(x)
        q, k, v = (
            layer(h).view(batch, length, -1, self.shape.head_size).transpose(1, 2)
            for layer in (self.attn_q, self.attn_k, self.attn_v)
        )
        mixed = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True, enable_gqa=True)
        x = x + self.attn_output(mixed.transpose(1, 2).reshape(batch, length, -1))
        h = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))


class Llama(nn.Module):
    """Tied embedding and output; `forward` takes (batch, length) ids, returns (batch, length, vocab) logits."""

    def __init__(self, shape: Shape, length: int) -> None:
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Embedding(shape.vocab, shape.width)
        self.blk = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.output_norm = nn.RMSNorm(shape.width, shape.eps)
        cos, sin = rope_table(shape, length)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                scale = 0.02 if "embd" in name else 0.5 * weight.shape[1] ** -0.5
                nn.init.normal_(weight, std=0.0 if name.endswith(("attn_output.weight", "ffn_down.weight")) else scale)

    def forward(self, ids: Tensor) -> Tensor:
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        x = self.token_embd(ids)
        for block in self.blk:
            x = block(x, cos, sin)
        return F.linear(self.output_norm(x), self.token_embd.weight)

    def parameter_count(self) -> int:
        return sum(weight.numel() for weight in self.parameters())
