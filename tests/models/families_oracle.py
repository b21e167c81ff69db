"""Folders that transformers writes: fovea gives the same hidden states, logits and greedy texts.

Every model is made here, small and random, with `initializer_range=0.2` and random norms: with the default of 0.02 a model of
the wrong rotary base differs by 0.14 % only. Run by `./run test --full`, which installs torch and transformers; without them it
is reported as not run."""

import json
import subprocess
import sys
from pathlib import Path

import oracle_main
from families_cases import DECODERS, DISTIL, ENCODERS, GPT2, HYBRID, MAMBA, MAMBA2, MODERN, RECURRENT, ROBERTA, SIDES, T5, TRANSLATORS, VOCABULARY

# f32 against f32. Each of some hundred operations rounds by 6e-8 of its result; measured on these models: at most 7.8e-6.
RELATIVE = 2e-5
ABSENT = object()
HEADS = ("GPT2LMHeadModel", "MarianMTModel")  # classes with logits whose names end like those without


def as_before(config):
    """The config with the keys of transformers 4."""
    rope = config.pop("rope_parameters", None)
    if rope and "full_attention" in rope:
        names = {"gemma3_text": ("rope_theta", "rope_local_base_freq"), "modernbert": ("global_rope_theta", "local_rope_theta"),
                 "modernbert-decoder": ("global_rope_theta", "local_rope_theta"),
                 "olmo3": ("rope_theta",)}
        for key, kind in zip(names[config["model_type"]], ("full_attention", "sliding_attention")):
            config[key] = rope[kind]["rope_theta"]
        if rope["full_attention"]["rope_type"] != "default":
            config["rope_scaling"] = {k: v for k, v in rope["full_attention"].items() if k != "rope_theta"}
    elif rope:
        config["rope_theta"] = rope.pop("rope_theta")
        if "partial_rotary_factor" in rope:
            config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        if rope["rope_type"] != "default":
            config["rope_scaling"] = {"type": rope.pop("rope_type"), **rope}
    if "time_step_limit" in config:  # json writes infinity as the bare word that transformers 4 wrote
        config["time_step_limit"] = [float("inf") if isinstance(end, dict) else end for end in config["time_step_limit"]]
    if "dtype" in config:
        config["torch_dtype"] = config.pop("dtype")
    return config


