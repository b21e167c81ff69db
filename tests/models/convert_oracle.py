"""Folders that `fovea convert` writes: transformers loads them without a complaint, with the same weights and the same texts.

Small random models of every family, as in families_oracle.py, and a translator and a language model that fovea trains for a moment. Run by
`./run test --full`, which installs torch and transformers; without them it is reported as not run."""

import json
import sys

import families_oracle
import oracle_main
from families_cases import DECODERS, ENCODERS, SIDES, T5, TRANSLATORS

TRANSLATORS_WITH_HEADS = [("Bart", "BartForSequenceClassification", SIDES), ("MBart", "MBartForQuestionAnswering", SIDES),
                          ("T5", "T5ForSequenceClassification", T5), ("T5", "T5ForQuestionAnswering", T5)]


class Oracle(families_oracle.Oracle):
    def loaded(self, name, folder, dtype):
        """The model of a folder; its class must miss nothing and be left with nothing."""
        model, info = getattr(self.transformers, name).from_pretrained(folder, output_loading_info=True, dtype=dtype)
        for key in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
            assert not info.get(key), f"{folder.name}: {key} {info[key]}"
        return model.eval()

    def same_weights(self, what, model, other):
        ours, theirs = model.state_dict(), other.state_dict()
        assert ours.keys() == theirs.keys(), f"{what}: {set(ours) ^ set(theirs)}"
        for key, value in theirs.items():
            assert ours[key].dtype == value.dtype and self.torch.equal(ours[key], value), f"{what}: {key} differs"

    def check_folder(self, family, name, config, seed):
        torch = self.torch
        model, folder = self.make(family, name, config, seed)
        for type, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16), ("f16", torch.float16)):
            model.to(dtype).save_pretrained(self.folder / ("their-" + type))
            self.run("convert", "--model", folder, "--output", self.folder / type, "--dtype", type)
            self.same_weights(type, self.loaded(name, self.folder / type, "auto"), self.loaded(name, self.folder / ("their-" + type), "auto"))
            model = self.loaded(name, folder, torch.float32)
        self.run("convert", "--model", self.folder / "bf16", "--output", self.folder / "same")
        data = [(self.folder / side / "model.safetensors").read_bytes() for side in ("bf16", "same")]
        assert data[0] == data[1], "a second conversion has other bytes"
        path = folder / "config.json"
        path.write_text(json.dumps(families_oracle.as_before(json.loads(path.read_text()))))
        self.run("convert", "--model", folder, "--output", self.folder / "older")
        self.same_weights("keys of transformers 4", self.loaded(name, self.folder / "older", torch.float32), model)
        written = json.loads((self.folder / "older" / "config.json").read_text())
        assert not {"rope_theta", "rope_scaling", "torch_dtype"} & written.keys(), f"old keys stay: {written}"

    def check_translator_of_ours(self):
        """The same greedy translations of texts, by our folder, by the one that is converted, and by transformers."""
        data, folder, marian = self.folder / "data", self.folder / "ours", self.folder / "marian"
        self.run("corpus", "generated", "--output", data, "--count", 400, "--held-out", 10, "--max-words", 8)
        self.run("train", "--model", "transformer", "--dim", 32, "--dim-ffn", 48, "--heads", 4, "--layers", 2, "--tokenizer", "bpe", "--vocab-size", 300,
                 "--mini-batch-words", 500, "--max-updates", 600, "--lr-warmup", 100, "--learn-rate", 0.003, "--train-source", f"{data}.train.en", "--train-target", f"{data}.train.fr",
                 "--valid-source", f"{data}.valid.en", "--valid-target", f"{data}.valid.fr", "--norm", "post", "--output", folder, "--cpu-threads", 1)
        self.run("convert", "--model", folder, "--output", marian)
        model = self.loaded("MarianMTModel", marian, self.torch.float32)
        tokenizer = self.transformers.MarianTokenizer.from_pretrained(marian)
        texts = (self.folder / "data.valid.en").read_text().splitlines()
        options = ("--input", f"{data}.valid.en", "--beam-size", 1, "--max-length-factor", 1)
        ours = [self.run("translate", "--model", side, *options).splitlines() for side in (folder, marian)]
        assert ours[0] == ours[1], f"{ours[0]}, converted {ours[1]}"
        for text, mine in zip(texts, ours[0]):
            ids = tokenizer(text, return_tensors="pt").input_ids
            with self.torch.no_grad():
                written = model.generate(ids, do_sample=False, num_beams=1, max_new_tokens=ids.shape[1] - 1 + 10)
            theirs = tokenizer.decode(written[0], skip_special_tokens=True)
            assert mine == theirs, f"{text!r}: {mine!r}, there {theirs!r}"

    def check_language_model_of_ours(self):
        """The same ids; its folder is a Starcoder2ForCausalLM as it is."""
        folder, text = self.folder / "language", self.folder / "text"
        text.write_text("".join(f"the cat number {n % 7} sat on mat {n % 5} .\n" for n in range(400)))
        self.run("train", "--model", "language", "--train-text", text, "--valid-text", text, "--dim", 32, "--dim-ffn", 48, "--heads", 4, "--layers", 2, "--max-updates", 20,
                 "--output", folder, "--cpu-threads", 1)
        model = self.loaded("Starcoder2ForCausalLM", folder, self.torch.float32)
        ids = [5, 6, 7]
        ours = json.loads(self.run("generate", "--model", folder, "--prompt-ids", "5 6 7", "--greedy", "--json", "--max-new-tokens", 12))["ids"]
        with self.torch.no_grad():
            theirs = model.generate(self.torch.tensor([ids]), do_sample=False, max_new_tokens=12, eos_token_id=None)[0, 3:].tolist()
        assert ours == theirs, f"{ours}, there {theirs}"


def cases():
    classes = {case[1]: case for case in [*DECODERS, *ENCODERS, *TRANSLATORS, *TRANSLATORS_WITH_HEADS]}.values()  # one for each class
    for seed, (family, name, config) in enumerate(classes):
        yield families_oracle.describe(name, config), Oracle, "check_folder", (family, name, config, seed)
    for kind in ("translator", "language model"):
        yield f"a {kind} of ours", Oracle, f"check_{kind.replace(' ', '_')}_of_ours", ()


if __name__ == "__main__":
    sys.exit(oracle_main.main(cases()))
