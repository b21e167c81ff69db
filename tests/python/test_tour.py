"""The tour: its Python blocks print what its pages say, and the Chinese pages have the same blocks and parts.

The C++ blocks are a program of their own (tests/architecture/tour.awk).
"""

from __future__ import annotations

import importlib.util
import re
from itertools import zip_longest
from pathlib import Path

import pytest
from tour_blocks import CHINESE, TOUR, blocks, chapters, comparable, output_of, with_outputs

HAS_TORCH = importlib.util.find_spec("torch") is not None and importlib.util.find_spec("fovea.nn") is not None
# The parts of a section, in their order.
PARTS = ("In words", "Formula", "Run it", "Measured", "Where it lives", "Exercise")
CHINESE_PARTS = ("想法", "公式", "动手", "实测", "代码位置", "练习")
NAMES = [path.name for path in chapters()]


def test_there_are_chapters() -> None:
    """Nine, each on one page or on several, whose names stand in the order in which they are read."""
    assert sorted({name[0] for name in NAMES}) == [str(n + 1) for n in range(9)]
    assert NAMES == sorted(NAMES) == [path.name for path in chapters(CHINESE)]


@pytest.mark.parametrize("folder, words", [(TOUR, ("before: ", "next: ")), (CHINESE, ("上一页：", "下一页："))])
def test_every_page_links_the_one_before_and_the_next(folder: Path, words: tuple[str, str]) -> None:
    titles = {name: re.match(r"# \d\. (.*)", (folder / name).read_text()) for name in NAMES}
    for before, name, following in zip(["", *NAMES], NAMES, [*NAMES[1:], ""]):
        head = (folder / name).read_text().partition("\n## ")[0]
        for word, other in zip(words, (before, following)):
            shown = re.findall(rf"{word}\[([^\]]*)\]\(([^)]*)\)", head.replace("\n", " "))
            title = titles[other] if other else None
            assert shown == ([(title[1], other)] if title else []), name


@pytest.mark.parametrize("name", NAMES)
def test_python_blocks_print_what_the_page_says(name: str) -> None:
    path, ran = TOUR / name, 0
    for block, expected in with_outputs(path.read_text()):
        if block.kind == "cpp" or (block.kind == "python torch" and not HAS_TORCH):
            continue
        assert output_of(block, str(path)) == expected.text, f"{path}:{block.line}"
        ran += 1
    assert ran


@pytest.mark.parametrize("name", NAMES)
def test_the_chinese_page_has_the_same_blocks(name: str) -> None:
    english, chinese = ((folder / name).read_text() for folder in (TOUR, CHINESE))
    assert [comparable(block) for block in blocks(chinese)] == [comparable(block) for block in blocks(english)]
    tables = [re.findall(r"^\|.*\|$", page, re.M) for page in (english, chinese)]
    for ours, theirs in zip_longest(*tables, fillvalue=""):
        numbers = [sorted(re.findall(r"\d+(?:[,.]\d+)*", re.sub(r"\]\([^)]*\)", "]", row))) for row in (ours, theirs)]
        assert ours.count("|") == theirs.count("|") and numbers[0] == numbers[1], f"{ours}\n{theirs}"
    named = r"(?:\]\(|src=\"|srcset=\")\.\.[./]*/((?:include|src|tests|examples|pictures)[^)\"]*)"
    links = [sorted(re.findall(named, page)) for page in (english, chinese)]
    assert links[0] == links[1], "the same code and pictures"


@pytest.mark.parametrize("folder, parts", [(TOUR, PARTS), (CHINESE, CHINESE_PARTS)])
@pytest.mark.parametrize("name", NAMES)
def test_every_section_has_its_parts_in_order(folder: Path, parts: tuple[str, ...], name: str) -> None:
    sections = re.split(r"^## ", (folder / name).read_text(), flags=re.M)[1:]
    assert sections
    for section in sections:
        title = section.partition("\n")[0]
        assert re.findall(r"^\*\*([^*]+?)[.。]\*\*", section, re.M) == list(parts), title
        kinds = [block.kind for block in blocks(section)]
        assert kinds[0] == "math" and "cpp" in kinds and any(kind.startswith("python") for kind in kinds), title
        assert section.count("<details>") == section.count("</details>") >= 2, title
        folded = "".join(re.findall(r"^<details>.*?^</details>$", section, re.M | re.S))
        assert [b.kind for b in blocks(folded) if b.kind != "text"] == ["cpp"] * kinds.count("cpp"), f"{title}: C++ is folded"
        lives = section.partition(f"**{parts[4]}")[2].partition(f"**{parts[5]}")[0]
        assert "include/fovea/" in lives and "/tests/" in lives, f"{title}: a header and a test"


def test_both_indexes_name_every_chapter() -> None:
    for folder in (TOUR, CHINESE):
        index = (folder / "README.md").read_text()
        assert all(f"]({name})" in index for name in NAMES)
        preamble = (TOUR.parents[1] / "examples" / "tour" / "tour.h").read_text()
        assert preamble in index, "the preamble of the C++ blocks"


# In prose numbers with a decimal point; in a table's cell any number.
_NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*\.\d+(?![\d.])|(?<=\| )\d[\d,]*(?= (?:ms|µs|%|[KM]iB|MB)? ?\|)")


@pytest.mark.parametrize("name", NAMES)
def test_measured_figures_stand_in_the_pages_they_are_quoted_from(name: str) -> None:
    """The source is a page that the section links, or the output of the section's own blocks. The examples' pages
    write thousands without a comma."""
    path = TOUR / name
    for section in re.split(r"^## ", path.read_text(), flags=re.M)[1:]:
        measured = section.partition("**Measured.**")[2].partition("**Where it lives.**")[0]
        links = re.findall(r"\]\((\.\.?/[^)#]*\.md)", measured)
        sources = section.partition("**Measured.**")[0] + "".join((path.parent / link).read_text() for link in links)
        for number in _NUMBER.findall(measured):
            either = f"{re.escape(number)}|{re.escape(number.replace(',', ''))}"
            assert re.search(rf"(?<![\d.,])(?:{either})(?!\d)", sources), f"{name}: {number} is in no source"
