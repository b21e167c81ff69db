"""SentencePiece models in the folder of a Marian translator: `fovea tokenize` gives the ids, the bytes they stand for and the texts of sentencepiece.

Every model is trained here, on the texts of this repository: each kind of pieces with each normalisation, and with each of the
options below. Two libraries of different versions may choose different ways of the same score; such lines are counted apart.
Run by `./run test --full`, which installs sentencepiece; without it it is reported as not run."""

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import tokenizers_oracle
from oracle_options import oracle_options

KINDS = {"unigram": 800, "bpe": 800, "char": 200, "word": 400}
NORMALISATIONS = ["nmt_nfkc", "identity", "nfkc", "nmt_nfkc_cf", "nfkc_cf"]
OPTIONS = {
    "bytes": {"byte_fallback": True},
    "no blank in front": {"add_dummy_prefix": False},
    "blanks stay": {"remove_extra_whitespaces": False},
    "symbols": {"split_digits": True, "user_defined_symbols": ["<mask>", "foo bar"], "control_symbols": ["<sep>"]},
    "blanks behind": {"treat_whitespace_as_suffix": True},
    "pieces of blanks": {"allow_whitespace_only_pieces": True, "remove_extra_whitespaces": False},
    "other ids": {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": 2, "unk_surface": " ?? "},
}
ODD = ["  two  spaces ", "", "   ", "tabs\tand\u00a0nbsp", "foo bar <mask> 12345", "<sep> a <unk> </s> <s>", "<0x41> x", "⁇ q", "▁a ▁▁b"]
SPECIAL = {"<pad>", "</s>", "<unk>"}
# A text of these has several lines, and the command writes one a text.
LINE_ENDS = {"<0x0A>", "<0x0D>"}


def cases():
    for kind in KINDS:
        for normalisation in NORMALISATIONS:
            yield f"{kind}, {normalisation}", kind, {"normalization_rule_name": normalisation}
        for name, options in OPTIONS.items():
            # sentencepiece trains no model of characters with bytes.
            if (kind, name) != ("char", "bytes"):
                yield f"{kind}, {name}", kind, options


class Model:
    """A trained model, and a folder of a translator with its pieces."""

    def __init__(self, sentencepiece, fovea, folder, training, kind, options):
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(training), model_prefix=str(folder / "source"), model_type=kind,
                                                 vocab_size=KINDS[kind], hard_vocab_limit=False, num_threads=1, minloglevel=2, **options)
        (folder / "source.model").rename(folder / "source.spm")
        (folder / "target.spm").write_bytes((folder / "source.spm").read_bytes())
        self.theirs = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
        self.ids = {self.theirs.id_to_piece(i): i for i in range(self.theirs.get_piece_size())}
        for piece in sorted(SPECIAL):
            self.ids.setdefault(piece, len(self.ids))
        self.pieces = {i: piece for piece, i in self.ids.items()}
        (folder / "vocab.json").write_text(json.dumps(self.ids))
        self.fovea, self.folder = fovea, folder

    def run(self, lines, *options):
        source = self.folder / "lines.txt"
        source.write_text("".join(line + "\n" for line in lines), newline="")
        done = subprocess.run([self.fovea, "tokenize", "--model", self.folder, "--input", source, *options], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        answers = done.stdout.decode().split("\n")[:-1]
        assert len(answers) == len(lines), f"{len(answers)} answers to {len(lines)} lines"
        return answers

    def encoded(self, line):
        return [self.ids.get(piece, self.ids["<unk>"]) for piece in self.theirs.encode(line, out_type=str)]

    def tied(self, a, b):
        """Whether both ways have the same score, as far as their floats say, and as many unknown pieces."""
        score_a, score_b = (sum(self.theirs.get_score(self.theirs.piece_to_id(self.pieces[i])) for i in ids) for ids in (a, b))
        unknown = self.ids["<unk>"]
        return a.count(unknown) == b.count(unknown) and abs(score_a - score_b) <= 2e-6 * abs(score_a)

    def compare_ids(self, lines):
        """The number of ties, and the lines that differ."""
        ties, wrong = 0, []
        for line, answer in zip(lines, self.run(lines, "--plain")):
            ours, wanted = [int(i) for i in answer.split()], self.encoded(line)
            if ours == wanted:
                continue
            if self.tied(ours, wanted):
                ties += 1
            else:
                wrong.append((line, wanted, ours))
        return ties, wrong

    def compare_offsets(self, lines):
        """The lines whose ids stand for other bytes. sentencepiece gives those of a character to the last of its bytes."""
        wrong = []
        for line, answer in zip(lines, self.run([json.dumps(line) for line in lines], "--plain", "--json")):
            ours, theirs = json.loads(answer), self.theirs.encode(line, return_type="proto")
            if ours["ids"] != [self.ids.get(piece.piece, self.ids["<unk>"]) for piece in theirs.pieces]:
                continue  # a tie
            wanted = [[piece.begin, piece.end] for piece in theirs.pieces]
            for i in range(len(wanted) - 1, 0, -1):
                begin, end = wanted[i - 1]
                if begin == end == wanted[i][0] and all(self.theirs.is_byte(piece.id) for piece in theirs.pieces[i - 1 : i + 1]):
                    wanted[i - 1] = wanted[i]
            if ours["offsets"] != wanted:
                wrong.append((line, wanted, ours["offsets"]))
        return wrong

    def compare_texts(self, sequences):
        """How many sequences were compared, and those whose texts differ."""
        left_out = SPECIAL | LINE_ENDS
        sequences = [[i for i in ids if self.pieces[i] not in left_out] for ids in sequences]
        sequences = [ids for ids in sequences if ids]
        texts = self.run([" ".join(map(str, ids)) for ids in sequences], "--decode")
        wanted = [self.theirs.decode_pieces([self.pieces[i] for i in ids]).replace("▁", " ").strip(" ") for ids in sequences]
        return len(sequences), [(ids, want, text) for ids, want, text in zip(sequences, wanted, texts) if want != text]


def main():
    arguments = oracle_options("sentencepiece")
    import sentencepiece

    training = tokenizers_oracle.training_lines()[:6000]
    generator = random.Random(5)
    failed = inputs = all_ties = 0
    for line, kind, options in cases():
        if arguments.only not in line:
            continue
        lines = [*training[::25], *ODD, *tokenizers_oracle.mixed_lines(generator, 400)]
        # A language code, and a text of several lines.
        lines = [text for text in lines if not text.startswith(">>") and "\n" not in text and "\r" not in text]
        with tempfile.TemporaryDirectory() as folder:
            model = Model(sentencepiece, arguments.fovea, Path(folder), training, kind, options)
            try:
                ties, wrong = model.compare_ids(lines)
                wrong_places = model.compare_offsets(lines)
                drawn = [[generator.randrange(len(model.ids)) for _ in range(generator.randint(1, 12))] for _ in range(300)]
                count, wrong_texts = model.compare_texts([*map(model.encoded, lines), *drawn])
            except AssertionError as error:
                failed += 1
                print(f"{line} | FAILS: {str(error)[:300]}")
                continue
        inputs += len(lines) + count
        all_ties += ties
        failed += bool(wrong or wrong_texts or wrong_places)
        print(f"{line} | differing ids: {len(wrong)} of {len(lines)}, and {ties} ties; other bytes: {len(wrong_places)}; texts: "
              f"{len(wrong_texts)} of {count}")
        for example in [*wrong[:2], *wrong_places[:2], *wrong_texts[:2]]:
            print("   ", *map(ascii, example))
    print(f"{inputs} inputs, {all_ties} of them ties")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
