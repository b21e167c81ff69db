"""Models of real sizes with random weights: `fovea` beside transformers and CTranslate2, in turns.

    .venv/bin/python bench/models.py [--models gpt2,bert-base,...] [--threads 1,2] [--rounds 3] [--json FILE]

Nothing is downloaded: transformers makes the models from the configs below, and token ids go in and out. Each way reads
a batch of 8 x 128 ids (hidden states; of a translator its encoder) and writes 32 tokens at batch 1, greedily. CTranslate2
has no hidden states of a language model or a translator: it is asked for one token behind the batch, which adds the
output layer for eight rows. Results are compared first: hidden states in f32 with transformers', and the written ids.
Then the ways take turns, and the median counts. Each rival has a process of its own for each number of threads
(apart.py). The shares of Fovea are of rates that are probed in the same turn: of multiply-adds in f32 or bf16, and of
reading 512 MiB. "start" is the time of a process from its beginning to the first token, or to the vectors of one short
line, with a warm cache of the file system. "memory" is its peak resident size over the weights in their type.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

import ctranslate2
import ctranslate2.converters.transformers as ct2_converters
import numpy as np
import torch
import transformers as hf

from apart import Apart

BATCH, LENGTH, PROMPT, TOKENS = 8, 128, 16, 32

CONFIGS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "minilm-l6": lambda: (
        hf.BertModel,
        hf.BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536),
    ),
    "bert-base": lambda: (hf.BertModel, hf.BertConfig()),
    "gpt2": lambda: (hf.GPT2LMHeadModel, hf.GPT2Config()),
    "smollm-135m": lambda: (
        hf.LlamaForCausalLM,
        hf.LlamaConfig(
            vocab_size=49152,
            hidden_size=576,
            intermediate_size=1536,
            num_hidden_layers=30,
            num_attention_heads=9,
            num_key_value_heads=3,
            max_position_embeddings=2048,
            rms_norm_eps=1e-5,
            tie_word_embeddings=True,
        ),
    ),
    "qwen2.5-0.5b": lambda: (
        hf.Qwen2ForCausalLM,
        hf.Qwen2Config(
            vocab_size=151936,
            hidden_size=896,
            intermediate_size=4864,
            num_hidden_layers=24,
            num_attention_heads=14,
            num_key_value_heads=2,
            rms_norm_eps=1e-6,
            rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
            tie_word_embeddings=True,
        ),
    ),
    "opus-mt": lambda: (
        hf.MarianMTModel,
        hf.MarianConfig(
            vocab_size=58101,
            d_model=512,
            encoder_layers=6,
            decoder_layers=6,
            encoder_attention_heads=8,
            decoder_attention_heads=8,
            encoder_ffn_dim=2048,
            decoder_ffn_dim=2048,
            max_position_embeddings=512,
            activation_function="swish",
            scale_embedding=True,
            pad_token_id=58100,
            decoder_start_token_id=58100,
            eos_token_id=0,
            forced_eos_token_id=None,
        ),
    ),
    "t5-small": lambda: (hf.T5ForConditionalGeneration, hf.T5Config(decoder_start_token_id=0)),
}


CHILD = """
import resource, subprocess, sys, time
begin = time.perf_counter()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def bench_id(sequence: int, n: int) -> int:
    """As `fovea bench model` has them."""
    return 4 + (sequence * 7919 + n * 104729) % 996


SEQUENCES = [[bench_id(s, n) for n in range(LENGTH)] for s in range(BATCH)]
PROMPT_IDS = [bench_id(BATCH, n) for n in range(PROMPT)]


def quiet() -> None:
    hf.logging.set_verbosity_error()
    hf.utils.logging.disable_progress_bar()


def make(name: str, folder: pathlib.Path) -> Any:
    """Weights that are 2.5 times as large as usual, so that greedy texts are no single token, and norms that are random."""
    torch.manual_seed(1)
    kind, config = CONFIGS[name]()
    if hasattr(config, "initializer_range"):
        config.initializer_range = 0.05
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    return model


