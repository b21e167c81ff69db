"""The sections of functions that run with models, the most common first: cmake/function_order.txt.

    .venv/bin/python bench/function_order.py [--fovea build/release/fovea] [--models gpt2,...] > cmake/function_order.txt

Models of bench/models.py, two layers deep, write and read. A function's rank is the number of commands that call it. Each function's
first byte is a breakpoint that is taken away when a thread meets it, by Linux's ptrace on x86-64. valgrind, which was used before,
knows no AVX-512. Run this on a processor with AVX-512: kin for other instruction sets stand beside the functions that ran.
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import os
import pathlib
import signal
import subprocess
import tempfile

import models

NAMESPACES = ("N_AVX3", "N_AVX2", "N_SSE4")  # of Highway
CLONES = (".arch_x86_64_v4", ".arch_x86_64_v3")  # of GCC's target_clones
TRACEME, POKE_USER, PEEK_USER, CONTINUE, SET_OPTIONS = 0, 6, 3, 7, 0x4200
TRACE_CLONES, RIP = 8, 16 * 8  # the offset of the instruction pointer in struct user_regs_struct
# Whatever the model: what runs before main, and what chooses clones. GCC says "startup" in some of the files.
ALWAYS = (".text.main", ".text._GLOBAL__sub_I_*", ".text.startup.*", ".text.*.resolver")


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


libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def base_of(child: int, fovea: str) -> int:
    """Where the command's first byte is mapped."""
    for line in pathlib.Path(f"/proc/{child}/maps").read_text().splitlines():
        if line.endswith(os.path.realpath(fovea)):
            return int(line.split("-")[0], 16)
    raise RuntimeError("the command is not mapped")


def called(fovea: str, arguments: list[str], addresses: list[int]) -> set[int]:
    """Those of the functions' addresses that ran."""
    child = os.fork()
    if child == 0:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        libc.ptrace(TRACEME, 0, None, None)
        os.execv(fovea, [fovea, *arguments])
    os.waitpid(child, 0)  # stands at its first instruction
    libc.ptrace(SET_OPTIONS, child, None, TRACE_CLONES)
    base = base_of(child, fovea)
    ran = set()
    with open(f"/proc/{child}/mem", "r+b", buffering=0) as memory:
        first = {}
        for address in addresses:
            memory.seek(base + address)
            first[address] = memory.read(1)
            memory.seek(base + address)
            memory.write(b"\xcc")
        libc.ptrace(CONTINUE, child, None, None)
        while True:
            thread, status = os.waitpid(-1, 0x40000000)  # threads as well
            if os.WIFEXITED(status) or os.WIFSIGNALED(status):
                if thread != child:
                    continue
                if status != 0:
                    raise RuntimeError(f"{fovea} {' '.join(arguments)} ended with {status}")
                return ran
            sent = os.WSTOPSIG(status)
            if sent == signal.SIGTRAP and status >> 16 == 0:
                at = libc.ptrace(PEEK_USER, thread, RIP, None) - 1
                if at - base in first:  # another thread may have met it at the same time
                    memory.seek(at)
                    memory.write(first[at - base])
                    libc.ptrace(POKE_USER, thread, RIP, at)
                    ran.add(at - base)
            libc.ptrace(CONTINUE, thread, None, 0 if sent in (signal.SIGTRAP, signal.SIGSTOP) else sent)


def section_of(function: str) -> str:
    """The name that GCC gives to a function's section under -ffunction-sections."""
    if function.endswith(".cold"):
        return ".text.unlikely." + function.removesuffix(".cold")
    return ".text." + function


def is_always(function: str) -> bool:
    return function == "main" or function.startswith("_GLOBAL__sub_I_")


def kin(function: str) -> list[str]:
    """The same function for each instruction set."""
    of_highway = [function.replace(ran, other) for ran in NAMESPACES[:2] if ran in function for other in NAMESPACES]
    return [function, *of_highway, *(function.replace(ran, other) for ran in CLONES if function.endswith(ran) for other in CLONES)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fovea", default="build/release/fovea")
    parser.add_argument("--models", default="gpt2,smollm-135m,minilm-l6,opus-mt,t5-small")
    options = parser.parse_args()
    models.quiet()
    symbols = symbols_of(options.fovea)
    defined = {name for _, _, name in symbols}
    addresses = sorted({begin for begin, end, _ in symbols if end > begin})
    count: collections.Counter[str] = collections.Counter()
    for name in options.models.split(","):
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            shallow(name)
            models.make(name, folder)
            for arguments in commands(folder, "encoder" if name == "minilm-l6" else "decoder"):
                ran = called(options.fovea, arguments, addresses)
                # Constructors have two names at one address, and a section of one of them.
                count.update(name for begin, _, name in symbols if begin in ran)
    print(*ALWAYS, sep="\n")
    listed = dict.fromkeys(member for function in sorted(count, key=lambda function: (-count[function], function)) for member in kin(function))
    print(*(section_of(function) for function in listed if function in defined and not is_always(function)), sep="\n")
    print(".text.*N_AVX3*")


if __name__ == "__main__":
    main()
