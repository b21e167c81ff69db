"""The attention of models in transformers, and fla's naive forgetting attention: called, not copied.

Some convert to float32 inside. These conversions are disabled while they run, so the formula is theirs and the precision is double."""

import contextlib
import types
from unittest import mock

import numpy as np
import torch

from outside.engine import BOUND, expand, masked_softmax, near
from outside.paper_scores import case


@contextlib.contextmanager
def in_double():
    softmax = torch.nn.functional.softmax
    with (mock.patch.object(torch.Tensor, "float", torch.Tensor.double),
          mock.patch.object(torch, "sum", lambda x, dim=None, dtype=None: x.sum(dim)),
          mock.patch.object(torch.nn.functional, "softmax", lambda x, dim=None, dtype=None: softmax(x, dim=dim))):
        yield


def additive(bits):
    return torch.zeros(bits.shape, dtype=torch.float64).masked_fill(~bits, -torch.inf)


def fixed(tensor):
    """Replaces a projection and returns a given tensor."""
    module = torch.nn.Module()
    module.forward = lambda *_: tensor
    return module


def check_alibi(engine):
    """Slopes of every number of heads up to 40, read from the scores of two keys; transformers computes them in float32. BLOOM adds +m·j, which gives
    the same attention."""
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    for heads in range(1, 41):
        slopes = build_alibi_tensor(torch.ones(1, 2, dtype=torch.long), heads, torch.float64)[:, 0, 1]
        zeros = torch.zeros(1, heads, 1, 1)
        got, _ = engine.attend({"query": zeros, "key": zeros.expand(1, heads, 2, 1), "value": zeros.expand(1, heads, 2, 1)}, ["--mod", "alibi"])
        mine = np.log(got["weights"][0, :, 0, 1] / got["weights"][0, :, 0, 0])
        # A power of up to `heads` multiplications, each of one rounding to 24 bits; slopes are below 1.
        assert near(mine, slopes, heads * 2.0**-23) <= 1, (heads, mine, slopes)
        engine.cases += 1
    for turn in range(6):
        given, bits, flags = case(engine, turn)
        (batch, heads, queries, dim), keys = given["query"].shape, given["key"].shape[2]
        bias = build_alibi_tensor(torch.ones(batch, keys, dtype=torch.long), heads, torch.float64).reshape(batch, heads, 1, keys)
        given["slope"] = bias[0, :, 0, 1]
        assert torch.equal(bias, (given["slope"][:, None, None] * torch.arange(keys)).expand(bias.shape))

        def law(t):
            s = t["query"] @ expand(t["key"], heads).mT / dim**0.5 + t["slope"][:, None, None] * torch.arange(keys)
            weights = masked_softmax(s, bits)[0]
            return {"out": weights @ expand(t["value"], heads), "weights": weights}

        engine.compare("alibi", given, flags + ["--mod", "alibi=@slope"], law, {"slope": "mods[0].slope"})


