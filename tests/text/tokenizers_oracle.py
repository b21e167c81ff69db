"""Tokenizers of the `tokenizers` package: fovea gives the same ids, offsets, special marks and decoded texts.

Every tokenizer is trained here, on the texts of this repository, and written to a tokenizer.json that fovea reads. Then both
read the same lines: of the repository, of mixed scripts with added tokens and odd blanks, and of random characters. Run by
`./run test --full`, which installs tokenizers and sentencepiece; without them it is reported as not run."""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

from oracle_options import oracle_options

ROOT = Path(__file__).resolve().parents[2]
LINES = 110_000  # of all cases together, of which 4 % have a character that the two know otherwise
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
HAN_APART = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}&&[^\p{Han}]]+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|[\s&&[^\r\n]]+|\s+"  # intersections, as in Kimi's
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
WORDS = r"\w+|\b[^\w\s]+\b|\d{2,}"

SCRIPTS = ["abcdefghij ABCDEFGHIJ", "äöüßéèñçøåæœ ÀÉÎÕÜİıŁŞ", "αβγδεζηθςσ ΑΒΓΔΣ", "абвгдежзий АБВГДЕЁ", "אבגדהוזחטי", "ابتثجحخدذر ًٌَّ",
           "अआइकखगघ्ािी", "กขคงจฉ่้า", "一丁万三上下不世中丫漢字", "ひらがなカタカナーヽ", "한국어가각간ᄀ까ᅢᆨ", "0123456789٠١٢٣四½²Ⅷ", ".,;:!?'\"()[]{}<>-–—…¿¡。、",
           "\u0300\u0301\u0308\u0323\u0327\u0344\u0f73\u1ea5", "😀👍🏽👨\u200d👩\u200d👧🇩🇪❤\ufe0f", "\t\u00a0\u2003\u3000\u200b\u2028\ufeff\u00ad\u0085\x0b", "ﬁﬂ①㎏ｱｲｶﾞ＂Ａ㍿ſ",
           "$€£+=^`|~<>@#&*%\\/_"]
ADDED = ["<mask>", "[SPECIAL]", "hello world", "Tür", "<|end|>"]


