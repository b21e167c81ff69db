"""Splits a caller's arguments into what the engine takes: the structure, which is text, and the arrays."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Optional, Sequence

from . import _core, masks, mods as mod_values, normalizers, scores
from ._arrays import Library, check_unmasked, compute_dtype, described, library_of, others
from ._errors import InvalidArgument
from ._mask import Sizes, any_part, replaced
from ._positions import Positions
from ._properties import draws, key_rows, reads_keys
from ._value import integers, is_array, real, shown
from ._weak import watches, weakly

# The arguments that a spec is made of.
SPEC = frozenset({"score", "mods", "mask", "normalizer", "scale", "dropout", "precision", "weight_mods"})

_PRECISIONS = ("full", "higher", "high", "medium")


@dataclasses.dataclass(frozen=True)
class Structure:
    """A spec without its arrays. Plans are made from it and cached by it."""

    score: str
    scale: Optional[float]
    mods: tuple[str, ...]
    mask: masks.Mask
    normalizer: str
    weight_mods: tuple[str, ...]
    dropout: float
    precision: str
    hidden: int

    def __hash__(self) -> int:
        # The hash is computed once: repeated calls look their plan up by it each time.
        known: Optional[int] = self.__dict__.get("_hash")
        if known is None:
            fields = dataclasses.fields(self)
            known = hash(tuple(getattr(self, field.name) for field in fields))
            object.__setattr__(self, "_hash", known)
        return known

    @property
    def draws(self) -> bool:
        """Whether a call depends on its seed."""
        return self.dropout > 0 or draws(self.normalizer)

    def __getstate__(self) -> dict[str, Any]:
        # In another process the same texts have other hashes.
        return {name: value for name, value in self.__dict__.items() if name != "_hash"}


@dataclasses.dataclass(frozen=True)
class Call:
    """A spec, split into its structure and its arrays."""

    structure: Structure
    # The caller's arrays by name: "score.W", "mods[0].slope", ...
    parameters: dict[str, Any]
    # Whole numbers, or a tensor of them.
    key_lengths: Any
    # The mask if it contains arrays; such plans are not cached.
    array_mask: Optional[masks.Mask]
    # The library of the query; None: NumPy's.
    library: Optional[Library] = None


def take_apart(
    query: Any,
    *,
    score: Any = None,
    mods: Sequence[Any] = (),
    mask: Any = None,
    normalizer: Any = None,
    scale: Any = None,
    dropout: Any = 0.0,
    precision: str = "full",
    weight_mods: Sequence[Any] = (),
) -> Call:
    if not isinstance(precision, str) or precision not in _PRECISIONS:
        raise InvalidArgument("attention", "precision", '"full", "higher", "high" or "medium"', shown(precision))
    score = checked("score", scores.ScaledDot() if score is None else score, scores.Score)
    normalizer = checked(
        "normalizer", normalizers.Softmax() if normalizer is None else normalizer, normalizers.Normalizer
    )
    if isinstance(score, scores.Concat):
        score = score._split(_four("query", query)[-1] if not hasattr(query, "head_dim") else query.head_dim)
    mods, mask = mods_and_mask(mods, mask)
    weight_mods = list_of_mods("weight_mods", weight_mods)
    parameters: dict[str, Any] = {**score._arrays(), **normalizer._arrays()}
    for name, values in (("mods", mods), ("weight_mods", weight_mods)):
        for n, mod in enumerate(values):
            for argument, array in mod._arrays().items():
                parameters[f"{name}[{n}].{argument}"] = array
    mask, key_lengths = _dynamic_lengths(mask)
    array_mask = mask if any_part(mask, masks.ArrayMask) else None
    structure = Structure(
        score=score._text(),
        scale=None if scale is None else real(scale, "attention.scale"),
        mods=tuple(mod._text() for mod in mods),
        mask=masks.Everything() if array_mask is not None else mask,
        normalizer=normalizer._text(),
        weight_mods=tuple(mod._text() for mod in weight_mods),
        dropout=real(dropout, "attention.dropout"),
        precision=precision,
        hidden=score._hidden(),
    )
    return Call(structure, parameters, key_lengths, array_mask, library_of(query))


def checked(argument: str, value: Any, kind: type) -> Any:
    if isinstance(value, type) and issubclass(value, kind):
        raise InvalidArgument(
            "attention", argument, f"a value, fovea.{value.__name__}(...)", f"the class {value.__name__}"
        )
    if not isinstance(value, kind):
        raise InvalidArgument("attention", argument, f"a {kind.__name__} of fovea", shown(value))
    return value


def list_of_mods(argument: str, values: Any) -> tuple[Any, ...]:
    if isinstance(values, mod_values.Mod):
        values = (values,)
    try:
        values = tuple(values)
    except TypeError:
        raise InvalidArgument(
            "attention", argument, "a sequence of fovea's mods", shown(values)
        ) from None
    return tuple(checked(f"{argument}[{n}]", mod, mod_values.Mod) for n, mod in enumerate(values))


def mods_and_mask(mods: Any, mask: Any) -> tuple[tuple[Any, ...], masks.Mask]:
    """An additive mask becomes the last mod."""
    mods = list_of_mods("mods", mods)
    if mask is None:
        return mods, masks.Everything()
    mask = library_of(mask).mask(mask)
    if is_array(mask):
        check_unmasked("attention", "mask", mask)
        if str(mask.dtype).rsplit(".", 1)[-1] == "bool":
            return mods, masks.ArrayMask(mask)
        if str(mask.dtype).rsplit(".", 1)[-1] not in ("float32", "float64", "bfloat16", "float16"):
            raise InvalidArgument(
                "attention", "mask", "truth values, or numbers to be added in f32, f64, bf16 or f16", described(mask)
            )
        return (*mods, mod_values.DenseBias(mask)), masks.Everything()
    if hasattr(mask, "mask_mod") and hasattr(mask, "kv_num_blocks"):
        raise InvalidArgument(
            "attention", "mask", "the function that a BlockMask was made of: mask=block_mask.mask_mod", "a BlockMask"
        )
    if callable(mask) and not isinstance(mask, (masks.Mask, type)):
        return mods, masks.Predicate(mask)
    if isinstance(mask, masks.Mask):
        return mods, mask
    if isinstance(mask, type) and issubclass(mask, masks.Mask):
        checked("mask", mask, masks.Mask)
    raise InvalidArgument(
        "attention",
        "mask",
        "a mask of fovea, an array of truth values or numbers, or a function (b, h, i, j)",
        shown(mask),
    )


def _dynamic_lengths(mask: masks.Mask) -> tuple[masks.Mask, Any]:
    """Lengths that occur once in the mask are passed with the call, so that batches of other lengths share a plan."""
    found: list[masks.KeyLengths] = []

    def look(part: masks.Mask) -> None:
        if isinstance(part, masks.KeyLengths):
            found.append(part)
        for inner in part._parts():
            look(inner)

    look(mask)
    if len(found) > 1:  # otherwise their current values are part of the plan
        return replaced(mask, _lengths_now), ()
    if not found or found[0].lengths is None:
        return mask, ()
    given = found[0].lengths
    lengths = given if library_of(given).deferred else integers(given, "KeyLengths.lengths")
    return replaced(mask, lambda part: masks.KeyLengths() if isinstance(part, masks.KeyLengths) else part), lengths


def check_lengths(mask: Any) -> None:
    """Throws for a mask whose lengths only a call of a plan could bring."""
    if isinstance(mask, masks.KeyLengths) and mask.lengths is None:
        expected = "lengths in its KeyLengths(lengths): only a call of a plan brings them itself"
        raise InvalidArgument("attention", "mask", expected, "fovea.KeyLengths()")
    for part in mask._parts() if isinstance(mask, masks.Mask) else ():
        check_lengths(part)


def _lengths_now(mask: masks.Mask) -> masks.Mask:
    if not isinstance(mask, masks.KeyLengths) or mask.lengths is None:
        return mask
    return masks.KeyLengths(integers(mask.lengths, "KeyLengths.lengths"))


@dataclasses.dataclass(frozen=True)
class Shape:
    """The sizes of one call, or the largest sizes of a plan."""

    batch: int
    num_query_heads: int
    num_kv_heads: int
    query_len: int
    key_len: int
    head_dim: int
    value_dim: int
    key_dim: int
    hidden: int

    @staticmethod
    def of(query: Any, key: Any, value: Any, call: Call) -> "Shape":
        q = _four("query", query)
        k = _four("key", key) if key is not None else None
        v = _four("value", value) if value is not None else None
        keyless = not reads_keys(call.structure.score)
        if k is None and v is None and not keyless:
            raise InvalidArgument("attention", "key", "an array [batch, heads, key_len, dim]", "None")
        if k is None and not keyless:
            raise InvalidArgument("attention", "key", "an array: only a Location score has none", "None")
        other = k or v
        if other is None:
            rows = key_rows(call.structure.score)
            other = (q[0], q[1], scores.length(call.parameters.get(rows), rows), q[3])
        return Shape(
            batch=q[0],
            num_query_heads=q[1],
            num_kv_heads=other[1],
            query_len=q[2],
            key_len=other[2],
            head_dim=q[3],
            value_dim=v[3] if v else 0,
            key_dim=k[3] if k else 0,
            hidden=call.structure.hidden,
        )

    @property
    def keys_given(self) -> Optional[int]:
        """The rows of the keys or values, or None: a Location score alone reads neither."""
        return self.key_len if self.key_dim or self.value_dim else None


def _four(argument: str, array: Any) -> tuple[int, int, int, int]:
    try:
        shape = tuple(int(n) for n in getattr(array, "shape", ()))
    except (TypeError, ValueError):
        shape = ()
    check_unmasked("attention", argument, array)
    if len(shape) != 4 or not is_array(array):
        raise InvalidArgument("attention", argument, "[batch, heads, length, dim]", described(array))
    return shape


@dataclasses.dataclass(frozen=True)
class PlanKey:
    structure: Structure
    shape: Shape
    dtype: str
    # For masks that depend on sizes: a number, or a tuple with one for each batch entry. Other masks serve every
    # offset and get 0.
    query_offset: Any = 0
    # Of a packed batch, for the same masks: how many queries each entry has.
    query_rows: Optional[tuple[int, ...]] = None
    library: Optional[Library] = None
    kernel: str = ""
    derivatives: bool = False
    parts: bool = False


def make_plan(key: PlanKey, mask: masks.Mask) -> "_core.Plan":
    """Makes a plan without the cache, for masks that contain arrays."""
    s, shape = key.structure, key.shape
    library = others() if key.library is None else key.library
    sizes = Sizes(
        shape.batch, shape.num_query_heads, shape.query_len, shape.key_len, key.query_offset, library, key.query_rows
    )
    return _core.make_plan(
        s.score,
        s.scale,
        list(s.mods),
        mask._engine(sizes),
        s.normalizer,
        list(s.weight_mods),
        s.dropout,
        list(dataclasses.astuple(shape)),
        key.dtype,
        s.precision,
        key.kernel,
        key.derivatives,
        key.parts,
    )


@functools.lru_cache(maxsize=256)
def known_plan(key: PlanKey) -> "_core.Plan":
    return make_plan(key, key.structure.mask)


# Plans of masks with functions, oldest first. There are few, because a predicate's answers take one bit for each
# pair. A function that is written inside a call is a new one each time, so its plan is dropped when the function is
# deleted, with everything it captured. Each step below is a single operation of a dict; threads that arrive together
# may each make a plan.
_MOST_PREDICATE_PLANS = 16
_predicate_plans: "dict[PlanKey, _core.Plan]" = {}


def _known_predicate_plan(key: PlanKey) -> "_core.Plan":
    mask = key.structure.mask
    known = dataclasses.replace(key, structure=dataclasses.replace(key.structure, mask=weakly(mask, _forget)))
    plan = _predicate_plans.get(known)
    if plan is not None:
        return plan
    plan = _predicate_plans[known] = make_plan(key, mask)
    while len(_predicate_plans) > _MOST_PREDICATE_PLANS:
        _predicate_plans.pop(list(_predicate_plans)[0], None)
    return plan


def _forget(reference: Any) -> None:
    """Drops the plans of a function that was deleted."""
    for key in list(_predicate_plans):
        if watches(key.structure.mask, reference):
            _predicate_plans.pop(key, None)


def by_sizes(call: Call) -> bool:
    """Whether the mask contains arrays or functions, and is therefore made for one size and offset."""
    return call.array_mask is not None or any_part(call.structure.mask, masks.Predicate)


def plan_for(call: Call, shape: Shape, dtype: str, at: Positions, **options: Any) -> "_core.Plan":
    """shape: of the operands. A packed batch has a plan of its entries."""
    at = at.known()
    at.check(shape.batch, shape.query_len, shape.keys_given)
    offset = shape.key_len - shape.query_len if at.offset is None else at.offset
    rows = None
    if at.packed:
        rows, keys = at.lengths()
        shape = dataclasses.replace(
            shape, batch=len(rows), query_len=max(rows, default=0), key_len=max(keys, default=0)
        )
        if not isinstance(at.offset, tuple):
            offset = tuple(k - q if at.offset is None else at.offset for q, k in zip(rows, keys))
    if not by_sizes(call):
        return known_plan(PlanKey(call.structure, shape, dtype, 0, None, None, **options))
    return plan_of_sizes(call, PlanKey(call.structure, shape, dtype, offset, rows, call.library, **options))


def plan_of_sizes(call: Call, key: PlanKey) -> "_core.Plan":
    """Of a mask that is made for the sizes of one call."""
    return _known_predicate_plan(key) if call.array_mask is None else make_plan(key, call.array_mask)


__all__ = [
    "Call",
    "any_part",
    "check_lengths",
    "checked",
    "PlanKey",
    "Shape",
    "Structure",
    "compute_dtype",
    "known_plan",
    "list_of_mods",
    "make_plan",
    "mods_and_mask",
    "plan_for",
    "plan_of_sizes",
    "take_apart",
]
