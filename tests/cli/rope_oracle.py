"""fovea attend --rope against NumPy in double, and its rotations against transformers if it can be imported."""

import argparse
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

random = np.random.default_rng(2)

# (text of the scaling, its name and parameters in transformers)
SCALINGS = [
    ("", "default", {}),
    ("linear(4)", "linear", {"factor": 4.0}),
    ("ntk(3)", None, {}),
    ("dynamic(2,64)", "dynamic", {"factor": 2.0}),
    ("yarn(8,256)", "yarn", {"factor": 8.0, "original_max_position_embeddings": 256}),
    ("yarn(16,4096,beta_fast=24,beta_slow=2,attention=0.7)", "yarn",
     {"factor": 16.0, "original_max_position_embeddings": 4096, "beta_fast": 24, "beta_slow": 2, "attention_factor": 0.7}),
    ("yarn(32,4096,exact)", "yarn", {"factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False}),
    ("longrope(64,SHORT,LONG,attention=1.19)", "longrope", {"original_max_position_embeddings": 64, "attention_factor": 1.19}),
    ("llama3(8,1,4,8192)", "llama3",
     {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}),
    ("llama3(32,1,4,512)", "llama3",
     {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 512}),
]


def factors(dim, step):
    """Of LongRoPE, one for each pair."""
    return [1 + step * i for i in range(dim // 2)]


def frequencies(text, dim, base, length):
    """The papers' formulas, a pair at a time: [dim / 2] frequencies and the factor of cos and sin."""
    name, _, arguments = text.rstrip(")").partition("(")
    numbers = [float(part) for part in arguments.split(",") if part and "=" not in part and part not in ("exact", "SHORT", "LONG")]
    if name == "ntk":
        base *= numbers[0] ** (dim / (dim - 2))
    if name == "dynamic" and length > numbers[1]:
        base *= (numbers[0] * length / numbers[1] - (numbers[0] - 1)) ** (dim / (dim - 2))
    plain = [1 / base ** (2 * i / dim) for i in range(dim // 2)]
    if name == "longrope":
        by = factors(dim, 0.7 if length > numbers[0] else 0.1)
        return np.array([f / factor for f, factor in zip(plain, by)]), 1.19
    if name == "linear":
        return np.array(plain) / numbers[0], 1.0
    if name == "llama3":
        factor, low, high, old = numbers
        result = []
        for f in plain:
            wavelength = 2 * math.pi / f
            smooth = (old / wavelength - low) / (high - low)
            result.append(f if wavelength < old / high else f / factor if wavelength > old / low else (1 - smooth) * f / factor + smooth * f)
        return np.array(result), 1.0
    if name == "yarn":
        factor, old = numbers
        named = {key: float(value) for key, _, value in (part.partition("=") for part in arguments.split(",")) if value}
        ends = [dim * math.log(old / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in (named.get("beta_fast", 32), named.get("beta_slow", 1))]
        low, high = ends if "exact" in arguments else (math.floor(ends[0]), math.ceil(ends[1]))
        low, high = max(low, 0), min(high, dim - 1)
        slow = [min(max((i - low) / (high - low), 0), 1) for i in range(dim // 2)]
        return np.array([f * (1 - s) + f / factor * s for f, s in zip(plain, slow)]), named.get("attention", 0.1 * math.log(factor) + 1)
    return np.array(plain), 1.0


def rotations(text, dim, head_dim, base, interleaved, positions, length):
    """[positions, head_dim, head_dim]: the matrix that turns a query or key of each position."""
    inverse, factor = frequencies(text, dim, base, length)
    result = np.broadcast_to(np.eye(head_dim), (len(positions), head_dim, head_dim)).copy()
    for i, f in enumerate(inverse):
        a, b = (2 * i, 2 * i + 1) if interleaved else (i, dim // 2 + i)
        c, s = factor * np.cos(positions * f), factor * np.sin(positions * f)
        result[:, a, a], result[:, a, b], result[:, b, a], result[:, b, b] = c, -s, s, c
    return result


def expression(text, dim, base, interleaved):
    for name, step in (("SHORT", 0.1), ("LONG", 0.7)):
        text = text.replace(name, f"{name.lower()}({','.join(map(str, factors(dim, step)))})")
    return f"rope({dim},base={base}" + (",interleaved" if interleaved else "") + ("," + text if text else "") + ")"


def check_numpy(fovea, path):
    """Causal attention of rotated queries and keys; its gradients along random directions by central differences."""
    cases = 0
    for text, _, _ in SCALINGS:
        for interleaved in (False, True):
            for dtype in (np.float32, np.float64):
                batch, heads, kv_heads, dim, base = 2, 4, 2, int(2 * random.integers(2, 9)), float(random.choice([100, 10000, 500000]))
                head_dim, keys = dim + int(random.integers(0, 4)), int(random.integers(10, 90))
                queries = int(random.integers(1, keys))
                offset = None if cases % 3 else 5
                shapes = {"q": (batch, heads, queries, head_dim), "k": (batch, kv_heads, keys, head_dim), "v": (batch, kv_heads, keys, 6), "do": (batch, heads, queries, 6)}
                arrays = {name: random.uniform(-1, 1, shape).astype(dtype) for name, shape in shapes.items()}
                for name, array in arrays.items():
                    np.save(path(name), array)
                folder = str(Path(path("o")).parent / "gradients")
                subprocess.run([fovea, "attend", "--query", path("q"), "--key", path("k"), "--value", path("v"), "--out", path("o"), "--mask", "causal",
                                "--grad", path("do"), "--grad-out", folder, "--rope", expression(text, dim, base, interleaved),
                                *([] if offset is None else ["--query-offset", str(offset)])], check=True)
                p = np.arange(queries) + (keys - queries if offset is None else offset)
                j = np.arange(keys)
                length = max(keys, p[-1] + 1)
                turn_q, turn_k = (rotations(text, dim, head_dim, base, interleaved, x, length) for x in (p, j))

                def output(a):
                    q = np.einsum("lef,bhlf->bhle", turn_q, a["q"])
                    k = np.repeat(np.einsum("lef,bhlf->bhle", turn_k, a["k"]), heads // kv_heads, 1)
                    e = np.exp(q @ k.swapaxes(-1, -2) / head_dim**0.5) * (j <= p[:, None])
                    return e / e.sum(-1, keepdims=True) @ np.repeat(a["v"], heads // kv_heads, 1)

                wide = {name: array.astype(np.float64) for name, array in arrays.items()}
                # |score| <= 2·head_dim/√head_dim after the factor, each term with an error of a few eps; 8 for exp and sums.
                bound = 8 * head_dim * keys**0.5 * np.finfo(dtype).eps
                error = np.abs(np.load(path("o")) - output(wide)).max()
                assert error <= bound, (text, interleaved, dtype, error)
                for name, file in (("q", "query"), ("k", "key"), ("v", "value")):
                    gradient, step = np.load(f"{folder}/{file}.npy").astype(np.float64), 1e-5
                    direction = random.uniform(-1, 1, shapes[name])
                    up, down = ((output({**wide, name: wide[name] + sign * step * direction}) * wide["do"]).sum() for sign in (1, -1))
                    numeric = (up - down) / (2 * step)
                    assert abs(numeric - (gradient * direction).sum()) < max(1e-7, 100 * bound) * max(1, abs(numeric)), (text, interleaved, dtype, file)
                cases += 1
    return cases


def check_transformers(fovea, path):
    """The command's rotation matrices, read from scores of unit vectors, against transformers' functions."""
    try:
        import torch
        from transformers import LlamaConfig
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
        from transformers.models.gptj import modeling_gptj
        from transformers.models.llama import modeling_llama
    except ImportError as error:
        return f"transformers not run: {error}"
    cases = 0
    for text, kind, parameters in SCALINGS:
        if kind is None:
            continue
        for base, dim in ((10000.0, 32), (500000.0, 24)):
            positions = 64 if kind == "dynamic" else int(parameters.get("factor", 1) * parameters.get("original_max_position_embeddings", 8192))
            if kind == "longrope":
                parameters = {**parameters, "short_factor": factors(dim, 0.1), "long_factor": factors(dim, 0.7)}
            config = LlamaConfig(hidden_size=2 * dim, num_attention_heads=2, head_dim=dim, max_position_embeddings=positions,
                                 rope_parameters={"rope_type": kind, "rope_theta": base, **parameters})
            for position in (0, 1, 3, 63, 64, 200, 1000, 4000):
                length = {"seq_len": position + 1} if kind in ("dynamic", "longrope") else {}
                if kind == "default":
                    inverse, factor = modeling_llama.LlamaRotaryEmbedding.compute_default_rope_parameters(config)
                else:
                    inverse, factor = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), **length)
                angle = position * inverse.double()
                units = torch.eye(dim, dtype=torch.float64)[None, :, None]  # [1, dim heads, 1, dim]
                for interleaved in (False, True):
                    # GPT-J rotates [batch, length, heads, dim] by [batch, length, dim / 2].
                    if interleaved:
                        turned = modeling_gptj.apply_rotary_pos_emb(units.swapaxes(1, 2), angle.sin()[None, None], angle.cos()[None, None])[0, 0] * factor
                    else:
                        both = torch.cat((angle, angle))[None, None]
                        turned = modeling_llama.apply_rotary_pos_emb(units, units, both.cos() * factor, both.sin() * factor)[0][0, :, 0]
                    # A score for each pair of unit vectors. The key is at position 0, where rotation only multiplies by the factor.
                    q, k = (np.broadcast_to(np.eye(dim)[at], (dim, dim, dim)).reshape(dim * dim, 1, 1, dim) for at in (np.s_[:, None], np.s_[None]))
                    np.save(path("q"), np.ascontiguousarray(q))
                    np.save(path("k"), np.ascontiguousarray(k))
                    np.save(path("v"), np.zeros((dim * dim, 1, 1, 1)))
                    subprocess.run([fovea, "attend", "--query", path("q"), "--key", path("k"), "--value", path("v"), "--out", path("o"), "--lse", path("l"),
                                    "--score", "dot", "--query-offset", str(position), "--rope", expression(text, dim, base, interleaved)], check=True)
                    got = np.load(path("l")).reshape(dim, dim)
                    # Their frequencies are f32 with about three roundings; ours are not rounded.
                    error = np.abs(got - factor * turned.numpy()).max()
                    assert error <= (4 * position + 8) * 2.0**-24 * factor**2, (text, base, position, interleaved, error)
                    cases += 1
    return f"{cases} rotations agree with transformers"


def check_mistakes(fovea, path):
    np.save(path("q"), np.zeros((1, 1, 3, 8)))
    np.save(path("k"), np.zeros((1, 1, 2, 8)))
    for flags, words in ((["--rope", "rope(10)"], "at most the 8 elements"), (["--rope", "rope(8,bse=3)"], "--rope, column 8"), (["--rope", "rope(8)"], "--query-offset"),
                         (["--rope", "rope(8)", "--query-offset", "9223372036854775807"], "--query-offset")):
        run = subprocess.run([fovea, "attend", "--query", path("q"), "--key", path("k"), "--value", path("k"), "--out", path("o"), *flags], capture_output=True, text=True)
        assert run.returncode == 1 and words in run.stderr and run.stderr.count("\n") == 1, (flags, run)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fovea", required=True)
    fovea = parser.parse_args().fovea
    with tempfile.TemporaryDirectory() as folder:
        path = lambda name: str(Path(folder) / f"{name}.npy")
        print(f"{check_numpy(fovea, path)} cases agree with NumPy")
        print(check_transformers(fovea, path))
        check_mistakes(fovea, path)


if __name__ == "__main__":
    sys.exit(main())
