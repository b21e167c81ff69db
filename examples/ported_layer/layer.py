"""The "production self-attention" of PyTorch tutorials, and the same layer on Fovea: docs/ported-layer.md."""

import torch
from torch import nn

import fovea


class SelfAttention(nn.Module):
    """embed_size is split into heads; all heads share one head_dim x head_dim projection."""

    def __init__(self, embed_size, heads):
        super().__init__()
        self.embed_size, self.heads, self.head_dim = embed_size, heads, embed_size // heads
        assert self.head_dim * heads == embed_size, "embed_size must be a multiple of heads"
        self.values = nn.Linear(self.head_dim, self.head_dim, bias=False)
        self.keys = nn.Linear(self.head_dim, self.head_dim, bias=False)
        self.queries = nn.Linear(self.head_dim, self.head_dim, bias=False)
        self.fc_out = nn.Linear(heads * self.head_dim, embed_size)

    def by_head(self, x):
        return x.reshape(*x.shape[:2], self.heads, self.head_dim)  # [N, L, heads, head_dim]

    def forward(self, values, keys, query, mask):
        v = self.values(self.by_head(values))
        k = self.keys(self.by_head(keys))
        q = self.queries(self.by_head(query))
        energy = torch.einsum("nqhd,nkhd->nhqk", q, k)
        if mask is not None:
            energy = energy.masked_fill(mask == 0, float("-1e20"))
        weights = torch.softmax(energy / self.embed_size**0.5, dim=3)
        heads = torch.einsum("nhql,nlhd->nqhd", weights, v)
        return self.fc_out(heads.flatten(2))


class SelfAttentionOnFovea(SelfAttention):
    """The same parameters and the same function. A mask may also be one of Fovea's, by name."""

    def forward(self, values, keys, query, mask):
        v = self.values(self.by_head(values)).transpose(1, 2)
        k = self.keys(self.by_head(keys)).transpose(1, 2)
        q = self.queries(self.by_head(query)).transpose(1, 2)
        if torch.is_tensor(mask):
            mask = mask != 0  # to fovea.attention numbers are added to scores; truth values hide keys
        heads = fovea.attention(q, k, v, mask=mask, scale=self.embed_size**-0.5)
        return self.fc_out(heads.transpose(1, 2).flatten(2))
