"""transformers and CTranslate2 beside Fovea's language models: `fovea bench generate` starts `generate_rivals.py THREADS` and speaks
to it in lines of JSON, a request and an answer each.

{"do": "list", "without": []}
    {"rivals": [{"name", "library", "version"} or {"name", "absent": reason}, ...]}
{"do": "prepare", "model": FOLDER, "prompts": [[id, ...], ...], "written": [[id, ...], ...], "threads": [...]}
    {"preparing": NAME} before each
    {"prepared": [{"name", "note"} or {"name", "refused": reason}, ...]}: of f32, whose texts are Fovea's, `written`, or which is
    refused by the first token that is another; of int8, how many are
{"do": "run", "name", "count", "threads", "width"}
    {"seconds": [...]}, one for the first `width` texts
{"do": "drop"}
    {}

Texts are written greedily, all to the same length, as one batch. Each rival has a process of its own for each number of threads
(apart.py).
"""

from __future__ import annotations

import pathlib
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

from apart import Apart
from rival_server import reason, seconds_of, serve

TRANSFORMERS = "transformers f32"
TYPES = {"ctranslate2 f32": "float32", "ctranslate2 int8": "int8"}
Texts = list[list[int]]


class Transformers:
    def __init__(self, folder: pathlib.Path, threads: int) -> None:
        import torch
        import transformers

        torch.set_num_threads(threads)
        transformers.utils.logging.disable_progress_bar()
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.model.generation_config = transformers.GenerationConfig(do_sample=False, pad_token_id=0)

    def write(self, prompts: Texts, length: int) -> Texts:
        import torch

        ids = torch.tensor(prompts)
        with torch.inference_mode():
            found = self.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=length, min_new_tokens=length)
        return found[:, ids.shape[1] :].tolist()


class CTranslate2:
    def __init__(self, folder: pathlib.Path, kind: str, threads: int) -> None:
        import ctranslate2

        # Making int8 weights leaves threads to the thread that loads. They are gone once it has ended.
        with ThreadPoolExecutor(1) as loading:
            options = dict(device="cpu", compute_type=kind, inter_threads=1, intra_threads=threads)
            self.generator = loading.submit(ctranslate2.Generator, str(folder), **options).result()

    def write(self, prompts: Texts, length: int) -> Texts:
        found = self.generator.generate_batch(
            [[str(one) for one in ids] for ids in prompts],
            max_length=length,
            min_length=length,
            sampling_topk=1,
            include_prompt_in_result=False,
            end_token=[],
        )
        return [one.sequences_ids[0] for one in found]


class Writer:
    """A rival with a number of threads; `model` is the folder, to which CTranslate2's own is added."""

    def __init__(self, name: str, model: pathlib.Path, threads: int) -> None:
        self.library: Any
        if name == TRANSFORMERS:
            self.library = Transformers(model, threads)
            return
        converted = model / "ctranslate2"
        if not converted.exists():
            convert(model, converted)
        self.library = CTranslate2(converted, TYPES[name], threads)

    def write(self, prompts: Texts, length: int) -> Texts:
        return self.library.write(prompts, length)

    def seconds(self, prompts: Texts, length: int, count: int) -> list[float]:
        self.write(prompts, length)  # warms threads and memory
        return seconds_of(lambda: self.write(prompts, length), count)


