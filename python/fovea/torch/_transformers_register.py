"""Makes Fovea known to transformers: `fovea.torch.register_with_transformers`."""

from __future__ import annotations

from . import _transformers_alibi
from ._transformers import NAME, attention_forward, make_mask


def register_with_transformers() -> None:
    """Makes `attn_implementation="fovea"` known to transformers (5.0 or later).

    Then `AutoModel.from_config(config, attn_implementation="fovea")`, `from_pretrained(..., attn_implementation=
    "fovea")` and `model.set_attn_implementation("fovea")` run a model's attention on Fovea, forward and backward, on
    the CPU. That is everything that runs with "sdpa", and more that "sdpa" refuses or computes slowly: soft-caps
    (gemma2), sinks (gpt_oss), position biases (t5) and returned weights (`output_attentions=True`). Causal masks,
    sliding windows, chunks, packed documents and padding on either side are recognised as masks of Fovea, which skips
    what they hide. bloom and mpt (ALiBi), whose attention does not use transformers' interface, are patched. Other
    families with attention of their own (falcon, gptj, xlnet, ...) keep it, with the results of "eager".

    It may be called any number of times. Nothing changes for models with another implementation.

    Differences from "eager": a query that sees no key (a padding row) gives 0 instead of the mean of all values;
    `output_attentions` are weights before dropout; inside torch.compile masks are dense.

    Raises:
        ImportError: transformers is not installed, or has no `AttentionMaskInterface`.

    >>> fovea.torch.register_with_transformers()                                    # doctest: +SKIP
    >>> model = AutoModelForCausalLM.from_config(config, attn_implementation="fovea")  # doctest: +SKIP
    """
    try:
        from transformers import AttentionInterface  # type: ignore[import-not-found, unused-ignore]
        from transformers.masking_utils import (  # type: ignore[import-not-found, unused-ignore]
            AttentionMaskInterface,
        )
    except ImportError as error:
        raise ImportError(
            "fovea.torch.register_with_transformers needs transformers 5.0 or later, which has "
            f"AttentionInterface and AttentionMaskInterface ({error})"
        ) from error
    AttentionInterface.register(NAME, attention_forward)
    AttentionMaskInterface.register(NAME, make_mask)
    _transformers_alibi.teach()
