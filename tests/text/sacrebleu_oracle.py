#!/usr/bin/env python3
"""Compares Fovea's BLEU with the sacrebleu package.

  sacrebleu_oracle.py --write tests/data/bleu_cases.json   # cases with sacrebleu's numbers, which test_text checks
  sacrebleu_oracle.py --fovea build/fovea                  # the same cases and fresh random ones through the command

The command expected is `fovea score bleu --reference FILE --hypothesis FILE [--tokenize 13a|none] [--lowercase]`; the
line that begins with "BLEU = " in what it prints is compared with sacrebleu's own.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import sacrebleu
from sacrebleu.metrics import BLEU

TRICKY = [
    ("", "A reference ."), ("Un mot", ""), ("", ""), ("the", "the"), ("the the the the", "the cat sat"),
    ("1,000.5 km, 3.14. A-1 2-3 -4 5- .5 5. ,", "1,000.50 km , 3.14 . A-1 2 -3 -4 5 - .5 5 . ,"),
    ("a... b.. c.,.d ,,e", "a ... b .. c . , . d , , e"), ("&quot;x&quot; &amp;lt; &lt;b&gt; &", '"x" < <b> &amp;'),
    ("<skipped> une ligne<skipped>", "une ligne"), ("« Bonjour\u00a0», dit-il\u202f!", "« Bonjour », dit-il !"),
    ("l’été — où… “ici”", "l'été - où... \"ici\""), ("日本語、テスト。", "日本語 、 テスト 。"), ("a\tb\u3000c\u2003d", "a b c d"),
    ("ÉCOLE ÇA Œuvre ΣΊΣΥΦΟΣ ДОМ İstanbul ẞ", "école ça œuvre σίσυφος дом i̇stanbul ß"),
    ("x{y}[z]`w`~v|u\\t^s_r", "x { y } [ z ] ` w ` ~ v | u \\ t ^ s _ r"), ("don't won't it's", "don 't won't it 's"),
    ("café, naïve.", "cafe , naive ."), ("100%,50€.20", "100 % , 50 € .20"), ("été.Été,1.2,a", "été . Été , 1.2 , a"),
    ("trailing \u0085 space\u00a0 ", "trailing space"), ("😀,😀.1", "😀 , 😀 .1"), ("ab-\ncd", "abcd"), ("9-9--9", "9 - 9 --9"),
]
WORDS = ["the", "The", "chat", "été", "où", "L'", "1,5", "3.14", "...", ",", "-", "x-y", "7-8", "&amp;", "«", "\u00a0", "%", "ÉTÉ",
         "mat", "sat", "on", "(a)", "[b]", "p.m.", "U.S.", "€5", "don't", "ΟΔΟΣ"]


def random_corpus(rng, size):
    pairs = []
    for _ in range(size):
        reference = [rng.choice(WORDS) for _ in range(rng.randrange(0, 25))]
        hypothesis = [w for w in reference if rng.random() > 0.2]
        for _ in range(rng.randrange(0, 4)):
            hypothesis.insert(rng.randrange(len(hypothesis) + 1), rng.choice(WORDS))
        glue = rng.choice([" ", " ", " ", ""])
        pairs.append((glue.join(hypothesis), glue.join(reference)))
    return pairs


def corpora(seed):
    rng = random.Random(seed)
    result = [[pair] for pair in TRICKY] + [TRICKY]
    result += [random_corpus(rng, size) for size in (1, 2, 3, 5, 10, 20)]
    return result


def cases(seed):
    for pairs in corpora(seed):
        for tokenize in ("13a", "none"):
            for lowercase in (False, True):
                metric = BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
                score = metric.corpus_score([h for h, _ in pairs], [[r for _, r in pairs]])
                signature = str(metric.get_signature())
                yield {"tokenize": tokenize, "lowercase": lowercase, "hypotheses": [h for h, _ in pairs],
                       "references": [r for _, r in pairs], "score": score.score, "precisions": score.precisions,
                       "correct": [int(c) for c in score.counts], "total": [int(t) for t in score.totals],
                       "brevity_penalty": score.bp, "sys_len": score.sys_len, "ref_len": score.ref_len,
                       "line": str(score), "signature": signature[:signature.index("version:")],
                       "tokens": [metric._preprocess_segment(h).split() for h, _ in pairs]}


def compare_with_command(fovea, seed):
    failures = count = 0
    with tempfile.TemporaryDirectory() as folder:
        hypothesis, reference = pathlib.Path(folder, "hyp"), pathlib.Path(folder, "ref")
        for case in cases(seed):
            if any("\n" in line for line in case["hypotheses"] + case["references"]):
                continue  # a file has one line a sentence
            hypothesis.write_text("".join(line + "\n" for line in case["hypotheses"]), encoding="utf-8", newline="\n")
            reference.write_text("".join(line + "\n" for line in case["references"]), encoding="utf-8", newline="\n")
            command = [fovea, "score", "bleu", "--reference", reference, "--hypothesis", hypothesis,
                       "--tokenize", case["tokenize"]] + (["--lowercase"] if case["lowercase"] else [])
            out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            count += 1
            if case["line"] not in out.splitlines():
                failures += 1
                print(f"sacrebleu: {case['line']}\nfovea:     {out}", file=sys.stderr)
    print(f"{count - failures} of {count} cases agree with sacrebleu {sacrebleu.__version__}")
    return failures == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("--fovea")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.write:
        text = json.dumps({"sacrebleu": sacrebleu.__version__, "cases": list(cases(arguments.seed))}, indent=0)
        arguments.write.write_text(text + "\n", encoding="utf-8")
    if arguments.fovea and not compare_with_command(arguments.fovea, arguments.seed):
        sys.exit(1)


if __name__ == "__main__":
    main()
