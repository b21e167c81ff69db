"""What texts_oracle.py makes: folders of transformers with their tokenizers, and comparisons with what runs there."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RELATIVE = 2e-5  # as in families_oracle.py
TEXTS = ["The license of this library", "Größe, naïve — 漢字 and 123 words!", "one", "  two   blanks, and a longer text that goes on and on  "]


def lines():
    return [line for path in sorted(ROOT.glob("docs/*.md")) for line in path.read_text().splitlines() if line.strip()]


class Folders:
    """Small random models and tokenizers that are trained here, and the command that runs them."""

    def __init__(self, fovea, folder):
        import numpy
        import torch
        import transformers

        self.numpy, self.torch, self.transformers = numpy, torch, transformers
        self.fovea, self.folder = fovea, Path(folder)

    def run(self, *arguments, fails=False):
        done = subprocess.run([self.fovea, *map(str, arguments)], capture_output=True, check=False)
        said, errors = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")  # a carriage return stays one
        assert (done.returncode != 0) == fails, f"fovea {' '.join(map(str, arguments))}: {errors}"
        return errors if fails else said

    def tokenizer(self, kind):
        """A trained tokenizer, as the class of transformers that keeps its pipeline."""
        from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

        if kind == "bytes":
            tokenizer = Tokenizer(models.BPE())
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            tokenizer.decoder = decoders.ByteLevel()
            trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=["<pad>", "<s>", "</s>"], show_progress=False,
                                          initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
            names = dict(pad_token="<pad>", bos_token="<s>", eos_token="</s>")
            template = ("<s> $A", "<s> $A $B")
        elif kind == "words":
            tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
            tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
            tokenizer.decoder = decoders.WordPiece()
            trainer = trainers.WordPieceTrainer(vocab_size=600, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False)
            names = dict(pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]")
            template = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")
        else:
            tokenizer = Tokenizer(models.Unigram())
            tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
            trainer = trainers.UnigramTrainer(vocab_size=600, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False)
            names = dict(pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
            template = ("$A </s>", "$A </s> $B </s>")
        tokenizer.train_from_iterator(lines(), trainer)
        special = sorted({token for token in template[0].replace("$A", "").split()})
        tokenizer.post_processor = processors.TemplateProcessing(
            single=template[0], pair=template[1], special_tokens=[(token, tokenizer.token_to_id(token)) for token in special])
        return self.transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)

    def make(self, family, name, tokenizer, **config):
        torch = self.torch
        torch.manual_seed(7)
        settings = getattr(self.transformers, family + "Config")(vocab_size=len(tokenizer) + 5, **config)
        model = getattr(self.transformers, name)(settings).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 1:
                    parameter += 0.2 * torch.randn_like(parameter)
        folder = self.folder / name
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return model, folder

    def compare(self, what, ours, theirs):
        assert ours.shape == theirs.shape, f"{what}: shape {ours.shape}, there {theirs.shape}"
        error = float(abs(ours - theirs).max() / abs(theirs).max())
        assert error <= RELATIVE, f"{what} differ by {error:.1e} of the largest"

    def texts_file(self, texts=TEXTS):
        path = self.folder / "texts.txt"
        path.write_text("".join(text + "\n" for text in texts))
        return path
