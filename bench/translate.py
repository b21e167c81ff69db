"""`fovea translate` beside CTranslate2, with the weights of one model.

    python3 -m venv .venv && .venv/bin/pip install ctranslate2 safetensors
    .venv/bin/python bench/translate.py MODEL SOURCE [--fovea build/release/fovea] [--beam-size 1,5] [--threads 1,2]

MODEL is a folder that `fovea train --model transformer --tokenizer whitespace` wrote, SOURCE a file of sentences in its
words. The script first compares the translations line by line. Then it measures both in turns, and prints sentences a second
of the best turn: what loading takes is left out on both sides. CTranslate2 runs as it is fastest: batches of the same size
side by side on one thread each.

A model with random weights ends few of its translations. Measure it with --words N: of each line that has N words the first
N are translated, and every translation ends after N + 10 words at the latest, in both programs.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import re
import subprocess
import tempfile
import time
from typing import Any

import ctranslate2
import numpy as np
from ctranslate2.specs import common_spec, transformer_spec
from safetensors.numpy import load_file


class Weights:
    def __init__(self, folder: pathlib.Path) -> None:
        self.tensors = load_file(folder / "model.safetensors")
        self.config = json.loads((folder / "config.json").read_text())

    def linear(self, spec: Any, *names: str) -> None:
        """Several names: one matrix, as CTranslate2 keeps queries, keys and values together."""
        spec.weight = np.concatenate([self.tensors[name + ".weight"] for name in names])
        spec.bias = np.concatenate([self.tensors[name + ".bias"] for name in names])

    def norm(self, spec: Any, name: str) -> None:
        spec.gamma, spec.beta = self.tensors[name + ".weight"], self.tensors[name + ".bias"]

    def attention(self, spec: Any, name: str, norm: str, own_rows: bool) -> None:
        q, k, v = (f"{name}.{part}_proj" for part in "qkv")
        if own_rows:
            self.linear(spec.linear[0], q, k, v)
        else:
            self.linear(spec.linear[0], q)
            self.linear(spec.linear[1], k, v)
        self.linear(spec.linear[-1], name + ".out_proj")
        self.norm(spec.layer_norm, norm)

    def stack(self, spec: Any, name: str) -> None:
        dim = self.config["d_model"]
        spec.scale_embeddings = math.sqrt(dim)
        half = np.power(10000.0, -2.0 * np.arange(dim // 2) / dim)
        angles = np.arange(1024)[:, None] * half
        spec.position_encodings.encodings = np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(np.float32)
        embeddings = spec.embeddings[0] if isinstance(spec.embeddings, list) else spec.embeddings
        embeddings.weight = self.tensors["model.shared.weight"]
        for number, layer in enumerate(spec.layer):
            own = f"{name}.layers.{number}"
            self.attention(layer.self_attention, own + ".self_attn", own + ".self_attn_layer_norm", True)
            if hasattr(layer, "attention"):
                self.attention(layer.attention, own + ".encoder_attn", own + ".encoder_attn_layer_norm", False)
            self.linear(layer.ffn.linear_0, own + ".fc1")
            self.linear(layer.ffn.linear_1, own + ".fc2")
            self.norm(layer.ffn.layer_norm, own + ".final_layer_norm")
        if f"{name}.layer_norm.weight" in self.tensors:
            self.norm(spec.layer_norm, name + ".layer_norm")


def convert(folder: pathlib.Path, output: pathlib.Path) -> None:
    weights = Weights(folder)
    config = weights.config
    if config.get("model_type") != "fovea-transformer" or config.get("positions", "sinusoidal") != "sinusoidal":
        raise SystemExit(f"{folder}: expected a Transformer with sinusoidal positions, got {config}")
    spec = transformer_spec.TransformerSpec.from_config(
        (config["encoder_layers"], config["decoder_layers"]),
        config["encoder_attention_heads"],
        pre_norm=config["norm"] == "pre",
        activation=common_spec.Activation.RELU,
    )
    weights.stack(spec.encoder, "model.encoder")
    weights.stack(spec.decoder, "model.decoder")
    spec.decoder.projection.weight = weights.tensors["model.shared.weight"]
    spec.decoder.projection.bias = weights.tensors["final_logits_bias"]
    words = json.loads((folder / "vocab.json").read_text())
    in_order = sorted(words, key=words.__getitem__)
    spec.register_source_vocabulary(in_order)
    spec.register_target_vocabulary(in_order)
    spec.config.bos_token = spec.config.decoder_start_token = "<s>"
    spec.config.eos_token, spec.config.unk_token = "</s>", "<unk>"
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize()
    output.mkdir()
    spec.save(str(output))


EXTRA = 10  # words that Fovea allows behind a factor of the source's length (DecodeOptions::length_extra)


class Fovea:
    def __init__(
        self, command: str, folder: pathlib.Path, kind: str, source: pathlib.Path, threads: int, beam: int, batch: int, cut: bool
    ) -> None:
        self.name = f"Fovea {kind}"
        self.command = [command, "translate", "--model", str(folder), "--input", str(source), "--stats"]
        if cut:
            self.command += ["--max-length-factor", "1"]  # as many words as the source has, and EXTRA
        self.command += ["--weights", kind]
        self.command += ["--cpu-threads", str(threads), "--beam-size", str(beam), "--mini-batch", str(batch)]

    def run(self) -> tuple[float, list[str]]:
        done = subprocess.run(self.command, check=True, capture_output=True, text=True)
        seconds = re.search(r"in ([0-9.]+) s", done.stderr)
        if seconds is None:
            raise SystemExit(f"fovea translate --stats printed no seconds: {done.stderr}")
        return float(seconds.group(1)), done.stdout.splitlines()


class CTranslate2:
    def __init__(
        self, folder: pathlib.Path, kind: str, lines: list[list[str]], threads: int, beam: int, batch: int, longest: int
    ) -> None:
        self.name, self.lines, self.beam, self.batch, self.longest = f"CTranslate2 {kind}", lines, beam, batch, longest
        self.model = ctranslate2.Translator(
            str(folder), device="cpu", compute_type=kind, inter_threads=threads, intra_threads=1
        )

    def run(self) -> tuple[float, list[str]]:
        begin = time.perf_counter()
        results = self.model.translate_batch(
            self.lines, beam_size=self.beam, max_batch_size=self.batch, length_penalty=1.0, max_decoding_length=self.longest
        )
        return time.perf_counter() - begin, [" ".join(result.hypotheses[0]).replace("@@ ", "") for result in results]


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("--fovea", default="build/release/fovea")
    parser.add_argument("--beam-size", type=numbers, default=[1, 5], help="for example 1,5 (default)")
    parser.add_argument("--threads", type=numbers, default=[1, 2], help="for example 1,2 (default)")
    parser.add_argument("--mini-batch", type=int, default=32, help="sentences of a batch, of both programs")
    parser.add_argument("--compute-types", default="float32,int8", help="of CTranslate2, the first is compared line by line")
    parser.add_argument("--repeat", type=int, default=5, help="turns, of which the best counts")
    parser.add_argument("--words", type=int, default=0, help="of each line; its translation has at most 10 more; 0: all")
    o = parser.parse_args()

    lines = [line.split() for line in o.source.read_text().splitlines()]
    if o.words:
        lines = [line[: o.words] for line in lines if len(line) >= o.words]
    print(f"{len(lines)} sentences, ctranslate2 {ctranslate2.__version__}; sentences a second, best of {o.repeat} turns")
    with tempfile.TemporaryDirectory() as folder:
        converted, source = pathlib.Path(folder) / "model", pathlib.Path(folder) / "source"
        convert(o.model, converted)
        source.write_text("".join(" ".join(line) + "\n" for line in lines))
        for beam in o.beam_size:
            for threads in o.threads:
                kinds, longest = o.compute_types.split(","), o.words + EXTRA if o.words else 512
                programs = [Fovea(o.fovea, o.model, kind, source, threads, beam, o.mini_batch, o.words > 0) for kind in ("f32", "int8")]
                programs += [CTranslate2(converted, kind, lines, threads, beam, o.mini_batch, longest) for kind in kinds]
                written = [program.run()[1] for program in programs]
                same = [sum(a == b for a, b in zip(written[0], other)) for other in written[1:]]
                best = [math.inf] * len(programs)
                for _ in range(o.repeat):
                    for number, program in enumerate(programs):
                        best[number] = min(best[number], program.run()[0])
                rates = [f"{p.name} {len(lines) / seconds:.0f}" for p, seconds in zip(programs, best)]
                ratios = [f"{seconds / best[0]:.2f}" for seconds in best[1:]]
                print(
                    f"beam {beam}, {threads} threads: {', '.join(rates)}; their time over the first's {' · '.join(ratios)}; "
                    f"lines the same as the first's {' · '.join(map(str, same))}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
