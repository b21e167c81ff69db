"""Writes a call as a text and tensors, the types that a PyTorch operator may take, and reads it again."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Optional, Sequence

from .._engine import Request
from .._mask import And, Mask, Not, Or, replaced
from .._spec import Call, Structure
from ..masks import ArrayMask


class _Written(Mask):
    """A mask given by its text."""

    text: str

    def _text(self) -> str:
        return self.text


class _Numbered(Mask):
    """A placeholder for the array of this number among the call's arrays."""

    number: int


# Masks are written in prefix notation: "& causal ~ array:0". No mask's own text contains a space.
def _mask_text(mask: Mask, arrays: list[Any]) -> str:
    if isinstance(mask, And):
        return "& " + _mask_text(mask.a, arrays) + " " + _mask_text(mask.b, arrays)
    if isinstance(mask, Or):
        return "| " + _mask_text(mask.a, arrays) + " " + _mask_text(mask.b, arrays)
    if isinstance(mask, Not):
        return "~ " + _mask_text(mask.a, arrays)
    if isinstance(mask, ArrayMask):
        arrays.append(mask.visible)
        return "array:" + str(len(arrays) - 1)
    return mask._text()


def _read_mask(words: list[str]) -> Mask:
    word = words.pop(0)
    if word == "~":
        return Not(_read_mask(words))
    if word in ("&", "|"):
        first = _read_mask(words)
        return (And if word == "&" else Or)(first, _read_mask(words))
    if word.startswith("array:"):
        return _Numbered(int(word[6:]))
    return _Written(word)


def write(call: Call, request: Request) -> tuple[str, list[Any]]:
    """(text, arrays of the mask). Each line is a name and a value. The code is plain enough for torch.compile to
    trace."""
    s = call.structure
    arrays: list[Any] = []
    lines = ["score " + s.score]
    if s.scale is not None:
        lines.append(f"scale {s.scale}")
    lines += ["mod " + mod for mod in s.mods]
    lines.append("mask " + _mask_text(s.mask if call.array_mask is None else call.array_mask, arrays))
    lines.append("normalizer " + s.normalizer)
    lines += ["weight_mod " + mod for mod in s.weight_mods]
    lines.append(f"dropout {s.dropout}")
    if s.precision != "full":
        lines.append("precision " + s.precision)
    lines.append(f"hidden {s.hidden}")
    lines += ["parameter " + name for name in call.parameters]
    lines += ["head " + str(n) for n in request.weight_heads]
    lines += ["row " + str(n) for n in request.weight_rows]
    if request.lse:
        lines.append("lse 1")
    if request.weights:
        lines.append("weights 1")
    if request.row_major:
        lines.append("row_major 1")
    return "\n".join(lines), arrays


@dataclasses.dataclass(frozen=True)
class Known:
    """The content of a text."""

    structure: Structure
    # The mask, if it contains arrays.
    numbered_mask: Optional[Mask]
    parameters: tuple[str, ...]
    request: Request

    def call(self, parameters: Sequence[Any], arrays: Sequence[Any], key_lengths: tuple[int, ...]) -> Call:
        mask = None if self.numbered_mask is None else replaced(
            self.numbered_mask, lambda part: ArrayMask(arrays[part.number]) if isinstance(part, _Numbered) else part
        )
        return Call(self.structure, dict(zip(self.parameters, parameters)), key_lengths, mask)


@functools.lru_cache(maxsize=256)
def read(text: str) -> Known:
    found: dict[str, list[str]] = {}
    for line in text.split("\n"):
        name, value = line.split(" ", 1)
        found.setdefault(name, []).append(value)
    mask = _read_mask(found["mask"][0].split(" "))
    has_arrays = "array:" in found["mask"][0]
    structure = Structure(
        score=found["score"][0],
        scale=float(found["scale"][0]) if "scale" in found else None,
        mods=tuple(found.get("mod", ())),
        mask=_Written("everything") if has_arrays else mask,
        normalizer=found["normalizer"][0],
        weight_mods=tuple(found.get("weight_mod", ())),
        dropout=float(found["dropout"][0]),
        precision=found.get("precision", ["full"])[0],
        hidden=int(found["hidden"][0]),
    )
    request = Request(
        weight_heads=tuple(map(int, found.get("head", ()))),
        weight_rows=tuple(map(int, found.get("row", ()))),
        lse="lse" in found,
        weights="weights" in found,
        row_major="row_major" in found,
    )
    return Known(structure, mask if has_arrays else None, tuple(found.get("parameter", ())), request)
