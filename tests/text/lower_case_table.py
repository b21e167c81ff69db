#!/usr/bin/env python3
"""Prints src/text/lower_case_table.inc: the simple lower-case mappings of Unicode as runs {first, last, step, delta}.

Usage: python3 tests/text/lower_case_table.py > src/text/lower_case_table.inc
"""
import sys
import unicodedata

pairs = [(c, ord(chr(c).lower())) for c in range(sys.maxunicode + 1)
         if not 0xD800 <= c <= 0xDFFF and len(chr(c).lower()) == 1 and chr(c).lower() != chr(c)]
runs = []
for upper, lower in pairs:
    if runs:
        first, last, step, delta = runs[-1]
        gap = upper - last
        if delta == lower - upper and gap in (1, 2) and (step == gap or first == last):
            runs[-1] = (first, upper, gap, delta)
            continue
    runs.append((upper, upper, 1, lower - upper))
print(f"// Unicode {unicodedata.unidata_version}, written by tests/text/lower_case_table.py.")
for first, last, step, delta in runs:
    print(f"{{0x{first:X}, 0x{last:X}, {step}, {delta}}},")
