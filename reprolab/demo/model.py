"""A small transformer that predicts the next byte: attention, dropout, layer norms."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

BYTES = 256


class Block(nn.Module):
    """Attention and a two-layer perceptron, each behind a norm."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.mix = nn.Linear(width, 3 * width)
        self.join = nn.Linear(width, width)
        self.norm_perceptron = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map ``[batch, length, width]`` to the same shape."""
        batch, length, width = x.shape
        parts = self.mix(self.norm_attention(x)).view(batch, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.dropout(self.join(seen.transpose(1, 2).reshape(batch, length, width)))
        return x + self.dropout(self.narrow(F.gelu(self.widen(self.norm_perceptron(x)))))


class ByteModel(nn.Module):
    """Blocks between an embedding of bytes and the scores of the next byte."""

    def __init__(self, context: int, width: int, depth: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Embedding(BYTES, width)
        self.place = nn.Parameter(torch.randn(context, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.score = nn.Linear(width, BYTES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map bytes ``[batch, length]`` to scores ``[batch, length, 256]``."""
        x = self.embed(tokens) + self.place[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.score(self.norm(x))