def bucket_by_definition(buckets, farthest, bidirectional, distance):
    """T5's bucket in whole numbers: exact at the boundaries, where a logarithm in float32 may round to either side."""
    first = 0
    if bidirectional:
        buckets //= 2
        first, distance = (buckets, -distance) if distance < 0 else (0, distance)
    else:
        distance = max(distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    n, k = buckets - exact, 0  # k = floor(n · log(d / exact) / log(farthest / exact)), at most n - 1
    while k + 1 < n and distance**n * exact ** (k + 1) >= farthest ** (k + 1) * exact**n:
        k += 1
    return first + exact + k


def check_buckets(engine):
    """T5's bucket of every distance of a rectangle of queries and keys, read from the scores; then the bias with gradients."""
    from transformers.models.t5.modeling_t5 import T5Attention

    queries, keys = 300, 400
    p, j = torch.arange(queries)[:, None] + keys - queries, torch.arange(keys)[None, :]
    for buckets, farthest in ((32, 128), (32, 256), (64, 128), (16, 100), (8, 20), (4, 9), (10, 1000)):
        for bidirectional in (True, False):
            theirs = T5Attention._relative_position_bucket(j - p, bidirectional=bidirectional, num_buckets=buckets, max_distance=farthest)
            given = {"query": torch.zeros(1, 1, queries, 1), "key": torch.zeros(1, 1, keys, 1), "value": torch.zeros(1, 1, keys, 1),
                     "table": torch.arange(buckets)[None] / 8}
            name = f"relative({buckets},{farthest},{'bidirectional' if bidirectional else 'causal'})"
            got, _ = engine.attend(given, ["--mod", f"{name}=@table"])
            mine = torch.from_numpy(np.rint(8 * (np.log(got["weights"]) + got["lse"][..., None]))[0, 0]).long()
            for distance in range(1 - keys, queries):
                at = (p - j == -distance).nonzero()[0]
                ours, others, truth = int(mine[tuple(at)]), int(theirs[tuple(at)]), bucket_by_definition(buckets, farthest, bidirectional, -distance)
                assert ours == truth, f"{name}: query - key = {-distance} has bucket {truth}, ours {ours}"
                if others != truth:
                    engine.note(f"{name}: query - key = {-distance} has bucket {truth}, and ours; transformers' float32 says {others}")
            assert (mine == theirs).float().mean() > 0.9  # theirs are wrong only at boundaries
            engine.cases += 1
    for turn in range(6):
        given, bits, flags = case(engine, turn)
        (batch, heads, queries, _), keys = given["query"].shape, given["key"].shape[2]
        given["table"] = engine.random(heads, 8)
        away = torch.arange(keys) - torch.arange(queries)[:, None] - keys + queries
        bucket = T5Attention._relative_position_bucket(away, bidirectional=bool(turn % 2), num_buckets=8, max_distance=21)

        def law(t):
            weights, lse = masked_softmax(t["query"] @ expand(t["key"], heads).mT + t["table"][:, bucket], bits)
            return {"out": weights @ expand(t["value"], heads), "weights": weights, "lse": lse}

        engine.compare("T5 bias", given, flags + ["--score", "dot", "--mod", f"relative(8,21,{'bidirectional' if turn % 2 else 'causal'})=@table"],
                       law, {"table": "mods[0].table"})


def check_sinks(engine):
    """gpt-oss: the sink's column joins the softmax and is dropped after it. A row that sees nothing gives all weight to the sink."""
    from transformers.models.gpt_oss import modeling_gpt_oss

    for turn in range(14):
        given, bits, flags = case(engine, turn)
        heads, kv_heads, dim = given["query"].shape[1], given["key"].shape[1], given["query"].shape[3]
        given["sink"] = engine.random(heads, low=-2, high=2)

        def law(t):
            module = types.SimpleNamespace(num_key_value_groups=heads // kv_heads, sinks=t["sink"], training=False)
            out, weights = modeling_gpt_oss.eager_attention_forward(module, t["query"], t["key"], t["value"], additive(bits), dim**-0.5)
            visible = (t["query"] @ expand(t["key"], heads).mT / dim**0.5).detach().masked_fill(~bits, -torch.inf)
            return {"out": out.transpose(1, 2), "weights": weights, "lse": torch.logsumexp(visible, -1)}  # without the sink

        engine.compare("sinks", given, flags + ["--normalizer", "sink", "--sink", "@sink"], law, {"sink": "normalizer.sink"},
                       loss=("out",))


def check_softcap(engine):
    """Gemma 2: the cap before the mask. Rows that see nothing are left out, because Gemma gives NaN."""
    from transformers.models.gemma2 import modeling_gemma2

    for turn in range(14):
        given, bits, flags = case(engine, turn)
        heads, kv_heads, cap = given["query"].shape[1], given["key"].shape[1], (0.5, 2.0, 50.0)[turn % 3]
        live = bits.any(-1, keepdim=True)

        def law(t):
            module = types.SimpleNamespace(num_key_value_groups=heads // kv_heads, training=False)
            with in_double():
                out, weights = modeling_gemma2.eager_attention_forward(module, t["query"], t["key"], t["value"], additive(bits | ~live),
                                                                       scaling=0.7, softcap=cap)
            return {"out": torch.where(live, out.transpose(1, 2), 0.0), "weights": torch.where(live, weights, 0.0)}

        engine.compare("softcap", given, flags + ["--scale", "0.7", "--mod", f"softcap({cap:g})"], law)


def composite(engine, what, leaves, make, flags, law, files):
    """A case whose operands for the command are computed from the model's (the leaves): `make` returns them by name. The command's results are
    compared with the law of the leaves; its gradients go through `make` by torch's chain rule."""
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in leaves.items()}
    want, operands = law(leaves), make(leaves)
    d = engine.random(*want.shape)
    arrays = {name: tensor.detach() for name, tensor in operands.items()} | {"d": d}
    got, gradients = engine.attend(arrays, flags + ["--grad", "@d"], results=("out",))
    theirs = torch.autograd.grad((want * d).sum(), leaves.values(), retain_graph=True)
    missing = [files[name] for name in operands if files[name] not in gradients]
    assert not missing, (what, missing, sorted(gradients))
    mine = torch.autograd.grad(list(operands.values()), leaves.values(),
                               [torch.from_numpy(gradients[files[name]]).reshape(operands[name].shape) for name in operands])
    for name, a, b in [("out", got["out"], want.detach()), *zip(leaves, mine, theirs)]:
        error = near(a, b, BOUND)
        engine.worst = max(engine.worst, error)
        assert error <= 1, f"{what}: {name} is {error:.3g} times what rounding allows"
    engine.cases += 1


def check_relative_key(engine):
    """Transformer-XL's score, (q + u)·k + (q + w)·r_{i-j}, as XLNet computes it."""
    from transformers.models.xlnet.modeling_xlnet import XLNetRelativeAttention

    for turn in range(6):
        batch, heads, length, dim, value_dim = 2, engine.integer(1, 4), engine.integer(2, 14), engine.integer(1, 9), engine.integer(1, 6)
        far = length - 1
        leaves = {"q": engine.random(batch, heads, length, dim), "k": engine.random(batch, heads, length, dim), "v": engine.random(batch, heads, length, value_dim),
                  "r": engine.random(heads, 2 * length, dim), "u": engine.random(heads, dim), "w": engine.random(heads, dim)}
        causal, scale = turn % 2, dim**-0.5

        def law(t):
            # theirs: [length, batch, heads, dim]; positions from `length` down to 1 - length
            module = types.SimpleNamespace(r_w_bias=t["u"], r_r_bias=t["w"], scale=scale, dropout=lambda x: x,
                                           rel_shift_bnij=XLNetRelativeAttention.rel_shift_bnij)
            q, k, v = (t[name].permute(2, 0, 1, 3) for name in "qkv")
            r = t["r"].permute(1, 0, 2)[:, None].expand(-1, batch, -1, -1)
            hidden = torch.ones(length, length, dtype=torch.float64).triu(1)[:, :, None, None].expand(-1, -1, batch, heads) if causal else None
            return XLNetRelativeAttention.rel_attn_core(module, q, k, v, r, attn_mask=hidden).permute(1, 2, 0, 3)

        def make(t):
            # row m of r is of distance length - m; entry n of our table is of n - far
            rows = t["r"][:, length - torch.arange(-far, far + 1)]
            return {"query": t["q"] + t["u"][:, None], "key": t["k"], "value": t["v"],
                    "table": torch.einsum("bhid,hnd->bhin", t["q"] + t["w"][:, None], rows) * scale}

        composite(engine, "relative key", leaves, make, ["--mod", f"relative-key({far})=@table", "--mask", "causal" if causal else "everything"], law,
                  {"query": "query", "key": "key", "value": "value", "table": "mods[0].table"})


def check_latent(engine):
    """DeepSeek-V3's module from the latent cache on, after its rotation; absorbed and naive."""
    from transformers import DeepseekV3Config
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention, eager_attention_forward

    for turn in range(8):
        batch, heads, queries, keys = 2, engine.integer(1, 5), engine.integer(1, 9), engine.integer(9, 20)
        content, rotary, latent, value = engine.integer(1, 9), 2 * engine.integer(1, 4), engine.integer(1, 11), engine.integer(1, 8)
        config = DeepseekV3Config(hidden_size=8, num_attention_heads=heads, num_key_value_heads=heads, q_lora_rank=None, kv_lora_rank=latent,
                                  qk_nope_head_dim=content, qk_rope_head_dim=rotary, v_head_dim=value, attn_implementation="eager")
        module = DeepseekV3Attention(config, 0).double().eval()
        module.scaling = (content + rotary) ** -0.5
        leaves = {"query": engine.random(batch, heads, queries, content), "rotary": engine.random(batch, heads, queries, rotary),
                  "cache": engine.random(batch, keys, latent + rotary), "W": engine.random(heads * (content + value), latent)}
        bits = torch.ones(queries, keys, dtype=torch.bool)
        if turn % 2:
            bits = bits.tril(keys - queries)

        def law(t):
            module.kv_b_proj.forward = lambda x: x @ t["W"].T
            k, v = module.expand_kv(t["cache"][:, None, :, :latent], t["cache"][:, None, :, latent:])
            with in_double():
                return eager_attention_forward(module, torch.cat([t["query"], t["rotary"]], -1), k, v, additive(bits[None, None]), module.scaling)[0].transpose(1, 2)

        def make(t):
            both = t["W"].reshape(heads, content + value, latent)
            return {"query": t["query"], "rotary": t["rotary"], "key": t["cache"], "W_UK": both[:, :content], "W_UV": both[:, content:]}

        for execution in ("absorbed", "naive"):
            composite(engine, f"latent {execution}", leaves, make, ["--latent-key", "@W_UK", "--latent-value", "@W_UV", "--query-rotary", "@rotary",
                      "--latent-execution", execution, "--mask", "causal" if turn % 2 else "everything"], law,
                      {"query": "query", "rotary": "query_rotary", "key": "cache", "W_UK": "latent.W_UK", "W_UV": "latent.W_UV"})


def check_differential(engine):
    """DiffLlama's module without rotation, its group norm and projections taken out; halves of a pair lie H/2 heads apart there
    and next to each other here. Its lambda is one for all heads."""
    from transformers import DiffLlamaConfig
    from transformers.models.diffllama.modeling_diffllama import DiffLlamaAttention

    for turn in range(6):
        batch, kv_pairs, group, length, dim = 2, engine.integer(1, 3), engine.integer(1, 3), engine.integer(1, 14), 2 * engine.integer(1, 5)
        pairs = kv_pairs * group
        config = DiffLlamaConfig(hidden_size=2 * pairs * dim, num_attention_heads=2 * pairs, num_key_value_heads=2 * kv_pairs, head_dim=dim,
                                 attn_implementation="eager")
        module = DiffLlamaAttention(config, layer_idx=turn).double().eval()
        leaves = {"q": engine.random(batch, 2 * pairs, length, dim), "k": engine.random(batch, 2 * kv_pairs, length, dim),
                  "v": engine.random(batch, 2 * kv_pairs, length, dim), **{name: engine.random(dim) for name in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")}}
        bits = torch.ones(length, length, dtype=torch.bool).tril() if turn % 2 else torch.ones(length, length, dtype=torch.bool)

        def law(t):
            flat = lambda x: x.transpose(1, 2).reshape(batch, length, -1)
            module.q_proj, module.k_proj, module.v_proj = fixed(flat(t["q"])), fixed(flat(t["k"])), fixed(flat(t["v"]))
            module.groupnorm = module.o_proj = torch.nn.Identity()
            for name in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"):
                module._parameters.pop(name, None)
                setattr(module, name, t[name])
            still = (torch.ones(1, length, dim, dtype=torch.float64), torch.zeros(1, length, dim, dtype=torch.float64))
            with in_double():
                out = module(torch.zeros(batch, length, 1, dtype=torch.float64), still, additive(bits[None, None]))[0]
            return out.reshape(batch, length, pairs, 2 * dim).transpose(1, 2) / (1 - module.lambda_init)

        def make(t):
            together = lambda x: x.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)
            first, second = ((t[f"lambda_q{n}"] * t[f"lambda_k{n}"]).sum().exp() for n in (1, 2))
            return {"query": together(t["q"]), "key": together(t["k"]), "value": torch.cat(t["v"].chunk(2, 1), -1),
                    "lambda": (first - second + module.lambda_init).expand(pairs)}

        composite(engine, "differential", leaves, make, ["--differential", "@lambda", "--mask", "causal" if turn % 2 else "everything"], law,
                  {"query": "query", "key": "key", "value": "value", "lambda": "lambda"})


def check_forgetting(engine):
    """fla's naive reference: [batch, length, heads, dim], log gates given; its window keeps `window` keys, ours `lookback` before."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a machine without a GPU
        try:
            from fla.ops.forgetting_attn.naive import naive_forgetting_attn
        except ImportError:
            raise
        except Exception as error:  # Triton's error on a machine without a device
            raise ImportError(f"fla: {error}") from error

    for turn in range(8):
        heads, kv_heads = ((4, 4), (4, 2), (3, 1))[turn % 3]
        batch, length, dim = 2, engine.integer(2, 30), engine.integer(1, 10)
        given = {"query": engine.random(batch, heads, length, dim), "key": engine.random(batch, kv_heads, length, dim),
                 "value": engine.random(batch, kv_heads, length, engine.integer(1, 7)), "log_f": engine.random(batch, heads, length, low=-1, high=-0.01)}
        window = (None, 4)[turn % 2]

        def law(t):
            with in_double():
                out = naive_forgetting_attn(*(t[name].transpose(1, 2) for name in ("query", "key", "value", "log_f")), window_size=window)
            return {"out": out.transpose(1, 2)}

        engine.compare("forgetting", given, ["--mod", "forget=@log_f", "--mask", f"window({window - 1},0)" if window else "causal"], law,
                       {"log_f": "mods[0].log_forget"})


PARTS = [
    ("ALiBi", "transformers Bloom build_alibi_tensor", check_alibi),
    ("T5 relative bias", "transformers T5 _relative_position_bucket", check_buckets),
    ("learned sinks", "transformers gpt-oss eager_attention_forward", check_sinks),
    ("soft-cap", "transformers Gemma 2 eager_attention_forward", check_softcap),
    ("Transformer-XL relative", "transformers XLNet rel_attn_core", check_relative_key),
    ("multi-head latent", "transformers DeepSeek-V3 expand_kv and eager_attention_forward", check_latent),
    ("differential", "transformers DiffLlamaAttention", check_differential),
    ("forgetting gate", "fla naive_forgetting_attn", check_forgetting),
]
