"""`headers.py ROOT`: counts the public headers that one include of attention brings in, and the types in them, against
limits. What a caller must read to compute attention should not grow unnoticed: before arguments had names it was 11
headers with 83 types for `attend`, with five scores and normalisers fewer. Alternatives of a variant (scores, normalisers) are
not counted: each is a row that a caller may choose, and adding one touches no other list. `--self-test`: a header too many is
seen.
"""

import pathlib
import re
import sys
import tempfile

# Entry: the most headers, the most types (classes, structs and enums, nested ones too).
LIMITS = {
    "fovea/plan/attention.h": (11, 37),  # attention(), one call
    "fovea/plan/plan.h": (14, 51),  # make_plan, attend and attend_backward
    "fovea/attention.h": (17, 60),  # every mask beside one call
}
INCLUDE = re.compile(r'^#include "(fovea/[^"]+)"', re.MULTILINE)
ALTERNATIVES = re.compile(r"^using \w+ =\s*std::variant<([^;]*)>;", re.MULTILINE)
TYPE = re.compile(
    r"^\s*(?:template\s*<.*>\s*)?(?:struct|class|enum class)\s+(\w+)(?:<[^>]*>)?(?:\s+final)?\s*(?::[^;{]*)?\{",
    re.MULTILINE)


def closure(include, entry):
    """The texts of `entry` and of every header that it includes, by name."""
    found, waiting = {}, [entry]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = (include / name).read_text()
            waiting += INCLUDE.findall(found[name])
    return found


def breaches(root, limits):
    for entry, (most_headers, most_types) in limits.items():
        headers = closure(root / "include", entry)
        text = "\n".join(headers.values())
        alternatives = set(re.findall(r"\w+", " ".join(ALTERNATIVES.findall(text))))
        types = sum(name not in alternatives for name in TYPE.findall(text))
        if len(headers) > most_headers or types > most_types:
            yield (f"{entry}: brings in {len(headers)} headers with {types} types, at most {most_headers} with "
                   f"{most_types} are expected (a forward declaration often does in place of an include)")


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        include = pathlib.Path(folder) / "include" / "fovea"
        include.mkdir(parents=True)
        (include / "a.h").write_text('#include "fovea/b.h"\nstruct A {};\nstruct C;\n')
        (include / "b.h").write_text("template <class T>\nclass B final : A {\n  enum class Inner { x };\n};\n"
                                     "struct D {};\nusing Choice =\n    std::variant<int, D>;\n")
        root = pathlib.Path(folder)
        assert not list(breaches(root, {"fovea/a.h": (2, 3)}))
        assert len(list(breaches(root, {"fovea/a.h": (1, 3)}))) == 1
        assert len(list(breaches(root, {"fovea/a.h": (2, 2)}))) == 1


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    found = list(breaches(pathlib.Path(sys.argv[1]), LIMITS))
    print("\n".join(found) or "the headers of attention are within their limits")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
