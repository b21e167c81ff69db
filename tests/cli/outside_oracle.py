"""fovea attend against other packages: torch, entmax, torch-struct, transformers, fla; forward and gradients, in double.

Run by `./run test --full`, which installs tests/requirements-outside.txt where it can. Each part imports what it needs, and
a case whose package is missing is reported as not run; without torch none can run."""

import argparse
import importlib
import os
import sys
import tempfile
from importlib import metadata

MODULES = ("torch_attention", "paper_scores", "normalizers", "transformers_models", "compositions")
PACKAGES = ("torch", "entmax", "torch-struct", "transformers", "fla-core")


def versions():
    for package in PACKAGES:
        try:
            yield f"{package} {metadata.version(package)}"
        except metadata.PackageNotFoundError:
            yield f"{package} absent"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fovea", required=True)
    parser.add_argument("--only", default="", help="run the parts whose line contains this, whatever FOVEA_CASES says")
    parser.add_argument("--seed", type=int, default=3, help="of shapes and numbers")
    arguments = parser.parse_args()
    if os.environ.get("FOVEA_CASES") != "full" and not arguments.only:
        print("not run: ./run test --full compares with outside packages")
        return 77
    try:
        import torch

        from outside.engine import Engine
    except ImportError as error:
        print(f"not run: {error} (./run test --full installs tests/requirements-outside.txt)")
        return 77
    torch.set_num_threads(1)  # of small tensors, and other tests run beside this one
    print(", ".join(versions()))
    ran = failed = 0
    for module in MODULES:
        for mechanism, oracle, check in importlib.import_module(f"outside.{module}").PARTS:
            line = f"{mechanism} | {oracle}"
            if arguments.only not in line:
                continue
            with tempfile.TemporaryDirectory() as folder:
                engine = Engine(arguments.fovea, folder, arguments.seed)
                try:
                    check(engine)
                    ran += 1
                    print(f"{line} | {engine.cases} cases agree, worst error {engine.worst:.1e} of what rounding allows")
                except ImportError as error:
                    print(f"{line} | not run: {error}")
                except AssertionError as error:
                    failed += 1
                    print(f"{line} | DIFFERS after {engine.cases} cases: {error}")
            for note in engine.notes:
                print(f"  {note}")
    return 1 if failed else 0 if ran else 77


if __name__ == "__main__":
    sys.exit(main())
