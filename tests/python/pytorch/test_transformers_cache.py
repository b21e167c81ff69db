"""`fovea.torch.TransformersCache` under models of transformers that nobody changed: the tokens of DynamicCache."""

from __future__ import annotations

import copy

import pytest
from torch_support import torch

reason = "needs transformers 5.0 (tests/requirements-torch.txt)"
transformers = pytest.importorskip("transformers", "5.0", reason=reason)

import fovea  # noqa: E402
import fovea.torch  # noqa: E402
from fovea.torch import _cached_rows  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
fovea.torch.register_with_transformers()

LLAMA = dict(
    vocab_size=40,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
)
FAMILIES = {
    "llama": ("Llama", LLAMA),
    "mistral": ("Mistral", dict(LLAMA, sliding_window=6)),
    "gemma2": ("Gemma2", dict(LLAMA, head_dim=8, sliding_window=6, attn_logit_softcapping=2.0)),
    "gpt2": ("GPT2", dict(vocab_size=40, n_embd=32, n_head=4, n_layer=2)),
}
WAYS = {
    "greedy": dict(do_sample=False),
    "beams": dict(num_beams=3, do_sample=False),
    "several beams": dict(num_beams=4, num_return_sequences=2, do_sample=False),
    "sampling": dict(do_sample=True, num_return_sequences=2),
}


def model_of(family="llama", implementation="sdpa", seed=0):
    name, options = FAMILIES[family]
    torch.manual_seed(seed)
    config = getattr(transformers, f"{name}Config")(**options)
    config._attn_implementation = implementation
    of = {"GPT2": "GPT2LMHeadModel"}.get(name, f"{name}ForCausalLM")
    # f64, so that two orders of a sum do not choose two tokens.
    return getattr(transformers, of)(config).to(torch.float64).eval()


IDS = torch.randint(1, 40, (2, 9), generator=torch.Generator().manual_seed(3))


def generate(model, ids=IDS, cache=None, **options):
    torch.manual_seed(5)
    more = {} if cache is None else {"past_key_values": cache}
    return model.generate(ids, max_new_tokens=12, pad_token_id=0, **more, **options)


@pytest.fixture
def copies(monkeypatch):
    """How often rows were copied out of a cache."""
    made = []
    gather = _cached_rows._core.gather
    monkeypatch.setattr(_cached_rows._core, "gather", lambda *given: (made.append(1), gather(*given)))
    return made


# Every way of decoding with one model; each other one greedily and by beams.
RUNS = [("llama", implementation, way) for implementation in ("sdpa", "eager", "fovea") for way in WAYS]
RUNS += [(family, "fovea", way) for family in ("mistral", "gemma2", "gpt2") for way in ("greedy", "beams")]
RUNS += [("mistral", "sdpa", "greedy"), ("gpt2", "sdpa", "beams")]


@pytest.mark.parametrize("family, implementation, way", RUNS)
def test_generates_the_tokens_of_dynamic_cache(family, implementation, way, copies):
    model = model_of(family, implementation)
    cache = fovea.torch.TransformersCache(model.config)
    got = generate(model, cache=cache, **WAYS[way])
    assert torch.equal(got, generate(model, **WAYS[way]))
    assert cache.get_seq_length() == got.shape[1] - 1
    assert bool(copies) == (implementation != "fovea"), "with Fovea's attention rows are read where they lie"


def test_left_padding(copies):
    model = model_of(implementation="fovea")
    mask = torch.ones_like(IDS)
    mask[0, :4] = 0
    for options in (WAYS["greedy"], WAYS["beams"]):
        cache = fovea.torch.TransformersCache(model.config)
        got = generate(model, cache=cache, attention_mask=mask, **options)
        assert torch.equal(got, generate(model, attention_mask=mask, **options))
    assert not copies


@pytest.mark.parametrize("implementation", ["sdpa", "fovea"])
def test_assisted_decoding(implementation):
    model, assistant = model_of(implementation=implementation), model_of(implementation=implementation, seed=1)
    for options in ({"assistant_model": assistant}, {"prompt_lookup_num_tokens": 3}):
        cache = fovea.torch.TransformersCache(model.config)
        got = generate(model, IDS[:1], cache, do_sample=False, **options)
        assert torch.equal(got, generate(model, IDS[:1], do_sample=False))


@pytest.mark.parametrize("heads", [2, 4])
def test_patched_reads_the_rows_where_they_lie(heads, copies, monkeypatch):
    monkeypatch.setitem(FAMILIES, "llama", ("Llama", dict(LLAMA, num_key_value_heads=heads)))
    model = model_of()
    want = generate(model, do_sample=False)
    cache = fovea.torch.TransformersCache(model.config)
    with fovea.torch.patched(report=True) as report:
        got = generate(model, cache=cache, do_sample=False)
    assert torch.equal(got, want)
    assert report.served == 2 * 12 and report.passed_on == 0
    assert not copies


