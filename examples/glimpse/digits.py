"""Takes scikit-learn's digits out of its package: digits.py WHEEL OUTPUT writes a line an image, 64 pixels from 0 to 16
and the label. The wheel is only read as an archive; scikit-learn need not be installed."""

import gzip
import hashlib
import pathlib
import sys
import zipfile

# The figures of the page are for exactly these digits.
SHA256 = "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8"


def main() -> None:
    wheel, output = sys.argv[1:]
    with zipfile.ZipFile(wheel) as archive:
        digits = gzip.decompress(archive.read("sklearn/datasets/data/digits.csv.gz"))
    if hashlib.sha256(digits).hexdigest() != SHA256:
        sys.exit(f"{wheel} holds other digits than the 1797 that the figures are for")
    pathlib.Path(output).write_bytes(digits)


if __name__ == "__main__":
    main()
