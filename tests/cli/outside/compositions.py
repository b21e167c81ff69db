"""Chains of mods, weight mods, scores, masks and normalisers drawn at random and written in torch from their formulas; also losses on weights, and gates."""

import torch

from outside.engine import expand, masked_softmax
from outside.normalizers import by_visible_keys
from outside.paper_scores import additive, case


class Draw:
    """A random composition: flags for the command, tensors, and the same steps in torch."""

    def __init__(self, engine, turn):
        self.engine = engine
        self.given, self.bits, self.flags = case(engine, turn)
        self.files, self.scores, self.weighing = {}, [], []
        (self.batch, self.heads, self.queries, self.dim), self.keys = self.given["query"].shape, self.given["key"].shape[2]
        self.away = torch.arange(self.queries)[:, None] + self.keys - self.queries - torch.arange(self.keys)

    def tensor(self, name, file, *shape, **range_):
        self.given[name], self.files[name] = self.engine.random(*shape, **range_), file

    def mod(self, kind, n):
        """Adds the n-th mod: its flag and its step on scores."""
        name, put = f"mod{n}", lambda text: self.flags.extend(["--mod", text])
        if kind == "softcap":
            put("softcap(1.25)")
            return lambda s, t: 1.25 * torch.tanh(s / 1.25)
        if kind == "temperature":
            put("temperature(0.75)")
            return lambda s, t: s / 0.75
        if kind == "learned temperature":
            put(f"temperature=@{name}")
            self.tensor(name, f"mods[{n}].temperature", self.heads, low=0.5, high=2.0)
            return lambda s, t: s / t[name][:, None, None]
        if kind == "alibi":
            put(f"alibi=@{name}")
            self.tensor(name, f"mods[{n}].slope", self.heads, low=0.0, high=0.5)
            return lambda s, t: s - t[name][:, None, None] * self.away
        if kind == "bias":
            put(f"bias=@{name}")
            self.tensor(name, f"mods[{n}].bias", self.batch, 1, 1, self.keys)
            return lambda s, t: s + t[name]
        far = 3
        put(f"relative-key({far})=@{name}")
        self.tensor(name, f"mods[{n}].table", self.batch, self.heads, self.queries, 2 * far + 1)
        entry = (self.away.clamp(-far, far) + far).expand(self.batch, self.heads, -1, -1)
        return lambda s, t: s + t[name].gather(-1, entry)

    def around(self):
        """Luong's window and Gaussian around centers that are given: the last mod, and a weight mod."""
        self.flags += ["--mod", "local(4.5)=@center", "--weight-mod", "gaussian(2)=@center"]
        self.tensor("center", "weight_mods[0].center", self.batch, self.heads, self.queries, 1, low=0.0, high=float(self.keys))
        distance = lambda t: torch.arange(self.keys) - t["center"]
        self.bits = self.bits & (distance(self.given).abs() <= 4.5)
        self.weighing.append(lambda p, t: p * torch.exp(-(distance(t) ** 2) / 8))

    def score(self, kind):
        if kind == "additive":
            self.tensor("W", "score.W", 5, self.dim)
            self.tensor("U", "score.U", 5, self.dim)
            self.tensor("v", "score.v", 5)
            self.flags += ["--score", "additive", "--additive-query", "@W", "--additive-key", "@U", "--additive-vector", "@v"]
            return lambda t: additive(t, bias=None)
        self.flags += ["--scale", "1.5"]
        return lambda t: 1.5 * t["query"] @ expand(t["key"], self.heads).mT

    def normalizer(self, kind):
        self.flags += ["--normalizer", kind]
        if kind == "sink":
            self.flags += ["--sink", "@sink"]
            self.tensor("sink", "normalizer.sink", self.heads)
            return lambda s, t: masked_softmax(s, self.bits, t["sink"][:, None, None])[0]
        if kind == "sigmoid(-1)":
            return lambda s, t: torch.sigmoid(s - 1) * self.bits
        if kind == "entmax(1.5)":
            from entmax import entmax15

            return lambda s, t: by_visible_keys(s, self.bits, lambda rows, _: entmax15(rows, dim=-1))
        return lambda s, t: masked_softmax(s, self.bits)[0]


KINDS = ("softcap", "temperature", "learned temperature", "alibi", "bias", "relative-key")
NORMALIZERS = ("softmax", "sink", "sigmoid(-1)", "entmax(1.5)")


def check_compositions(engine):
    for turn in range(36):
        draw = Draw(engine, turn)
        score = draw.score(("dot", "additive")[turn % 2])
        kinds = [KINDS[n] for n in engine.rng.permutation(len(KINDS))[: engine.integer(1, 4)]]
        steps = [draw.mod(kind, n) for n, kind in enumerate(kinds)]
        if turn % 3 == 0:
            draw.around()
        normalizer = draw.normalizer(NORMALIZERS[turn // 2 % 4])

        def law(t):
            s = score(t)
            for step in steps:
                s = step(s, t)
            weights = normalizer(s, t)
            for step in draw.weighing:
                weights = step(weights, t)
            return {"out": weights @ expand(t["value"], draw.heads), "weights": weights}

        _, gradients = engine.compare(f"composition {turn}", draw.given, draw.flags, law, draw.files, loss=("out", "weights") if turn % 4 == 3 else ("out",))
        window = gradients.get(f"mods[{len(steps)}].center")  # the set of keys depends on it, but no result does so smoothly
        assert (window is not None and not window.any()) == (turn % 3 == 0)


def check_chosen_rows(engine):
    """A loss on the weights of a few heads and rows, without values: a pointer network's."""
    for turn in range(6):
        given, bits, flags = case(engine, turn)
        del given["value"]
        (_, heads, queries, dim) = given["query"].shape
        chosen = sorted({engine.integer(0, heads), heads - 1}), sorted({engine.integer(0, queries), 0})

        def law(t):
            weights = masked_softmax(t["query"] @ expand(t["key"], heads).mT / dim**0.5, bits)[0]
            return {"weights": weights[:, chosen[0]][:, :, chosen[1]]}

        flags += ["--weight-heads", ",".join(map(str, chosen[0])), "--weight-rows", ",".join(map(str, chosen[1]))]
        engine.compare("chosen rows", given, flags, law, results=("weights",), loss=("weights",))


def check_gate(engine):
    """Qiu et al. 2025, "G1": O ∘ σ(G), elementwise or headwise."""
    for turn in range(6):
        given, bits, flags = case(engine, turn)
        (batch, heads, queries, dim), value_dim = given["query"].shape, given["value"].shape[3]
        given["gate"] = engine.random(batch, heads, queries, value_dim if turn % 2 else 1, low=-3, high=3)

        def law(t):
            weights = masked_softmax(t["query"] @ expand(t["key"], heads).mT / dim**0.5, bits)[0]
            return {"out": weights @ expand(t["value"], heads) * torch.sigmoid(t["gate"])}

        engine.compare("gate", given, flags + ["--gate", "@gate"], law, {"gate": "gate"})


PARTS = [
    ("compositions of mods, weight mods, scores, masks, normalisers", "formulas in torch, entmax", check_compositions),
    ("pointer network, chosen heads and rows", "definition in torch", check_chosen_rows),
    ("gated", "Qiu's formula in torch", check_gate),
]
