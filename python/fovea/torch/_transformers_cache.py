"""A `fovea.KvCache` as a cache of transformers."""

from __future__ import annotations

from typing import Any, Optional, Sequence as Many

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin  # type: ignore[import-not-found, unused-ignore]

from .._arrays import described, dtype_name
from .._errors import InvalidArgument
from .._value import check_no_gradient, integer, integers, shown
from ..cache import KvCache, Sequence, sequences_of
from ..stores import CacheLayer, Contiguous, Paged, Store
from ._cached_rows import CachedRows, HeldRows
from ._tensors import TENSORS


class TransformersCache(Cache):  # type: ignore[misc, unused-ignore]
    """Keys and values of a decoder of transformers in a `fovea.KvCache`: `model.generate(...,
    past_key_values=fovea.torch.TransformersCache(model.config))`.

    Greedy decoding, sampling, beam search and assisted decoding run as with DynamicCache. Beams share pages and copy no
    rows. A copy (copy.deepcopy) is a fork, so a prompt that was read once can be continued many times. With
    `attn_implementation="fovea"`, or under `fovea.torch.patched()`, attention reads the rows where they lie. Other
    attention gets copies of them. Rows have no gradients: run the model under torch.no_grad().

    All layers keep all rows, also those with sliding windows. Layers that share the keys of another layer, and states
    of recurrent layers, are not supported. Behind an encoder it serves as the decoder's own cache:
    `EncoderDecoderCache(TransformersCache(config), DynamicCache())`.

    Args:
        config: the model's configuration, for the number of layers.
        store: of all layers, `Paged()` or `Contiguous()`.
        limit_bytes: that of `KvCache`.
        cache, sequences: a cache of that many layers, and one sequence for each entry of the batch, such as loaded
            ones; None: a cache is made of the first keys and values.

    Attributes:
        cache: the `KvCache`; None before the first keys.
        sequences: its sequences, one for each entry of the batch.

    >>> from transformers import AutoModelForCausalLM                          # doctest: +SKIP
    >>> cache = fovea.torch.TransformersCache(model.config)                    # doctest: +SKIP
    >>> model.generate(ids, past_key_values=cache, max_new_tokens=20)          # doctest: +SKIP
    >>> cache.cache.save(cache.sequences[0], "state", note="model 7")          # doctest: +SKIP
    """

    def __init__(
        self,
        config: Any,
        *,
        store: Store = Paged(),
        limit_bytes: Optional[int] = None,
        cache: Optional[KvCache] = None,
        sequences: Many[Sequence] = (),
    ):
        config = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
        count = getattr(config, "num_hidden_layers", None)
        if not isinstance(count, int) or count < 1:
            raise InvalidArgument("TransformersCache", "config", "one with num_hidden_layers", shown(config))
        if cache is not None and (not isinstance(cache, KvCache) or len(cache) != count):
            expected = f"a fovea.KvCache of {count} layers"
            raise InvalidArgument("TransformersCache", "cache", expected, shown(cache))
        if not isinstance(store, (Paged, Contiguous)):
            raise InvalidArgument("TransformersCache", "store", "Paged() or Contiguous(), which keep all rows", shown(store))
        super().__init__(layers=[_Layer(self, number) for number in range(count)])
        self._store, self._limit = store, limit_bytes
        self.cache, self.sequences = cache, sequences_of(sequences, "TransformersCache")
        if cache is None and self.sequences:
            expected = "none without cache, to which they belong"
            raise InvalidArgument("TransformersCache", "sequences", expected, str(len(self.sequences)))
        if len({self.cache.length(one) for one in self.sequences} if self.cache else ()) > 1:
            raise InvalidArgument("TransformersCache", "sequences", "sequences of one length", "several lengths")
        # Layers that have the rows of the forward pass that is running.
        self._written: set[int] = set()

    def write(self, layer: int, key: Tensor, value: Tensor) -> HeldRows:
        """Appends the rows of one layer. The first layer of a forward pass makes room in all of them, and the last one
        commits."""
        key, value = TENSORS.cast(key), TENSORS.cast(value)  # rotated keys may be wider than values under autocast
        cache = self._cache_for(key, value)
        if layer in self._written:
            self._refuse_halves()
        if not self._written:
            try:
                for sequence in self.sequences:
                    cache.reserve(sequence, int(key.shape[2]))
            except Exception:
                self.rollback()
                raise
        cache.append(layer, self.sequences, key, value)
        self._written.add(layer)
        held = HeldRows(cache[layer], self.sequences)
        if len(self._written) == len(cache):
            for sequence in self.sequences:
                cache.commit(sequence)
            self._written.clear()
        return held

    def _cache_for(self, key: Tensor, value: Tensor) -> KvCache:
        for name, x in (("key_states", key), ("value_states", value)):
            if not isinstance(x, Tensor) or x.dim() != 4:
                raise InvalidArgument("TransformersCache.update", name, "[batch, heads, length, dim]", described(x))
            reason = " (run the model under torch.no_grad()): a cache has none"
            check_no_gradient("TransformersCache.update", name, x, reason)
        if self.cache is None:
            layer = CacheLayer(
                num_kv_heads=int(key.shape[1]),
                head_dim=int(key.shape[3]),
                value_dim=int(value.shape[3]),
                dtype=dtype_name(key, "key_states", "TransformersCache.update"),
                store=self._store,
            )
            self.cache = KvCache([layer] * len(self.layers), limit_bytes=self._limit)
        if not self.sequences:
            self.sequences = [self.cache.start() for _ in range(int(key.shape[0]))]
        return self.cache

    def _refuse_halves(self) -> None:
        expected = (
            f"keys and values of all {len(self.layers)} layers in each forward pass (call rollback() after one that "
            "was interrupted)"
        )
        raise InvalidArgument("TransformersCache", "update", expected, f"those of {len(self._written)} layers")

    def rollback(self) -> None:
        """Drops the rows of a forward pass that was interrupted, and gives back their memory."""
        self._written.clear()
        if self.cache is not None:
            for sequence in self.sequences:
                self.cache.reserve(sequence, 0)

    def length(self, layer: int) -> int:
        if self.cache is None or not self.sequences:
            return 0
        first = self.sequences[0]
        return self.cache.length(first) + (self.cache.pending(layer, first) if self._written else 0)

    # What follows is Cache's interface. Its own methods would do these once for each layer.

    def reset(self) -> None:
        self._written.clear()
        self.sequences = []

    def crop(self, tokens_to_remove: int) -> None:
        """Removes -tokens_to_remove rows. A positive number is the length that stays, as in transformers 4; there
        must be as many rows."""
        self._settled("crop")
        if self.cache is None or not self.sequences:
            return
        length = self.length(0)
        if tokens_to_remove > length:
            expected = f"a length of at most the {length} rows, or the number of rows to remove below 0"
            raise InvalidArgument("TransformersCache", "crop.tokens_to_remove", expected, str(tokens_to_remove))
        to = length + tokens_to_remove if tokens_to_remove <= 0 else tokens_to_remove
        for sequence in self.sequences:
            self.cache.truncate(sequence, max(to, 0))

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self._settled("reorder_cache")
        if self.cache is not None and self.sequences:
            indices = [int(n) for n in beam_idx.tolist()]
            if min(indices, default=0) < 0:  # batch_select_indices counts from the end, as tensors do
                expected = f"indices of the {len(self.sequences)} entries"
                raise InvalidArgument("TransformersCache", "reorder_cache.beam_idx", expected, str(min(indices)))
            self._select(indices, "reorder_cache.beam_idx")

    def batch_repeat_interleave(self, repeats: int) -> None:
        self._settled("batch_repeat_interleave")
        function = "TransformersCache.batch_repeat_interleave"
        times = int(integer(repeats, f"{function}.repeats"))
        if times < 1:
            raise InvalidArgument(function, "repeats", "a number of at least 1", str(times))
        if self.cache is not None:
            self._select([n for n in range(len(self.sequences)) for _ in range(times)], "batch_repeat_interleave")

    def batch_select_indices(self, indices: Any) -> None:
        self._settled("batch_select_indices")
        if self.cache is not None:
            if isinstance(indices, Tensor) and indices.dtype == torch.bool:
                indices = indices.nonzero().flatten()
            self._select(list(integers(indices, "TransformersCache.batch_select_indices.indices")), "batch_select_indices")

    def _settled(self, function: str) -> None:
        if self._written:
            self._refuse_halves()

    def _select(self, indices: "list[int]", function: str) -> None:
        """Sequence i becomes a fork of what sequence indices[i] was."""
        assert self.cache is not None
        count = len(self.sequences)
        for n in indices:
            if not -count <= n < count:
                raise InvalidArgument("TransformersCache", function, f"indices of the {count} entries", str(n))
        indices = [n % count for n in indices]
        if len(indices) == count:
            self.cache.permute(self.sequences, indices)  # moves those that one beam alone continues
        else:
            self.sequences = [self.cache.fork(self.sequences[n]) for n in indices]

    @property
    def batch_size(self) -> int:
        return len(self.sequences) or -1

    @property
    def is_initialized(self) -> bool:
        return self.cache is not None

    def __deepcopy__(self, memo: "dict[int, Any]") -> "TransformersCache":
        self._settled("copy")
        other = TransformersCache.__new__(TransformersCache)
        memo[id(self)] = other
        other.__dict__.update(self.__dict__)
        other.layers = [_Layer(other, number) for number in range(len(self.layers))]
        other._written = set()
        other.sequences = [self.cache.fork(one) for one in self.sequences] if self.cache is not None else []
        return other

    __copy__ = lambda self: self.__deepcopy__({})  # noqa: E731

    def __repr__(self) -> str:
        entries = f"{len(self.sequences)} entries of length {self.length(0)}"
        return f"<fovea.torch.TransformersCache of {len(self.layers)} layers, {entries}>"


