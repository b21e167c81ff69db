"""Heads over the last hidden states: labels of texts and of words, answers, masked words and ranks, as transformers computes them.

Small random models, as in families_oracle.py: the logits of every family and head, every key of their configs, and the commands beside
transformers' pipelines and sentence-transformers' CrossEncoder. Run by `./run test --full`, which installs torch and transformers; without
them it is reported as not run."""

import json
import sys

import families_oracle
import oracle_main
import texts_oracle
from families_cases import (BERT, BLOOM, DISTIL, FALCON, GPT2, GROUPED, HYBRID, MODERN, MPT, NARROW, NEO, NEOX, OPT, ROBERTA, SIDES,
                            SIZES, T5)

LABELS = {"id2label": {0: "O", 1: "B-PER", 2: "I-PER", 3: "LOC"}, "label2id": {"O": 0, "B-PER": 1, "I-PER": 2, "LOC": 3}}
SEQUENCE, TOKENS, ANSWER = "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"
# Family, config and heads.
FAMILIES = [
    ("Bert", BERT, (SEQUENCE, TOKENS, ANSWER)),
    ("DistilBert", DISTIL, (SEQUENCE, TOKENS, ANSWER)),
    ("Roberta", ROBERTA, (SEQUENCE, TOKENS, ANSWER)),
    ("XLMRoberta", dict(ROBERTA, hidden_act="relu"), (SEQUENCE, TOKENS, ANSWER)),
    ("Camembert", ROBERTA, (SEQUENCE, TOKENS, ANSWER)),
    ("Data2VecText", ROBERTA, (SEQUENCE, TOKENS, ANSWER)),
    ("RobertaPreLayerNorm", ROBERTA, (SEQUENCE, TOKENS, ANSWER)),
    ("MPNet", ROBERTA, (SEQUENCE, TOKENS, ANSWER)),
    ("Electra", NARROW, (SEQUENCE, TOKENS, ANSWER)),
    ("Albert", NARROW, (SEQUENCE, TOKENS, ANSWER)),
    ("ModernBert", MODERN, (SEQUENCE, TOKENS, ANSWER)),
    ("ModernBert", dict(MODERN, classifier_pooling="mean", classifier_bias=True, norm_bias=True, classifier_activation="silu",
                        decoder_bias=False), (SEQUENCE, TOKENS)),
    ("GPT2", GPT2, (SEQUENCE, TOKENS, ANSWER)),
    ("Llama", GROUPED, (SEQUENCE, TOKENS, ANSWER)),
    ("Mistral", dict(GROUPED, sliding_window=5), (SEQUENCE, TOKENS, ANSWER)),
    ("Qwen2", GROUPED, (SEQUENCE, TOKENS, ANSWER)),
    ("Qwen3", dict(GROUPED, head_dim=16), (SEQUENCE, TOKENS, ANSWER)),
    ("SmolLM3", GROUPED, (SEQUENCE, TOKENS, ANSWER)),
    ("Starcoder2", GROUPED, (SEQUENCE, TOKENS)),
    ("Gemma", dict(GROUPED, head_dim=16), (SEQUENCE, TOKENS)),
    ("Gemma2", dict(GROUPED, head_dim=16, sliding_window=5), (SEQUENCE, TOKENS)),
    ("Gemma3Text", dict(GROUPED, head_dim=16, sliding_window=5), (SEQUENCE,)),
    ("Qwen3_5Text", HYBRID, (SEQUENCE,)),
    ("Bart", SIDES, (SEQUENCE, ANSWER)),
    ("Bart", dict(SIDES, decoder_start_token_id=9, scale_embedding=True, decoder_attention_heads=2), (SEQUENCE, ANSWER)),
    ("MBart", SIDES, (SEQUENCE, ANSWER)),
    ("T5", T5, (SEQUENCE, ANSWER)),
    ("T5", dict(T5, decoder_start_token_id=9, feed_forward_proj="gated-gelu", tie_word_embeddings=False), (SEQUENCE, ANSWER)),
    ("MT5", T5, (SEQUENCE, ANSWER)),
    ("UMT5", T5, (SEQUENCE, ANSWER)),
    ("Phi3", GROUPED, (SEQUENCE, TOKENS)),
    ("Glm", dict(GROUPED, head_dim=16), (SEQUENCE, TOKENS)),
    ("Glm4", dict(GROUPED, head_dim=16), (SEQUENCE, TOKENS)),
    ("Helium", dict(GROUPED, head_dim=8), (SEQUENCE, TOKENS)),
    ("StableLm", GROUPED, (SEQUENCE, TOKENS)),
    ("Ministral", dict(GROUPED, head_dim=8, sliding_window=5), (SEQUENCE, TOKENS, ANSWER)),
    ("Exaone4", dict(GROUPED, sliding_window=5), (SEQUENCE, TOKENS, ANSWER)),
    ("SeedOss", dict(GROUPED, head_dim=8), (SEQUENCE, TOKENS, ANSWER)),
    ("GPTNeo", NEO, (SEQUENCE, TOKENS, ANSWER)),
    ("OPT", OPT, (SEQUENCE, ANSWER)),
    ("GPTNeoX", NEOX, (SEQUENCE, TOKENS, ANSWER)),
    ("Arcee", GROUPED, (SEQUENCE, TOKENS, ANSWER)),
    ("Nemotron", GROUPED, (SEQUENCE, TOKENS, ANSWER)),
    ("Bloom", BLOOM, (SEQUENCE, TOKENS, ANSWER)),
    ("Mpt", MPT, (SEQUENCE, TOKENS, ANSWER)),
    ("Olmo", GROUPED, (SEQUENCE,)),
    ("Olmo2", GROUPED, (SEQUENCE,)),
    ("Olmo3", dict(GROUPED, sliding_window=5), (SEQUENCE,)),
    ("GPTBigCode", GPT2, (SEQUENCE, TOKENS)),
    ("GPTJ", dict(GPT2, rotary_dim=4), (SEQUENCE, ANSWER)),
    ("Phi", GROUPED, (SEQUENCE, TOKENS)),
    ("Falcon", FALCON, (SEQUENCE, TOKENS, ANSWER)),
    ("XLMRobertaXL", ROBERTA, (SEQUENCE, TOKENS, ANSWER)),
    ("MegatronBert", BERT, (SEQUENCE, TOKENS, ANSWER)),
    ("Ernie", dict(BERT, use_task_id=True), (SEQUENCE, TOKENS, ANSWER)),
    ("RoFormer", dict(NARROW, hidden_act="relu"), (SEQUENCE, TOKENS, ANSWER)),
    ("NomicBert", BERT, (SEQUENCE, TOKENS)),
    ("EuroBert", GROUPED, (SEQUENCE, TOKENS)),
    ("EuroBert", dict(GROUPED, classifier_pooling="mean"), (SEQUENCE,)),
    ("EuroBert", dict(GROUPED, classifier_pooling="bos"), (SEQUENCE,)),
    ("ModernBertDecoder", MODERN, (SEQUENCE,)),
    ("ModernBertDecoder", dict(MODERN, classifier_bias=True, norm_bias=True, classifier_activation="silu"), (SEQUENCE,)),
    ("BioGpt", SIZES, (SEQUENCE, TOKENS)),
    ("PLBart", SIDES, (SEQUENCE,)),
]
# Models whose decoder reads the text again. Labels are those of the row with this id.
ENDS = {"Bart": 2, "MBart": 2, "PLBart": 2, "T5": 1, "MT5": 1, "UMT5": 1}
TEXTS = ["The license of this library", "Größe, naïve — words and 123 numbers!", "one", "a longer text that goes on, and on; and on"]
CONTEXT = " ".join(["The license of this library says what it is.", "It was written in Berlin, by Größe and others."] * 8)


