"""torch's own attention: scaled_dot_product_attention (math backend) and flex_attention (eager)."""

import contextlib
import warnings

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from outside.engine import BOUND, masks


def sizes(engine, turn):
    heads, kv_heads = ((4, 4), (4, 2), (6, 3), (4, 1), (1, 1))[turn % 5]
    batch, queries, keys, dim, value_dim = 2, engine.integer(1, 40), engine.integer(6, 60), engine.integer(1, 20), engine.integer(1, 12)
    return {"query": engine.random(batch, heads, queries, dim, low=-3, high=3), "key": engine.random(batch, kv_heads, keys, dim),
            "value": engine.random(batch, kv_heads, keys, value_dim)}


def live_rows(t, bits, attend):
    """`attend` on the rows that see a key, an entry at a time; 0 in the others, because a softmax over no keys is not defined:
    depending on torch's version such rows are NaN, 0 or the mean of the values; ours are 0."""
    shape = (*t["query"].shape[:3], t["value"].shape[3])
    out = torch.zeros(shape, dtype=torch.float64)
    for b in range(shape[0]):
        rows = bits[b, 0].any(-1).nonzero()[:, 0]
        if len(rows):
            part = [t["query"][b : b + 1, :, rows], t["key"][b : b + 1], t["value"][b : b + 1]]
            out = out.index_put((torch.tensor(b), torch.arange(shape[1])[:, None], rows[None]), attend(*part, bits[b : b + 1, :, rows], rows)[0])
    return {"out": out}


def check_sdpa(engine):
    with sdpa_kernel(SDPBackend.MATH):
        for turn in range(24):
            given = sizes(engine, turn)
            batch, _, queries, dim = given["query"].shape
            keys = given["key"].shape[2]
            offset = (None, 2, 0)[turn % 3]
            every = masks(queries, keys, keys - queries if offset is None else offset, batch)
            mask = every[turn % len(every)]
            bits = mask.bits(batch, queries, keys, keys - queries if offset is None else offset)
            scale = (None, 0.6)[turn % 2]
            flags = ["--mask", mask.text, *([] if offset is None else ["--query-offset", str(offset)]), *([] if scale is None else ["--scale", str(scale)])]
            law = lambda t: live_rows(t, bits, lambda q, k, v, m, rows: scaled_dot_product_attention(q, k, v, attn_mask=m, scale=scale, enable_gqa=True))
            for dtype in (np.float64, np.float32):
                # |q k| <= 3·dim, with an error of that many eps; the softmax and its backward pass it on to 8 sums of at most `keys` terms.
                bound = BOUND if dtype == np.float64 else 8 * 3 * dim * keys**0.5 * np.finfo(dtype).eps
                engine.compare(f"sdpa {mask.text}", given, flags, law, dtype=dtype, bound=bound)


def check_is_causal(engine):
    """is_causal aligns at the top left: our offset 0, not our default."""
    with sdpa_kernel(SDPBackend.MATH):
        for turn in range(6):
            given = sizes(engine, turn)
            law = lambda t: {"out": scaled_dot_product_attention(t["query"], t["key"], t["value"], is_causal=True, enable_gqa=True)}
            engine.compare("sdpa is_causal", given, ["--mask", "causal", "--query-offset", "0"], law)