def convert(folder: pathlib.Path, output: pathlib.Path) -> None:
    """A Starcoder2, for which CTranslate2 has the layers and no converter."""
    from ctranslate2.specs import common_spec, transformer_spec
    from translate import Weights

    weights = Weights(folder)
    config = weights.config
    if config.get("model_type") != "starcoder2":
        raise ValueError(f"expected a starcoder2, got {config.get('model_type')}")
    heads = config["num_attention_heads"]
    activations = {"relu": common_spec.Activation.RELU, "gelu_pytorch_tanh": common_spec.Activation.GELUTanh}
    spec = transformer_spec.TransformerDecoderModelSpec.from_config(
        config["num_hidden_layers"],
        heads,
        activation=activations[config["hidden_act"]],
        rotary_dim=config["hidden_size"] // heads,
        rotary_interleave=False,
        rotary_base=config["rope_theta"],
        num_heads_kv=config["num_key_value_heads"],
    )
    decoder, tensors = spec.decoder, weights.tensors
    decoder.scale_embeddings = False
    decoder.embeddings.weight = decoder.projection.weight = tensors["model.embed_tokens.weight"]
    weights.norm(decoder.layer_norm, "model.norm")
    for number, layer in enumerate(decoder.layer):
        own = f"model.layers.{number}"
        weights.linear(layer.self_attention.linear[0], *[f"{own}.self_attn.{part}_proj" for part in "qkv"])
        weights.linear(layer.self_attention.linear[1], own + ".self_attn.o_proj")
        weights.norm(layer.self_attention.layer_norm, own + ".input_layernorm")
        weights.linear(layer.ffn.linear_0, own + ".mlp.c_fc")
        weights.linear(layer.ffn.linear_1, own + ".mlp.c_proj")
        weights.norm(layer.ffn.layer_norm, own + ".post_attention_layernorm")
    spec.register_vocabulary([str(one) for one in range(config["vocab_size"])])
    spec.config.bos_token = spec.config.eos_token = spec.config.unk_token = "0"
    spec.config.layer_norm_epsilon = config["norm_epsilon"]
    spec.validate()
    spec.optimize()
    output.mkdir()
    spec.save(str(output))


def difference(theirs: Texts, ours: Texts) -> str:
    """The first token that is another; "" if none is."""
    if len(theirs) != len(ours):
        return f"there are {len(theirs)} texts, Fovea has {len(ours)}"
    for text, (their, our) in enumerate(zip(theirs, ours)):
        for place, (a, b) in enumerate(zip(their, our)):
            if a != b:
                return f"token {place + 1} of text {text + 1} is {a}, Fovea's is {b}, by the same weights"
        if len(their) != len(our):
            return f"text {text + 1} has {len(their)} tokens, Fovea's {len(our)}"
    return ""


class Server:
    def __init__(self, tell: Callable[[dict[str, Any]], None]) -> None:
        self.tell = tell
        self.model = pathlib.Path()
        self.prompts: Texts = []
        self.length = 0
        self.writers: dict[tuple[str, int], Apart] = {}

    def list_all(self, _: dict[str, Any]) -> dict[str, Any]:
        found = []
        for library, names in (("transformers", [TRANSFORMERS]), ("ctranslate2", list(TYPES))):
            try:
                module = __import__(library)
                __import__("torch" if library == "transformers" else "translate")  # what it needs as well
                found += [{"name": name, "library": library, "version": module.__version__} for name in names]
            except Exception as error:  # whatever keeps the package from working
                found += [{"name": name, "absent": reason(error)} for name in names]
        self.absent = {one["name"] for one in found if "absent" in one}
        return {"rivals": found}

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        self.prompts, written = request["prompts"], request["written"]
        self.length = len(written[0])
        self.model = pathlib.Path(request["model"])
        prepared = []
        for name in (TRANSFORMERS, *TYPES):
            if name in request.get("without", []) or name in self.absent:
                continue
            self.tell({"preparing": name})
            try:
                theirs = self._writer(name, max(request["threads"])).call("write", self.prompts, self.length)
                other = difference(theirs, written)
                if other and not name.endswith("int8"):
                    raise ValueError(other)
                same = sum(a == b for a, b in zip(theirs, written))
                prepared.append({"name": name, "note": f"{same} of {len(written)} texts are Fovea's"})
            except Exception as error:  # a rival's own error is its reason
                self._end(name)
                prepared.append({"name": name, "refused": reason(error)})
        return {"prepared": prepared}

    def _writer(self, name: str, threads: int) -> Apart:
        if (name, threads) not in self.writers:
            self.writers[name, threads] = Apart(Writer, name, self.model, threads)
        return self.writers[name, threads]

    def _end(self, name: str) -> None:
        for key in [key for key in self.writers if key[0] == name]:
            self.writers.pop(key).close()

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        writer = self._writer(request["name"], request["threads"])
        return {"seconds": writer.call("seconds", self.prompts[: request["width"]], self.length, request["count"])}

    def drop(self, _: dict[str, Any]) -> dict[str, Any]:
        for writer in self.writers.values():
            writer.close()
        self.writers.clear()
        return {}


if __name__ == "__main__":
    sys.exit(serve(Server))
