"""A row of `fovea bench kernels` as a rival sees it, and what a rival is. Operands come as files of raw elements, so that every
rival computes with the same bits."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Callable

import numpy as np

MOST_MASK_BYTES = 3 << 30  # of one dense mask, for those that know no other


class Refused(Exception):
    """What a rival cannot do, in a few words."""


@dataclasses.dataclass
class Case:
    backward: bool
    score: str
    mask: str
    dtype: str
    shape: list[int]
    arrays: dict[str, Any]  # bf16 as uint16

    @property
    def lengths(self) -> tuple[int, int]:
        return self.shape[3], self.shape[4]

    @property
    def groups(self) -> int:
        return self.shape[1] // self.shape[2]

    @property
    def unmasked(self) -> bool:
        return self.mask == "everything"

    def visible(self, numbers: Any) -> Callable[[Any, Any], Any]:
        """Whether the key at a position is visible to the query in a row. `numbers`: a list of integers as an array."""
        offset = self.lengths[1] - self.lengths[0]
        found = [int(number) for number in re.findall(r"\d+", self.mask)]
        if self.mask == "everything":
            return lambda row, key: key >= 0
        if self.mask == "causal":
            return lambda row, key: key <= row + offset
        if self.mask.startswith("window("):
            back, ahead = found
            return lambda row, key: (key >= row + offset - back) & (key <= row + offset + ahead)
        if self.mask.startswith("documents("):
            of = numbers([sum(at >= border for border in found) for at in range(self.lengths[1])])
            return lambda row, key: of[row + offset] == of[key]
        raise Refused(f"does not know the mask {self.mask}")

    def dense_mask(self, element_bytes: int) -> Any:
        """[query_len, key_len] of booleans, for those whose masks are matrices of so many bytes an element."""
        rows, keys = self.lengths
        if rows * keys * element_bytes > MOST_MASK_BYTES:
            raise Refused(f"its mask of all pairs would take {rows * keys * element_bytes >> 20} MiB")
        key = np.arange(keys)
        visible = self.visible(np.array)
        return np.stack([np.asarray(visible(np.int64(row), key)) for row in range(rows)])


Call = Callable[[], None]
Results = Callable[[], dict[str, Any]]


class Rival:
    """A way to compute a case: `prepare` gives a call to time, and its last results as f32 arrays."""

    name = library = version = ""

    def __init__(self, threads: int) -> None:
        raise NotImplementedError

    def prepare(self, case: Case) -> tuple[Call, Results]:
        raise NotImplementedError


def as_f32(array: Any) -> Any:
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32, copy=False)
