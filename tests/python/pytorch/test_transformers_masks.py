"""Masks of transformers as masks of Fovea: a named mask equals its function, and can be read as eager's dense mask."""

from __future__ import annotations

import pytest
from torch_support import F64, torch

reason = "needs transformers 5.0 (tests/requirements-torch.txt)"
pytest.importorskip("transformers", "5.0", reason=reason)

from transformers import masking_utils  # noqa: E402

import fovea  # noqa: E402
import fovea.torch  # noqa: E402
from fovea.torch._transformers import make_mask  # noqa: E402


def _functions():
    m = masking_utils
    none, packed = torch.zeros(2, dtype=torch.long), torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2]]).expand(2, -1)
    positions = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 0]]).expand(2, -1)
    return {
        "causal": m.causal_mask_function,
        "both ways": m.bidirectional_mask_function,
        "window": m.sliding_window_causal_mask_function(3),
        "window of 1": m.sliding_window_causal_mask_function(1),
        "window both ways": m.sliding_window_bidirectional_mask_function(2),
        "chunks": m.chunked_causal_mask_function(4, none),
        "packed": m.packed_sequence_compatibility_function(m.causal_mask_function, positions, packed),
        "packed window": m.packed_sequence_compatibility_function(
            m.sliding_window_causal_mask_function(2), positions, packed
        ),
    }


SEEN = {
    "none": None,
    "left": [[1] * 8, [0] * 3 + [1] * 5],
    "right": [[1] * 6 + [0] * 2, [1] * 8],
    "both": [[1] * 6 + [0] * 2, [0] * 3 + [1] * 5],
    "inside one row": [[0, 1, 1, 1, 1, 1, 0, 0], [1] * 8],
    "all": [[0] * 8, [1] * 8],
    "holes": [[1, 1, 0, 1, 1, 1, 1, 1], [1] * 8],
}


@pytest.mark.parametrize("padding", SEEN)
@pytest.mark.parametrize("name", _functions())
def test_names_equal_the_functions(name, padding):
    """With offsets of queries and keys, as in growing caches and sliding windows."""
    function = _functions()[name]
    places = [(8, 8, 0, 0)]
    if not name.startswith("packed"):
        places += [(3, 8, 5, 0), (1, 8, 7, 0), (4, 6, 4, 2), (2, 5, 6, 3), (1, 4, 7, 4), (4, 8, 0, 0)]
    for queries, keys, first_query, first_key in places:
        seen = None if SEEN[padding] is None else torch.tensor(SEEN[padding], dtype=torch.bool)
        given = dict(batch_size=2, q_length=queries, kv_length=keys, q_offset=first_query, kv_offset=first_key)
        given.update(mask_function=function, attention_mask=seen)
        expected = masking_utils.sdpa_mask(allow_is_causal_skip=False, **given)
        mask = make_mask(dtype=F64, **given)
        assert type(mask).__name__ == "NamedMask" and mask.shape == (2, 1, queries, keys)
        visible = mask.visible
        holes = padding == "holes" and seen[:, first_key : min(first_key + keys, first_query + queries)].all() == 0
        chunks = name == "chunks" and first_key % 4
        assert (visible.mask is None) == bool(holes or chunks) or padding == "holes"
        if visible.mask is not None:
            q, k = torch.ones(2, 1, queries, 4), torch.ones(2, 1, keys, 4)
            weights = fovea.attention(q, k, None, mask=visible.mask, query_offset=visible.query_offset)
            assert torch.equal(weights > 0, expected), (queries, keys, first_query, first_key, visible.mask)
        assert torch.equal(visible.dense(), expected)


def test_masks_of_custom_functions_stay_dense():
    function = masking_utils.and_masks(masking_utils.causal_mask_function, lambda b, h, q, k: (q - k) % 2 == 0)
    mask = make_mask(batch_size=1, q_length=5, kv_length=5, mask_function=function, use_vmap=True)
    assert mask.visible.mask is None
    distance = torch.arange(5)[:, None] - torch.arange(5)
    assert torch.equal(mask.visible.dense()[0, 0], (distance >= 0) & (distance % 2 == 0))


def test_a_named_mask_reads_as_the_mask_of_eager():
    given = dict(batch_size=2, q_length=5, kv_length=7, q_offset=2, attention_mask=torch.ones(2, 7).bool())
    expected = masking_utils.eager_mask(dtype=F64, **given)

    def named():
        return make_mask(dtype=F64, **given)

    assert isinstance(named(), torch.Tensor) and named().dtype == F64 and named().dim() == 4
    assert "Causal()" in repr(named())
    assert torch.equal(named() + 1, expected + 1) and torch.equal(named()[:, :, 1:3], expected[:, :, 1:3])
    assert torch.equal(named().to(torch.bool) | False, expected.to(torch.bool))
    assert torch.equal(named().to(torch.float32) * 1, masking_utils.eager_mask(dtype=torch.float32, **given))
    assert torch.equal(torch.cat([named(), expected], -1), torch.cat([expected, expected], -1))
    scores = torch.zeros(2, 3, 5, 7, dtype=F64)
    assert torch.equal(scores.masked_fill(named().to(torch.bool), -1), scores.masked_fill(expected.to(torch.bool), -1))
    # Operations that leave the entries in place keep the name.
    for same in (named()[:, :, :, :7], named().detach(), named().to(torch.bool), named().to(torch.float32)):
        assert same.is_named and same.visible.mask is not None
    # After a write, through whichever view, the written numbers count.
    for write in (
        lambda mask: mask.fill_(0),
        lambda mask: mask[:, :, :, 0:3].fill_(0),
        lambda mask: mask[:, :, :, :7][:, :, 1:].fill_(0),
        lambda mask: mask.detach().fill_(0),
    ):
        mask, plain = named(), expected.clone()
        write(mask), write(plain)
        assert not mask.is_named and torch.equal(mask + 0, plain) and torch.equal(mask.read(), plain)
