"""Folders of transformers with their tokenizers: texts in, texts and vectors out, the same as there.

Small random models and tokenizers that are trained here. Run by `./run test --full`, which installs torch and transformers; without
them it is reported as not run. Where sentence-transformers is installed too, it writes and runs the folders of sentence vectors."""

import json
import sys

import oracle_main
from texts_folders import TEXTS, lines
from texts_generation import Generation


class Oracle(Generation):
    def check_translators(self):
        tokenizer = self.tokenizer("unigram")
        sizes = dict(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=40,
                     decoder_ffn_dim=40, init_std=0.2, pad_token_id=0, eos_token_id=1, bos_token_id=1, decoder_start_token_id=1,
                     forced_eos_token_id=None)
        for family, name, config in (("T5", "T5ForConditionalGeneration", dict(d_model=32, d_kv=8, d_ff=56, num_layers=2, num_heads=4, decoder_start_token_id=0)),
                                     ("Bart", "BartForConditionalGeneration", sizes)):
            model, folder = self.make(family, name, tokenizer, **config)
            ours = self.run("translate", "--model", folder, "--input", self.texts_file(), "--beam-size", 1, "--max-length-factor", 1).splitlines()
            for text, mine in zip(TEXTS, ours):
                ids = tokenizer(text, return_tensors="pt").input_ids
                with self.torch.no_grad():
                    written = model.generate(ids, do_sample=False, num_beams=1, max_new_tokens=ids.shape[1] + 10)
                theirs = tokenizer.decode(written[0], skip_special_tokens=True)
                assert mine == theirs, f"{name}, {text!r}: {mine!r}, there {theirs!r}"
            one = self.run("generate", "--model", folder, TEXTS[0], "--greedy", "--length", 9)
            assert ours[0].startswith(one[:-1].rstrip()), f"{one!r} and {ours[0]!r}"

    def check_summaries(self):
        """Beams of translators with the rules of generation_config.json and of a task: the same texts, in batches."""
        torch, tokenizer = self.torch, self.tokenizer("unigram")
        sizes = dict(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=40,
                     decoder_ffn_dim=40, init_std=0.2, pad_token_id=0, eos_token_id=1, bos_token_id=2, decoder_start_token_id=1)
        t5 = dict(d_model=32, d_kv=8, d_ff=56, num_layers=2, num_heads=4, decoder_start_token_id=0)
        # As facebook/bart-large-cnn has them, and others.
        cnn = dict(num_beams=4, length_penalty=2.0, early_stopping=True, no_repeat_ngram_size=3, min_length=6, max_length=18, forced_bos_token_id=2,
                   forced_eos_token_id=1)
        cases = [("Bart", "BartForConditionalGeneration", sizes, cnn),
                 ("Bart", "BartForConditionalGeneration", sizes, dict(num_beams=1, repetition_penalty=1.3, no_repeat_ngram_size=3, min_length=6, max_length=18,
                                                                   forced_bos_token_id=2, forced_eos_token_id=1)),
                 ("MBart", "MBartForConditionalGeneration", sizes, dict(cnn, early_stopping="never", length_penalty=-0.5, bad_words_ids=[[40], [30, 31]])),
                 ("T5", "T5ForConditionalGeneration", t5, dict(num_beams=3, early_stopping=False, no_repeat_ngram_size=2, min_new_tokens=5, max_new_tokens=12)),
                 ("T5", "T5ForConditionalGeneration", t5, dict(num_beams=5, length_penalty=0.0, repetition_penalty=1.4, max_new_tokens=9, num_return_sequences=3))]
        texts = [*TEXTS, *(line for line in lines()[40:60] if len(tokenizer(line).input_ids) < 200)]
        for family, name, config, rules in cases:
            model, folder = self.make(family, name, tokenizer, **config)
            start, end = model.config.decoder_start_token_id, model.config.eos_token_id
            said = {key: value for key, value in rules.items() if key != "num_return_sequences"}
            self.transformers.GenerationConfig(decoder_start_token_id=start, eos_token_id=end, pad_token_id=0, **said).save_pretrained(folder)
            options = self.transformers.GenerationConfig(decoder_start_token_id=start, eos_token_id=end, pad_token_id=0, **rules)
            best = rules.get("num_return_sequences", 1)
            given = self.texts_file(texts)
            ours = [json.loads(line)["texts"] for command in ("summarize", "translate") for line in
                    self.run(command, "--model", folder, "--input", given, "--json", "--mini-batch", 3, "--n-best", best).splitlines()]
            assert ours[: len(texts)] == ours[len(texts):], f"{name}: translate and summarize differ"
            prompts = self.folder / "sources.jsonl"
            prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
            many = [json.loads(line) for line in self.run("generate", "--model", folder, "--input", prompts).splitlines()]
            assert [one["text"] for one in many] == [mine[0]["text"] for mine in ours[: len(texts)]], f"{name}: generate --input and translate differ"
            for text, mine in zip(texts, ours):
                ids = tokenizer(text, return_tensors="pt").input_ids
                with torch.no_grad():
                    written = model.generate(ids, generation_config=options, return_dict_in_generate=True, output_scores=True)
                theirs = [tokenizer.decode(one, skip_special_tokens=True) for one in written.sequences]
                assert [one["text"] for one in mine] == theirs, f"{name} {rules}, {text!r}: {mine}, there {theirs}"
                if rules["num_beams"] > 1:
                    for one, score in zip(mine, written.sequences_scores.tolist()):
                        assert abs(one["score"] - score) <= 1e-4 * max(1.0, abs(score)), f"{name}, {text!r}: score {one['score']}, there {score}"
                    one = json.loads(self.run("generate", "--model", folder, text, "--json"))["ids"]
                    expected = [int(id) for id in written.sequences[0, 1:]]
                    assert one == expected[: len(one)] and not any(expected[len(one):]), f"generate, {name}, {text!r}: {one}, there {expected}"
        self.check_task(model, folder, tokenizer)

    def check_task(self, model, folder, tokenizer):
        """task_specific_params of config.json: a prefix, and values that count before those of generation_config.json."""
        config = folder / "config.json"
        said = json.loads(config.read_text())
        said["task_specific_params"] = {
            "summarization": {"prefix": "summarize: ", "num_beams": 4, "early_stopping": True, "length_penalty": 2.0, "max_length": 14, "min_length": 3,
                              "no_repeat_ngram_size": 3},
            "translation_en_to_de": {"prefix": "translate English to German: ", "num_beams": 2, "max_length": 11, "early_stopping": True}}
        config.write_text(json.dumps(said))
        (folder / "generation_config.json").write_text(json.dumps({"decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}))
        given = self.texts_file()
        for command, task, arguments in (("summarize", "summarization", ()), ("translate", "translation_en_to_de", ("--task", "translation_en_to_de"))):
            values = dict(said["task_specific_params"][task])
            prefix = values.pop("prefix")
            ours = self.run(command, "--model", folder, "--input", given, *arguments).splitlines()
            for text, mine in zip(TEXTS, ours):
                ids = tokenizer(prefix + text, return_tensors="pt").input_ids
                with self.torch.no_grad():
                    written = model.generate(ids, generation_config=self.transformers.GenerationConfig(
                        decoder_start_token_id=0, eos_token_id=1, pad_token_id=0, **values))
                theirs = tokenizer.decode(written[0], skip_special_tokens=True)
                assert mine == theirs, f"{task}, {text!r}: {mine!r}, there {theirs!r}"
        refused = self.run("translate", "--model", folder, "--input", given, "--task", "translation_en_to_xx", fails=True)
        assert "translation_en_to_de" in refused, refused

    def check_weights_over_tokens(self, model, folder, tokenizer):
        """`fovea inspect`: the weights of transformers, over tokens that spell the text, and over words."""
        torch, numpy = self.torch, self.numpy
        model.set_attn_implementation("eager")
        for text in TEXTS[:2]:
            inputs = tokenizer(text, return_tensors="pt", return_offsets_mapping=True)
            spans = inputs.pop("offset_mapping")[0].tolist()
            with torch.no_grad():
                theirs = [layer[0].numpy() for layer in model(**inputs, output_attentions=True).attentions]
            maps = json.loads(self.run("inspect", "--model", folder, "--source", text, "--json"))["maps"]
            assert len(maps) == len(theirs)
            for one, weights in zip(maps, theirs):
                self.compare(f"weights of {one['name']}, {text!r}", numpy.array(one["weights"]), weights)
                for token, (begin, end) in zip(one["keys"], spans):
                    shown = token.removeprefix("▁").removeprefix("##")
                    assert end == 0 or shown in (text[begin:end].strip(), "", "␣", "…"), f"{shown!r} for {text[begin:end]!r}"
            words = json.loads(self.run("inspect", "--model", folder, "--source", text, "--over", "words", "--json"))["maps"]
            for one, weights in zip(words, theirs):
                ours = numpy.array(one["weights"])
                assert abs(ours.sum(-1) - weights.sum(-1)[:, :1]).max() < 1e-5, "rows over words do not sum to 1"
                assert ours.shape[1] == len(one["queries"]) <= weights.shape[1]
            spelt = [word for word in words[0]["queries"] if word not in tokenizer.all_special_tokens]
            assert "".join(spelt).replace("␣", "").replace("…", "") == "".join(text.split()), f"words {spelt} of {text!r}"
        model.set_attn_implementation("sdpa")

    def check_alignment(self):
        """Weights over words: each row sums to 1, and words are those between blanks. Compared with sums of the weights there."""
        tokenizer, torch, numpy = self.tokenizer("unigram"), self.torch, self.numpy
        model, folder = self.make("T5", "T5ForConditionalGeneration", tokenizer, d_model=32, d_kv=8, d_ff=56, num_layers=2, num_heads=4,
                                  decoder_start_token_id=0)
        model.set_attn_implementation("eager")
        path = self.folder / "line.txt"
        path.write_text(TEXTS[0] + "\n")
        line = self.run("translate", "--model", folder, "--input", path, "--beam-size", 1, "--max-length-factor", 1, "--alignment", "soft")
        text, weights = line.rstrip("\n").split(" ||| ")
        ours = numpy.array([[float(weight) for weight in row.split(",")] for row in weights.split(" ")])
        words = TEXTS[0].split()
        assert ours.shape == (len(text.split()), len(words) + 1), f"{ours.shape} weights of {text!r} and {words}"
        assert abs(ours.sum(1) - 1).max() < 2e-3, ours.sum(1)
        source = tokenizer(TEXTS[0], return_tensors="pt", return_offsets_mapping=True)
        with torch.no_grad():
            written = model.generate(source.input_ids, do_sample=False, num_beams=1, max_new_tokens=source.input_ids.shape[1] + 10)
            result = model(input_ids=source.input_ids, decoder_input_ids=written[:, :-1], output_attentions=True)
        # A blank belongs to the word behind it.
        firsts = [(begin + len(TEXTS[0][begin:]) - len(TEXTS[0][begin:].lstrip()), end) for begin, end in source.offset_mapping[0].tolist()]
        columns = [len((TEXTS[0][:at] + "x").split()) - 1 if end else len(words) for at, end in firsts]
        pieces = [tokenizer.convert_ids_to_tokens(int(id)) for id in written[0, 1:]]
        errors = []
        for maps in result.cross_attentions:  # one of the layers is the one that is shown, over the mean of its heads
            rows, counts = numpy.zeros_like(ours), numpy.zeros(len(ours) + 1)
            word, begins = -1, True
            for piece, row in zip(pieces, maps[0].mean(0)):
                begins = begins or piece.startswith("▁")
                if piece in ("</s>", "<pad>", "▁"):
                    continue
                word += begins
                begins = False
                counts[word] += 1
                for column, weight in zip(columns, row.tolist()):
                    rows[word, column] += weight
            errors.append(abs(rows / counts[:-1, None] - ours).max())
        assert min(errors) < 2e-3, f"no layer has these weights: {errors}"

    def check_marian(self):
        """Two models of SentencePiece and a list of ids, as Marian's folders have them; with a language code."""
        import sentencepiece

        source, target = self.folder / "source", self.folder / "target"
        for path, text in ((source, lines()[::2]), (target, lines()[1::2])):
            sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(text), model_prefix=str(path), vocab_size=900, minloglevel=2,
                                                     hard_vocab_limit=False)
        pieces = ["</s>", "<unk>", ">>fr<<"]
        for path in (source, target):
            model = sentencepiece.SentencePieceProcessor(model_file=f"{path}.model")
            pieces += [piece for piece in (model.id_to_piece(i) for i in range(3, model.get_piece_size())) if piece not in pieces]
        pieces.append("<pad>")
        vocabulary = self.folder / "vocab.json"
        vocabulary.write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
        tokenizer = self.transformers.MarianTokenizer(f"{source}.model", f"{target}.model", str(vocabulary), source_lang="en", target_lang="fr")
        model, folder = self.make("Marian", "MarianMTModel", tokenizer, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                                  decoder_attention_heads=4, encoder_ffn_dim=40, decoder_ffn_dim=40, init_std=0.2, max_position_embeddings=300,
                                  pad_token_id=len(pieces) - 1, eos_token_id=0, bos_token_id=0, decoder_start_token_id=len(pieces) - 1, forced_eos_token_id=None,
                                  scale_embedding=True, activation_function="swish")
        assert not (folder / "tokenizer.json").exists()
        texts = [*TEXTS, ">>fr<< one", ">>xx<< two << three"]
        path = self.folder / "texts.txt"
        path.write_text("".join(text + "\n" for text in texts))
        ours = self.run("translate", "--model", folder, "--input", path, "--beam-size", 1, "--max-length-factor", 1).splitlines()
        for text, mine in zip(texts, ours):
            ids = tokenizer(text, return_tensors="pt").input_ids
            with self.torch.no_grad():
                written = model.generate(ids, do_sample=False, num_beams=1, max_new_tokens=ids.shape[1] + 10)
            theirs = tokenizer.decode(written[0], skip_special_tokens=True)
            assert mine == theirs, f"{text!r}: {mine!r}, there {theirs!r}"

    def check_classes(self):
        """Folders that the classes of transformers write: the same ids."""
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers

        def trained(model, trainer, pre, **options):
            tokenizer = Tokenizer(model)
            tokenizer.pre_tokenizer = pre
            tokenizer.train_from_iterator(lines(), trainer(vocab_size=900, show_progress=False, **options))
            return json.loads(tokenizer.to_str())["model"]

        def bpe(special, byte=True, **options):
            alphabet = pre_tokenizers.ByteLevel.alphabet() if byte else []
            pre = pre_tokenizers.ByteLevel(add_prefix_space=False) if byte else pre_tokenizers.Metaspace()
            model = trained(models.BPE(), trainers.BpeTrainer, pre, special_tokens=special, initial_alphabet=alphabet, **options)
            return dict(vocab=model["vocab"], merges=[tuple(merge) for merge in model["merges"]])

        byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
        words = trained(models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer, pre_tokenizers.BertPreTokenizer(),
                        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])["vocab"]
        pieces = dict(vocab=[tuple(piece) for piece in trained(
            models.Unigram(), trainers.UnigramTrainer, pre_tokenizers.Metaspace(), special_tokens=["<s>", "<pad>", "</s>", "<unk>"], unk_token="<unk>")["vocab"]])
        plain, marked = bpe(["<|endoftext|>"]), bpe(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
        classes = {"GPT2": plain, "Qwen2": plain, "Whisper": plain, "Roberta": marked, "Bart": marked,
                   "CLIP": bpe(["<|startoftext|>", "<|endoftext|>"], end_of_word_suffix="</w>"),
                   "Llama": bpe(["<unk>", "<s>", "</s>", *byte_tokens], False), "Gemma": bpe(["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *byte_tokens], False),
                   "Bert": dict(vocab=words), "DistilBert": dict(vocab=words, do_lower_case=False), "T5": pieces, "XLMRoberta": pieces, "MBart": pieces,
                   "Camembert": pieces}
        texts = [*TEXTS, "a<mask> b </s> <extra_id_0> x", "caf\u0065\u0301\tand it's 1234567", "\U0001f600\U0001f44d\U0001f3fd", ""]
        given = self.folder / "texts.jsonl"
        given.write_text("".join(json.dumps(text) + "\n" for text in texts))
        for name, options in classes.items():
            tokenizer = getattr(self.transformers, name + "Tokenizer")(**options)
            tokenizer.save_pretrained(self.folder / name)
            said = self.run("tokenize", "--model", self.folder / name, "--json", "--input", given)
            for text, line in zip(texts, said.split("\n")):
                ours, theirs = json.loads(line)["ids"], tokenizer(text)["input_ids"]
                assert ours == theirs, f"{name}, {text!r}: {ours}, there {theirs}"

    def check_encoder(self):
        tokenizer = self.tokenizer("words")
        model, folder = self.make("Bert", "BertModel", tokenizer, hidden_size=32, intermediate_size=56, num_hidden_layers=3, num_attention_heads=4,
                                  max_position_embeddings=64, initializer_range=0.2)
        output = self.folder / "rows.npy"
        self.run("embed", "--model", folder, "--input", self.texts_file(), "--hidden", "--output", output)
        rows = self.numpy.load(output)
        for text, ours in zip(TEXTS, rows):
            inputs = tokenizer(text, return_tensors="pt")
            with self.torch.no_grad():
                theirs = model(**inputs).last_hidden_state[0].numpy()
            self.compare(f"rows of {text!r}", ours[: len(theirs)], theirs)
        self.check_weights_over_tokens(model, folder, tokenizer)
        config = folder / "tokenizer_config.json"
        config.write_text(json.dumps(dict(json.loads(config.read_text()), do_lower_case=False)))
        said = self.run("embed", "--model", folder, "--input", self.texts_file(), "--hidden", "--output", output, fails=True)
        assert "do_lower_case: expected true" in said, said

    def sentence_folder(self, mode, normalize, most):
        """A folder of sentence vectors written by hand in the form of version 2, and a function of texts that computes them."""
        torch = self.torch
        tokenizer = self.tokenizer("words")
        model, folder = self.make("Bert", "BertModel", tokenizer, hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
                                  max_position_embeddings=64, initializer_range=0.2)
        modules = ["Transformer", "Pooling"] + (["Normalize"] if normalize else [])
        paths = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
        (folder / "modules.json").write_text(json.dumps([
            {"idx": i, "name": str(i), "path": paths[kind], "type": "sentence_transformers.models." + kind} for i, kind in enumerate(modules)]))
        names = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "root": "mean_sqrt_len_tokens", "last": "lasttoken"}
        pooling = {"pooling_mode_" + key: kind == mode for kind, key in names.items()}
        (folder / "1_Pooling").mkdir(exist_ok=True)
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, "include_prompt": True, **pooling}))
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": most, "do_lower_case": False}))

        def vectors(texts):
            result = []
            for text in texts:
                inputs = tokenizer(text, return_tensors="pt", truncation=True, max_length=most)
                with torch.no_grad():
                    rows = model(**inputs).last_hidden_state[0]
                row = {"cls": rows[0], "last": rows[-1], "mean": rows.mean(0), "max": rows.max(0).values, "root": rows.sum(0) / len(rows) ** 0.5}[mode]
                result.append(torch.nn.functional.normalize(row, dim=0) if normalize else row)
            return torch.stack(result).numpy()

        return folder, vectors

    def check_sentences(self):
        output = self.folder / "vectors.npy"
        for mode in ("cls", "last", "mean", "max", "root"):
            for normalize, most in ((False, 9), (True, 60)):
                folder, vectors = self.sentence_folder(mode, normalize, most)
                self.run("embed", "--model", folder, "--input", self.texts_file(), "--sentence", "--output", output)
                self.compare(f"vectors by {mode}", self.numpy.load(output), vectors(TEXTS))
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            print("sentence-transformers is not installed: its own folders are not compared")
            return
        theirs = SentenceTransformer(str(folder), device="cpu")
        self.compare("vectors of sentence-transformers", self.numpy.load(output), theirs.encode(TEXTS, batch_size=1))
        written = self.folder / "written"
        theirs.save(str(written))
        self.run("embed", "--model", written, "--input", self.texts_file(), "--sentence", "--output", output)
        self.compare("vectors of a folder that it wrote", self.numpy.load(output), theirs.encode(TEXTS, batch_size=1))
        self.check_searches(SentenceTransformer, written)

    def check_searches(self, load, folder):
        """rank as encode_query, encode_document and similarity: prompts, pooling without them, similarities and short vectors."""
        pooling, search = folder / "1_Pooling" / "config.json", folder / "config_sentence_transformers.json"
        of_folder, of_pooling = json.loads(search.read_text()), json.loads(pooling.read_text())
        prompts = {"query": "find the text: ", "document": "text: ", "odd": "license "}
        for name in ("cosine", "dot", "euclidean", "manhattan"):
            for changed, include, mode in (({}, True, "mean"), ({"prompts": prompts}, True, "cls"), ({"prompts": prompts, "default_prompt_name": "odd"}, False, "mean"),
                                           ({"prompts": prompts, "truncate_dim": 8}, False, "max"), ({"prompts": prompts}, False, "lasttoken"),
                                           ({"prompts": prompts}, False, "cls")):
                search.write_text(json.dumps({**of_folder, "similarity_fn_name": name, **changed}))
                pooling.write_text(json.dumps({**of_pooling, "pooling_mode": mode, "include_prompt": include}))
                theirs = load(str(folder), device="cpu")
                scores = theirs.similarity(theirs.encode_query(["which license?"]), theirs.encode_document(TEXTS, batch_size=1))[0].tolist()
                ours = [json.loads(line) for line in self.run("rank", "--model", folder, "--query", "which license?", "--json", *TEXTS).splitlines()]
                what = f"{name}, {changed}, {mode}, include_prompt {include}"
                assert [one["number"] for one in ours] == sorted(range(len(TEXTS)), key=lambda i: -scores[i]), f"{what}: {ours}, there {scores}"
                self.compare(what, self.numpy.array([one["score"] for one in ours]), self.numpy.array([scores[one["number"]] for one in ours]))
                output = folder / "vectors.npy"
                self.run("embed", "--model", folder, "--input", self.texts_file(), "--sentence", "--output", output)
                self.compare(f"vectors, {what}", self.numpy.load(output), theirs.encode(TEXTS, batch_size=1))
                if "prompts" in changed:
                    self.run("embed", "--model", folder, "--input", self.texts_file(), "--sentence", "--prompt-name", "query", "--output", output)
                    self.compare(f"vectors of queries, {what}", self.numpy.load(output), theirs.encode(TEXTS, prompt_name="query", batch_size=1))


def cases():
    for check in ("alignment", "classes", "language_model", "translators", "summaries", "marian", "encoder", "sentences"):
        yield check, Oracle, "check_" + check, ()


if __name__ == "__main__":
    sys.exit(oracle_main.main(cases()))
