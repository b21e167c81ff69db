#!/usr/bin/env python3
"""The prose of the source tree (docs/style.md): `prose.py ROOT` and `prose.py --self-test`.

Two things are checked. A sentence in a comment of a C++ header has at most 30 words, and a name that was retired because
it hid its meaning stays away. Each breach is printed as file:line: rule, and the exit status is then 1.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT = 30

# Names that are gone from the tree, as patterns, and what to write instead. Only a name that nothing uses any more stands here.
RETIRED = {
    r"\bnn::Recurrent\b": "nn::RnnLayer, a layer of RNN, GRU or LSTM cells",
    r"\bstart_alike\b": "nn::start_keys_as_queries",
    r"\bstart_passing\b": "nn::start_values_as_identity",
    r"\bTransformerOptions::Reads\b": "TransformerOptions::CrossAttention",
    r"\bautograd::shown\b": "autograd::cell_output",
    r"\bkernels::Stored\b": "kernels::In16Bits",
    r"\b(?:Least|Most)\(": "HWY_MIN, HWY_MAX in the kernels' -inl.h files; std::min, std::max elsewhere",
    r"\b(?:Asked|Apart) [a-z]+(?: = \{\}|\(|;)|const Asked&": "RowSelection, OverlapCheck (as English words both may begin a sentence)",
    r"\bplan/impl\.h\b": "plan/plan_impl.h, plan/call.h, plan/operand.h",
    r"(?i)\bcentre[sd]?\b": "center, in names and in prose",
    r"\bfovea_rooms?\b": "fovea_library, fovea_library_tests; a directory of src is a library, not a room",
}

# Where a retired name may not return. The pages that quote them, and this file, are left out.
SEARCHED = ("include", "src", "python", "examples", "tests", "bench", "docs", "cmake", "README.md", "README.zh.md", "CONTRIBUTING.md")
SUFFIXES = {".h", ".cpp", ".inc", ".py", ".pyi", ".md", ".sh", ".awk", ".cmake", ".txt", ".js", ".css"}
QUOTING = ("docs/style.md", "tests/architecture/prose.py")

ABBREVIATION = re.compile(r"(?:^|[\s(])(?:e\.g|i\.e|cf|vs|al|etc|eq|fig|sec|no|p|pp|resp|approx|(?-i:[A-Z]))\.$", re.IGNORECASE)
SENTENCE_END = re.compile(r"[.!?][)\"'”]*(?=\s|$)")
OPERATOR = re.compile(r"^(?:[-+*/·×=<>≤≥≠≈∈→%&|^~]+|:=|->|in\{\})$")


def comment_blocks(text):
    """Yields [(line number, words of that line), ...] for each comment: neighbouring lines of `//` are one comment."""
    block, column = [], None
    in_star = False
    for number, line in enumerate(text.splitlines(), 1):
        if in_star:
            end = line.find("*/")
            block.append((number, line[:end] if end >= 0 else line))
            if end >= 0:
                in_star = False
                yield block
                block, column = [], None
            continue
        at = start_of_comment(line)
        alone = at is not None and not line[:at].strip()
        if block and not (alone and at == column):
            yield block
            block, column = [], None
        if at is None:
            continue
        if line.startswith("/*", at):
            end = line.find("*/", at + 2)
            body = line[at + 2 : end if end >= 0 else None]
            block.append((number, body))
            if end < 0:
                in_star = True
            else:
                yield block
                block, column = [], None
            continue
        block.append((number, re.sub(r"^/{2,}[!<]?", "", line[at:])))
        column = at
    if block:
        yield block


def start_of_comment(line):
    """The column of `//` or `/*` outside of string and character literals, or None."""
    quote = None
    at = 0
    while at < len(line):
        character = line[at]
        if quote:
            if character == "\\":
                at += 1
            elif character == quote:
                quote = None
        elif character == '"' or (character == "'" and not (at and line[at - 1].isalnum())):
            quote = character
        elif line.startswith(("//", "/*"), at):
            return at
        at += 1
    return None


def paragraphs(block):
    """Splits a comment where a paragraph, an entry of a list or an indented example begins."""
    paragraph = []
    for number, body in block:
        body = re.sub(r"^\s*\*(?=\s|$)", "", body)
        indented = len(body) - len(body.lstrip()) >= 3
        starts = re.match(r"\s*(?:[-*•]|\d+[.)])\s", body) or indented or re.match(r"\s*[@\\][a-z]+", body)
        if paragraph and (not body.strip() or starts):
            yield paragraph
            paragraph = []
        if body.strip():
            paragraph.append((number, re.sub(r"^\s*(?:[-*•]|\d+[.)])\s+", "", body).strip()))
        if indented and paragraph:
            yield paragraph
            paragraph = []
    if paragraph:
        yield paragraph


def sentences(paragraph):
    """Yields (line number of its beginning, sentence)."""
    words = [(number, word) for number, body in paragraph for word in body.split()]
    sentence, begun, ticks = [], None, 0
    for number, word in words:
        begun = begun or number
        sentence.append(word)
        ticks += word.count("`")
        ends = SENTENCE_END.search(word) and not ABBREVIATION.search(" " + word.rstrip(")\"'”")) and "..." not in word
        if ends and ticks % 2 == 0:
            yield begun, " ".join(sentence)
            sentence, begun, ticks = [], None, 0
    if sentence:
        yield begun, " ".join(sentence)


def count_words(sentence):
    """Code in backticks, a shape in brackets, a call with its arguments and a formula are one word each."""
    text = re.sub(r"`[^`]*`", "code", sentence)
    for _ in range(3):
        text = re.sub(r"(\w)[\[({][^\[\](){}]*[\])}]", lambda m: m[1], text)
        text = re.sub(r"[\[{][^\[\](){}]*[\]}]", "shape", text)
    count, glued = 0, False
    for token in text.split():
        if OPERATOR.match(token.strip(".,;:()")):
            glued = True
            continue
        if re.search(r"\w", token) and not glued:
            count += 1
        glued = False
    return count


def long_sentences(path, text):
    for block in comment_blocks(text):
        for paragraph in paragraphs(block):
            for number, sentence in sentences(paragraph):
                words = count_words(sentence)
                if words > LIMIT:
                    yield f"{path}:{number}: a sentence of {words} words, over {LIMIT}: {sentence}"


def retired_names(path, text, retired):
    for pattern, instead in retired.items():
        for match in re.finditer(pattern, text):
            number = text.count("\n", 0, match.start()) + 1
            yield f"{path}:{number}: \"{match[0]}\" is retired: {instead}"


def files_of(root, folders):
    for folder in folders:
        where = root / folder
        for path in [where] if where.is_file() else sorted(where.rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                yield path.relative_to(root).as_posix(), path


def breaches_of(root, retired=RETIRED):
    for name, path in files_of(root, ("include", "src", "python/src", "examples", "tests")):
        if path.suffix == ".h":
            yield from long_sentences(name, path.read_text(encoding="utf-8"))
    for name, path in files_of(root, SEARCHED):
        if name not in QUOTING:
            yield from retired_names(name, path.read_text(encoding="utf-8"), retired)


def self_test():
    """Shows the check good and bad headers; returns what it judged wrongly."""
    long_by_one = " ".join(["word"] * (LIMIT + 1)) + "."
    just = " ".join(["word"] * LIMIT) + "."
    two = f"{' '.join(['word'] * 20)}.\n/// {' '.join(['Word'] * 20)}."
    formula = " ".join(["word"] * (LIMIT - 1)) + " x = a + b·c - exp(p, q, r) over"  # the formula is one word, "over" the next
    cases = (
        ("a sentence of 31 words", f"/// {long_by_one}\n", 1),
        ("the same over two lines", f"/// {long_by_one[:60]}\n/// {long_by_one[60:]}\n", 1),
        ("the same behind code", f"int x;  ///< {long_by_one}\n", 1),
        ("the same in /* */", f"/* {long_by_one} */\n", 1),
        ("the same in the second paragraph", f"/// Short.\n///\n/// {long_by_one}\n", 1),
        ("an abbreviation and a number end no sentence", f"/// {long_by_one[:50]} e.g. 0.5 {long_by_one[50:]}\n", 1),
        ("a formula and one word too many", f"/// {formula}\n", 1),
        ("a sentence of 30 words", f"/// {just}\n", 0),
        ("two sentences", f"/// {two}\n", 0),
        ("two entries of a list", f"/// - {just}\n/// - {just}\n", 0),
        ("code in backticks is one word", f"/// `{long_by_one}` is one word.\n", 0),
        ("a shape is one word", "/// " + "[batch, heads, query_len, head_dim] " * LIMIT + "\n", 0),
        ("a comment inside a string is none", f'const char* s = "// {long_by_one}";\n', 0),
    )
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        header = root / "include" / "fovea" / "nn" / "a.h"
        header.parent.mkdir(parents=True)
        for what, text, expected in cases:
            header.write_text(text, encoding="utf-8")
            found = list(breaches_of(root, retired={}))
            if len(found) != expected:
                wrong.append(f"{what}: {len(found)} breaches, expected {expected}: {found}")
            if any(not breach.startswith("include/fovea/nn/a.h:") for breach in found):
                wrong.append(f"{what}: the file is not named: {found}")
        header.write_text("int Asked = 1;\nint asked_twice = 2;\n", encoding="utf-8")
        found = list(breaches_of(root, retired={r"\bAsked\b": "Request"}))
        if [breach.split(" ")[0] for breach in found] != ["include/fovea/nn/a.h:1:"]:
            wrong.append(f"a retired name: {found}")
        header.write_text(f"/// {long_by_one}\n", encoding="utf-8")
        if subprocess.run([sys.executable, __file__, root], stdout=subprocess.DEVNULL, check=False).returncode != 1:
            wrong.append("the exit status of a breach is not 1")
    return wrong


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found = self_test() if sys.argv[1] == "--self-test" else list(breaches_of(Path(sys.argv[1])))
    for breach in found:
        print(breach)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
