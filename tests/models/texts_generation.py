"""What language models write: `fovea generate` beside transformers, with beams, draws and stop strings, for texts_oracle.py."""

import json

from texts_folders import TEXTS, Folders


class Generation(Folders):
    def check_language_model(self):
        tokenizer = self.tokenizer("bytes")
        model, folder = self.make("Llama", "LlamaForCausalLM", tokenizer, hidden_size=32, intermediate_size=56, num_hidden_layers=3,
                                  num_attention_heads=4, num_key_value_heads=2, initializer_range=0.2, pad_token_id=0, bos_token_id=1, eos_token_id=2)
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"prompt": text, "length": 20}) + "\n" for text in TEXTS))
        many = [json.loads(line)["text"] for line in self.run("generate", "--model", folder, "--input", prompts, "--greedy").splitlines()]
        for text, of_many in zip(TEXTS, many):
            ids = tokenizer(text, return_tensors="pt").input_ids
            with self.torch.no_grad():
                written = model.generate(ids, do_sample=False, max_new_tokens=20, pad_token_id=0)
            whole = tokenizer.decode(written[0], skip_special_tokens=True)
            theirs = whole[len(text):]
            ours = self.run("generate", "--model", folder, text, "--greedy", "--length", 20)
            assert ours == theirs + "\n", f"{text!r}: {ours!r}, there {theirs!r}"
            assert of_many == theirs, f"{text!r} among many: {of_many!r}, there {theirs!r}"
        self.check_weights_over_tokens(model, folder, tokenizer)
        self.check_beams(model, folder, tokenizer)
        self.check_beams_of_many(model, folder, tokenizer)
        self.check_drawn_beams(model, folder, tokenizer)
        self.check_stops(model, folder, tokenizer)
        said = json.loads(self.run("show", folder, "--json"))["tokenizer"]
        assert said["type"] == "BPE" and said["size"] == len(tokenizer), said
        (folder / "tokenizer.json").unlink()
        said = self.run("generate", "--model", folder, "a", fails=True)
        assert "token ids may be given instead" in said, said

    def check_beams(self, model, folder, tokenizer):
        """generate with num_beams, which ends texts at one of two ids and goes by the same scores."""
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 40], "pad_token_id": 0}))
        endings = {"off": False, "on": True, "never": "never"}
        for beams, penalty, ending, repetition in ((2, 1.0, "off", 1.0), (4, 0.0, "on", 1.0), (5, 2.0, "never", 1.0), (3, -0.5, "off", 1.0), (4, 1.0, "on", 1.3),
                                                   (8, 0.7, "never", 1.1)):
            for text in TEXTS:
                ids = tokenizer(text, return_tensors="pt").input_ids
                with self.torch.no_grad():
                    written = model.generate(ids, do_sample=False, num_beams=beams, length_penalty=penalty, early_stopping=endings[ending], max_new_tokens=12,
                                             repetition_penalty=repetition, pad_token_id=0, eos_token_id=[2, 40])
                theirs = [int(one) for one in written[0, ids.shape[1]:]]
                said = self.run("generate", "--model", folder, "--prompt", text, "--greedy", "--length", 12, "--beam-size", beams, "--length-penalty", penalty,
                                "--early-stopping", ending, "--repetition-penalty", repetition, "--json")
                ours = json.loads(said)["ids"]
                while theirs and theirs[-1] == 0 and len(theirs) > len(ours):  # a shorter text is padded
                    theirs.pop()
                assert ours == theirs, f"{beams} beams, penalty {penalty}, {ending}, {text!r}: {ours}, there {theirs}"
        (folder / "generation_config.json").unlink()

    def check_beams_of_many(self, model, folder, tokenizer):
        """num_beams and the rules of generation_config.json, of one text and of many; no option says any of them."""
        rules = dict(num_beams=4, length_penalty=0.6, early_stopping=True, no_repeat_ngram_size=2, min_new_tokens=4, max_new_tokens=14,
                     repetition_penalty=1.2, suppress_tokens=[50, 51], begin_suppress_tokens=[60], bad_words_ids=[[70, 71], [72]], forced_eos_token_id=40)
        config = self.transformers.GenerationConfig(eos_token_id=[2, 40], pad_token_id=0, **rules)
        config.save_pretrained(folder)
        theirs = []
        for text in TEXTS:
            ids = tokenizer(text, return_tensors="pt").input_ids
            with self.torch.no_grad():
                written = model.generate(ids, generation_config=config)
            theirs.append([int(one) for one in written[0, ids.shape[1]:]])
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in TEXTS))
        many = [json.loads(line) for line in self.run("generate", "--model", folder, "--input", prompts).splitlines()]
        for text, of_many, expected in zip(TEXTS, many, theirs):
            one = json.loads(self.run("generate", "--model", folder, text, "--json"))
            assert one["ids"] == expected, f"{text!r}: {one['ids']}, there {expected}"
            assert of_many["text"] == one["text"] and of_many["tokens"] == one["tokens"] and of_many["finish"] == one["finish"], f"{of_many}, alone {one}"
            assert abs(of_many["log_probability"] - one["log_probability"]) < 1e-9, f"{of_many}, alone {one}"
        for rule in ("no_repeat_ngram_size", "bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "min_new_tokens"):
            changed = {key: value for key, value in rules.items() if key not in (rule, "num_beams", "length_penalty", "early_stopping")}
            config = self.transformers.GenerationConfig(eos_token_id=[2, 40], pad_token_id=0, **changed)
            config.save_pretrained(folder)
            for text in TEXTS:
                ids = tokenizer(text, return_tensors="pt").input_ids
                with self.torch.no_grad():
                    expected = [int(one) for one in model.generate(ids, generation_config=config)[0, ids.shape[1]:]]
                ours = json.loads(self.run("generate", "--model", folder, text, "--json"))["ids"]
                assert ours == expected, f"greedily without {rule}, {text!r}: {ours}, there {expected}"
        (folder / "generation_config.json").unlink()

    def check_drawn_beams(self, model, folder, tokenizer):
        """num_beams with do_sample: the same texts with the same frequencies, which draws with other random numbers can show. Each difference
        of two frequencies is normal of mean 0; 5 standard deviations are missed by one of two million right ones."""
        torch, count, text = self.torch, 4000, TEXTS[2]
        prompts = self.folder / "drawn.jsonl"
        for beams, length, temperature, cuts in ((2, 2, 1.0, dict(top_k=3)), (3, 3, 0.7, dict(top_k=4, top_p=0.8)), (2, 3, 1.3, dict(top_k=5, min_p=0.3))):
            config = self.transformers.GenerationConfig(eos_token_id=2, pad_token_id=0, num_beams=beams, do_sample=True, temperature=temperature, **cuts)
            config.save_pretrained(folder)
            prompts.write_text("".join(json.dumps({"prompt": text, "length": length, "seed": seed}) + "\n" for seed in range(1, count + 1)))
            ours = {}
            for line in self.run("generate", "--model", folder, "--input", prompts).splitlines():
                answer = json.loads(line)["text"]
                ours[answer] = ours.get(answer, 0) + 1
            torch.manual_seed(5)
            ids = tokenizer(text, return_tensors="pt").input_ids
            with torch.no_grad():
                written = model.generate(ids.repeat(count, 1), generation_config=config, max_new_tokens=length)
            theirs = {}
            for row in written:
                answer = tokenizer.decode(row, skip_special_tokens=True)[len(text):]
                theirs[answer] = theirs.get(answer, 0) + 1
            assert len(theirs) > 3, f"only {len(theirs)} texts"
            for answer in ours.keys() | theirs.keys():
                mine, other = ours.get(answer, 0), theirs.get(answer, 0)
                share = (mine + other) / (2 * count)
                assert abs(mine - other) <= 5 * (2 * count * share * (1 - share)) ** 0.5 + 1, f"{answer!r} of {beams} beams: {mine} times, there {other}"
        (folder / "generation_config.json").unlink()

    def check_stops(self, model, folder, tokenizer):
        """stop_strings end a text behind the same id."""
        for text in TEXTS:
            ids = tokenizer(text, return_tensors="pt").input_ids
            with self.torch.no_grad():
                whole = tokenizer.decode(model.generate(ids, do_sample=False, max_new_tokens=20, pad_token_id=0)[0, ids.shape[1]:], skip_special_tokens=True)
            for begin, size in ((3, 1), (5, 3), (9, 6)):
                stop = whole[begin:begin + size]
                if not stop or "\ufffd" in stop:
                    continue
                with self.torch.no_grad():
                    written = model.generate(ids, do_sample=False, max_new_tokens=20, pad_token_id=0, stop_strings=[stop, "nowhere"], tokenizer=tokenizer)
                theirs = [int(one) for one in written[0, ids.shape[1]:]]
                ours = json.loads(self.run("generate", "--model", folder, "--prompt", text, "--greedy", "--length", 20, "--stop", stop, "--stop", "nowhere", "--json"))
                assert ours["ids"] == theirs, f"stop {stop!r}: {ours}, there {theirs}"
                assert ours["text"] == whole[:whole.find(stop)], f"stop {stop!r}: {ours} of {whole!r}"
