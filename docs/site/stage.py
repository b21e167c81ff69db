"""Copies what the site is made of into one folder: `stage.py ROOT SOURCE`.

Documents refer to each other, to pictures and to code by paths relative to themselves, so that they can be read in the
repository. MkDocs serves one folder only. So SOURCE gets the documents at the same relative paths, with every picture that
they show, and a page for every file of code and every folder that they link: a header's is its page of the C++ reference,
which Doxygen has left in SOURCE/api/cpp.
"""

from __future__ import annotations

import re
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Iterator

DOCUMENTS = ("*.md", "docs/*.md", "docs/decisions/*.md", "docs/tour/*.md", "docs/zh/**/*.md", "examples/*/README.md")
LANGUAGES = {".h": "cpp", ".cpp": "cpp", ".py": "python", ".sh": "bash", ".cmake": "cmake", ".awk": "awk"}
LINK = re.compile(r"(!?\[(?:[^\]\[]|\[[^\]]*\])*\]\()([^)\s]+)(\))")
# Of <picture>, which Markdown has no words for: a picture for each theme.
SHOWN = re.compile(r"(<(?:img|source)\b[^>]*?\b(?:src|srcset)=\")([^\"]+)(\")")
PICTURE = re.compile(r"<picture>(.*?)</picture>", re.S)


def documents(root: Path) -> list[Path]:
    found = (path for pattern in DOCUMENTS for path in root.glob(pattern))
    return sorted({path.relative_to(root) for path in found})


def outside_code(text: str) -> Iterator[tuple[bool, str]]:
    """(is it prose?, the text), piece by piece: fenced blocks are code, and so is what stands between backticks."""
    for n, piece in enumerate(re.split(r"(^```.*?^```$|`[^`\n]+`)", text, flags=re.M | re.S)):
        yield n % 2 == 0, piece


def fence(block: str) -> str:
    """With one word behind its backticks: what follows ("python torch") is for the tests, and unknown to MkDocs."""
    return re.sub(r"^```(\w+) .*$", r"```\1", block, count=1, flags=re.M) if block.startswith("```") else block


def without_line_ends(text: str) -> str:
    """The end of a line is a blank in HTML, which Chinese does not have between its characters."""
    character, mark = "\u4e00-\u9fff", "\u3000-\u303f\uff00-\uffef"
    return re.sub(rf"(?<=[{character}{mark}])\n(?=[{character}{mark}])|(?<=[{mark}])\n(?=[\[`\w])", "", text)


def themed(picture: re.Match[str]) -> str:
    """Two pictures for <picture>, which follows the reader's system and not the switch of the site. The theme shows one of
    them by the ends of their addresses."""
    dark, light = (re.search(pattern, picture[1]) for pattern in (r'srcset="([^"]+)"', r'<img\b([^>]*)\bsrc="([^"]+)"([^>]*)>'))
    if dark is None or light is None:
        sys.exit(f"a <picture> without a dark <source> and an <img>: {picture[0]}")
    before, address, behind = light.groups()
    ends = ((address, "#only-light"), (dark[1], "#only-dark"))
    return "".join(f'<img{before}src="{shown}{end}"{behind}>' for shown, end in ends)


def header_pages(tags: Path) -> dict[str, str]:
    """include/fovea/... to its page among Doxygen's."""
    pages = {}
    for compound in ElementTree.parse(tags).getroot().iterfind("compound[@kind='file']"):
        path, name, file = (compound.findtext(tag) or "" for tag in ("path", "name", "filename"))
        _, _, folder = path.partition("include/fovea/")
        pages[f"include/fovea/{folder}{name}"] = file if file.endswith(".html") else file + ".html"
    return pages


class Stage:
    def __init__(self, root: Path, source: Path) -> None:
        self.root, self.source = root, source
        self.documents = set(documents(root))
        self.headers = header_pages(source / "api" / "fovea.tag")

    def run(self) -> None:
        for document in sorted(self.documents):
            pieces = outside_code((self.root / document).read_text())
            self.write(document, "".join(self.prose(x, document) if prose else fence(x) for prose, x in pieces))

        # What is made for the site alone.
        here = Path(__file__).parent
        for name, place in (("api.md", "api/README.md"), ("python.md", "api/python.md"), ("site.css", "site.css"),
                            ("iframe-worker.js", "iframe-worker.js")):
            shutil.copyfile(here / name, self.source / place)

    def write(self, path: Path, text: str) -> None:
        (self.source / path).parent.mkdir(parents=True, exist_ok=True)
        (self.source / path).write_text(text)

    def prose(self, text: str, document: Path) -> str:
        def to_here(m: re.Match[str]) -> str:
            return LINK.sub(to_here, m[1]) + self.link(m[2], document) + m[3]  # a link's text can be a picture

        for links in (LINK, SHOWN):
            text = links.sub(to_here, text)
        # Markdown inside of HTML is read by GitHub as it is, and by MkDocs where an attribute says so.
        text = PICTURE.sub(themed, text).replace("<details>", '<details markdown="1">')
        return without_line_ends(text)

    def link(self, link: str, document: Path) -> str:
        path, mark, anchor = link.partition("#")
        if not path or re.match(r"[a-z]+:", link):
            return link
        target = (self.root / document.parent / path).resolve()
        if not target.exists() or not target.is_relative_to(self.root):
            sys.exit(f"{document}: link to {link}, which is not there")
        up = "../" * (len(document.parts) - 1)
        place = target.relative_to(self.root)
        if place in self.documents:
            return link
        if str(place) in self.headers:
            return f"{up}api/cpp/{self.headers[str(place)]}"
        if target.suffix in (".png", ".svg"):
            (self.source / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(target, self.source / place)
            return link
        readme = place / "README.md"
        return f"{up}{readme if readme in self.documents else self.code(place)}{mark}{anchor}"

    def code(self, place: Path) -> Path:
        """The page of a file of code, or of a folder."""
        page = Path("code") / f"{place}.md"
        if (self.source / page).exists():
            return page
        target = self.root / place
        if target.is_dir():
            self.write(page, "")  # before its files: no folder links back, but who knows
            files = sorted(path for path in target.iterdir() if path.is_file() and not path.name.startswith("."))
            up = "../" * (len(page.parts) - 1)
            body = "\n".join(f"- [{path.name}]({up}{self.code(place / path.name)})" for path in files)
        else:
            fence = "`" * 8  # more than any file has
            body = f"{fence} {LANGUAGES.get(target.suffix, 'text')}\n{target.read_text()}{fence}"
        self.write(page, f"---\nsearch:\n  exclude: true\n---\n\n# `{place}`\n\n{body}\n")
        return page


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    Stage(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()).run()
