"""Normalisers: the entmax package, torch's gumbel_softmax fed with our noise, torch-struct's chain, and brute force."""

import itertools
from unittest import mock

import numpy as np
import torch

from outside.engine import BOUND, expand, near
from outside.paper_scores import case


def scores(t, scale=3.0):
    return t["query"] @ expand(t["key"], t["query"].shape[1]).mT * scale


SCALE = ["--score", "dot", "--scale", "3"]


def by_visible_keys(s, bits, weigh):
    """Weights of every set of rows that see the same keys, for functions that cannot take infinities: weigh(scores [rows, n], heads, rows)."""
    bits = bits.expand(s.shape)
    flat, rows = s.reshape(-1, s.shape[-1]), bits.reshape(-1, s.shape[-1])
    head = torch.arange(s.shape[1]).view(1, -1, 1).expand(s.shape[:3]).reshape(-1)
    result = torch.zeros_like(flat)
    for pattern in torch.unique(rows, dim=0):
        keys, same = pattern.nonzero()[:, 0], (rows == pattern).all(-1).nonzero()[:, 0]
        if len(keys):
            result = result.index_put((same[:, None], keys[None]), weigh(flat[same][:, keys], head[same]))
    return result.reshape(s.shape)


def check_with(engine, turns, normalizer, weigh):
    for turn in range(turns):
        given, bits, flags = case(engine, turn)
        for loss in (("out",), ("weights",), ("out", "weights")):

            def law(t):
                weights = by_visible_keys(scores(t), bits, weigh)
                return {"out": weights @ expand(t["value"], weights.shape[1]), "weights": weights}

            engine.compare(f"{normalizer} {flags}", given, flags + SCALE + ["--normalizer", normalizer], law, loss=loss)


def check_sparsemax(engine):
    from entmax import sparsemax

    check_with(engine, 7, "sparsemax", lambda s, _: sparsemax(s, dim=-1))
    check_with(engine, 2, "entmax(2)", lambda s, _: sparsemax(s, dim=-1))


def check_entmax15(engine):
    from entmax import entmax15

    check_with(engine, 7, "entmax(1.5)", lambda s, _: entmax15(s, dim=-1))


def check_entmax(engine):
    """Bisection of 60 steps, after which a double's bits are used up."""
    from entmax import entmax_bisect

    for alpha in (1.2, 1.33, 1.7, 1.9):
        check_with(engine, 4, f"entmax({alpha})", lambda s, _: entmax_bisect(s, alpha, dim=-1, n_iter=60))


def check_sigmoid(engine):
    for bias in (0.0, -1.5):
        check_with(engine, 4, f"sigmoid({bias})", lambda s, _: torch.sigmoid(s + bias))


def check_argmax(engine):
    """Weights have no gradient by the scores; equal best scores share the weight. Half the keys are copies, so that there are ties; the
    operands are eighths, so that products are exact: torch's matmul gives equal keys scores that differ in the last bit."""
    for turn in range(6):
        given, bits, flags = case(engine, turn)
        given |= {name: torch.round(8 * given[name]) / 8 for name in ("query", "key")}
        half = given["key"].shape[2] // 2
        given["key"][:, :, half : 2 * half] = given["key"][:, :, :half]

        def law(t):
            with torch.no_grad():
                s = scores(t).masked_fill(~bits, -torch.inf)
                best = (s == s.amax(-1, keepdim=True)) & bits
                weights = best.double() / best.sum(-1, keepdim=True).clamp(min=1)
            return {"out": weights @ expand(t["value"], s.shape[1]), "weights": weights}

        engine.compare("argmax", given, flags + SCALE + ["--normalizer", "argmax"], law)


def philox(counter, key):
    """Philox4x32-10 (Salmon et al. 2011) of counters [.., 4], in 64-bit integers."""
    c, key = [counter[..., n].astype(np.uint64) for n in range(4)], [key & 0xFFFFFFFF, key >> 32]
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(b >> shift) ^ c[1] ^ np.uint64(key[0]), b & low, (a >> shift) ^ c[3] ^ np.uint64(key[1]), a & low]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, -1)