def training_lines():
    lines = []
    for path in sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md"), *ROOT.glob("src/text/*.cpp")]):
        lines += [line for line in path.read_text().splitlines() if line.strip()]
    return lines


def build_cases(charsmap):
    """Name: (tokenizer, trainer, what is done to the tokenizer after its training)."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    N, P, D, R = normalizers, pre_tokenizers, decoders, processors

    def add(tokenizer):
        tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True), AddedToken("<|end|>", rstrip=True, special=True)])
        tokenizer.add_tokens([AddedToken("hello world", single_word=True), AddedToken("Tür", normalized=True),
                              AddedToken("[SPECIAL]", normalized=False)])

    def make(model, trainer, normalizer=None, pre=None, decoder=None, after=None):
        tokenizer = Tokenizer(model)
        if normalizer is not None:
            tokenizer.normalizer = normalizer
        if pre is not None:
            tokenizer.pre_tokenizer = pre
        if decoder is not None:
            tokenizer.decoder = decoder

        def finish(trained):
            add(trained)
            if after:
                after(trained)
            return trained

        return tokenizer, trainer, finish

    def template(single, pair, *special):
        def set_template(tokenizer):
            tokens = [(token, tokenizer.token_to_id(token)) for token in special]
            tokenizer.post_processor = R.TemplateProcessing(single=single, pair=pair, special_tokens=tokens)
        return set_template

    bert_special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    bert_template = template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", "[CLS]", "[SEP]")

    def bert(**options):
        return make(models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer(vocab_size=3000, special_tokens=bert_special, show_progress=False),
                    N.BertNormalizer(**options), P.BertPreTokenizer(), D.WordPiece(), bert_template)

    def byte_bpe(pre, normalizer=None, after=None, decoder=None, special=("<s>", "</s>"), **model):
        trainer = trainers.BpeTrainer(vocab_size=4000, special_tokens=list(special), initial_alphabet=P.ByteLevel.alphabet(), show_progress=False,
                                      **({"end_of_word_suffix": model["end_of_word_suffix"]} if "end_of_word_suffix" in model else {}))
        return make(models.BPE(**model), trainer, normalizer, pre, decoder or D.ByteLevel(), after)

    def split(pattern, behavior="isolated", **options):
        return P.Sequence([P.Split(Regex(pattern), behavior, **options), P.ByteLevel(add_prefix_space=False, use_regex=False)])

    def processor(make_processor):
        def set_processor(tokenizer):
            tokenizer.post_processor = make_processor(tokenizer)
        return set_processor

    def llama3_processor(tokenizer):
        return R.Sequence([R.ByteLevel(trim_offsets=False),
                           R.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])])

    def roberta(tokenizer):
        return R.RobertaProcessing(("</s>", tokenizer.token_to_id("</s>")), ("<s>", tokenizer.token_to_id("<s>")), trim_offsets=True, add_prefix_space=True)

    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]

    def char_bpe(normalizer, pre, decoder, **model):
        return make(models.BPE(unk_token="<unk>", byte_fallback=True, **model),
                    trainers.BpeTrainer(vocab_size=4000, special_tokens=["<unk>", "<s>", "</s>", *byte_tokens], limit_alphabet=300, show_progress=False),
                    normalizer, pre, decoder, template("<s> $A", "<s> $A <s>:1 $B:1", "<s>"))

    def unigram(normalizer, pre, decoder, after=None, special=("<pad>", "</s>", "<unk>", "<s>")):
        return make(models.Unigram(), trainers.UnigramTrainer(vocab_size=3000, special_tokens=list(special), unk_token="<unk>", show_progress=False),
                    normalizer, pre, decoder, after)

    def with_bytes(tokenizer):
        state = json.loads(tokenizer.to_str())
        state["model"]["byte_fallback"] = True
        state["model"]["vocab"] += [[token, -20.0] for token in byte_tokens]
        return Tokenizer.from_str(json.dumps(state))

    def word_level():
        return make(models.WordLevel(unk_token="[UNK]"), trainers.WordLevelTrainer(vocab_size=3000, special_tokens=["[UNK]"], show_progress=False),
                    N.Sequence([N.NFKD(), N.StripAccents(), N.Strip(left=False), N.Replace(Regex(r"[‘’]"), "'")]), P.Whitespace())

    def shapes():
        return make(models.BPE(unk_token="?", continuing_subword_prefix="##", fuse_unk=False),
                    trainers.BpeTrainer(vocab_size=2000, special_tokens=["?"], continuing_subword_prefix="##", limit_alphabet=90, show_progress=False),
                    N.Sequence([N.NFD(), N.Strip(right=False), N.Lowercase()]),
                    P.Sequence([P.WhitespaceSplit(), P.CharDelimiterSplit("|"), P.Digits(individual_digits=False), P.Punctuation("contiguous"),
                                P.Split(Regex(r"\p{Lu}"), "merged_with_next"), P.Split("-", "merged_with_previous"), P.FixedLength(9)]))

    return {
        "BERT, lower case": bert(),
        "BERT, cased": bert(lowercase=False, handle_chinese_chars=False),
        "BERT, accents kept": bert(strip_accents=False, clean_text=False),
        "BertProcessing": make(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=12),
                               trainers.WordPieceTrainer(vocab_size=2000, special_tokens=bert_special, show_progress=False), N.NFC(),
                               P.Sequence([P.Whitespace(), P.Digits(individual_digits=True)]), D.WordPiece(cleanup=False),
                               processor(lambda t: R.BertProcessing(("[SEP]", t.token_to_id("[SEP]")), ("[CLS]", t.token_to_id("[CLS]"))))),
        "GPT-2": byte_bpe(P.ByteLevel(add_prefix_space=False), after=processor(lambda t: R.ByteLevel(trim_offsets=True))),
        "RoBERTa": byte_bpe(P.ByteLevel(add_prefix_space=True), after=processor(roberta)),
        "Llama 3": byte_bpe(split(LLAMA3), after=processor(llama3_processor), ignore_merges=True),
        "Qwen 2": byte_bpe(split(QWEN2), N.NFC()),
        "o200k": byte_bpe(split(O200K)),
        "Han apart": byte_bpe(split(HAN_APART)),
        "words and digits": byte_bpe(split(WORDS, "removed", invert=True), N.NFKC()),
        "CLIP": byte_bpe(P.Sequence([P.Split(Regex(CLIP), "removed", invert=True), P.ByteLevel(add_prefix_space=False)]),
                         N.Sequence([N.NFC(), N.Replace(Regex(r"\s+"), " "), N.Lowercase()]), processor(roberta),
                         D.Sequence([D.ByteLevel(), D.Replace("</w>", " ")]), unk_token="<s>", end_of_word_suffix="</w>"),
        "byte-level normaliser": byte_bpe(None, N.Sequence([N.Prepend(" "), N.ByteLevel()])),
        "Llama 2": char_bpe(N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")]), None,
                            D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)]), fuse_unk=True),
        "Mistral": char_bpe(None, P.Metaspace(prepend_scheme="first", split=False), D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse()])),
        "Gemma": char_bpe(N.Replace(" ", "▁"), P.Split(" ", "merged_with_previous"), D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse()])),
        "T5": unigram(N.Precompiled(charsmap), P.Sequence([P.WhitespaceSplit(), P.Metaspace()]), D.Metaspace(),
                      template("$A </s>", "$A </s> $B </s>", "</s>")),
        "XLM-R": unigram(N.Sequence([N.Precompiled(charsmap), N.Replace(Regex(" {2,}"), " ")]), P.Metaspace(), D.Metaspace(),
                         template("<s> $A </s>", "<s> $A </s> </s> $B </s>", "<s>", "</s>")),
        "Unigram with bytes": unigram(N.Sequence([N.Nmt(), N.NFKC(), N.Strip()]), P.Metaspace(prepend_scheme="never"),
                                      D.Sequence([D.ByteFallback(), D.Metaspace(prepend_scheme="never")]), with_bytes),
        "word level": word_level(),
        "BPE with prefix": shapes(),
    }


def mixed_lines(generator, count):
    """Words of several scripts with blanks, punctuation and added tokens between and inside them."""
    words = [word for line in training_lines() for word in line.split()]
    lines = []
    while len(lines) < count:
        parts = []
        for _ in range(generator.randrange(1, 12)):
            kind = generator.random()
            if kind < 0.3:
                parts.append(generator.choice(words))
            elif kind < 0.4:
                parts.append(generator.choice(ADDED))
            else:
                letters = generator.choice(SCRIPTS)
                parts.append("".join(generator.choice(letters) for _ in range(generator.randrange(1, 9))))
            parts.append(generator.choice(["", " ", " ", " ", "  ", "\n", "\t", "\r\n"]))
        lines.append("".join(parts))
    return lines


def random_lines(generator, points, count):
    return ["".join(generator.choice(points) for _ in range(generator.randrange(1, 20))) for _ in range(count)]


class Oracle:
    def __init__(self, fovea, folder):
        self.fovea, self.folder = fovea, Path(folder)

    def run(self, *arguments):
        done = subprocess.run([self.fovea, "tokenize", *map(str, arguments)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"fovea tokenize {' '.join(map(str, arguments))}: {done.stderr}"

    def save(self, tokenizer):
        path = self.folder / "tokenizer.json"
        tokenizer.save(str(path))
        return path

    def encode(self, path, texts, *options):
        """fovea's encodings, with offsets in characters as Python has them."""
        given, output = self.folder / "texts.jsonl", self.folder / "encodings.jsonl"
        given.write_text("".join(json.dumps(text, ensure_ascii=False) + "\n" for text in texts))
        self.run("--model", path, "--json", "--input", given, "--output", output, *options)
        encodings = [json.loads(line) for line in output.read_text().split("\n")[:-1]]
        assert len(encodings) == len(texts)
        for text, encoding in zip(texts, encodings):
            pair = [text] if isinstance(text, str) else text
            at = []
            for part in pair:
                places, index = {}, 0
                for index, letter in enumerate(part):
                    places[len(places)] = index
                    for _ in range(len(letter.encode()) - 1):
                        places[len(places)] = None
                places[len(places)] = len(part)
                at.append(places)
            encoding["offsets"] = [tuple(at[max(which, 0)][byte] for byte in place)
                                   for place, which in zip(encoding["offsets"], encoding["texts"])]
        return encodings

    def decode(self, path, ids, *options):
        given, output = self.folder / "ids.txt", self.folder / "texts.txt"
        given.write_text("".join(" ".join(map(str, line)) + "\n" for line in ids))
        self.run("--model", path, "--json", "--decode", "--input", given, "--output", output, *options)
        return [json.loads(line) for line in output.read_text().split("\n")[:-1]]


def differences(oracle, tokenizer, texts, examples):
    """How many texts differ in ids, in offsets and marks, in the decoded text."""
    path = oracle.save(tokenizer)
    theirs = tokenizer.encode_batch([text if isinstance(text, str) else tuple(text) for text in texts])
    ours = oracle.encode(path, texts, "--limits")
    count = {"ids": 0, "offsets": 0, "texts": 0}
    for text, mine, other in zip(texts, ours, theirs):
        if mine["ids"] != other.ids:
            count["ids"] += 1
            examples.append((text, "ids", mine["ids"], other.ids))
        elif (mine["offsets"] != other.offsets or mine["types"] != other.type_ids or mine["special"] != other.special_tokens_mask):
            count["offsets"] += 1
            examples.append((text, "offsets", mine["offsets"], other.offsets))
    ids = [encoding.ids for encoding in theirs]
    for skip in (True, False):
        decoded = oracle.decode(path, ids, *([] if skip else ["--keep-special"]))
        for mine, line in zip(decoded, ids):
            other = tokenizer.decode(line, skip_special_tokens=skip) if line else ""
            if mine != other:
                count["texts"] += 1
                examples.append((line, "texts", mine, other))
    return count


def check_writer(oracle, tokenizer):
    """What fovea writes is the same JSON, and fovea reads it."""
    path, written = oracle.save(tokenizer), oracle.folder / "written.json"
    oracle.run("--model", path, "--write", written)
    assert json.loads(written.read_text()) == json.loads(path.read_text()), "the written tokenizer.json differs"
    again = oracle.folder / "again.json"
    oracle.run("--model", written, "--write", again)
    assert again.read_text() == written.read_text()


def agreed_points(oracle):
    """The assigned characters that both sides know alike. Their tables are of different versions of Unicode: libutf8proc's and
    libpcre2's of 14, those of the libraries under `tokenizers` of 8 to 17."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    N, P = normalizers, pre_tokenizers
    bytes_as_tokens = {token: id for id, token in enumerate(sorted(P.ByteLevel.alphabet()))}

    def probe(normalizer, pre=None):
        """Without a pre-tokeniser every byte is a token, so that ids show what the normaliser made."""
        tokenizer = Tokenizer(models.WordLevel({**bytes_as_tokens, "[?]": 256}, unk_token="[?]"))
        tokenizer.normalizer = normalizer if pre else N.Sequence([normalizer, N.ByteLevel()])
        tokenizer.pre_tokenizer = pre or P.Split(Regex("(?:.|\n)"), "isolated")
        return tokenizer

    every = [chr(point) for point in range(0x110000)
             if unicodedata.category(chr(point)) not in ("Cs", "Cn", "Co") or point in (0xE000, 0xF8FF, 0x378)]
    probes = {
        "NFC": probe(N.NFC()),
        "NFD": probe(N.NFD()),
        "NFKC": probe(N.NFKC()),
        "NFKD": probe(N.NFKD()),
        "lower case": probe(N.Lowercase()),
        "BertNormalizer": probe(N.BertNormalizer()),
        "StripAccents": probe(N.StripAccents()),
        "punctuation": probe(None, P.BertPreTokenizer()),
        "digits": probe(None, P.Digits()),
        "words, blanks": probe(None, P.Sequence([P.Whitespace(), P.WhitespaceSplit()])),
        "\\p{L}, \\p{N}, \\s": probe(None, P.Split(Regex(LLAMA3), "isolated")),
        "letters by case, marks": probe(None, P.Split(Regex(O200K), "isolated")),
        "\\w": probe(None, P.Split(Regex(WORDS), "isolated")),
        "\\d": probe(None, P.Split(Regex(r"\d+"), "isolated")),
    }
    texts = ["a" + point + "1" for point in every]
    bad = set()
    for name, tokenizer in probes.items():
        ours = oracle.encode(oracle.save(tokenizer), texts)
        theirs = tokenizer.encode_batch(texts)
        wrong = {point for point, mine, other in zip(every, ours, theirs) if mine["ids"] != other.ids or mine["offsets"] != other.offsets}
        print(f"{name}: {len(wrong)} of {len(every)} characters are known otherwise, "
              f"of those below U+3000 {sorted(hex(ord(point)) for point in wrong if ord(point) < 0x3000)[:40]}")
        bad |= wrong
    return [point for point in every if point not in bad], bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=LINES)
    arguments = oracle_options("tokenizers", "sentencepiece", parser=parser)
    import sentencepiece

    generator = random.Random(11)
    training = training_lines()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        oracle = Oracle(arguments.fovea, folder)
        points, bad = agreed_points(oracle)
        charsmap = charsmap_of(sentencepiece, training, Path(folder))
        cases = build_cases(charsmap)
        each = arguments.lines // len(cases)
        for name, (tokenizer, trainer, finish) in cases.items():
            if arguments.only not in name:
                continue
            tokenizer.train_from_iterator(training, trainer)
            tokenizer = finish(tokenizer) or tokenizer
            texts = ["", " ", *generator.sample(training, min(len(training), each // 4)), *mixed_lines(generator, each // 2)]
            texts += random_lines(generator, points, each - len(texts))
            texts = [text for text in texts if not bad.intersection(text)]
            pairs = [[a, b] for a, b in zip(texts[:-1:20], texts[1::20])]
            examples = []
            try:
                count = differences(oracle, tokenizer, texts, examples)
                paired = differences(oracle, tokenizer, pairs, examples)
                check_writer(oracle, tokenizer)
                tokenizer.enable_truncation(9, strategy="longest_first", direction="left" if each % 2 else "right")
                tokenizer.enable_padding(length=12, direction="left", pad_id=1, pad_type_id=1)
                cut = differences(oracle, tokenizer, [*texts[:300], *pairs[:300]], examples)
                check_writer(oracle, tokenizer)
            except AssertionError as error:
                failed += 1
                print(f"{name} | FAILS: {str(error)[:400]}")
                continue
            wrong = sum([*count.values(), *paired.values(), *cut.values()])
            failed += wrong > 0
            print(f"{name} | differing of {len(texts)} lines: {count}; of {len(pairs)} pairs: {paired}; cut and padded: {cut}")
            for example in examples[:3]:
                print("   ", *map(ascii, example))
    return 1 if failed else 0


def charsmap_of(sentencepiece, lines, folder):
    """SentencePiece's table nmt_nfkc, out of a model that it trains."""
    model = folder / "spm"
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_prefix=str(model), vocab_size=2000, minloglevel=2,
                                             hard_vocab_limit=False, normalization_rule_name="nmt_nfkc", train_extremely_large_corpus=False)
    blob = (folder / "spm.model").read_bytes()
    # The normalizer_spec (field 3 of the model) has the charsmap as its field 2.
    return field_of(field_of(blob, 3), 2)


def field_of(message, wanted):
    """The bytes of the first field of that number of a protocol buffer."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 2:
            size = varint()
            if key >> 3 == wanted:
                return message[at : at + size]
            at += size
        elif key & 7 == 5:
            at += 4
        elif key & 7 == 1:
            at += 8
        else:
            varint()
    raise AssertionError(f"no field {wanted}")


if __name__ == "__main__":
    sys.exit(main())
