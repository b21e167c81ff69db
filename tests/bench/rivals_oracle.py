"""The rivals of `fovea bench train` and `fovea bench generate` compute what Fovea does. PyTorch gets Fovea's weights, and has the same
loss and gradient norm of the first batch; transformers and CTranslate2 write the same texts. A weight that is another by a thousandth
refuses a trainer, and a bias that shifts a token a writer."""

import argparse
import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"

# The rivals' script, but for one weight.
OTHER = """
import sys
sys.path.insert(0, {bench!r})
import train_rivals, train_torch
load = train_torch.load
def spoiled(model, tensors):
    name = next(one for one in tensors if one.endswith("shared.weight"))
    load(model, {{**tensors, name: tensors[name] * 1.001}})
train_torch.load = spoiled
sys.exit(train_rivals.serve(train_rivals.Server))
"""


def bench(fovea: str, script: pathlib.Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [fovea, "bench", *arguments, "--rivals", sys.executable, "--rivals-script", str(script), "--threads", "1", "--rounds", "1"]
    return subprocess.run(command, capture_output=True, text=True)


def check_train(fovea: str, folder: pathlib.Path) -> None:
    sizes = ["--updates", "1", "--vocabulary", "60", "--mini-batch-words", "200"]
    other = folder / "other.py"
    other.write_text(OTHER.format(bench=str(BENCH)))
    for model in ("transformer", "rnn"):
        same = bench(fovea, BENCH / "train_rivals.py", "train", "--models", model, *sizes)
        assert same.returncode == 0 and re.search(r"torch eager +[\d.]+ ms", same.stdout), same.stdout + same.stderr
        spoiled = bench(fovea, other, "train", "--models", model, *sizes)
        refused = re.search(r"torch eager +the [a-z ]+ of the first batch is [\d.]+, Fovea's is [\d.]+, by the same weights", spoiled.stdout)
        assert spoiled.returncode == 0 and refused, spoiled.stdout + spoiled.stderr


# One id has a larger logit in transformers' model alone.
OTHER_WRITER = """
import sys
sys.path.insert(0, {bench!r})
import generate_rivals
make = generate_rivals.Transformers.__init__
def spoiled(self, *arguments):
    import torch
    make(self, *arguments)
    with torch.no_grad():
        self.model.model.norm.bias += 10 * self.model.model.embed_tokens.weight[7]
generate_rivals.Transformers.__init__ = spoiled
if __name__ == "__main__":
    sys.exit(generate_rivals.serve(generate_rivals.Server))
"""


def check_generate(fovea: str, folder: pathlib.Path) -> None:
    sizes = ["--texts", "1,3", "--prompt", "5", "--tokens", "30"]
    same = bench(fovea, BENCH / "generate_rivals.py", "generate", *sizes)
    names = ["transformers f32"] + ["ctranslate2 f32"] * (importlib.util.find_spec("ctranslate2") is not None)
    for name in names:
        found = re.findall(name + r" +[\d.]+ ms, .*; 3 of 3 texts are Fovea's", same.stdout)
        assert same.returncode == 0 and len(found) == 2, same.stdout + same.stderr
    other = folder / "other_writer.py"
    other.write_text(OTHER_WRITER.format(bench=str(BENCH)))
    spoiled = bench(fovea, other, "generate", *sizes)
    assert re.search(r"transformers f32 +token \d+ of text \d is 7, Fovea's is \d+", spoiled.stdout), spoiled.stdout + spoiled.stderr


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fovea", required=True)
    fovea = parser.parse_args().fovea
    try:
        import safetensors  # noqa: F401
        import torch  # noqa: F401
    except ImportError as error:
        print(f"not run: {error} (./run test --torch installs them)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        check_train(fovea, pathlib.Path(folder))
        if importlib.util.find_spec("transformers"):
            check_generate(fovea, pathlib.Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
