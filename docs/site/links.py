"""Whether every link leads somewhere. `links.py markdown ROOT`: links between the documents of the tree, with the anchors
that GitHub gives headings. `links.py site FOLDER`: of the built site, every address and anchor of every page, nothing
that a page would fetch from elsewhere, and no Markdown that was not read. Needs the standard library alone. Prints
what is broken, and then ends with 1.
"""

from __future__ import annotations

import html.parser
import re
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from stage import LINK, SHOWN, documents, outside_code


def heading_anchors(text: str) -> set[str]:
    """GitHub's: lower case, without punctuation, blanks as hyphens; a repeated one is numbered."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        anchor = re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")
        n, unique = 0, anchor
        while unique in found:
            n, unique = n + 1, f"{anchor}-{n + 1}"
        found.add(unique)
    return found


def check_markdown(root: Path) -> list[str]:
    broken = []
    for document in documents(root):
        text = (root / document).read_text()
        prose = "".join(piece for is_prose, piece in outside_code(text) if is_prose)
        found = [*LINK.findall(prose), *SHOWN.findall(prose)]
        found += [inner for text, _, _ in found for inner in LINK.findall(text)]  # a picture that is a link
        for _, link, _ in found:
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = root / document.parent / path if path else root / document
            if not target.exists():
                broken.append(f"{document}: {link}: no such file")
            elif anchor and target.suffix == ".md" and unquote(anchor) not in heading_anchors(target.read_text()):
                broken.append(f"{document}: {link}: no such heading")
    return broken


CODE = ("code", "pre", "script", "style", "title", "math")


class Page(html.parser.HTMLParser):
    """The anchors of a page, its links, what it loads, and Markdown that was left as it is."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.unread: list[str] = []
        self.code = 0  # how many elements of code, or not shown, are open
        self.feed(text)

    def handle_data(self, data: str) -> None:
        if not self.code and re.search(r"`|\*\*\w|\]\(", data):
            self.unread.append(data.strip()[:80])

    def handle_endtag(self, tag: str) -> None:
        self.code -= tag in CODE

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.code += tag in CODE
        given = {name: value or "" for name, value in attrs}
        self.anchors.update(value for name in ("id", "name") if (value := given.get(name)))
        if tag in ("a", "area") and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "preconnect", "modulepreload"):
            self.loads.append(given.get("href", ""))
        elif tag in ("script", "img", "iframe", "source", "video", "audio") and given.get("src"):
            self.loads.append(given["src"])
        elif tag == "source" and given.get("srcset"):
            self.loads.append(given["srcset"])


def check_site(folder: Path) -> list[str]:
    pages = {path: Page(path.read_text()) for path in sorted(folder.rglob("*.html"))}
    broken = []
    for path, page in pages.items():
        name = path.relative_to(folder)
        if name.parts[0] != "api":  # Doxygen's own, and docstrings, which are plain text
            broken.extend(f"{name}: Markdown that is shown as it is: {text}" for text in page.unread)
        for link in [*page.links, *page.loads]:
            parts = urlsplit(link)
            if parts.scheme in ("data", "javascript"):
                continue
            if parts.scheme or parts.netloc:
                if link in page.loads:
                    broken.append(f"{name}: loads {link}, which is not in the site")
                continue
            # The page for addresses that are not there can be served at any depth.
            base = folder if parts.path.startswith("/") else path.parent
            target = (base / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                broken.append(f"{name}: {link}: no such page")
            elif parts.fragment and target in pages and link in page.links:
                anchor = unquote(parts.fragment)
                if anchor not in pages[target].anchors and not anchor.startswith("__"):
                    broken.append(f"{name}: {link}: no such place on the page")
    return broken


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("markdown", "site"):
        sys.exit(__doc__)
    found = (check_markdown if sys.argv[1] == "markdown" else check_site)(Path(sys.argv[2]).resolve())
    print("\n".join(found) or "every link leads somewhere")
    sys.exit(bool(found))
