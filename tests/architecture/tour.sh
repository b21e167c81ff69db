#!/usr/bin/env bash
# `tour.sh PROGRAM EXPECTED`: every C++ block of the tour prints what its page says. One thread: the blocks are too
# small for more, which wait for each other on a busy machine.
set -euo pipefail
diff -u --label "docs/tour says" "$2" --label "the program prints" <(OMP_NUM_THREADS=1 "$1")
