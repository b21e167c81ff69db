"""The main function of the oracles that compare `fovea` with transformers."""

import argparse
import os
import sys
import tempfile


def main(cases):
    """Runs the cases that the command line and FOVEA_CASES ask for, each in a folder of its own. 77: none can be run here.

    Args:
        cases: (its line, a class that takes the command and a folder, the name of its check, that check's arguments).
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--fovea", required=True)
    parser.add_argument("--only", default="", help="run the cases whose line contains this, whatever FOVEA_CASES says")
    arguments = parser.parse_args()
    if os.environ.get("FOVEA_CASES") != "full" and not arguments.only:
        print("not run: ./run test --full compares with transformers")
        return 77
    os.environ["HF_HUB_OFFLINE"] = "1"
    # transformers takes the recurrences of this package where it finds it, and they need a GPU; its own ones do not.
    sys.modules["fla"] = None
    try:
        import torch
        import transformers
    except ImportError as error:
        print(f"not run: {error} (./run test --full installs tests/requirements-torch.txt)")
        return 77
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    failed = 0
    for line, oracle, check, values in cases:
        if arguments.only not in line:
            continue
        with tempfile.TemporaryDirectory() as folder:
            one = oracle(arguments.fovea, folder)
            try:
                getattr(one, check)(*values)
                worst = getattr(one, "worst", 0.0)
                print(f"{line} | agrees" + (f" within {worst:.1e}" if worst else ""))
            except ImportError as error:
                print(f"{line} | not run: {error}")
            except AssertionError as error:
                failed += 1
                print(f"{line} | DIFFERS: {error}")
    return 1 if failed else 0
