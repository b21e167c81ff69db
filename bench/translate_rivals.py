"""CTranslate2 beside Fovea's translators: `fovea bench translate` starts `translate_rivals.py THREADS` and speaks to it in lines
of JSON, a request and an answer each.

{"do": "list", "without": []}
    {"rivals": [{"name", "library", "version"} or {"name", "absent": reason}, ...]}
{"do": "prepare", "model": FOLDER, "vocabulary", "batches": [[[id, ...], ...], ...], "written": [[[id, ...], ...], ...]}
    {"preparing": NAME} before each
    {"prepared": [{"name", "note"} or {"name", "refused": reason}, ...]}: the note says how many of Fovea's greedy translations,
    `written`, the same weights give here too
{"do": "run", "name", "count", "threads", "width"}
    {"seconds": [...]}, one for all batches
{"do": "drop"}
    {}

A translation is as long as the longest sentence of its batch, in both programs. Batches run side by side, each on one thread.
"""

from __future__ import annotations

import gc
import json
import pathlib
import sys
from typing import Any, Callable

from rival_server import reason, seconds_of, serve

TYPES = {"ctranslate2 f32": "float32", "ctranslate2 int8": "int8"}
SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]


def words(ids: list[int]) -> list[str]:
    return [SPECIAL[one] if one < len(SPECIAL) else f"w{one}" for one in ids]


class Server:
    def __init__(self, tell: Callable[[dict[str, Any]], None]) -> None:
        self.tell = tell
        self.folder = pathlib.Path()
        self.batches: list[list[list[str]]] = []
        self.translators: dict[tuple[str, int], Any] = {}

    def list_all(self, _: dict[str, Any]) -> dict[str, Any]:
        try:
            import ctranslate2
            import translate  # noqa: F401: it needs safetensors as well
        except Exception as error:  # whatever keeps the package from working
            return {"rivals": [{"name": name, "absent": reason(error)} for name in TYPES]}
        return {"rivals": [{"name": name, "library": "ctranslate2", "version": ctranslate2.__version__} for name in TYPES]}

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        import translate

        prepared = []
        self.folder, failed = pathlib.Path(request["model"]) / "ctranslate2", ""
        try:
            source = pathlib.Path(request["model"])
            vocabulary = {word: number for number, word in enumerate(words(list(range(request["vocabulary"]))))}
            (source / "vocab.json").write_text(json.dumps(vocabulary))
            if not self.folder.exists():
                translate.convert(source, self.folder)
        except (Exception, SystemExit) as error:  # a model that it has no layers for
            failed = reason(error).replace(request["model"] + ": ", "")
        self.batches = [[words(ids) for ids in batch] for batch in request["batches"]]
        ours = [[words(ids) for ids in batch] for batch in request["written"]]
        for name in TYPES:
            if name in request.get("without", []):
                continue
            self.tell({"preparing": name})
            try:
                if failed:
                    raise ValueError(failed)
                theirs = self._translate(name, 1, 1)
                pairs = [(a, b) for mine, other in zip(ours, theirs) for a, b in zip(mine, other)]
                prepared.append({"name": name, "note": f"greedily {sum(a == b for a, b in pairs)} of {len(pairs)} lines are Fovea's"})
            except Exception as error:  # a rival's own error is its reason
                prepared.append({"name": name, "refused": reason(error)})
        return {"prepared": prepared}

    def _translate(self, name: str, threads: int, width: int) -> list[list[list[str]]]:
        import ctranslate2

        key = (name, threads)
        if key not in self.translators:
            self.translators[key] = ctranslate2.Translator(
                str(self.folder),
                device="cpu",
                compute_type=TYPES[name],
                inter_threads=threads,
                intra_threads=1,
            )
        # The longest batch first, as Fovea begins with it. A batch is ordered by length.
        order = sorted(range(len(self.batches)), key=lambda n: -len(self.batches[n][-1]))
        running = {}
        for n in order:
            batch = self.batches[n]
            running[n] = self.translators[key].translate_batch(
                batch,
                beam_size=width,
                min_decoding_length=len(batch[-1]),
                max_decoding_length=len(batch[-1]),
                suppress_sequences=[["<pad>"], ["<s>"]],
                asynchronous=True,
            )
        return [[one.result().hypotheses[0] for one in running[n]] for n in range(len(self.batches))]

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        def translate() -> None:
            self._translate(request["name"], request["threads"], request["width"])

        translate()  # warms threads and memory
        return {"seconds": seconds_of(translate, request["count"])}

    def drop(self, _: dict[str, Any]) -> dict[str, Any]:
        self.translators.clear()
        gc.collect()
        return {}


if __name__ == "__main__":
    sys.exit(serve(Server))
