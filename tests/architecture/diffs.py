"""The diffs in CONTRIBUTING.md are the code as it stands: `diffs.py ROOT`, or `diffs.py --self-test`.

Each added line of a ```diff block must stand in the file that the block names, in the block's order. Spaces, line breaks and
the slashes of comments do not count, and `[...]` stands for text that is left out.
"""

import re
import sys
import tempfile
from pathlib import Path


def plain(text: str) -> str:
    """One line, without the slashes that begin a line of comment."""
    return re.sub(r"\s+", "", re.sub(r"(?m)^\s*///?", "", text))


def breaches(root: Path, document: str = "CONTRIBUTING.md") -> "list[str]":
    found, inside, file, text, at = [], False, "", "", 0
    for number, line in enumerate((root / document).read_text().splitlines(), 1):
        where = f"{document}:{number}"
        if line.startswith("```"):
            inside, file = line == "```diff", ""
        elif inside and line.startswith("+++ b/"):
            file, at = line[len("+++ b/") :].strip(), 0
            if not (root / file).is_file():
                found.append(f"{where}: no file {file}")
                file = ""
            text = plain((root / file).read_text()) if file else ""
        elif inside and line.startswith("+") and file:
            for piece in line[1:].split("[...]"):
                piece = plain(piece)
                next_at = text.find(piece, at)
                if next_at < 0:
                    elsewhere = " (it stands before the lines above it)" if piece in text else ""
                    found.append(f"{where}: {file} has no such line{elsewhere}: {line[1:].strip()}")
                    break
                at = next_at + len(piece)
    return found


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
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "a.h").write_text(code)
        for name, text in {"good": good, **bad}.items():
            (root / "CONTRIBUTING.md").write_text(text)
            if bool(breaches(root)) != (name != "good"):
                wrong.append(f"{name}: {breaches(root)}")
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