def test_no_step_copies_a_page(monkeypatch):
    """A view that lives on would make the next step copy the page that it writes to."""
    shared, reserve = [], fovea.KvCache.reserve

    def watched(cache, sequence, rows):
        shared.append(cache.bytes(sequence).shared)
        reserve(cache, sequence, rows)

    monkeypatch.setattr(fovea.KvCache, "reserve", watched)
    model = model_of(implementation="fovea")
    generate(model, IDS, fovea.torch.TransformersCache(model.config), do_sample=False, min_new_tokens=12)
    assert shared == [0] * 2 * 12


@pytest.mark.parametrize("implementation", ["sdpa", "fovea"])
def test_autocast(implementation, copies):
    model = model_of(implementation=implementation).float()
    cache = fovea.torch.TransformersCache(model.config)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), fovea.torch.patched():
        for ids in (IDS[:, :6], IDS[:, 6:7], IDS[:, 7:]):
            got = model(ids, past_key_values=cache).logits
        want = model(IDS).logits[:, 7:]
    assert cache.cache.layers[0].dtype == "bf16"
    assert len(copies) == (2 if implementation == "sdpa" else 0), "for the mask of two rows transformers repeats heads"
    torch.testing.assert_close(got, want, rtol=0, atol=2**-6 * float(want.abs().max()))


def test_a_decoder_behind_an_encoder():
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=40, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
    config._attn_implementation = "fovea"
    model = transformers.T5ForConditionalGeneration(config).to(torch.float64).eval()
    for options in (WAYS["greedy"], WAYS["beams"]):
        own = fovea.torch.TransformersCache(config)
        cache = transformers.EncoderDecoderCache(own, transformers.DynamicCache())
        got = model.generate(IDS, max_new_tokens=8, past_key_values=cache, **options)
        assert torch.equal(got, model.generate(IDS, max_new_tokens=8, **options))
        assert own.get_seq_length() == got.shape[1] - 1


def test_a_prompt_that_was_read_once_is_continued_many_times():
    model = model_of(implementation="fovea")
    cache = fovea.torch.TransformersCache(model.config, store=fovea.Paged(4))
    with torch.no_grad():
        model(IDS[:1, :8], past_key_values=cache)
    for last in (3, 4):
        used = cache.cache.bytes().used
        own = copy.deepcopy(cache)
        assert cache.cache.bytes().used == used, "a copy is a fork"
        ids = torch.cat([IDS[:1, :8], torch.tensor([[last]])], 1)
        assert torch.equal(generate(model, ids, own, do_sample=False), generate(model, ids, do_sample=False))
        assert cache.get_seq_length() == 8


def test_a_state_in_a_file_is_continued(tmp_path):
    model = model_of(implementation="fovea")
    want = generate(model, IDS[:1], do_sample=False)
    cache = fovea.torch.TransformersCache(model.config, store=fovea.Paged(4))
    with torch.no_grad():
        model(IDS[:1, :8], past_key_values=cache)
    cache.cache.save(cache.sequences[0], tmp_path / "state", "model 7")
    later = fovea.KvCache(cache.cache.layers)
    loaded = later.load(tmp_path / "state", "model 7", memory="mapped")
    again = fovea.torch.TransformersCache(model.config, cache=later, sequences=[loaded])
    assert again.get_seq_length() == 8
    assert torch.equal(generate(model, IDS[:1], again, do_sample=False), want)


def test_the_interface_of_cache():
    model = model_of()
    ours, theirs = fovea.torch.TransformersCache(model.config), transformers.DynamicCache()
    assert ours.get_seq_length() == 0 and len(ours) == 2
    ours.crop(-1), ours.reorder_cache(torch.tensor([0]))  # of an empty cache
    with torch.no_grad():
        for cache in (ours, theirs):
            model(IDS, past_key_values=cache)

    def same():
        for own, other in zip(ours.layers, theirs.layers):
            torch.testing.assert_close(own.keys, other.keys, rtol=0, atol=0)
            torch.testing.assert_close(own.values, other.values, rtol=0, atol=0)
        assert ours.get_seq_length() == theirs.get_seq_length()
        assert ours.get_mask_sizes(3, 0) == theirs.get_mask_sizes(3, 0)

    same()
    for step in (
        lambda cache: cache.reorder_cache(torch.tensor([1, 0])),
        lambda cache: cache.batch_repeat_interleave(3),
        lambda cache: cache.batch_select_indices(torch.tensor([5, 0, 0, 2])),
        lambda cache: cache.crop(-2),
        lambda cache: cache.crop(0),
        lambda cache: cache.reorder_cache(torch.tensor([3, 3, 1, 0])),
        lambda cache: cache.batch_select_indices(torch.tensor([1])),
    ):
        for cache in (ours, theirs):
            step(cache)
        same()
    assert ours.batch_size == 1 and not ours.is_compileable and ours.is_croppable
    ours.reset()
    assert ours.get_seq_length() == 0 and ours.cache.bytes().used == 0