def class_of(family, head):
    return "GPT2" + head if family == "GPT2" else family + head


class Logits(families_oracle.Oracle):
    """The numbers of the heads, for token ids."""

    end = None

    def sequences(self, first):
        sequences = super().sequences(first)
        return sequences if self.end is None else [ids + [self.end] for ids in sequences]

    def check_fields(self, family, name, config, seed):
        self.end = ENDS.get(family)
        super().check_fields(family, name, config, seed)

    def check_head(self, family, name, config, seed):
        self.end = ENDS.get(family)
        model, folder = self.make(family, name, config, seed)
        torch, decoder = self.torch, family in ("GPT2", "Llama", "Mistral", "Qwen2", "Qwen3", "SmolLM3", "Starcoder2", "Gemma", "Gemma2", "Gemma3Text", "Qwen3_5Text")
        sequences = self.sequences(5)
        if decoder and name.endswith(SEQUENCE):  # the last id that is not padding is read
            sequences += [sequences[1] + [model.config.pad_token_id] * 3]
        if self.end is not None:  # the last end of several is read, and padding behind it
            sequences += [[*sequences[1], 7, 8, self.end, 9], [*sequences[0], model.config.pad_token_id]]
        logits = self.embed(folder, sequences, "--logits")
        for i, ids in enumerate(sequences):
            with torch.no_grad():
                theirs = families_oracle.numbers_of(model(input_ids=torch.tensor([ids])))[0]
            self.compare("logits", logits[i] if theirs.ndim == 1 else logits[i, : len(ids)], theirs)


