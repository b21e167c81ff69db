"""The diffs in CONTRIBUTING.md are the code as it stands: `diffs.py ROOT`, or `diffs.py --self-test`.

Each added line of a ```diff block must stand in the file that the block names, in the block's order. Spaces, line breaks and
the slashes of comments do not count, and `[...]` stands for text that is left out.

A type that a block adds stands in no other C++ code of the library than the files of the block and the two of the
grammar: whoever follows the recipe need not look for another list.
"""

import re
import sys
import tempfile
from pathlib import Path


def plain(text: str) -> str:
    """One line, without the slashes that begin a line of comment."""
    return re.sub(r"\s+", "", re.sub(r"(?m)^\s*///?", "", text))


GRAMMAR = {"src/attention/names.cpp", "src/attention/mask_names.cpp"}


def listed_elsewhere(root: Path, added: "dict[str, tuple[str, set[str]]]") -> "list[str]":
    """added: type -> (where its block begins, the files of the block)."""
    found = []
    for folder in ("include", "src"):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in (".h", ".cpp"):
                continue
            name = str(file.relative_to(root))
            for number, line in enumerate(file.read_text().splitlines(), 1):
                code = re.sub(r"//.*", "", line)
                for kind, (where, files) in added.items():
                    if name not in files | GRAMMAR and re.search(rf"\b{kind}\b", code):
                        found.append(f"{name}:{number}: {kind} stands here too, and {where} does not say so")
    return found


def breaches(root: Path, document: str = "CONTRIBUTING.md") -> "list[str]":
    found, inside, file, text, at = [], False, "", "", 0
    added, types, files, begin = {}, set(), set(), ""
    for number, line in enumerate((root / document).read_text().splitlines(), 1):
        where = f"{document}:{number}"
        if line.startswith("```"):
            inside, file = line == "```diff", ""
            added |= {kind: (begin, files) for kind in types}
            types, files, begin = set(), set(), where
        elif inside and line.startswith("+++ b/"):
            file, at = line[len("+++ b/") :].strip(), 0
            files.add(file)
            if not (root / file).is_file():
                found.append(f"{where}: no file {file}")
                file = ""
            text = plain((root / file).read_text()) if file else ""
        elif inside and line.startswith("+") and file:
            types |= set(re.findall(r"^\+struct (\w+)", line))
            for piece in line[1:].split("[...]"):
                piece = plain(piece)
                next_at = text.find(piece, at)
                if next_at < 0:
                    elsewhere = " (it stands before the lines above it)" if piece in text else ""
                    found.append(f"{where}: {file} has no such line{elsewhere}: {line[1:].strip()}")
                    break
                at = next_at + len(piece)
    return found + listed_elsewhere(root, added)


def self_test() -> int:
    code = "/// Two\n/// lines.\nstruct A {\n  int a = 1;\n};\nint b();\n"
    block = lambda *lines: "```diff\n" + "\n".join(lines) + "\n```\n"
    good = block("+++ b/a.h", "+/// Two lines.", "+struct A {", "+  int a [...];", "-int c();", "+int b();")
    bad = {
        "another number": block("+++ b/a.h", "+  int a = 2;"),
        "another order": block("+++ b/a.h", "+int b();", "+struct A {"),
        "another file": block("+++ b/b.h", "+struct A {"),
        "a part left out in silence": block("+++ b/a.h", "+struct A { int a;"),
    }
    elsewhere = {"include/a.h": code, "src/b.cpp": "// An A is no a.\nA make();\n"}
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "a.h").write_text(code)
        for name, text in {"good": good, **bad}.items():
            (root / "CONTRIBUTING.md").write_text(text)
            if bool(breaches(root)) != (name != "good"):
                wrong.append(f"{name}: {breaches(root)}")
        for name, text in elsewhere.items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(text)
        (root / "CONTRIBUTING.md").write_text(block("+++ b/include/a.h", "+struct A {"))
        if len(breaches(root)) != 1 or "src/b.cpp:2" not in breaches(root)[0]:
            wrong.append(f"a type that stands elsewhere: {breaches(root)}")
    print("\n".join(wrong) or "every breach is seen")
    return len(wrong)


def main() -> int:
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    found = breaches(Path(sys.argv[1]))
    print("\n".join(found) or "the diffs are the code")
    return len(found)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
