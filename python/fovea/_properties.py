"""What the engine declares of a spec's scores, mods and normalisers, by their texts."""

from __future__ import annotations

from typing import Optional, Sequence

from . import _core

# Read once, because torch.compile follows a look-up in a dictionary and cannot follow a call of the engine.
_OF = {name: frozenset(properties) for name, properties in _core.properties().items()}


# By score and size: the argument whose first axis has that size.
_SIZES = _core.sizes_of_scores()


def _has(text: str, what: str) -> bool:
    return what in _OF[text.partition("(")[0]]


def reads_keys(score: str) -> bool:
    """False: the rows of an argument stand in the place of the keys."""
    return not _has(score, "no keys")


def key_rows(score: str) -> str:
    """The argument whose rows stand in the place of the keys, of a score that reads none: "score.W"."""
    return _SIZES[score]["key_len"]


def hidden_rows(score: str) -> Optional[str]:
    """The argument with one row for each element of the score's own width; None: the score has none."""
    return _SIZES.get(score, {}).get("hidden")


def draws(normalizer: str) -> bool:
    """Whether the weights depend on the seed."""
    return _has(normalizer, "draws")


def has_constant_weights(normalizer: str) -> bool:
    """Whether the weights are constant wherever they have a derivative by the scores."""
    return _has(normalizer, "constant weights")


def has_estimated_gradient(normalizer: str) -> bool:
    """Whether the gradient by the scores is the score function's estimate, weighted by an advantage."""
    return _has(normalizer, "estimated gradient")


def has_log_sum_exp(normalizer: str) -> bool:
    """Whether what stands in place of the log-sum-exp is that of the scores after all mods."""
    return _has(normalizer, "log-sum-exp of scores")


def needs_whole_rows(score: str, mods: Sequence[str]) -> Optional[str]:
    """The text of the score or mod whose gradient needs whole rows of scores; None if none does."""
    if _has(score, "whole rows"):
        return "score " + score
    return next(("mod " + mod for mod in mods if _core.mod_needs_whole_rows(mod)), None)
