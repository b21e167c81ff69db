"""Layers for PyTorch."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from ._arrays import described
from ._call import attention
from ._errors import InvalidArgument, named
from ._properties import reads_keys
from ._spec import checked, list_of_mods, mods_and_mask
from ._value import integer
from .masks import ArrayMask, Causal, Mask
from .mods import DenseBias, Mod
from .normalizers import Normalizer
from .scores import Score

__all__ = ["MultiheadAttention"]


@dataclasses.dataclass(frozen=True)
class _Template:
    """A value of fovea without its parameters."""

    kind: Any
    fields: dict[str, Any]
    # The layer's names for the other fields.
    names: dict[str, str]


class MultiheadAttention(torch.nn.MultiheadAttention):
    """`torch.nn.MultiheadAttention` on Fovea's engine, with the same arguments. State dicts load both ways; outputs
    and gradients are the same.

    Args:
        embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first, device, dtype:
            as PyTorch has them.
        num_kv_heads: heads of keys and values, a divisor of num_heads. Their projections are smaller in proportion.
            None: num_heads, with a state dict like PyTorch's.
        mods: mods of the scores: `[fovea.SoftCap(50)]`. Their arrays that are parameters become the layer's
            parameters "extra_0", "extra_1", ...
        mask: as for `fovea.attention`; it acts together with the masks of a call.
        normalizer: `fovea.Sparsemax()`; None: softmax.
        score: `fovea.Cosine(torch.nn.Parameter(torch.ones(2)))`; None: the scaled dot product.
        scale: multiplies the score; None: 1/sqrt(head_dim) for the scaled dot product and QkNorm, else 1.
        weight_mods: mods of the weights, after the normaliser. Parameters of the score, the normaliser and these mods
            become the layer's too.

    Differences: weights are returned before dropout. A query that sees no key gives 0, not NaN. is_causal needs no
    attn_mask, and replaces it if there is one. Nested tensors are refused.

    >>> import torch, fovea.nn
    >>> layer = fovea.nn.MultiheadAttention(8, 2, batch_first=True, mods=[fovea.SoftCap(30)])
    >>> x = torch.ones(1, 4, 8)
    >>> layer(x, x, x, need_weights=False)[0].shape
    torch.Size([1, 4, 8])
    """

    @named("MultiheadAttention")
    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: Optional[int] = None,
        vdim: Optional[int] = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        num_kv_heads: Optional[int] = None,
        mods: Sequence[Mod] = (),
        mask: Any = None,
        normalizer: Optional[Normalizer] = None,
        score: Optional[Score] = None,
        scale: Optional[float] = None,
        weight_mods: Sequence[Mod] = (),
    ):
        super().__init__(
            embed_dim,
            num_heads,
            dropout,
            bias,
            add_bias_kv,
            add_zero_attn,
            kdim,
            vdim,
            batch_first,
            device,
            dtype,
        )
        given = num_heads if num_kv_heads is None else num_kv_heads
        self.num_kv_heads = int(integer(given, "MultiheadAttention.num_kv_heads"))
        if self.num_kv_heads < 1 or num_heads % self.num_kv_heads:
            raise InvalidArgument(
                "MultiheadAttention", "num_kv_heads", f"a divisor of num_heads, {num_heads}", str(num_kv_heads)
            )
        if self.num_kv_heads != num_heads:
            self._narrow()
        # PyTorch's layers read this before they bypass `forward`, which they must not do here.
        self._qkv_same_embed_dim = False
        self.mask, self.scale = mask, scale
        mods, weight_mods = list_of_mods("mods", mods), list_of_mods("weight_mods", weight_mods)
        mods_and_mask((), mask)  # throws for what is no mask
        self._refuse_positions(mods=mods, mask=mask, weight_mods=weight_mods)
        self._extras = 0
        self._mods = tuple(map(self._without_parameters, mods))
        self._normalizer = self._score = None
        if normalizer is not None:
            self._normalizer = self._without_parameters(checked("normalizer", normalizer, Normalizer))
        if score is not None:
            self._score = self._without_parameters(checked("score", score, Score))
        self._weight_mods = tuple(map(self._without_parameters, weight_mods))

    def _refuse_positions(self, **given: Any) -> None:
        """What depends on the position of a key, beside added keys."""
        for name, value in given.items():
            absent = value is None or (isinstance(value, tuple) and not value)
            if self._adds_keys() and not absent:
                raise InvalidArgument(
                    "MultiheadAttention",
                    name,
                    "none with add_bias_kv or add_zero_attn, whose keys have no position",
                    repr(value)[:80],
                )

    def _without_parameters(self, value: Any) -> "_Template":
        """Registers the parameters. A value keeps its tensor for ever, but the layer's parameters may be replaced."""
        fields = dict(value._fields())
        names = {}
        for field, x in list(fields.items()):
            if isinstance(x, torch.nn.Parameter):
                names[field] = f"extra_{self._extras}"
                self.register_parameter(names[field], x)
                self._extras += 1
                del fields[field]
        return _Template(type(value), fields, names)

    def _value(self, template: "_Template") -> Any:
        own = {field: getattr(self, name) for field, name in template.names.items()}
        return template.kind(**template.fields, **own)

    @property
    def mods(self) -> tuple[Mod, ...]:
        """The mods with the layer's current parameters."""
        return tuple(map(self._value, self._mods))

    @property
    def normalizer(self) -> Optional[Normalizer]:
        """The normaliser with the layer's current parameters."""
        return None if self._normalizer is None else self._value(self._normalizer)

    @property
    def score(self) -> Optional[Score]:
        """The score with the layer's current parameters."""
        return None if self._score is None else self._value(self._score)

    @property
    def weight_mods(self) -> tuple[Mod, ...]:
        """The mods of the weights with the layer's current parameters."""
        return tuple(map(self._value, self._weight_mods))

    def _narrow(self) -> None:
        """Projections of keys and values for fewer heads."""
        width = self.num_kv_heads * self.head_dim
        like: dict[str, Any] = {"device": self.out_proj.weight.device, "dtype": self.out_proj.weight.dtype}

        def parameter(*sizes: int) -> torch.nn.Parameter:
            return torch.nn.Parameter(torch.empty(*sizes, **like))

        if self.in_proj_weight is not None:
            self.in_proj_weight = parameter(self.embed_dim + 2 * width, self.embed_dim)
        else:
            self.k_proj_weight, self.v_proj_weight = parameter(width, self.kdim), parameter(width, self.vdim)
        if self.in_proj_bias is not None:
            self.in_proj_bias = parameter(self.embed_dim + 2 * width)
        if self.bias_k is not None:
            self.bias_k, self.bias_v = parameter(1, 1, width), parameter(1, 1, width)
        self._reset_parameters()

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Optional[Tensor] = None,
        need_weights: bool = True,
        attn_mask: Optional[Tensor] = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Optional[Tensor]]:
        """
        Args:
            query: [query_len, batch, embed_dim], [batch, query_len, embed_dim] if batch_first, or [query_len,
                embed_dim].
            key, value: in the same layout, with key_len and kdim or vdim.
            key_padding_mask: [batch, key_len] (or [key_len]): True hides a key; numbers are added.
            need_weights: return the weights too.
            attn_mask: [query_len, key_len] or [batch·num_heads, query_len, key_len]: True hides; numbers are
                added.
            average_attn_weights: over the heads.
            is_causal: attn_mask is the causal one.

        Returns:
            (output in the query's layout, weights [batch, query_len, key_len] or, of every head, [batch,
            num_heads, query_len, key_len], or None), without batch where the input has none.

        Raises:
            InvalidArgument: naming the argument.
        """
        batched = self._check(query, key, value)
        for name, x in (("attn_mask", attn_mask), ("key_padding_mask", key_padding_mask)):
            if x is not None and not (isinstance(x, Tensor) and (x.dtype == torch.bool or x.is_floating_point())):
                expected = "a tensor of truth values or floating-point numbers"
                raise InvalidArgument("MultiheadAttention", name, expected, described(x))
        if not batched:
            query, key, value = (x.unsqueeze(0) for x in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            same_kv, same_qk = value is key, key is query
            query = query.transpose(0, 1)
            key = query if same_qk else key.transpose(0, 1)
            value = key if same_kv else value.transpose(0, 1)
        q, k, v = self._projected(query, key, value)
        visible, biases = self._masks(q, k, attn_mask, key_padding_mask, is_causal)
        k, v, visible, biases = self._with_added_keys(k, v, visible, biases)
        mask = self._mask(visible, is_causal and not self._adds_keys(), q.shape[2], k.shape[2])
        score = self.score
        found = attention(
            q,
            k if score is None or reads_keys(score._text()) else None,
            v,
            score=score,
            scale=self.scale,
            weight_mods=self.weight_mods,
            mods=(*self.mods, *(DenseBias(bias) for bias in biases)),
            mask=mask,
            normalizer=self.normalizer,
            dropout=self.dropout if self.training else 0.0,
            return_weights=need_weights,
        )
        output, weights = found if need_weights else (found, None)
        output = self.out_proj(output.transpose(1, 2).flatten(2))
        if weights is not None:
            weights = weights.to(output.dtype)
            weights = weights.mean(1) if average_attn_weights else weights
        if not batched:
            return output.squeeze(0), None if weights is None else weights.squeeze(0)
        return output if self.batch_first else output.transpose(0, 1), weights

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> bool:
        for name, x, width in (
            ("query", query, self.embed_dim),
            ("key", key, self.kdim),
            ("value", value, self.vdim),
        ):
            if not isinstance(x, Tensor) or x.is_nested:
                got = "a nested tensor" if isinstance(x, Tensor) else described(x)
                raise InvalidArgument("MultiheadAttention", name, "a dense tensor", got)
            if x.dim() not in (2, 3) or x.dim() != query.dim() or x.shape[-1] != width:
                lead = "[length, " if query.dim() == 2 else "[batch and length, "
                raise InvalidArgument("MultiheadAttention", name, f"{lead}{width}]", described(x))
        if key.shape[:-1] != value.shape[:-1]:
            expected = f"{list(key.shape[:-1])} in front of vdim, as the key has"
            raise InvalidArgument("MultiheadAttention", "value", expected, described(value))
        batch = 0 if self.batch_first else 1
        if query.dim() == 3 and query.shape[batch] != key.shape[batch]:
            expected = f"the query's batch of {query.shape[batch]}"
            raise InvalidArgument("MultiheadAttention", "key", expected, described(key))
        return query.dim() == 3

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[batch, heads, length, head_dim] each."""
        width = self.num_kv_heads * self.head_dim
        widths = [self.embed_dim, width, width]
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.split(widths)
        if self.in_proj_weight is None:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        elif query is key and key is value:
            return tuple(  # type: ignore[return-value]
                map(self._by_head, F.linear(query, self.in_proj_weight, self.in_proj_bias).split(widths, -1))
            )
        else:
            weights = self.in_proj_weight.split(widths)
        return tuple(  # type: ignore[return-value]
            self._by_head(F.linear(x, w, b)) for x, w, b in zip((query, key, value), weights, biases)
        )

    def _by_head(self, x: Any) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def _masks(
        self,
        q: Tensor,
        k: Tensor,
        attn_mask: Optional[Tensor],
        key_padding_mask: Optional[Tensor],
        is_causal: bool,
    ) -> tuple[list[Tensor], list[Tensor]]:
        """(truth values with True for visible, numbers to be added), which broadcast to the scores."""
        batch, heads, rows, keys = q.shape[0], q.shape[1], q.shape[2], k.shape[2]
        visible: list[Tensor] = []
        biases: list[Tensor] = []
        given: list[Tensor] = []
        if attn_mask is not None and not is_causal:
            if attn_mask.dim() == 3 and attn_mask.shape == (batch * heads, rows, keys):
                given.append(attn_mask.reshape(batch, heads, rows, keys))
            elif attn_mask.shape == (rows, keys):
                given.append(attn_mask)
            else:
                expected = f"[{rows}, {keys}] or [{batch * heads}, {rows}, {keys}]"
                raise InvalidArgument("MultiheadAttention", "attn_mask", expected, described(attn_mask))
        if key_padding_mask is not None:
            if key_padding_mask.shape != (batch, keys):
                raise InvalidArgument(
                    "MultiheadAttention", "key_padding_mask", f"[{batch}, {keys}]", described(key_padding_mask)
                )
            given.append(key_padding_mask[:, None, None, :])
        for x in given:
            if x.dtype == torch.bool:
                visible.append(~x)
            else:
                biases.append(x)
        if is_causal and self._adds_keys():
            visible.append(torch.ones(rows, keys, dtype=torch.bool).tril())
        return visible, biases

    def _adds_keys(self) -> bool:
        return self.bias_k is not None or self.add_zero_attn

    def _with_added_keys(
        self, k: Tensor, v: Tensor, visible: list[Tensor], biases: list[Tensor]
    ) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:
        """Appends the added keys after the given ones; every query sees them."""
        added = 0
        if self.bias_k is not None:
            more = [self._by_head(x).expand(k.shape[0], -1, -1, -1) for x in (self.bias_k, self.bias_v)]
            k, v, added = torch.cat([k, more[0]], 2), torch.cat([v, more[1]], 2), added + 1
        if self.add_zero_attn:
            k, v, added = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1)), added + 1
        if added:
            visible = [F.pad(x, (0, added), value=True) for x in visible]
            biases = [F.pad(x, (0, added)) for x in biases]
        return k, v, visible, biases

    def _mask(self, visible: list[Tensor], is_causal: bool, rows: int, keys: int) -> Any:
        found: list[Mask] = [ArrayMask(x) for x in visible]
        if is_causal:
            # PyTorch counts from the first key, Fovea from the last.
            causal = torch.ones(rows, keys, dtype=torch.bool).tril() if rows != keys else None
            found.append(Causal() if causal is None else ArrayMask(causal))
        if self.mask is not None and found and not isinstance(self.mask, Mask):
            raise InvalidArgument(
                "MultiheadAttention",
                "mask",
                "a mask of fovea (ArrayMask, Predicate), to be combined with those of the call",
                type(self.mask).__name__,
            )
        if self.mask is not None:
            found.append(self.mask)
        whole = found[0] if found else None
        for more in found[1:]:
            whole = whole & more  # type: ignore[operator]
        return whole
