"""How the oracles of tokenisers begin: their options, and whether they run at all."""

import argparse
import importlib
import os
import sys


def oracle_options(*libraries, parser=None):
    """The options, where the libraries can be imported and `./run test --full` or --only asks for the cases. Otherwise the
    process ends with 77, and says why. `parser` may have options of its own."""
    parser = parser or argparse.ArgumentParser()
    parser.add_argument("--fovea", required=True)
    parser.add_argument("--only", default="", help="run the cases whose name contains this, whatever FOVEA_CASES says")
    options = parser.parse_args()
    if os.environ.get("FOVEA_CASES") != "full" and not options.only:
        print(f"not run: ./run test --full compares with {' and '.join(libraries)}")
        sys.exit(77)
    for library in libraries:
        try:
            print(library, importlib.import_module(library).__version__)
        except ImportError as error:
            print(f"not run: {error} (./run test --full installs tests/requirements-outside.txt)")
            sys.exit(77)
    return options
