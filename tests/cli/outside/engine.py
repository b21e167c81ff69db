"""Runs `fovea attend` on tensors and compares its results and gradients with a function in torch, which torch differentiates."""

import re
import subprocess
from pathlib import Path

import numpy as np
import torch

# A result sums at most about 2^13 products (keys · queries · dim). Their roundings are random, so they add up to 2^6.5. Each
# factor has about 2^6 roundings of exp, tanh and sums. The bound is this times half an ulp of a double, relative to the largest value.
BOUND = 2.0**13 * np.finfo(np.float64).eps / 2
OPERANDS = ("query", "key", "value")


def near(got, want, bound):
    """The largest error in units of the bound; infinities must be in the same places."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape, (got.shape, want.shape)
    if not got.size:
        return 0.0
    assert not np.isnan(got).any(), "a result is NaN"
    finite = np.isfinite(want)
    assert (got[~finite] == want[~finite]).all(), "infinities differ"
    size = max(1.0, np.abs(want[finite]).max(initial=0.0))
    return float(np.abs(got[finite] - want[finite]).max(initial=0.0) / (bound * size))


class Engine:
    def __init__(self, command, folder, seed):
        self.command, self.folder = command, Path(folder)
        self.rng = np.random.default_rng(seed)
        self.cases, self.worst, self.notes = 0, 0.0, []

    def random(self, *shape, low=-1.0, high=1.0):
        return torch.from_numpy(np.asarray(self.rng.uniform(low, high, shape)))

    def integer(self, low, high):
        return int(self.rng.integers(low, high))

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)

    def path(self, name):
        return str(self.folder / f"{name}.npy")

    def attend(self, arrays, flags, results=("out", "lse", "weights"), dtype=np.float64):
        """The results and, where `flags` ask for them, the gradients by file name. "@name" in a flag is the file of an array."""
        for name, array in arrays.items():
            np.save(self.path(name), np.ascontiguousarray(np.asarray(array, dtype)))
        command = [self.command, "attend"]
        for name in OPERANDS:
            command += [f"--{name}", self.path(name)] if name in arrays else []
        for name in results:
            command += [f"--{name}", self.path(f"result-{name}")]
        command += [re.sub(r"@([\w-]+)", lambda match: self.path(match[1]), flag) for flag in flags]
        gradients = self.folder / "gradients"
        for old in gradients.glob("*.npy"):
            old.unlink()
        if any(flag.startswith("--grad") for flag in flags):
            command += ["--grad-out", str(gradients)]
        run = subprocess.run(command, capture_output=True, text=True)
        assert run.returncode == 0, (" ".join(command), run.stderr)
        return {name: np.load(self.path(f"result-{name}")) for name in results}, {file.stem: np.load(file) for file in gradients.glob("*.npy")}

    def compare(self, what, given, flags, law, files=None, results=("out", "lse", "weights"), loss=("out",), dtype=np.float64, bound=BOUND):
        """One case. `given`: tensors by name, of which the operands have their flags already; `law(given)`: the expected results by
        name; `files`: the gradient's file of each further name; `loss`: the results that the random loss depends on."""
        given = {name: torch.from_numpy(np.array(np.asarray(tensor, dtype), np.float64)) for name, tensor in given.items()}
        files = {name: name for name in OPERANDS if name in given} | (files or {})
        leaves = {name: tensor.clone().requires_grad_(bool(loss) and name in files) for name, tensor in given.items()}
        want = law(leaves)
        arrays, flags, total = dict(given), list(flags), 0.0
        for name, flag in (("out", "--grad"), ("weights", "--grad-weights")):
            if name in loss:
                d = torch.from_numpy(np.array(np.asarray(self.random(*want[name].shape), dtype), np.float64))
                arrays[f"d-{name}"] = d
                flags += [flag, f"@d-{name}"]
                total = total + (want[name] * d).sum()
        total = total + want.get("loss", 0.0)
        got, gradients = self.attend(arrays, flags, results, dtype)
        checked = [(name, got[name], want[name].detach()) for name in results if name in want]
        if loss:
            names = list(files)
            wanted = torch.autograd.grad(total, [leaves[name] for name in names], allow_unused=True)
            for name, d in zip(names, wanted):
                if d is None and files[name] not in gradients:
                    continue  # neither side has this derivative
                assert files[name] in gradients, (what, files[name], sorted(gradients))
                d = torch.zeros_like(given[name]) if d is None else d
                checked.append((f"gradient of {name}", gradients[files[name]].reshape(d.shape), d))
        for name, mine, theirs in checked:
            try:
                error = near(mine, theirs, bound)
            except AssertionError as problem:
                raise AssertionError(f"{what}: {name}: {problem}") from None
            self.worst = max(self.worst, error)
            assert error <= 1.0, f"{what}: {name} is {error:.3g} times what rounding allows; {' '.join(flags)}"
        self.cases += 1
        return got, gradients


def expand(tensor, heads):
    """Keys or values of every query head."""
    return tensor.repeat_interleave(heads // tensor.shape[1], 1)


def masked_softmax(s, bits, extra=None):
    """Weights and log-sum-exp by their definition: a row that sees nothing has weights 0. `extra` is added to the denominator only."""
    top = s.detach().masked_fill(~bits, -torch.inf).amax(-1, keepdim=True)
    top = torch.where(torch.isneginf(top), 0.0, top)
    e = torch.exp(torch.where(bits, s - top, 0.0)) * bits
    total = e.sum(-1, keepdim=True)
    lse = (torch.log(total) + top)[..., 0].detach()
    below = total if extra is None else total + torch.exp(extra - top)
    return e / torch.where(below > 0, below, 1.0), lse


class Mask:
    """A mask's text and its rule, for tensors of batch entry, query position and key."""

    def __init__(self, text, rule):
        self.text, self.rule = text, rule

    def bits(self, batch, queries, keys, offset):
        b, p, j = torch.arange(batch).view(-1, 1, 1), torch.arange(queries).view(-1, 1) + offset, torch.arange(keys)
        return self.rule(b, p, j).expand(batch, queries, keys)[:, None]


def masks(queries, keys, offset, batch):
    """Masks, some with rows that see nothing: `lengths` has an empty entry, `causal` any row before position 0."""
    n = max(keys, queries + offset, 1)
    document = torch.zeros(n, dtype=torch.long)
    boundaries = sorted({0, n // 3, n // 2, n})
    for number, (begin, end) in enumerate(zip(boundaries, boundaries[1:])):
        document[begin:end] = number
    lengths = torch.tensor([keys // 2, 0, keys, 1][:batch])
    every = lambda b, p, j: (p == p) & (j == j)
    rules = [
        Mask("everything", every),
        Mask("causal", lambda b, p, j: j <= p),
        Mask("window(3,1)", lambda b, p, j: (p - j <= 3) & (j - p <= 1)),
        Mask("causal & (window(2,0) | sinks(2))", lambda b, p, j: (j <= p) & ((p - j <= 2) | (j < 2))),
        Mask("prefix(4)", lambda b, p, j: (j < 4) | (j <= p)),
        Mask("chunked(5)", lambda b, p, j: p // 5 == j // 5),
        Mask(f"lengths({','.join(map(str, lengths.tolist()))})", lambda b, p, j: (j < lengths[b]) & (p == p)),
    ]
    if offset >= 0:
        rules.append(Mask(f"documents({','.join(map(str, boundaries))})", lambda b, p, j: document[p] == document[j]))
    return rules