class Commands(texts_oracle.Oracle):
    """What the commands say of texts."""

    def folder_of(self, family, head, kind="words", **config):
        sizes = dict(hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=200, initializer_range=0.2)
        tokenizer = self.tokenizer(kind)
        ids = dict(pad_token_id=tokenizer.pad_token_id, bos_token_id=None, eos_token_id=None)
        return (tokenizer, *self.make(family, family + head, tokenizer, **{**sizes, **ids, **config}))

    def translators(self, head):
        """Translators with a head, and their tokenizer, which ends each text with an id."""
        tokenizer = self.tokenizer("pieces")
        ids = dict(pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id)
        sides = dict(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=40,
                     decoder_ffn_dim=40, max_position_embeddings=200, init_std=0.2, decoder_start_token_id=ids["eos_token_id"], **ids)
        t5 = dict(d_model=32, d_kv=8, d_ff=56, num_layers=2, num_heads=4, decoder_start_token_id=ids["pad_token_id"], **ids)
        for family, sizes in (("Bart", sides), ("MBart", sides), ("T5", t5)):
            yield family, tokenizer, *self.make(family, family + head, tokenizer, **sizes, **({} if head == ANSWER else LABELS))

    def lines(self, command, folder, *arguments):
        return [json.loads(line) for line in self.run(command, "--model", folder, "--json", *arguments).splitlines()]

    def same_scores(self, what, ours, theirs):
        assert len(ours) == len(theirs), f"{what}: {ours}, there {theirs}"
        for mine, other in zip(ours, theirs):
            assert abs(mine - other) <= 1e-4 * max(1, abs(other)), f"{what}: {mine}, there {other}"

    def check_classify(self):
        for problem, labels in ((None, 3), ("multi_label_classification", 3), ("regression", 1), (None, 1)):
            names = {i: f"name {i}" for i in range(labels)}
            tokenizer, model, folder = self.folder_of("Bert", SEQUENCE, id2label=names, label2id={v: k for k, v in names.items()}, problem_type=problem)
            pipeline = self.transformers.pipeline("text-classification", model=model, tokenizer=tokenizer)
            ours = self.lines("classify", folder, "--input", self.texts_file(TEXTS), "--top-k", 0)
            for text, mine in zip(TEXTS, ours):
                theirs = pipeline(text, top_k=None)
                assert [label["label"] for label in mine["labels"]] == [label["label"] for label in theirs], f"{mine}, there {theirs}"
                self.same_scores(text, [label["score"] for label in mine["labels"]], [label["score"] for label in theirs])
        long = "word " * 300
        assert "at most the 200 ids" in self.run("classify", "--model", folder, long, fails=True)
        cut = self.lines("classify", folder, "--truncate", long)[0]["labels"][0]["score"]
        self.same_scores("a text that is cut", [cut], [pipeline(long, truncation=True, max_length=200)[0]["score"]])

        for family, tokenizer, model, folder in self.translators(SEQUENCE):
            for text, mine in zip(TEXTS, self.lines("classify", folder, "--input", self.texts_file(TEXTS), "--top-k", 0)):
                with self.torch.no_grad():
                    theirs = model(input_ids=tokenizer(text, return_tensors="pt").input_ids).logits[0].softmax(-1)
                order = theirs.argsort(descending=True).tolist()
                assert [label["label"] for label in mine["labels"]] == [LABELS["id2label"][i] for i in order], f"{family}: {mine}, there {theirs}"
                self.same_scores(f"{family}, {text}", [label["score"] for label in mine["labels"]], theirs[order].tolist())

    def check_tag(self):
        for kind, family in (("words", "Bert"), ("bytes", "Roberta"), ("pieces", "XLMRoberta")):
            tokenizer, model, folder = self.folder_of(family, TOKENS, kind, **LABELS)
            # There an unknown token divides a word, here it does not.
            texts = [text.replace("naïve", "naive") for text in TEXTS] if kind == "pieces" else TEXTS
            path = self.texts_file(texts)
            for aggregation in ("none", "simple", "first", "average", "max"):
                pipeline = self.transformers.pipeline("token-classification", model=model, tokenizer=tokenizer, aggregation_strategy=aggregation)
                for text, mine in zip(texts, self.lines("tag", folder, "--input", path, "--aggregation", aggregation)):
                    theirs = pipeline(text)
                    data = text.encode()
                    places = [(span["label"], len(data[: span["begin"]].decode()), len(data[: span["end"]].decode())) for span in mine["spans"]]
                    wanted = [(span.get("entity_group", span.get("entity")), span["start"], span["end"]) for span in theirs]
                    assert places == wanted, f"{kind}, {aggregation}, {text!r}: {places}, there {wanted}"
                    self.same_scores(f"{aggregation}, {text!r}", [span["score"] for span in mine["spans"]], [float(span["score"]) for span in theirs])

    def check_fill(self):
        for kind, family, mask in (("words", "Bert", "[MASK]"), ("bytes", "Roberta", "<mask>"), ("words", "ModernBert", "[MASK]")):
            tokenizer = self.tokenizer(kind)
            tokenizer.add_special_tokens({"mask_token": mask})
            ids = dict(pad_token_id=tokenizer.pad_token_id, bos_token_id=None, eos_token_id=None)
            model, folder = self.make(family, family + "ForMaskedLM", tokenizer, hidden_size=32, intermediate_size=56, num_hidden_layers=2,
                                      num_attention_heads=4, max_position_embeddings=200, initializer_range=0.2, **ids)
            pipeline = self.transformers.pipeline("fill-mask", model=model, tokenizer=tokenizer, top_k=4)
            texts = [f"The {mask} of this library", f"{mask} and {mask}"]
            for text, mine in zip(texts, self.lines("fill", folder, "--top-k", 4, "--input", self.texts_file(texts))):
                theirs = pipeline(text)
                theirs = theirs if isinstance(theirs[0], list) else [theirs]
                assert len(mine["masks"]) == len(theirs)
                for of_mask, others in zip(mine["masks"], theirs):
                    assert text[of_mask["begin"]:of_mask["end"]] == mask
                    found = [(token["id"], token["token"], token["text"]) for token in of_mask["tokens"]]
                    assert found == [(token["token"], token["token_str"], token["sequence"]) for token in others], f"{found}, there {others}"
                    self.same_scores(text, [token["score"] for token in of_mask["tokens"]], [token["score"] for token in others])
            assert mask in self.run("fill", "--model", folder, "no mask", fails=True)

    def check_rank(self):
        from sentence_transformers import CrossEncoder

        query = "which license?"
        passages = [*TEXTS, "word " * 300]
        for activation in (None, "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Sigmoid"):
            tokenizer, _, folder = self.folder_of("Bert", SEQUENCE, num_labels=1)
            if activation:  # and once without types
                path = folder / "tokenizer_config.json"
                path.write_text(json.dumps(dict(json.loads(path.read_text()), model_input_names=["input_ids", "token_type_ids", "attention_mask"])))
            if activation:
                path = folder / "config.json"
                path.write_text(json.dumps(dict(json.loads(path.read_text()), sentence_transformers={"activation_fn": activation, "version": "4.0.1"})))
            theirs = CrossEncoder(str(folder), device="cpu", max_length=200)
            ours = self.lines("rank", folder, "--query", query, *passages)
            ranks = theirs.rank(query, passages)
            assert [rank["number"] for rank in ours] == [rank["corpus_id"] for rank in ranks], f"{ours}, there {ranks}"
            self.same_scores(query, [rank["score"] for rank in ours], [float(rank["score"]) for rank in ranks])
            written = self.folder / "written"
            theirs.save_pretrained(str(written))
            assert self.lines("rank", written, "--query", query, *passages) == ours, "a folder that sentence-transformers wrote"

    def best_answer(self, tokenizer, model, question, context, most, stride):
        """The answer by its definition: all windows, all spans of at most 15 ids in the context, those that read the same added up."""
        torch, numpy = self.torch, self.numpy
        windows = tokenizer(question, context, truncation="only_second", max_length=most, stride=stride, return_overflowing_tokens=True,
                            return_offsets_mapping=True)
        answers = {}
        for n, ids in enumerate(windows["input_ids"]):
            encoding = windows.encodings[n]
            inside = numpy.array([text == 1 for text in windows.sequence_ids(n)])
            counted = inside | (numpy.array(ids) == (tokenizer.cls_token_id if tokenizer.cls_token_id is not None else -1))
            with torch.no_grad():
                result = model(input_ids=torch.tensor([ids]))
            begin, end = (torch.where(torch.tensor(counted), side[0].double(), -torch.inf).softmax(0).numpy() for side in (result.start_logits, result.end_logits))
            spans = [(begin[s] * end[e], s, e) for s in range(len(ids)) for e in range(s, min(s + 15, len(ids))) if inside[s] and inside[e]]
            for score, s, e in sorted(spans, key=lambda span: -span[0])[:12]:
                first, last = encoding.token_to_word(s), encoding.token_to_word(e)
                place = encoding.word_to_chars(first, 1)[0], encoding.word_to_chars(last, 1)[1]
                words = context[place[0]:place[1]].lower()
                answers[words] = (answers.get(words, (0, place))[0] + score, answers.get(words, (0, place))[1])
        return max(answers.values(), key=lambda answer: answer[0])

    def check_answer(self):
        models = [(family, *self.folder_of(family, ANSWER, kind, **config)) for kind, family, config in
                  (("words", "Bert", {}), ("bytes", "Llama", dict(num_key_value_heads=2)), ("words", "ModernBert", {}))]
        for family, tokenizer, model, folder in [*models, *self.translators(ANSWER)]:
            contexts = ["It is MIT.", TEXTS[1], CONTEXT]
            most = 384 if family == "T5" else 200  # its positions have no end
            for context, mine in zip(contexts, self.lines("answer", folder, "--question", "What is the license?", *contexts)):
                score, (begin, end) = self.best_answer(tokenizer, model, "What is the license?", context, most, min(most // 2, 128))
                best = mine["answers"][0]
                assert best["answer"] == context[begin:end], f"{family}: {best}, by definition {context[begin:end]!r}"
                assert context.encode()[best["begin"]:best["end"]].decode() == best["answer"]
                self.same_scores(context, [best["score"]], [score])


def cases():
    for number, (family, config, heads) in enumerate(FAMILIES):
        for head in heads:
            named = dict(config, **({} if head == ANSWER else LABELS))
            yield families_oracle.describe(family + head, config), Logits, "check_head", (family, family + head, named, 100 * number + len(head))
            if (family in ("Bert", "ModernBert", "Llama") and number != 7) or (family in ENDS and config in (SIDES, T5)):
                yield f"every field of {family}{head}", Logits, "check_fields", (family, family + head, named, 100 * number + len(head) + 1)
    for name in ("classify", "tag", "fill", "rank", "answer"):
        yield f"fovea {name}", Commands, "check_" + name, ()


if __name__ == "__main__":
    sys.exit(oracle_main.main(cases()))