class Transformers:
    def __init__(self, folder: pathlib.Path, kind: str, threads: int) -> None:
        quiet()
        torch.set_num_threads(threads)
        model_class = getattr(hf, hf.AutoConfig.from_pretrained(folder).architectures[0])
        self.model = model_class.from_pretrained(folder, dtype={"f32": torch.float32, "bf16": torch.bfloat16}[kind]).eval()
        self.translates = self.model.config.is_encoder_decoder

    def hidden(self, ids: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            if self.translates:
                return self.model.get_encoder()(ids).last_hidden_state
            return getattr(self.model, self.model.base_model_prefix, self.model)(ids).last_hidden_state

    def read(self) -> None:
        self.hidden(torch.tensor(SEQUENCES))

    def write(self, tokens: int) -> list[int]:
        if not self.model.can_generate():
            return []
        with torch.inference_mode():
            ids = torch.tensor([PROMPT_IDS])
            config = hf.GenerationConfig(
                max_new_tokens=tokens,
                do_sample=False,
                pad_token_id=0,
                decoder_start_token_id=self.model.config.decoder_start_token_id if self.translates else None,
            )
            out = self.model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
        return out[0, 1 if self.translates else PROMPT :].tolist()


class Words:
    """The tokenizer that CTranslate2's converter asks for: id 7 is the word "t7"."""

    def __init__(self, size: int, last: str | None = None) -> None:
        self.size, self.last = size, last or f"t{size - 1}"
        self.bos_token = self.eos_token = self.unk_token = self.pad_token = self.cls_token = self.sep_token = "t0"

    def convert_ids_to_tokens(self, id: int) -> str:
        return f"t{id}"

    def get_vocab(self) -> dict[str, int]:
        return {f"t{n}": n for n in range(self.size - 1)} | {self.last: self.size - 1}


class Converter(ct2_converters.TransformersConverter):
    def load_model(self, model_class: Any, path: Any, **options: Any) -> Any:
        model = super().load_model(model_class, path, **options)
        model.config.position_embedding_type = "absolute"  # transformers 5 has no other
        return model

    def load_tokenizer(self, tokenizer_class: Any, path: Any, **_: Any) -> Any:
        config = hf.AutoConfig.from_pretrained(path)
        # The converter drops Marian's padding by its name, the last word.
        return Words(config.vocab_size, "<pad>" if config.model_type == "marian" else None)


class CTranslate2:
    def __init__(self, folder: pathlib.Path, kind: str, loader: str, threads: int) -> None:
        # Making int8 weights leaves threads to the thread that loads. They are gone once it has ended.
        with ThreadPoolExecutor(1) as loading:
            options = dict(device="cpu", compute_type=kind, inter_threads=1, intra_threads=threads)
            self.model = loading.submit(getattr(ctranslate2, loader), str(folder), **options).result()

    def texts(self, sequences: list[list[int]], tokens: int) -> list[list[int]]:
        words = [[f"t{id}" for id in ids] for ids in sequences]
        if isinstance(self.model, ctranslate2.Translator):
            length = dict(max_decoding_length=tokens, min_decoding_length=tokens)
            found = self.model.translate_batch(words, beam_size=1, end_token=[], **length)
            return [[int(word[1:]) for word in result.hypotheses[0]] for result in found]
        length = dict(max_length=tokens, min_length=tokens)
        found = self.model.generate_batch(words, beam_size=1, end_token=[], include_prompt_in_result=False, **length)
        return [result.sequences_ids[0] for result in found]

    def read(self) -> None:
        if isinstance(self.model, ctranslate2.Encoder):
            np.array(self.model.forward_batch(SEQUENCES).last_hidden_state)
        else:
            self.texts(SEQUENCES, 1)

    def write(self, tokens: int) -> list[int]:
        return [] if isinstance(self.model, ctranslate2.Encoder) else self.texts([PROMPT_IDS], tokens)[0]


def timed(way: Any) -> tuple[float, float]:
    """Seconds of the batch, and of one token behind the first."""
    begin = time.perf_counter()
    way.read()
    read = time.perf_counter() - begin
    if not way.write(1):
        return read, 0.0
    begin = time.perf_counter()
    way.write(1)
    middle = time.perf_counter()
    way.write(1 + TOKENS)
    return read, (time.perf_counter() - middle - (middle - begin)) / TOKENS


class Served:
    """What a process of a rival runs: `make(*arguments)` is the way."""

    def __init__(self, make: Callable[..., Any], *arguments: Any) -> None:
        self.way = make(*arguments)

    def turn(self) -> tuple[float, float]:
        return timed(self.way)

    def write(self, tokens: int) -> list[int]:
        return self.way.write(tokens)


class Rival:
    """A way that has a process of its own for each number of threads (apart.py)."""

    def __init__(self, name: str, make: type[Transformers] | type[CTranslate2], *arguments: Any) -> None:
        self.name, self.make, self.arguments = name, make, arguments

    def start(self, threads: int) -> None:
        self.process = Apart(Served, self.make, *self.arguments, threads)

    def turn(self, threads: int) -> tuple[float, float]:
        read, token = self.process.call("turn")
        return read, token

    def write(self, tokens: int) -> list[int]:
        return list(self.process.call("write", tokens))


class Fovea:
    def __init__(self, command: str, folder: pathlib.Path, kind: str) -> None:
        self.command, self.folder, self.kind, self.name = command, folder, kind, f"Fovea {kind}"
        self.row: dict[str, Any] = {}

    def turn(self, threads: int) -> tuple[float, float]:
        command = [self.command, "bench", "model", "--model", self.folder, "--weights", self.kind, "--json"]
        command += ["--threads", str(threads), "--rounds", "1", "--batch", str(BATCH), "--length", str(LENGTH)]
        command += ["--prompt", str(PROMPT), "--tokens", str(TOKENS)]
        ran = subprocess.run(command, check=True, capture_output=True, text=True)
        self.row = json.loads(ran.stdout)
        return self.row["reading_seconds"], self.row["writing_seconds"]

    def start(self, writes: bool, output: pathlib.Path) -> tuple[float, int]:
        """Seconds and peak resident bytes of a process, to the first token or the vectors of a short line."""
        command = [self.command, "generate", "--model", self.folder, "--prompt-ids", "5 6 7", "--max-new-tokens", "1"]
        command += ["--greedy", "--weights", self.kind]
        if not writes:
            lines = output.with_suffix(".txt")
            lines.write_text("5 6 7\n")
            command = [self.command, "embed", "--model", self.folder, "--ids-file", lines, "--hidden", "--output"]
            command += [output, "--weights", self.kind]
        # A process of its own starts it: a child's peak counts what its parent had.
        ran = subprocess.run([sys.executable, "-c", CHILD, *map(str, command)], check=True, capture_output=True, text=True)
        seconds, kilobytes = ran.stdout.split()
        return float(seconds), 1024 * int(kilobytes)

    def hidden(self, translates: bool, work: pathlib.Path) -> np.ndarray:
        (work / "ids.txt").write_text("\n".join(" ".join(map(str, ids)) for ids in SEQUENCES) + "\n")
        command = [self.command, "embed", "--model", self.folder, "--ids-file", work / "ids.txt", "--hidden"]
        command += ["--output", work / "h.npy"]
        if translates:
            command += ["--target-ids-file", work / "ids.txt"]
        subprocess.run(command, check=True, capture_output=True)
        return np.load(work / "h.npy")


def compare(model: Any, fovea: Fovea, work: pathlib.Path) -> float:
    """The largest difference of hidden states in f32 over the largest of them."""
    ids = torch.tensor(SEQUENCES)
    translates = model.config.is_encoder_decoder
    with torch.inference_mode():
        if translates:
            theirs = model(input_ids=ids, decoder_input_ids=ids, output_hidden_states=True).decoder_hidden_states[-1]
        else:
            theirs = getattr(model, model.base_model_prefix, model)(ids).last_hidden_state
    if getattr(model.config, "scale_decoder_outputs", False):
        theirs = theirs * model.config.d_model**-0.5  # Fovea's rows are those that the output matrix multiplies
    ours = fovea.hidden(translates, work)
    error = float(np.abs(ours - theirs.numpy()).max() / theirs.abs().max())
    if error > 1e-4:
        raise SystemExit(f"hidden states differ by {error:.1e}")
    return error


def loader_of(model: Any) -> str:
    if model.config.is_encoder_decoder:
        return "Translator"
    return "Generator" if model.can_generate() else "Encoder"


def rivals_of(model: Any, folder: pathlib.Path, work: pathlib.Path, o: argparse.Namespace) -> list[Rival]:
    rivals: list[Rival] = []
    if "transformers" in o.rivals:
        rivals += [Rival(f"transformers {kind}", Transformers, folder, kind) for kind in ("f32", "bf16")]
    if "ctranslate2" in o.rivals and f"{type(model.config).__name__}" in ct2_converters._MODEL_LOADERS:
        Converter(str(folder)).convert(str(work / "ct2"))
        for kind in ("float32", "int8"):
            rivals.append(Rival(f"CTranslate2 {kind}", CTranslate2, work / "ct2", kind, loader_of(model)))
    return rivals


def measure(name: str, work: pathlib.Path, o: argparse.Namespace) -> list[dict[str, Any]]:
    folder = work / name
    model = make(name, folder)
    size = sum(p.numel() for p in model.parameters())
    fovea = Fovea(o.fovea, folder, "f32")
    error = compare(model, fovea, work)
    writes = model.can_generate()
    rivals = rivals_of(model, folder, work, o)
    ways: list[Any] = [fovea, *(Fovea(o.fovea, folder, kind) for kind in ("bf16", "int8")), *rivals]
    del model
    print(f"\n{name}: {size / 1e6:.1f} million parameters; hidden states differ from transformers' by {error:.1e}")
    head = f"{'':<20} {'threads':>7} {'read, ms':>10} {'ids/s':>8} {'of peak':>8} {'token, ms':>10} {'tokens/s':>9} {'of rate':>8}"
    print(head + f" {'start, s':>9} {'memory':>7}  ids as f32's")
    results, expected = [], None
    for threads in o.threads:
        for rival in rivals:
            rival.start(threads)
        turns: dict[int, list[tuple[float, float]]] = {n: [] for n in range(len(ways))}
        rows: dict[int, list[dict[str, Any]]] = {n: [] for n in range(len(ways))}
        for _ in range(o.rounds):
            for n, way in enumerate(ways):
                turns[n].append(way.turn(threads))
                if isinstance(way, Fovea):
                    rows[n].append(way.row)
        for n, way in enumerate(ways):
            read, token = (statistics.median(t[i] for t in turns[n]) for i in (0, 1))
            ids = rows[n][0]["ids"] if rows[n] else way.write(1 + TOKENS)
            expected = expected or ids
            same = next((i for i, (a, b) in enumerate(zip(ids, expected)) if a != b), len(ids))
            result = {"model": name, "way": way.name, "threads": threads, "reading_ms": 1e3 * read}
            result |= {"reading_ids_per_second": BATCH * LENGTH / read, "token_ms": 1e3 * token, "same_ids": same}
            if rows[n]:
                for key in ("reading_share", "writing_share", "peak_flops", "read_rate"):
                    result[key] = statistics.median(row[key] for row in rows[n])
                if threads == o.threads[-1]:
                    starts = [way.start(writes, work / "start.npy") for _ in range(3)]
                    weights = size * {"f32": 4, "bf16": 2, "int8": 1}[way.kind]
                    result["start_seconds"] = min(seconds for seconds, _ in starts)
                    result["memory"] = max(bytes for _, bytes in starts) / weights
            results.append(result)
            print(line(result), flush=True)
        for rival in rivals:
            rival.process.close()
    return results


def line(r: dict[str, Any]) -> str:
    def number(key: str, width: int, digits: int, factor: float = 1.0, unit: str = "") -> str:
        return f"{factor * r[key]:>{width - len(unit)}.{digits}f}{unit}" if r.get(key) else f"{'-':>{width}}"

    rate = {**r, "tokens_per_second": 1e3 / r["token_ms"] if r["token_ms"] else 0.0}
    text = f"{r['way']:<20} {r['threads']:>7} {number('reading_ms', 10, 1)} {number('reading_ids_per_second', 8, 0)}"
    text += f" {number('reading_share', 8, 1, 100, '%')} {number('token_ms', 10, 2)}"
    text += f" {rate['tokens_per_second'] or float('nan'):>9.1f} {number('writing_share', 8, 1, 100, '%')}"
    return text + f" {number('start_seconds', 9, 2)} {number('memory', 7, 2)}  {r['same_ids'] if r['token_ms'] else '-'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(CONFIGS), help="any of: " + ", ".join(CONFIGS))
    parser.add_argument("--fovea", default="build/release/fovea")
    parser.add_argument("--rivals", default="transformers,ctranslate2")
    parser.add_argument("--threads", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for the models, which are then kept")
    o = parser.parse_args()
    quiet()
    print(f"transformers {hf.__version__}, torch {torch.__version__}, ctranslate2 {ctranslate2.__version__}")
    results = []
    for name in o.models.split(","):
        work = o.keep or pathlib.Path(tempfile.mkdtemp(prefix="fovea-models-"))
        work.mkdir(exist_ok=True)
        try:
            results += measure(name, work, o)
        finally:
            shutil.rmtree(work / "ct2", ignore_errors=True)
            if not o.keep:
                shutil.rmtree(work)
    if o.json:
        o.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
