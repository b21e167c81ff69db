"""The sections of functions that run with models, the most common first: cmake/function_order.txt, made by valgrind.

    cmake --preset release -D FOVEA_FUNCTION_ORDER=OFF && cmake --build --preset release --target fovea
    .venv/bin/python bench/function_order.py [--fovea build/release/fovea] [--models gpt2,...] > cmake/function_order.txt

Models of bench/models.py, two layers deep, write and read. A function's rank is the number of commands that call it. Valgrind
sees .text alone, so the command is built without the order. It knows no AVX-512: a kernel compiled for AVX2 stands for its
kin of other instruction sets, and other kernels for AVX-512 come last, together.
"""

from __future__ import annotations

import argparse
import bisect
import collections
import pathlib
import subprocess
import tempfile

import models

NAMESPACES = ("N_AVX3", "N_AVX2", "N_SSE4")  # of Highway


def commands(folder: pathlib.Path, kind: str) -> list[list[str]]:
    """What people do with a model: texts one by one, several together, and vectors."""
    ids, several = folder / "prompt.txt", folder / "prompts.txt"
    ids.write_text("5 6 7\n")
    several.write_text("5 6 7\n8 9 10 11\n12 13\n")
    model = ["--model", str(folder), "--cpu-threads", "2"]
    embed = ["embed", *model, "--ids-file", str(several), "--hidden", "--output", str(folder / "hidden.npy")]
    if kind == "encoder":
        return [[*embed, "--weights", weights] for weights in ("f32", "bf16", "int8")]
    generate = ["generate", *model, "--max-new-tokens", "3", "--json"]
    return [
        *([*generate, "--prompt-ids", "5 6 7", "--greedy", "--weights", weights] for weights in ("f32", "bf16", "int8")),
        [*generate, "--prompt-ids", "5 6 7", "--temperature", "0.8", "--top-k", "20", "--top-p", "0.9", "--seed", "1", "--weights", "int8"],
        [*generate, "--prompt-ids", "5 6 7", "--beam-size", "4", "--weights", "int8"],
    ]


def shallow(name: str) -> None:
    """Two layers call what twelve call."""
    kind, config = models.CONFIGS[name]()
    for layers in ("num_hidden_layers", "num_layers", "num_decoder_layers", "encoder_layers", "decoder_layers"):
        if hasattr(config, layers):
            setattr(config, layers, 2)
    models.CONFIGS[name] = lambda: (kind, config)


def symbols_of(fovea: str) -> list[tuple[int, int, str]]:
    """Begin, end and mangled name of each function."""
    listing = subprocess.run(["nm", "-S", "--defined-only", fovea], check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in listing.splitlines()]
    return sorted((int(row[0], 16), int(row[0], 16) + int(row[1], 16), row[3]) for row in rows if len(row) == 4 and row[2] in "tTwW")


def called(fovea: str, arguments: list[str], folder: pathlib.Path) -> set[int]:
    """Addresses of the command's instructions that ran."""
    profile = folder / "callgrind.out"
    options = ["--tool=callgrind", "--fair-sched=yes", "--dump-instr=yes", "--compress-pos=no", "--compress-strings=no"]
    subprocess.run(["valgrind", *options, f"--callgrind-out-file={profile}", fovea, *arguments], check=True, capture_output=True)
    ran, here = set(), False
    with profile.open() as lines:
        for line in lines:
            if line.startswith("ob="):
                here = pathlib.Path(line[3:].strip()).resolve() == pathlib.Path(fovea).resolve()
            elif here and line.startswith("0x"):
                ran.add(int(line.split()[0], 16))
    return ran


def section_of(function: str) -> str:
    """The name that GCC gives to a function's section under -ffunction-sections."""
    if function.endswith(".cold"):
        return ".text.unlikely." + function.removesuffix(".cold")
    if function == "main" or function.startswith("_GLOBAL__sub_I_"):
        return ".text.startup." + function
    return ".text." + function


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fovea", default="build/release/fovea")
    parser.add_argument("--models", default="gpt2,smollm-135m,minilm-l6,opus-mt,t5-small")
    options = parser.parse_args()
    models.quiet()
    symbols = symbols_of(options.fovea)
    defined = {name for _, _, name in symbols}
    count: collections.Counter[str] = collections.Counter()
    for name in options.models.split(","):
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            shallow(name)
            models.make(name, folder)
            for arguments in commands(folder, "encoder" if name == "minilm-l6" else "decoder"):
                ran = sorted(called(options.fovea, arguments, folder))
                # Constructors have two names at one address, and a section of one of them.
                count.update(name for begin, end, name in symbols if bisect.bisect_left(ran, begin) < bisect.bisect_left(ran, end))
    for function in sorted(count, key=lambda function: (-count[function], function)):
        for member in dict.fromkeys(function.replace("N_AVX2", target) for target in NAMESPACES):
            if member in defined:
                print(section_of(member))
    print(".text.*N_AVX3*")


if __name__ == "__main__":
    main()