def exponentials(seed, batch, heads, queries, keys, offset):
    """[batch, heads, queries, keys] of -ln u, where -ln of it is the Gumbel noise of a site; u as attention/sample.h says."""
    blocks = (keys + 3) // 4
    counter = np.zeros((batch, heads, queries, blocks, 4), np.uint64)
    counter[..., 0] = np.arange(blocks)
    counter[..., 1] = (np.arange(queries)[:, None] + offset) & 0xFFFFFFFF
    counter[..., 2] = np.arange(heads)[:, None, None] | 0x80000000
    counter[..., 3] = np.arange(batch)[:, None, None, None]
    words = philox(counter, seed).reshape(batch, heads, queries, 4 * blocks)[..., :keys]
    return torch.from_numpy(-np.log((words.astype(np.float64) + 0.5) * 2.0**-32))


def check_philox(engine):
    """The known answers that the generator's authors publish (Random123, kat_vectors)."""
    pi = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]
    for counter, key, want in (([0] * 4, 0, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
                               ([0xFFFFFFFF] * 4, 2**64 - 1, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
                               (pi, 0x299F31D0A4093822, [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1])):
        assert philox(np.array(counter, np.uint64), key).tolist() == want
        engine.cases += 1


def draw_case(engine, turn):
    given, bits, flags = case(engine, turn)
    seed = engine.integer(0, 2**63)
    (batch, heads, queries, _), keys = given["query"].shape, given["key"].shape[2]
    return given, bits, flags + SCALE + ["--sample-seed", str(seed)], exponentials(seed, batch, heads, queries, keys, keys - queries)


def check_gumbel(engine):
    """torch draws by exponential_(), which is replaced by our noise. The same key is drawn, with the straight-through gradient of softmax((s + g) / tau)."""
    from torch.nn.functional import gumbel_softmax

    for turn in range(14):
        given, bits, flags, drawn = draw_case(engine, turn)
        tau = (1.0, 0.5, 2.5)[turn % 3]
        live = bits.any(-1, keepdim=True)

        def law(t):
            s = torch.where(live, scores(t).masked_fill(~bits, -torch.inf), 0.0)
            with mock.patch.object(torch.Tensor, "exponential_", lambda self: self.copy_(drawn)):
                weights = torch.where(live, gumbel_softmax(s, tau=tau, hard=True), 0.0)
            return {"out": weights @ expand(t["value"], s.shape[1]), "weights": weights}

        got, _ = engine.compare(f"gumbel {flags}", given, flags + ["--normalizer", f"gumbel({tau})"], law,
                                loss=(("out",), ("weights",), ("out", "weights"))[turn % 3])
        assert np.isin(got["weights"], (0.0, 1.0)).all()


def check_sample(engine):
    """The same draw; the scores' gradient is advantage · d ln softmax(s)[drawn], the values' that of the drawn key."""
    for turn in range(12):
        given, bits, flags, drawn = draw_case(engine, turn)
        (batch, heads, queries, _), live = given["query"].shape, bits.any(-1)
        given["advantage"] = engine.random(batch, heads, queries, low=-2, high=2)

        def law(t):
            s = torch.where(live[..., None], scores(t).masked_fill(~bits, -torch.inf), 0.0)
            key = (s.detach() - torch.log(drawn)).argmax(-1, keepdim=True)
            weights = torch.zeros_like(s.detach()).scatter(-1, key, 1.0) * live[..., None]
            log_p = torch.log_softmax(s, -1).gather(-1, key)[..., 0]
            return {"out": weights @ expand(t["value"], heads), "weights": weights, "loss": (t["advantage"] * log_p * live).sum()}

        engine.compare(f"sample {flags}", given, flags + ["--normalizer", "sample", "--advantage", "@advantage"], law)


def chain_case(engine, turn, weigh, keys=None):
    given, bits, flags = case(engine, turn, keys=keys)
    heads = given["query"].shape[1]
    given["transitions"] = engine.random(*((heads,) if turn % 2 else ()), 2, 2, low=-2, high=2)

    def law(t):
        weights = by_visible_keys(scores(t), bits, lambda s, head: weigh(s, t["transitions"].expand(heads, 2, 2)[head]))
        return {"out": weights @ expand(t["value"], heads), "weights": weights}

    # A marginal is exp of a difference of sums over all keys, so its relative error is the absolute error of these sums.
    bound = BOUND * given["key"].shape[2]
    got, _ = engine.compare(f"chain {flags}", given, flags + SCALE + ["--normalizer", "chain", "--transitions", "@transitions"], law,
                            {"transitions": "normalizer.transitions"}, loss=("out", "weights") if turn % 2 else ("out",), bound=bound)
    return given, bits, got


def check_chain(engine):
    """Edges of torch-struct are [z_n+1, z_n]; unary potentials go to the edge after them. One variable has no edge: its marginal is a sigmoid."""
    from torch_struct import LinearChainCRF

    LinearChainCRF.arg_constraints = {}  # otherwise torch warns at each call
    def weigh(s, transitions):
        if s.shape[1] == 1:
            return torch.sigmoid(s)
        unary = torch.stack([torch.zeros_like(s), s], -1)  # [rows, n, 2]
        edges = transitions.mT[:, None] + unary[:, 1:, :, None]
        edges = torch.cat([edges[:, :1] + unary[:, :1, None], edges[:, 1:]], 1)
        marginals = LinearChainCRF(edges).marginals
        return torch.cat([marginals[:, :1, :, 1].sum(-1), marginals[:, :, 1].sum(-1)], 1)

    for turn in range(10):
        chain_case(engine, turn, weigh)


def check_chain_by_force(engine):
    """All 2^n states of at most 8 variables; the marginals are also the gradient of ln Z, which the log-sum-exp returns."""

    def potentials(s, transitions):
        states = torch.tensor(list(itertools.product((0, 1), repeat=s.shape[1])))
        return s @ states.to(s.dtype).T + transitions[:, states[:, :-1], states[:, 1:]].sum(-1), states.to(s.dtype)

    def weigh(s, transitions):
        energies, states = potentials(s, transitions)
        return torch.softmax(energies, -1) @ states

    for turn in range(10):
        given, bits, got = chain_case(engine, turn, weigh, keys=1 + turn % 8)
        s, totals = scores(given).requires_grad_(), [torch.zeros(())]

        def add(part, head):
            transitions = given["transitions"].expand(s.shape[1], 2, 2)[head]
            totals.append(torch.logsumexp(potentials(part, transitions)[0], -1).sum())
            return part

        by_visible_keys(s, bits, add)
        (marginals,) = torch.autograd.grad(sum(totals) + 0 * s.sum(), s)
        assert near(got["weights"], marginals, BOUND) <= 1, "weights are not the gradient of ln Z"
        total = float(sum(totals).detach())
        assert near(got["lse"][np.isfinite(got["lse"])].sum(), total, BOUND) <= 1, "ln Z differs"


PARTS = [
    ("sparsemax", "entmax.sparsemax", check_sparsemax),
    ("entmax-1.5", "entmax.entmax15", check_entmax15),
    ("entmax-alpha", "entmax.entmax_bisect", check_entmax),
    ("sigmoid", "torch.sigmoid", check_sigmoid),
    ("hard argmax", "definition in torch", check_argmax),
    ("noise", "Philox4x32-10's published answers, for what the next two read", check_philox),
    ("straight-through Gumbel", "torch gumbel_softmax(hard=True)", check_gumbel),
    ("hard attention, score function", "torch log_softmax of the drawn key", check_sample),
    ("linear chain", "torch-struct LinearChainCRF", check_chain),
    ("linear chain, n <= 8", "brute force in torch", check_chain_by_force),
]