def others(key, value):
    """Other values for a key of config.json."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, 2 * value, 1, -1]
    if isinstance(value, float):
        return [2 * value + 0.01, value / 2]
    if isinstance(value, str):
        return ["relu", "gelu", "gelu_new", "silu", "odd"] if "act" in key or "proj" in key else ["odd"]
    if isinstance(value, list):
        return [value[::-1], value[1:]] if value and key != "architectures" else []
    if key == "rope_parameters" and "rope_theta" in value:
        return [dict(value, rope_theta=300.0), dict(value, rope_type="linear", factor=3.0), dict(value, odd=1)]
    if key == "rope_parameters":
        return [{kind: dict(values, rope_theta=300.0) for kind, values in value.items()}]
    return [3, True, 0.5] if value is None else []


def numbers_of(result):
    """What a head computes: logits, or those of the begin and the end of an answer side by side."""
    if hasattr(result, "start_logits"):
        import torch

        return torch.stack([result.start_logits, result.end_logits], -1)
    return result.logits if hasattr(result, "logits") else result.prediction_logits


def describe(name, config):
    """The class and what the config changes, to find a case by."""
    usual = {**SIDES, **T5, **HYBRID, **GPT2, **ROBERTA, **MODERN, **DISTIL, **MAMBA, **MAMBA2}
    changes = [f"{key}={value}" for key, value in config.items() if key not in usual or usual[key] != value]
    return " ".join([name, *changes])


class Oracle:
    def __init__(self, fovea, folder):
        import numpy
        import torch
        import transformers

        self.numpy, self.torch, self.transformers = numpy, torch, transformers
        self.fovea, self.folder = fovea, Path(folder)
        self.worst = 0.0

    def make(self, family, name, config, seed, **saving):
        """A random model, and the folder that it was saved in."""
        torch = self.torch
        torch.manual_seed(seed)
        settings = getattr(self.transformers, family + "Config")(**config)
        settings._attn_implementation = "eager"  # the other kinds leave soft caps out
        model = getattr(self.transformers, name)(settings).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 1:
                    parameter += 0.2 * torch.randn_like(parameter)
            # Recurrences start with steps of 0.001 to 0.1, which would leave their states near 0.
            for key, parameter in model.named_parameters():
                if key.endswith(("dt_bias", "dt_proj.bias")):
                    parameter.copy_(torch.randn_like(parameter))
                if key.endswith("A_log"):
                    parameter += 0.5 * torch.randn_like(parameter)
            if hasattr(model, "final_logits_bias"):
                model.final_logits_bias += 0.2 * torch.randn_like(model.final_logits_bias)
        folder = self.folder / f"model-{seed}"
        model.save_pretrained(folder, **saving)
        return model, folder

    def run(self, *arguments):
        done = subprocess.run([self.fovea, *map(str, arguments)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"fovea {' '.join(map(str, arguments))}: {done.stderr}"
        return done.stdout

    def embed(self, folder, sequences, what):
        ids, output = self.folder / "ids.txt", self.folder / "rows.npy"
        ids.write_text("".join(" ".join(map(str, sequence)) + "\n" for sequence in sequences))
        self.run("embed", "--model", folder, "--ids-file", ids, what, "--output", output, "--cpu-threads", 1)
        return self.numpy.load(output)

    def compare(self, what, ours, theirs, bound=RELATIVE):
        theirs = theirs.detach().float().numpy()
        assert ours.shape == theirs.shape, f"{what}: shape {ours.shape}, transformers {theirs.shape}"
        error = float(abs(ours - theirs).max() / abs(theirs).max())
        self.worst = max(self.worst, error)
        assert error <= bound, f"{what} differ by {error:.1e} of the largest"

    def sequences(self, first):
        generator = self.torch.Generator().manual_seed(3)
        return [self.torch.randint(first, VOCABULARY, (length,), generator=generator).tolist() for length in (1, 7, 40)]

    def check_weights(self, folder, theirs, ids, target=None, attending=None):
        """The maps that `fovea inspect` draws: {the beginning of a map's name: the weights of each layer there, [1, heads, rows, columns]}.

        Args:
            attending: the layers that attend, where others are recurrences, whose maps transformers does not have. None: all do.
        """
        arguments = ["--source-ids", " ".join(map(str, ids))]
        if target is not None:
            arguments += ["--target-ids", " ".join(map(str, target))]
        maps = json.loads(self.run("inspect", "--model", folder, *arguments, "--json"))["maps"]
        expected = [
            (name, attending[n] if attending else n, weights[0]) for name, layers in theirs.items() for n, weights in enumerate(layers)
        ]
        assert attending or len(maps) == len(expected), f"{len(maps)} maps, there {len(expected)}"
        for name, layer, weights in expected:
            found = [one for one in maps if one["name"].startswith(name) and one["layer"] == layer]
            assert len(found) == 1, f"{len(found)} maps of {name}, layer {layer + 1}"
            self.compare(f"weights of {found[0]['name']}", self.numpy.array(found[0]["weights"], dtype="float32"), weights)

    def check_rows(self, model, folder, has_logits, first):
        torch, sequences = self.torch, self.sequences(first)
        hidden = self.embed(folder, sequences, "--hidden")
        logits = self.embed(folder, sequences, "--logits") if has_logits else None
        for i, ids in enumerate(sequences):
            with torch.no_grad():
                result = model(input_ids=torch.tensor([ids]), output_hidden_states=True, output_attentions=True)
            self.compare("hidden states", hidden[i, : len(ids)], result.hidden_states[-1][0])
            if getattr(result, "attentions", None):  # Mamba has none
                kinds = getattr(model.config, "layer_types", None) or []
                attending = [n for n, kind in enumerate(kinds) if kind == "full_attention"] if "linear_attention" in kinds else None
                self.check_weights(folder, {"": result.attentions}, ids, attending=attending)
            assert not hidden[i, len(ids):].any(), "rows behind a sequence"
            if has_logits:
                self.compare("logits", logits[i, : len(ids)], numbers_of(result)[0])

    def check_padding(self, family, name, config, seed):
        """transformers pads a batch on the left and masks the padding; fovea packs it."""
        torch, sequences = self.torch, self.sequences(0)
        model, folder = self.make(family, name, config, seed)
        ours, longest = self.embed(folder, sequences, "--hidden"), max(map(len, sequences))
        ids = torch.tensor([[0] * (longest - len(sequence)) + sequence for sequence in sequences])
        mask = torch.tensor([[0] * (longest - len(sequence)) + [1] * len(sequence) for sequence in sequences])
        with torch.no_grad():
            theirs = model(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states[-1]
        for i, sequence in enumerate(sequences):
            self.compare("rows behind padding", ours[i, : len(sequence)], theirs[i, longest - len(sequence):])

    def kept(self, config):
        """How long a text may be whose keys are kept. None: as long as any."""
        rope = getattr(config, "rope_parameters", None) or {}
        kind = rope.get("rope_type")
        return config.max_position_embeddings if kind == "dynamic" else rope["original_max_position_embeddings"] if kind == "longrope" else None

    def refuses(self, folder, prompt, length):
        """Keys that are kept cannot be rotated for a longer text. transformers mixes keys of both kinds, or reads the text anew (Phi-3)."""
        done = subprocess.run([self.fovea, "generate", "--model", folder, "--prompt-ids", " ".join(map(str, prompt)), "--greedy",
                               "--max-new-tokens", str(length)], capture_output=True, text=True, check=False)
        assert done.returncode != 0 and "other rotary frequencies" in done.stderr, f"{done.returncode}: {done.stderr}"

    def check_text(self, model, folder, prompt, written=None):
        """Greedy, token by token, as long as rounding cannot choose another one. A translator has `written` the first id."""
        torch, length = self.torch, 40
        kept = self.kept(model.config)
        if kept and kept < len(prompt) + length:
            self.refuses(folder, prompt, kept - len(prompt) + 2)
            length = kept - len(prompt) + 1  # the last one is written and not read
        done = json.loads(self.run("generate", "--model", folder, "--prompt-ids", " ".join(map(str, prompt)), "--greedy",
                                   "--max-new-tokens", length, "--json", "--cpu-threads", 1))
        ids = list(prompt if written is None else written)
        end = model.config.eos_token_id
        for i in range(length):
            with torch.no_grad():
                if written is None:
                    result = model(input_ids=torch.tensor([ids]))
                else:
                    result = model(input_ids=torch.tensor([prompt]), decoder_input_ids=torch.tensor([ids]))
                logits = result.logits[0, -1].double()
            first, second = logits.topk(2).values.tolist()
            if first - second <= 1e-4 * logits.abs().max().item():
                return
            token = int(logits.argmax())
            assert i < len(done["ids"]), f"{i} tokens, transformers goes on"
            assert done["ids"][i] == token, f"token {i} is {done['ids'][i]}, transformers {token}"
            probability = logits.log_softmax(-1)[token].item()
            assert abs(done["log_probabilities"][i] - probability) <= RELATIVE * logits.abs().max().item()
            ids.append(token)
            if token == end:
                assert len(done["ids"]) == i + 1, "goes on behind the end"
                return

    def check_translator(self, family, name, config, seed):
        model, folder = self.make(family, name, config, seed)
        torch, numpy, start = self.torch, self.numpy, config["decoder_start_token_id"]
        sources = self.sequences(5)
        targets = [[start] + ids[::-1] for ids in sources]
        targets[0] = targets[1]
        lines, output = self.folder / "targets.txt", self.folder / "rows.npy"
        lines.write_text("".join(" ".join(map(str, ids)) + "\n" for ids in targets))
        source = self.folder / "ids.txt"
        source.write_text("".join(" ".join(map(str, ids)) + "\n" for ids in sources))
        rows = {}
        for what in ("--hidden", "--logits"):
            self.run("embed", "--model", folder, "--ids-file", source, "--target-ids-file", lines, what, "--output", output)
            rows[what] = numpy.load(output)
        for i, (ids, target) in enumerate(zip(sources, targets)):
            with torch.no_grad():
                result = model(input_ids=torch.tensor([ids]), decoder_input_ids=torch.tensor([target]),
                               output_hidden_states=True, output_attentions=True)
            self.check_weights(folder, {"encoder.self": result.encoder_attentions, "decoder.self": result.decoder_attentions,
                                        "decoder.cross": result.cross_attentions}, ids, [*target[1:], 7])
            hidden = result.decoder_hidden_states[-1][0]
            if getattr(model.config, "scale_decoder_outputs", family == "UMT5"):  # UMT5 always does
                hidden = hidden * model.config.d_model**-0.5
            self.compare("hidden states", rows["--hidden"][i, : len(target)], hidden)
            self.compare("logits", rows["--logits"][i, : len(target)], result.logits[0])
        self.check_text(model, folder, sources[2], [start])

    def rows_of(self, folder, what, first, start):
        """What fovea computes for two sequences, of a translator given one."""
        ids, targets = self.sequences(first)[1], [start] + self.sequences(first)[1][::-1]
        source, target, output = self.folder / "ids.txt", self.folder / "targets.txt", self.folder / "rows.npy"
        source.write_text(" ".join(map(str, ids)) + "\n")
        target.write_text(" ".join(map(str, targets)) + "\n")
        arguments = ["embed", "--model", folder, "--ids-file", source, what, "--output", output, "--cpu-threads", 1]
        if start is not None:
            arguments += ["--target-ids-file", target]
        done = subprocess.run([self.fovea, *map(str, arguments)], capture_output=True, text=True, check=False)
        return (self.numpy.load(output)[0] if done.returncode == 0 else None), ids, targets, done.stderr

    def their_rows(self, name, folder, what, ids, targets, start):
        """The same by transformers; None where it refuses the config or makes weights up."""
        torch = self.torch
        try:
            model, info = getattr(self.transformers, name).from_pretrained(
                folder, output_loading_info=True, attn_implementation="eager", dtype=torch.float32)
            if any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")):
                return None
            with torch.no_grad():
                inputs = dict(input_ids=torch.tensor([ids]))
                if start is not None:
                    inputs["decoder_input_ids"] = torch.tensor([targets])
                result = model.eval()(**inputs)
                if what == "--hidden":
                    return result.last_hidden_state[0]
                return numbers_of(result)[0]
        except Exception:  # of any kind: each class checks its config in its own way
            return None

    def check_fields(self, family, name, config, seed):
        """Every key with other values, and absent: fovea refuses it, or computes what transformers computes."""
        _, folder = self.make(family, name, config, seed)
        path = folder / "config.json"
        good = json.loads(path.read_text())
        reads_targets = good.get("is_encoder_decoder") and not name.endswith(("ForSequenceClassification", "ForQuestionAnswering"))
        start = good.get("decoder_start_token_id", 0) if reads_targets else None
        refused = same = 0
        what = "--hidden" if name.endswith("Model") and name not in HEADS else "--logits"
        for key in good:
            for value in [ABSENT, *others(key, good[key])]:
                changed = {k: v for k, v in good.items() if k != key}
                if value is not ABSENT:
                    changed[key] = value
                path.write_text(json.dumps(changed))
                ours, ids, targets, _ = self.rows_of(folder, what, 5, start)
                if ours is None:
                    refused += 1
                    continue
                theirs = self.their_rows(name, folder, what, ids, targets, start)
                if theirs is None or not theirs.isfinite().all():
                    continue
                same += 1
                self.compare(f"{key} = {'absent' if value is ABSENT else value}: rows", ours, theirs)
        assert same > len(good), f"only {same} of the changed configs could be compared"
        print(f"  {refused} changed configs are refused, {same} agree")

    def check_files(self, family, name, config, seed):
        """Shards, 16-bit weights, no prefix, and the keys of transformers 4, against the same folder loaded in f32."""
        torch = self.torch
        start = config.get("decoder_start_token_id")
        what = "--hidden" if name.endswith("Model") and name not in HEADS else "--logits"
        for number, (dtype, shards, older) in enumerate([("float32", "20KB", False), ("bfloat16", "5GB", False),
                                                         ("float16", "15KB", False), ("float32", "5GB", True)]):
            model, folder = self.make(family, name, config, 1000 * (number + 1) + seed)
            folder = self.folder / f"files-{number}"
            model.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size=shards)
            assert ("KB" in shards) == (folder / "model.safetensors.index.json").exists()
            if older:
                path = folder / "config.json"
                path.write_text(json.dumps(as_before(json.loads(path.read_text()))))
            ours, ids, targets, problem = self.rows_of(folder, what, 5, start)
            assert ours is not None, problem
            theirs = self.their_rows(name, folder, what, ids, targets, start)
            assert theirs is not None, "transformers does not load what it saved"
            # Its table of sines is in the file, and rounded there.
            bound = 2e-3 if family == "RoFormer" and dtype != "float32" else RELATIVE
            self.compare(f"rows of {dtype} in shards of {shards}, {older=}", ours, theirs, bound)

    def check_decoder(self, family, name, config, seed, **saving):
        model, folder = self.make(family, name, config, seed, **saving)
        has_logits = name.endswith(("LM", "LMHeadModel"))
        self.check_rows(model, folder, has_logits, 0)
        if has_logits:
            self.check_text(model, folder, self.sequences(3)[2][:9])

    def check_encoder(self, family, name, config, seed):
        model, folder = self.make(family, name, config, seed)
        self.check_rows(model, folder, not name.endswith("Model"), 5)
        self.check_padding_inside(model, folder)

    def check_padding_inside(self, model, folder):
        """A text may spell the padding, as "a<pad>b" does. It is read, and in RoBERTa it has no position of its own."""
        pad = self.transformers.AutoConfig.from_pretrained(folder).pad_token_id
        sequences = [[7, pad, 9, pad, pad, 12, 20], [pad, 8, 11], [9, 30, pad]]
        hidden = self.embed(folder, sequences, "--hidden")
        for ours, ids in zip(hidden, sequences):
            with self.torch.no_grad():
                result = model(input_ids=self.torch.tensor([ids]), attention_mask=self.torch.ones(1, len(ids)), output_hidden_states=True)
            self.compare(f"hidden states of {ids}", ours[: len(ids)], result.hidden_states[-1][0])


def cases():
    # The bias of in_proj makes numbers of transformers' padding, which its convolution then reads.
    padded = [case for case in RECURRENT if not case[2].get("use_bias")]
    of_fields = {case[0]: case for case in [*DECODERS, *ENCODERS, *TRANSLATORS]}.values()  # one for each family
    seed = 0
    for part, check in ((DECODERS, "check_decoder"), (ENCODERS, "check_encoder"), (TRANSLATORS, "check_translator"),
                        (padded, "check_padding"), (of_fields, "check_files"), (of_fields, "check_fields")):
        for family, name, config in part:
            seed += 1
            of = {"check_fields": "every field of ", "check_files": "files of ", "check_padding": "padding of "}.get(check, "")
            yield of + describe(name, config), Oracle, check, (family, name, config, seed)


if __name__ == "__main__":
    sys.exit(oracle_main.main(cases()))
