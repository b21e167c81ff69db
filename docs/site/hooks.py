"""What MkDocs does not do by itself: the navigation, both languages in one site, formulas and graphs without a network."""

from __future__ import annotations

import logging
import re
import subprocess
from pathlib import Path
from typing import Any

import jieba
import latex2mathml.converter

jieba.setLogLevel(logging.WARNING)

ENGLISH_HOME, CHINESE_HOME = "README.md", "README.zh.md"


def is_chinese(path: str) -> bool:
    return path.startswith("docs/zh/") or path == CHINESE_HOME


def translation(path: str, there: set[str]) -> str:
    """The page that says the same in the other language, or that language's first page."""
    if is_chinese(path):
        other, home = path.replace("docs/zh/", "docs/", 1), ENGLISH_HOME
    else:
        other, home = path.replace("docs/", "docs/zh/", 1), CHINESE_HOME
    return other if other != path and other in there else home


def on_config(config: Any) -> Any:
    config.nav = navigation(Path(config.docs_dir))
    fences = [
        {"name": "math", "class": "formula", "format": formula},
        {"name": "mermaid", "class": "graph", "format": graph},
    ]
    config.mdx_configs.setdefault("pymdownx.superfences", {})["custom_fences"] = fences
    return config


def navigation(source: Path) -> list[Any]:
    def pages(pattern: str) -> list[str]:
        return sorted(str(path.relative_to(source)) for path in source.glob(pattern))

    def chapters(folder: str) -> list[str]:
        return [f"{folder}/README.md", *pages(f"{folder}/[1-9]-*.md")]

    examples = [{Path(page).parent.name: page} for page in pages("examples/*/README.md")]
    decisions = ["docs/decisions/README.md", *pages("docs/decisions/[0-9]*.md")]
    guides = ["docs/algebra.md", "docs/layers.md", "docs/cache.md", "docs/command.md", "docs/models.md", "docs/recurrence.md", "docs/python.md", "docs/architecture.md", "docs/mechanisms.md", "docs/style.md", "CONTRIBUTING.md"]
    measured = ["docs/results.md", "docs/performance.md", "docs/tried.md"]
    chinese = [CHINESE_HOME, {"注意力之旅": chapters("docs/zh/tour")}, *pages("docs/zh/*.md")]
    named = {*guides, *measured, "docs/gallery.md", "docs/README.md"}
    others = [page for page in pages("docs/*.md") if page not in named]
    return [
        {"Fovea": [ENGLISH_HOME, "docs/README.md", "CHANGELOG.md"]},
        {"Tour": chapters("docs/tour")},
        {"Guides": [*guides, *others]},
        {"Gallery": ["docs/gallery.md", *examples]},
        {"Measured": measured},
        {"Decisions": decisions},
        {"API": ["api/README.md", "api/python.md", {"C++": "api/cpp/index.html"}]},
        {"中文": chinese},
    ]


def on_page_context(context: Any, page: Any, config: Any, nav: Any) -> Any:
    path, there = page.file.src_uri, {file.src_uri for file in context["pages"]}
    here = "zh" if is_chinese(path) else "en"
    config.theme["language"] = here
    other = context["pages"]
    link = {file.src_uri: file.url for file in other}[translation(path, there)]
    links = {"en": page.file.url, "zh": link} if here == "en" else {"en": link, "zh": page.file.url}
    config.extra["alternate"] = [
        {"name": "English", "link": links["en"], "lang": "en"},
        {"name": "中文", "link": links["zh"], "lang": "zh"},
    ]
    return context


def formula(source: str, *_: Any, **__: Any) -> str:
    """MathML, which browsers draw themselves."""
    drawn = latex2mathml.converter.convert(source.strip().replace("{aligned}", "{align*}"), display="block")
    if "&#x00026;" in drawn or "&amp;" in drawn or "\\" in drawn:  # what it does not know it leaves as text
        raise ValueError(f"a formula that latex2mathml cannot draw: {source}")
    return f'<div class="formula">{drawn}</div>'


def graph(source: str, *_: Any, **__: Any) -> str:
    """A `graph` of Mermaid's arrows and subgraphs, drawn by Graphviz: Mermaid itself would be fetched from a server."""
    lines, clusters = [], 0
    for line in map(str.strip, source.splitlines()):
        if match := re.fullmatch(r"graph (BT|TB|LR|RL)", line):
            lines.append(f"digraph {{ rankdir={match[1]}; bgcolor=transparent; node [shape=box, style=rounded];")
            lines.append('node [fontname="sans-serif"]; edge [color=gray]; fontname="sans-serif"; color=gray;')
        elif match := re.fullmatch(r'subgraph (\w+)(?: \["(.*)"\])?', line):
            clusters += 1
            lines.append(f'subgraph cluster_{clusters} {{ label="{match[2] or match[1]}";')
        elif match := re.fullmatch(r"(\w+) --> (\w+)", line):
            lines.append(f"{match[1]} -> {match[2]};")
        elif line == "end":
            lines.append("}")
        elif re.fullmatch(r"\w+", line):
            lines.append(line + ";")
        elif line:
            raise ValueError(f"a line of Mermaid that docs/site/hooks.py cannot draw: {line}")
    drawn = subprocess.run(["dot", "-Tsvg"], input="\n".join([*lines, "}"]), capture_output=True, text=True, check=True)
    return '<div class="graph">' + drawn.stdout[drawn.stdout.index("<svg") :] + "</div>"