def test_other_code_may_read_and_write_what_update_returns():
    cache = fovea.torch.TransformersCache(model_of().config)
    x = torch.randn(1, 2, 3, 8)
    key, value = cache.update(x, 2 * x, 0)
    assert _cached_rows.in_cache(key, value) is not None
    torch.testing.assert_close(key + 0, x)
    torch.testing.assert_close(torch.matmul(key, value.transpose(2, 3)), x @ (2 * x).transpose(2, 3))
    assert _cached_rows.in_cache(key, value) is None, "a view of the copy may be written"
    again, _ = cache.update(x, x, 1)
    again.mul_(2)
    torch.testing.assert_close(again + 0, 2 * x)
    torch.testing.assert_close(cache.layers[1].keys, x), "the cache itself does not change"


def test_what_does_not_fit_is_refused():
    config = model_of().config
    cache = fovea.torch.TransformersCache(config, limit_bytes=1000)
    x = torch.randn(1, 2, 3, 8)
    with pytest.raises(fovea.CacheFull):
        cache.update(x.repeat(1, 1, 100, 1), x.repeat(1, 1, 100, 1), 0)
    cache = fovea.torch.TransformersCache(config)
    with pytest.raises(fovea.InvalidArgument, match="requires grad"):
        cache.update(x.clone().requires_grad_(), x, 0)
    cache.update(x, x, 0)
    for call in (lambda: cache.update(x, x, 0), lambda: cache.crop(-1)):
        with pytest.raises(fovea.InvalidArgument, match="all 2 layers"):
            call()
    cache.rollback()
    cache.update(x, x, 0), cache.update(x, x, 1)
    assert cache.get_seq_length() == 3
    with pytest.raises(fovea.InvalidArgument, match="indices of the 1 entries"):
        cache.batch_select_indices([1])
    with pytest.raises(fovea.InvalidArgument, match="reorder_cache.beam_idx.*indices of the 1 entries.*-1"):
        cache.reorder_cache(torch.tensor([-1]))
    with pytest.raises(fovea.InvalidArgument, match="at most the 3 rows"):
        cache.crop(10000)
    cache.crop(3)
    assert cache.get_seq_length() == 3
    with pytest.raises(fovea.InvalidArgument, match="which keep all rows"):
        fovea.torch.TransformersCache(config, store=fovea.Ring(8))
    for wrong, says in ((3, "sequences: expected"), ([3], r"sequences\[0\]"), (cache.sequences, "none without cache")):
        with pytest.raises(fovea.InvalidArgument, match=says):
            fovea.torch.TransformersCache(config, sequences=wrong)
    for wrong in (0, -1, "2", 1.5):
        with pytest.raises(fovea.InvalidArgument, match="TransformersCache.batch_repeat_interleave: repeats: expected"):
            cache.batch_repeat_interleave(wrong)
    assert len(cache.sequences) == 1
    with pytest.raises(fovea.InvalidArgument, match="2 layers"):
        fovea.torch.TransformersCache(config, cache=fovea.KvCache([fovea.CacheLayer(2, 8)]))
    with pytest.raises(fovea.InvalidArgument, match="requires grad"):
        fovea.attention(
            torch.randn(1, 4, 1, 8, requires_grad=True), cache=cache.cache[0], sequences=cache.sequences
        )


def test_an_entry_that_does_not_fit_gives_back_what_the_others_reserved():
    config = model_of().config
    x = torch.randn(2, 2, 300, 8)
    one = fovea.torch.TransformersCache(config)
    one.update(x[:1], x[:1], 0)
    cache = fovea.torch.TransformersCache(config, limit_bytes=one.cache.bytes().used)
    with pytest.raises(fovea.CacheFull):
        cache.update(x, x, 0)
    assert cache.cache.bytes().used == 0
    cache.reset()
    cache.update(x[:1], x[:1], 0), cache.update(x[:1], x[:1], 1)
    assert cache.get_seq_length() == 300


def test_a_cache_of_tensors():
    cache = fovea.KvCache([fovea.CacheLayer(2, 8, dtype="bf16")])
    sequences = [cache.start(), cache.start()]
    key, value = (torch.randn(2, 2, 5, 8).to(torch.bfloat16) for _ in range(2))
    for sequence in sequences:
        cache.reserve(sequence, 5)
    cache.append(0, sequences, key, value)
    rows = cache.rows(0, sequences, like=key)
    torch.testing.assert_close(rows[0], key, rtol=0, atol=0)
    query = torch.randn(2, 4, 1, 8).to(torch.bfloat16)
    got = fovea.attention(query, cache=cache[0], sequences=sequences, mask=fovea.Causal())
    torch.testing.assert_close(got, fovea.attention(query, key, value, mask=fovea.Causal()), rtol=2e-2, atol=2e-2)
    drawn = [fovea.attention(query, cache=cache[0], sequences=sequences, dropout=0.5) for _ in range(2)]
    assert not torch.equal(*drawn), "seeds come from PyTorch's generator"
