#!/usr/bin/env bash
# Prints the argument with which the example runs on scikit-learn's digits, fetched from PyPI once. They are the test
# half of "Optical Recognition of Handwritten Digits" (E. Alpaydin, C. Kaynak, UCI, CC BY 4.0), which the package
# (BSD) carries; the wheel (9 MB) is only read and not installed. PYTHON: a Python with pip, if there is one.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-.venv/bin/python} folder=build/digits
digits=$folder/digits.csv

fetch() {
  mkdir -p "$folder" && rm -f "$folder"/scikit_learn-*.whl
  if ! "$python" -m pip --version; then
    python3 -m venv --clear "$folder/venv"
    python=$folder/venv/bin/python
  fi
  "$python" -m pip download -q --disable-pip-version-check --no-input --timeout 20 --retries 2 --no-deps \
    --only-binary :all: --dest "$folder" 'scikit-learn>=1.3,<2'
  "$python" examples/glimpse/digits.py "$folder"/scikit_learn-*.whl "$digits.part"
  mv "$digits.part" "$digits"
  rm -rf "$folder"/scikit_learn-*.whl "$folder/venv"
}

if [[ ! -s $digits ]]; then
  mkdir -p "$folder"
  (set -e; fetch) >"$folder/setup.log" 2>&1 </dev/null &
  wait $! || {
    echo "glimpse: no digits from PyPI, so it draws its own: $(tail -n 1 "$folder/setup.log")" >&2
    exit 1
  }
fi
echo "--data=$digits"