class _Layer(CacheLayerMixin):  # type: ignore[misc, unused-ignore]
    """One layer, as transformers sees it."""

    is_sliding = False
    is_compileable = False
    is_croppable = True

    def __init__(self, owner: TransformersCache, number: int):
        self.owner, self.number = owner, number

    @property
    def is_initialized(self) -> bool:
        return self.owner.cache is not None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing: the first update makes the cache."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> "tuple[Tensor, Tensor]":
        held = self.owner.write(self.number, key_states, value_states)
        if torch.compiler.is_compiling():
            return held.gathered("key"), held.gathered("value")
        return CachedRows(held, "key"), CachedRows(held, "value")

    @property
    def keys(self) -> Optional[Tensor]:
        return self._rows("key")

    @property
    def values(self) -> Optional[Tensor]:
        return self._rows("value")

    def _rows(self, name: str) -> Optional[Tensor]:
        owner = self.owner
        if owner.cache is None or not owner.sequences:
            return None
        return HeldRows(owner.cache[self.number], owner.sequences).gathered(name)

    def get_seq_length(self) -> int:
        return self.owner.length(self.number)

    def get_mask_sizes(self, query_length: int) -> "tuple[int, int]":
        return self.get_seq_length() + int(query_length), 0

    def get_max_length(self) -> int:
        return -1

    get_max_cache_shape = get_max_length  # its name before transformers 5.10


__all__ = ["TransformersCache"]