def check_bias(engine):
    """A float attn_mask is our dense bias, and has a gradient; after it a mask hides further keys."""
    with sdpa_kernel(SDPBackend.MATH):
        for turn in range(9):
            given = sizes(engine, turn)
            batch, heads, queries, _ = given["query"].shape
            keys = given["key"].shape[2]
            shape = ((queries, keys), (heads, queries, keys), (batch, heads, queries, keys))[turn % 3]
            given["bias"] = engine.random(*shape)
            every = masks(queries, keys, keys - queries, batch)
            mask = every[(0, 2, 6)[turn // 3]]
            bits = mask.bits(batch, queries, keys, keys - queries)

            def law(t):
                bias = t["bias"].expand(batch, heads, queries, keys).masked_fill(~bits, -torch.inf)
                entry = iter([b for b in range(batch) if bits[b].any()])
                return live_rows(t, bits, lambda q, k, v, m, rows: scaled_dot_product_attention(
                    q, k, v, attn_mask=bias[(b := next(entry)) : b + 1, :, rows], enable_gqa=True))

            engine.compare(f"sdpa bias {mask.text}", given, ["--mod", "bias=@bias", "--mask", mask.text], law, {"bias": "mods[0].bias"})


def check_dead_rows(engine):
    """torch's result for a row that sees nothing is printed, but not expected; our row is 0, and so are its gradients."""
    given = {name: engine.random(1, 2, 4, 3) for name in ("query", "key", "value")}
    bits = torch.ones(4, 4, dtype=torch.bool).tril(-1)
    with sdpa_kernel(SDPBackend.MATH):
        theirs = scaled_dot_product_attention(given["query"], given["key"], given["value"], attn_mask=bits)[0, 0, 0]
    engine.note(f"torch gives {theirs.tolist()} for a row that sees no key; ours is 0")
    given["d"] = engine.random(1, 2, 4, 3)
    got, gradients = engine.attend(given, ["--mask", "causal", "--query-offset", "-1", "--grad", "@d"])
    assert (got["out"][:, :, 0] == 0).all() and (got["weights"][:, :, 0] == 0).all() and np.isneginf(got["lse"][:, :, 0]).all()
    assert (gradients["query"][:, :, 0] == 0).all() and (gradients["key"][:, :, 3] == 0).all() and (gradients["value"][:, :, 3] == 0).all()
    engine.cases += 1


def check_flex(engine):
    """score_mod comes after the scale and before mask_mod, as our mods do. In torch only CUDA has backward."""
    from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

    mods = (("softcap(1.5)",), ("alibi=@slope",), ("softcap(0.7)", "alibi=@slope"), ("alibi=@slope", "softcap(2)"), ())
    for turn in range(16):
        given = sizes(engine, turn)
        batch, heads, queries, _ = given["query"].shape
        keys = given["key"].shape[2]
        offset = (None, 1, 0)[turn % 3]
        start = keys - queries if offset is None else offset
        every = masks(queries, keys, start, batch)
        mask, names = every[turn % len(every)], mods[turn % len(mods)]
        slope = given["slope"] = engine.random(heads, low=0.01, high=0.5)
        bits = mask.bits(batch, queries, keys, start)
        scale = 0.8

        def mod(score, b, h, i, j):
            for name in names:
                cap = float(name[8:-1]) if name.startswith("softcap") else None
                score = cap * torch.tanh(score / cap) if cap else score - slope[h] * (i + start - j)
            return score

        def law(t):
            with warnings.catch_warnings(), contextlib.suppress(UserWarning), torch.no_grad():
                warnings.simplefilter("ignore")  # the warning says that eager is slow
                blocks = create_block_mask(lambda b, h, i, j: mask.rule(b, i + start, j), batch, None, queries, keys, device="cpu")
                out, more = flex_attention(t["query"], t["key"], t["value"], score_mod=mod, block_mask=blocks, scale=scale, enable_gqa=True,
                                           return_aux=AuxRequest(lse=True))
            live = bits.any(-1)
            return {"out": torch.where(live[..., None], out, 0.0), "lse": torch.where(live, more.lse, -torch.inf)}

        flags = ["--mask", mask.text, "--scale", str(scale), *(part for name in names for part in ("--mod", name))]
        engine.compare(f"flex {names} {mask.text}", given, flags + ([] if offset is None else ["--query-offset", str(offset)]), law, loss=())


PARTS = [
    ("multi-head, grouped, masks", "torch scaled_dot_product_attention", check_sdpa),
    ("causal mask", "torch scaled_dot_product_attention is_causal", check_is_causal),
    ("dense bias", "torch scaled_dot_product_attention attn_mask", check_bias),
    ("rows that see nothing", "definition, beside torch scaled_dot_product_attention", check_dead_rows),
    ("soft-cap, ALiBi, window, documents, prefix", "torch flex_attention (forward alone)", check_flex),
]
