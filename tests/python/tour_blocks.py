"""The blocks of the tour (docs/tour, docs/zh/tour), and commands that update the outputs on its pages:

    .venv/bin/python tests/python/tour_blocks.py write [TOUR_PROGRAM]

runs every Python block, and TOUR_PROGRAM (build/release/tests/tour) for the C++ blocks, and writes what they print into
the ```text blocks of the English pages; the Chinese pages get the same blocks. It needs the package `fovea` in that
Python. The tests compare, and never write.

    python3 tests/python/tour_blocks.py figures [REVISION]

brings quoted figures up to date after their pages have changed since REVISION (HEAD): a number under "Measured" that stood in
a row of a page that its section links becomes the number that stands in the same place of that row now. What is ambiguous,
and what the sentences around say of it, is left to whoever runs it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Iterator

DOCS = Path(__file__).parents[2] / "docs"
TOUR = DOCS / "tour"
CHINESE = DOCS / "zh" / "tour"
CODE = ("python", "python torch", "cpp")


def chapters(folder: Path = TOUR) -> list[Path]:
    return sorted(folder.glob("[1-9]-*.md"))


@dataclasses.dataclass(frozen=True)
class Block:
    kind: str  # the words after ```
    text: str
    line: int  # of its first line of text, counted from 1
    start: int  # offsets of `text` in the page
    end: int


def blocks(page: str) -> list[Block]:
    found = re.finditer(r"^```([^\n]*)\n(.*?)^```$", page, re.M | re.S)
    return [Block(m[1], m[2], page[: m.start(2)].count("\n") + 1, m.start(2), m.end(2)) for m in found]


def with_outputs(page: str) -> Iterator[tuple[Block, Block]]:
    """Each block of code, with the block of text that must follow it."""
    found = blocks(page)
    for block, following in zip(found, [*found[1:], None]):
        if block.kind in CODE:
            if following is None or following.kind != "text":
                raise ValueError(f"line {block.line}: no block of text with the output follows")
            yield block, following


def comparable(block: Block) -> tuple[str, str]:
    """The part of a block that must be the same in both languages: all but the words inside a formula."""
    return block.kind, re.sub(r"\\text\{[^}]*\}", r"\\text{}", block.text) if block.kind == "math" else block.text


def output_of(block: Block, name: str) -> str:
    """The output of a Python block that is run alone."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile("\n" * (block.line - 1) + block.text, name, "exec"), {"__name__": "__main__"})
    return said.getvalue()


def _write(program: str | None) -> None:
    printed: dict[str, str] = {}
    if program:
        said = subprocess.run([program], check=True, capture_output=True, text=True).stdout
        for part in re.split(r"^== ", said, flags=re.M)[1:]:
            name, _, text = part.partition("\n")
            printed[name] = text
    for path in chapters():
        page = path.read_text()
        outputs: list[tuple[Block, str]] = []
        for block, output in with_outputs(page):
            if block.kind == "cpp":
                outputs.append((output, printed.get(f"{path.name}:{block.line}", output.text)))
            elif block.kind == "python":
                outputs.append((output, output_of(block, str(path))))
        for block, text in reversed(outputs):
            page = page[: block.start] + text + page[block.end :]
        path.write_text(page)
        chinese = CHINESE / path.name
        if chinese.exists():
            _copy_blocks(page, chinese)


def _copy_blocks(page: str, chinese: Path) -> None:
    theirs, ours = chinese.read_text(), blocks(page)
    places = blocks(theirs)
    if len(places) != len(ours):
        sys.exit(f"{chinese}: {len(places)} blocks, the English page has {len(ours)}")
    for place, block in reversed(list(zip(places, ours))):
        if comparable(place) == comparable(block):
            continue
        theirs = theirs[: place.start] + block.text + theirs[place.end :]
    # The words after ``` too.
    kinds = iter(block.kind for block in ours)
    theirs = re.sub(r"^```[^\n]*\n(.*?)^```$", lambda m: f"```{next(kinds)}\n{m[1]}```", theirs, flags=re.M | re.S)
    chinese.write_text(theirs)


FIGURE = r"(?<![\w.,])\d+(?:[.,]\d+)*(?!\d|[.,]\d)"


def _rows(page: str) -> dict[tuple[str, str], list[str]]:
    """The rows of a page's tables by their first two cells, or by the first alone if the second is a number."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in re.findall(r"^\|(.*)\|$", page, re.M):
        cells = [cell.strip() for cell in row.split("|")]
        named = 1 if len(cells) < 2 or re.match(FIGURE, cells[1]) else 2
        found[cells[0], cells[1] if named == 2 else ""] = cells[named:]
    return found


def _moved(before: str, now: str) -> dict[str, set[str]]:
    """Maps each number of a table's cell to the numbers that are in its place now, if the unit after it is the same."""
    moved: dict[str, set[str]] = {}
    new = _rows(now)
    for name, cells in _rows(before).items():
        for old_cell, new_cell in zip(cells, new.get(name, [])):
            ours, theirs = re.findall(FIGURE, old_cell), re.findall(FIGURE, new_cell)
            if re.sub(FIGURE, "", old_cell) == re.sub(FIGURE, "", new_cell):
                for ours_n, theirs_n in zip(ours, theirs):
                    moved.setdefault(ours_n, set()).add(theirs_n)
    return moved


def _with_commas(number: str) -> str:
    """A whole number as the tour writes it; the examples' pages have no commas."""
    return f"{int(number):,}" if number.isdigit() else number


def _figures(revision: str) -> None:
    for path in [*chapters(), *chapters(CHINESE)]:
        labels = ("**Measured.**", "**Where it lives.**") if path.parent == TOUR else ("**实测。**", "**代码位置。**")
        parts = re.split(f"({re.escape(labels[0])}.*?{re.escape(labels[1])})", path.read_text(), flags=re.S)
        for n in range(1, len(parts), 2):
            moved: dict[str, set[str]] = {}
            for link in dict.fromkeys(re.findall(r"\]\((\.\.?/[^)#]*\.md)", parts[n])):
                source = (path.parent / link).resolve()
                name = source.relative_to(DOCS.parent)
                shown = subprocess.run(["git", "show", f"{revision}:{name}"], capture_output=True, text=True, cwd=DOCS)
                if shown.returncode == 0 and shown.stdout != source.read_text():
                    for old, new in _moved(shown.stdout, source.read_text()).items():
                        moved.setdefault(old, set()).update(new)
            for old, new in moved.items():
                if len(new) > 1 and re.search(rf"(?<![\w.,]){re.escape(old)}(?!\d|[.,]\d)", parts[n]):
                    print(f"{path.name}: {old} has become {' or '.join(sorted(new))}: left as it is")
            one = {old: next(iter(new)) for old, new in moved.items() if len(new) == 1}
            one |= {_with_commas(old): _with_commas(new) for old, new in one.items()}
            parts[n] = re.sub(FIGURE, lambda m: one.get(m[0], m[0]), parts[n])
        path.write_text("".join(parts))


if __name__ == "__main__":
    command = sys.argv[1] if len(sys.argv) in (2, 3) else ""
    if command == "write":
        _write(sys.argv[2] if len(sys.argv) == 3 else None)
    elif command == "figures":
        _figures(sys.argv[2] if len(sys.argv) == 3 else "HEAD")
    else:
        sys.exit(__doc__)
