"""The small models of every family that the oracles make: a class of transformers and a config."""

VOCABULARY = 67
SIZES = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=56, num_hidden_layers=4, num_attention_heads=4,
             max_position_embeddings=96, initializer_range=0.2)
TOKENS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
GROUPED = dict(SIZES, num_key_value_heads=2, **TOKENS)


def rope(kind, **values):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 20000.0, **values}}


LLAMA3 = rope("llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=24)
LONGROPE = rope("longrope", original_max_position_embeddings=24, short_factor=[1.0, 1.2, 1.1, 1.5], long_factor=[1.0, 2.0, 5.0, 8.0])
LAYERS = ["sliding_attention", "full_attention", "full_attention", "sliding_attention"]
GPT2 = dict(vocab_size=VOCABULARY, n_embd=32, n_layer=4, n_head=4, n_positions=96, initializer_range=0.2, **TOKENS)
BERT = dict(SIZES, **TOKENS)
DISTIL = dict(vocab_size=VOCABULARY, dim=32, hidden_dim=56, n_layers=4, n_heads=4, max_position_embeddings=96,
              initializer_range=0.2, **TOKENS)
ROBERTA = dict(SIZES, pad_token_id=1, bos_token_id=0, eos_token_id=2)
NARROW = dict(BERT, embedding_size=12)
MODERN = dict(BERT, cls_token_id=1, sep_token_id=2, local_attention=6)
MAMBA = dict(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=3, state_size=5, initializer_range=0.2, **TOKENS)
MAMBA2 = dict(MAMBA, state_size=6, num_heads=8, head_dim=8, n_groups=2, chunk_size=8)
# A delta rule's first outputs are multiples of the product of a query and a key, which may be near 0, and their norm divides by
# it. With the usual epsilon of 1e-6, transformers in f32 was 3.4e-5 from itself in f64 on such a model, and Fovea 1.0e-5.
HYBRID = dict(GROUPED, head_dim=16, linear_key_head_dim=8, linear_value_head_dim=6, linear_num_key_heads=2,
              linear_num_value_heads=4, rms_norm_eps=1e-4)
MIXERS = ["full_attention", "linear_attention", "linear_attention", "full_attention"]

# Class and config, with every value of a field that is read at least once.
DECODERS = [
    ("GPT2", "GPT2LMHeadModel", GPT2),
    ("GPT2", "GPT2LMHeadModel", dict(GPT2, n_inner=40, scale_attn_by_inverse_layer_idx=True, layer_norm_epsilon=1e-3)),
    ("GPT2", "GPT2LMHeadModel", dict(GPT2, scale_attn_weights=False, activation_function="relu", tie_word_embeddings=False)),
    ("GPT2", "GPT2Model", GPT2),
    ("Llama", "LlamaForCausalLM", GROUPED),
    ("Llama", "LlamaForCausalLM", dict(GROUPED, head_dim=12, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-3)),
    ("Llama", "LlamaForCausalLM", dict(GROUPED, tie_word_embeddings=True, hidden_act="gelu", **LLAMA3)),
    ("Llama", "LlamaForCausalLM", dict(GROUPED, **rope("linear", factor=3.0))),
    ("Llama", "LlamaForCausalLM", dict(GROUPED, **rope("dynamic", factor=3.0))),
    ("Llama", "LlamaForCausalLM", dict(GROUPED, max_position_embeddings=24, **rope("dynamic", factor=3.0))),
    ("Llama", "LlamaForCausalLM", dict(GROUPED, **LONGROPE)),
    ("Llama", "LlamaForCausalLM", dict(GROUPED, head_dim=12, **rope("longrope", factor=3.0, attention_factor=0.8, short_factor=[1.5] * 6,
                                                                   long_factor=[1.0, 4.0, 9.0, 2.0, 3.0, 5.0]))),
    ("Llama", "LlamaForCausalLM", dict(GROUPED, **rope("yarn", factor=4.0, original_max_position_embeddings=24))),
    ("Llama", "LlamaModel", GROUPED),
    ("Mistral", "MistralForCausalLM", dict(GROUPED, sliding_window=5)),
    ("Mistral", "MistralForCausalLM", dict(GROUPED, sliding_window=None, head_dim=16)),
    ("Qwen2", "Qwen2ForCausalLM", dict(GROUPED, tie_word_embeddings=True)),
    ("Qwen2", "Qwen2ForCausalLM", dict(GROUPED, use_sliding_window=True, sliding_window=5, max_window_layers=2)),
    ("Qwen3", "Qwen3ForCausalLM", dict(GROUPED, head_dim=16)),
    ("Qwen3", "Qwen3ForCausalLM", dict(GROUPED, head_dim=8, attention_bias=True, tie_word_embeddings=True, **rope("default"))),
    ("SmolLM3", "SmolLM3ForCausalLM", GROUPED),
    ("SmolLM3", "SmolLM3ForCausalLM", dict(GROUPED, no_rope_layers=[1, 0, 0, 1], use_sliding_window=True, sliding_window=5,
                                           mlp_bias=True, attention_bias=True)),
    ("Starcoder2", "Starcoder2ForCausalLM", GROUPED),
    ("Starcoder2", "Starcoder2ForCausalLM", dict(GROUPED, sliding_window=5, norm_epsilon=1e-3, **rope("default"))),
    ("Starcoder2", "Starcoder2ForCausalLM", dict(GROUPED, use_bias=False, hidden_act="relu", tie_word_embeddings=False)),
    ("Gemma", "GemmaForCausalLM", dict(GROUPED, head_dim=16)),
    ("Gemma2", "Gemma2ForCausalLM", dict(GROUPED, head_dim=16, sliding_window=5, query_pre_attn_scalar=9)),
    ("Gemma2", "Gemma2ForCausalLM", dict(GROUPED, head_dim=8, sliding_window=4, attn_logit_softcapping=2.0,
                                         final_logit_softcapping=3.0, layer_types=LAYERS)),
    ("Gemma2", "Gemma2ForCausalLM", dict(GROUPED, head_dim=8, attn_logit_softcapping=None, final_logit_softcapping=None)),
    ("Gemma3Text", "Gemma3ForCausalLM", dict(GROUPED, head_dim=16, sliding_window=5, num_hidden_layers=7)),
    ("Gemma3Text", "Gemma3ForCausalLM", dict(GROUPED, head_dim=8, sliding_window=4, layer_types=LAYERS, rope_parameters={
        "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0}})),
]
PLAIN = dict(SIZES, hidden_act="silu", **TOKENS)
XGLM = dict(vocab_size=VOCABULARY, d_model=32, ffn_dim=56, num_layers=3, attention_heads=4, max_position_embeddings=64)
OPT = dict(vocab_size=VOCABULARY, hidden_size=32, word_embed_proj_dim=32, ffn_dim=56, num_hidden_layers=3, num_attention_heads=4,
           max_position_embeddings=96, init_std=0.2, **TOKENS)
NEO = dict(vocab_size=VOCABULARY, hidden_size=32, num_layers=4, num_heads=4, max_position_embeddings=96, window_size=5,
           attention_types=[[["global", "local"], 2]], initializer_range=0.2, **TOKENS)
DECODERS += [
    ("Phi3", "Phi3ForCausalLM", GROUPED),
    ("Phi3", "Phi3ForCausalLM", dict(GROUPED, original_max_position_embeddings=24, sliding_window=30, **LONGROPE)),
    ("Phi3", "Phi3ForCausalLM", dict(GROUPED, original_max_position_embeddings=30, **rope(
        "longrope", partial_rotary_factor=0.75, short_factor=[1.0, 1.2, 1.1], long_factor=[1.0, 2.0, 5.0]))),
    ("Phi3", "Phi3ForCausalLM", dict(GROUPED, sliding_window=5, tie_word_embeddings=True, rms_norm_eps=1e-3,
                                     **rope("default", partial_rotary_factor=0.5))),
    ("Glm", "GlmForCausalLM", dict(GROUPED, head_dim=16, attention_bias=False)),
    ("Glm", "GlmForCausalLM", dict(GROUPED, head_dim=8, tie_word_embeddings=True, **rope("default", partial_rotary_factor=0.25))),
    ("Glm4", "Glm4ForCausalLM", dict(GROUPED, head_dim=16)),
    ("Helium", "HeliumForCausalLM", dict(PLAIN, num_key_value_heads=2, head_dim=8, attention_bias=True)),
    ("Helium", "HeliumForCausalLM", dict(PLAIN, num_key_value_heads=4, head_dim=8, mlp_bias=True, **rope("default"))),
    ("Ernie4_5", "Ernie4_5ForCausalLM", dict(GROUPED, head_dim=16)),
    ("Ernie4_5", "Ernie4_5ForCausalLM", dict(GROUPED, head_dim=8, use_bias=True, tie_word_embeddings=False, **rope("default"))),
    ("SeedOss", "SeedOssForCausalLM", dict(GROUPED, head_dim=16)),
    ("SeedOss", "SeedOssForCausalLM", dict(GROUPED, head_dim=8, attention_bias=False, attention_out_bias=True, mlp_bias=True)),
    ("StableLm", "StableLmForCausalLM", GROUPED),
    ("StableLm", "StableLmForCausalLM", dict(GROUPED, use_qkv_bias=True, layer_norm_eps=1e-3, tie_word_embeddings=True,
                                             **rope("default", partial_rotary_factor=0.5))),
    ("Ministral", "MinistralForCausalLM", dict(GROUPED, head_dim=8, sliding_window=5, layer_types=LAYERS)),
    ("Exaone4", "Exaone4ForCausalLM", dict(GROUPED, sliding_window=5, sliding_window_pattern=3)),
    ("Exaone4", "Exaone4ForCausalLM", dict(GROUPED, sliding_window=5, sliding_window_pattern="LLLG", layer_types=LAYERS)),
    ("Exaone4", "Exaone4ForCausalLM", dict(GROUPED, sliding_window=None, layer_types=["full_attention"] * 4)),
    ("OPT", "OPTForCausalLM", OPT),
    ("OPT", "OPTModel", dict(OPT, activation_function="gelu")),
    ("XGLM", "XGLMForCausalLM", XGLM),
    ("XGLM", "XGLMModel", dict(XGLM, scale_embedding=False, activation_function="relu")),
    ("GPTNeo", "GPTNeoForCausalLM", NEO),
    ("GPTNeo", "GPTNeoModel", dict(NEO, intermediate_size=56, attention_types=[[["local"], 3], [["global"], 1]], layer_norm_epsilon=1e-3)),
]
NEOX = dict(SIZES, hidden_act="gelu", **TOKENS)
BLOOM = dict(vocab_size=VOCABULARY, hidden_size=32, n_layer=3, n_head=4, initializer_range=0.2, **TOKENS)
MPT = dict(vocab_size=VOCABULARY, d_model=32, n_layers=3, n_heads=4, initializer_range=0.2, **TOKENS)
FALCON = dict(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=96,
              initializer_range=0.2, **TOKENS)
DECODERS += [
    ("GPTNeoX", "GPTNeoXForCausalLM", dict(NEOX, **rope("default", partial_rotary_factor=0.25))),
    ("GPTNeoX", "GPTNeoXForCausalLM", dict(NEOX, use_parallel_residual=False, attention_bias=False, hidden_act="relu",
                                           tie_word_embeddings=True, layer_norm_eps=1e-3)),
    ("GPTNeoX", "GPTNeoXModel", NEOX),
    ("GPTBigCode", "GPTBigCodeForCausalLM", GPT2),
    ("GPTBigCode", "GPTBigCodeForCausalLM", dict(GPT2, n_inner=40, scale_attn_weights=False, activation_function="relu",
                                                 layer_norm_epsilon=1e-3, tie_word_embeddings=False)),
    ("GPTJ", "GPTJForCausalLM", dict(GPT2, rotary_dim=4)),
    ("GPTJ", "GPTJForCausalLM", dict(GPT2, rotary_dim=8, n_inner=40, activation_function="gelu", tie_word_embeddings=True)),
    ("Phi", "PhiForCausalLM", dict(SIZES, hidden_act="gelu_new", **TOKENS)),
    ("Phi", "PhiForCausalLM", dict(GROUPED, tie_word_embeddings=True, layer_norm_eps=1e-3, **rope("default", partial_rotary_factor=0.75))),
    ("Cohere", "CohereForCausalLM", dict(GROUPED, logit_scale=0.25)),
    ("Cohere", "CohereForCausalLM", dict(GROUPED, attention_bias=True, hidden_act="gelu", tie_word_embeddings=False, **rope("default"))),
    ("Cohere2", "Cohere2ForCausalLM", dict(GROUPED, sliding_window=5)),
    ("Cohere2", "Cohere2ForCausalLM", dict(GROUPED, sliding_window=4, layer_types=LAYERS, logit_scale=0.5)),
    ("Cohere2", "Cohere2ForCausalLM", dict(GROUPED, head_dim=12, sliding_window=5, attention_bias=True)),
    ("Falcon", "FalconForCausalLM", FALCON),
    ("Falcon", "FalconForCausalLM", dict(FALCON, bias=True, ffn_hidden_size=56, activation="relu", tie_word_embeddings=False, **rope("default"))),
    ("StableLm", "StableLmForCausalLM", dict(GROUPED, use_parallel_residual=True)),
    ("Bloom", "BloomForCausalLM", BLOOM),
    ("Bloom", "BloomForCausalLM", dict(BLOOM, n_head=2, layer_norm_epsilon=1e-3, tie_word_embeddings=False)),
    ("Bloom", "BloomModel", dict(BLOOM, hidden_size=36, n_head=6)),  # slopes of a number that is no power of 2
    ("Mpt", "MptForCausalLM", MPT),
    ("Mpt", "MptForCausalLM", dict(MPT, attn_config={"softmax_scale": 0.3}, layer_norm_epsilon=1e-3, tie_word_embeddings=False)),
    ("Mpt", "MptModel", dict(MPT, d_model=36, n_heads=6)),
    ("Olmo", "OlmoForCausalLM", GROUPED),
    ("Olmo", "OlmoForCausalLM", dict(GROUPED, attention_bias=True, tie_word_embeddings=True, hidden_act="gelu", **rope("default"))),
    ("Olmo2", "Olmo2ForCausalLM", GROUPED),
    ("Olmo2", "Olmo2ForCausalLM", dict(GROUPED, attention_bias=True, tie_word_embeddings=True, rms_norm_eps=1e-3, **rope("default"))),
    ("Olmo3", "Olmo3ForCausalLM", dict(GROUPED, sliding_window=5, num_hidden_layers=5)),
    ("Olmo3", "Olmo3ForCausalLM", dict(GROUPED, sliding_window=4, layer_types=LAYERS, rope_parameters={
        "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0},
        "full_attention": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 5000.0, "original_max_position_embeddings": 24}})),
    ("Arcee", "ArceeForCausalLM", GROUPED),
    ("Arcee", "ArceeForCausalLM", dict(GROUPED, head_dim=12, attention_bias=True, mlp_bias=True, hidden_act="gelu", **rope("default"))),
    ("Nemotron", "NemotronForCausalLM", GROUPED),
    ("Nemotron", "NemotronForCausalLM", dict(GROUPED, head_dim=12, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                                             norm_eps=1e-3, **rope("default", partial_rotary_factor=1.0))),
    ("Granite", "GraniteForCausalLM", dict(GROUPED, embedding_multiplier=3.0, logits_scaling=4.0, residual_multiplier=0.5,
                                           attention_multiplier=0.25)),
    ("Granite", "GraniteForCausalLM", dict(GROUPED, attention_bias=True, mlp_bias=True, tie_word_embeddings=True, **rope("default"))),
    ("Cwm", "CwmForCausalLM", dict(GROUPED, head_dim=16, sliding_window=5, num_hidden_layers=5)),
    ("Cwm", "CwmForCausalLM", dict(GROUPED, head_dim=16, sliding_window=5, **rope("default"))),
    ("Cwm", "CwmForCausalLM", dict(GROUPED, head_dim=8, sliding_window=4, layer_types=LAYERS, mlp_bias=True, tie_word_embeddings=True,
                                   **rope("linear", factor=3.0))),
    ("Jais2", "Jais2ForCausalLM", GROUPED),
    ("Jais2", "Jais2ForCausalLM", dict(GROUPED, head_dim=12, attention_bias=False, mlp_bias=False, hidden_act="gelu", layer_norm_eps=1e-3,
                                       tie_word_embeddings=True, **rope("default"))),
    ("VaultGemma", "VaultGemmaForCausalLM", dict(GROUPED, head_dim=16, sliding_window=5, query_pre_attn_scalar=9)),
    ("VaultGemma", "VaultGemmaForCausalLM", dict(GROUPED, head_dim=8, sliding_window=4, attn_logit_softcapping=2.0, attention_bias=True,
                                                 final_logit_softcapping=3.0, layer_types=LAYERS)),
    ("BioGpt", "BioGptForCausalLM", dict(SIZES, layer_norm_eps=1e-3)),
    ("BioGpt", "BioGptForCausalLM", dict(SIZES, scale_embedding=False, hidden_act="relu", tie_word_embeddings=False)),
    ("BioGpt", "BioGptModel", SIZES),
    ("ModernBertDecoder", "ModernBertDecoderForCausalLM", MODERN),
    ("ModernBertDecoder", "ModernBertDecoderModel", dict(MODERN, num_hidden_layers=7, local_attention=9)),
    ("ModernBertDecoder", "ModernBertDecoderForCausalLM", dict(
        MODERN, norm_bias=True, attention_bias=True, mlp_bias=True, classifier_bias=True, decoder_bias=False, classifier_activation="silu",
        norm_eps=1e-3, hidden_activation="silu", layer_types=LAYERS, tie_word_embeddings=False, rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
            "full_attention": {"rope_type": "default", "rope_theta": 5000.0}})),
]
RECURRENT = [
    ("Mamba", "MambaModel", MAMBA),
    ("Mamba", "MambaForCausalLM", dict(MAMBA, use_bias=True, use_conv_bias=False, expand=3, conv_kernel=3, time_step_rank=5,
                                       hidden_act="gelu", tie_word_embeddings=False, layer_norm_epsilon=1e-3)),
    ("Mamba", "MambaForCausalLM", MAMBA),
    ("FalconMamba", "FalconMambaModel", dict(MAMBA, use_bias=True, mixer_rms_eps=1e-2)),
    ("FalconMamba", "FalconMambaForCausalLM", MAMBA),
    ("Mamba2", "Mamba2Model", MAMBA2),
    ("Mamba2", "Mamba2ForCausalLM", MAMBA2),
    ("Mamba2", "Mamba2ForCausalLM", dict(MAMBA2, n_groups=1, use_conv_bias=False, conv_kernel=2, hidden_act="relu",
                                         tie_word_embeddings=True, layer_norm_epsilon=1e-3, expand=3, head_dim=12)),
    ("Mamba2", "Mamba2ForCausalLM", dict(MAMBA2, n_groups=8, use_bias=True, time_step_limit=[0.25, 1.5])),
    ("Qwen3_5Text", "Qwen3_5TextModel", HYBRID),
    ("Qwen3_5Text", "Qwen3_5ForCausalLM", dict(HYBRID, attention_bias=True, hidden_act="gelu", tie_word_embeddings=True,
                                               layer_types=MIXERS, linear_conv_kernel_dim=3, linear_num_key_heads=4,
                                               rms_norm_eps=1e-3, **rope("yarn", factor=4.0, partial_rotary_factor=0.5,
                                                                         original_max_position_embeddings=24))),
    ("Qwen3_5Text", "Qwen3_5ForCausalLM", HYBRID),
]
DECODERS += RECURRENT
ENCODERS = [
    ("Bert", "BertModel", BERT),
    ("Bert", "BertForMaskedLM", dict(BERT, layer_norm_eps=1e-3, type_vocab_size=3)),
    ("Bert", "BertForPreTraining", dict(BERT, hidden_act="relu")),
    ("Bert", "BertForMaskedLM", dict(BERT, tie_word_embeddings=False)),
    ("DistilBert", "DistilBertForMaskedLM", DISTIL),
    ("DistilBert", "DistilBertModel", dict(DISTIL, activation="relu", sinusoidal_pos_embds=True)),
    ("Roberta", "RobertaForMaskedLM", ROBERTA),
    ("Roberta", "RobertaForMaskedLM", dict(ROBERTA, tie_word_embeddings=False)),
    ("Roberta", "RobertaModel", dict(ROBERTA, pad_token_id=4, layer_norm_eps=1e-3)),
    ("XLMRoberta", "XLMRobertaModel", ROBERTA),
    ("XLMRoberta", "XLMRobertaForMaskedLM", dict(ROBERTA, hidden_act="relu")),
    ("Camembert", "CamembertModel", ROBERTA),
    ("Camembert", "CamembertForMaskedLM", dict(ROBERTA, layer_norm_eps=1e-3)),
    ("Data2VecText", "Data2VecTextModel", ROBERTA),
    ("Data2VecText", "Data2VecTextForMaskedLM", dict(ROBERTA, layer_norm_eps=1e-3)),
    ("RobertaPreLayerNorm", "RobertaPreLayerNormModel", ROBERTA),
    ("RobertaPreLayerNorm", "RobertaPreLayerNormForMaskedLM", dict(ROBERTA, layer_norm_eps=1e-3, hidden_act="relu")),
    ("MPNet", "MPNetModel", ROBERTA),
    ("MPNet", "MPNetForMaskedLM", dict(ROBERTA, layer_norm_eps=1e-3)),
    ("MPNet", "MPNetForMaskedLM", dict(ROBERTA, tie_word_embeddings=False)),
    ("Electra", "ElectraModel", NARROW),
    ("Electra", "ElectraForMaskedLM", dict(NARROW, layer_norm_eps=1e-3, type_vocab_size=3)),
    ("Electra", "ElectraForMaskedLM", dict(BERT, embedding_size=32, hidden_act="relu")),
    ("Albert", "AlbertModel", NARROW),
    ("Albert", "AlbertForMaskedLM", dict(NARROW, layer_norm_eps=1e-3, hidden_act="gelu", num_hidden_layers=4)),
    ("Albert", "AlbertForPreTraining", dict(BERT, embedding_size=32)),
    ("Albert", "AlbertForMaskedLM", dict(NARROW, tie_word_embeddings=False)),
    ("ModernBert", "ModernBertForMaskedLM", MODERN),
    ("ModernBert", "ModernBertForMaskedLM", dict(MODERN, norm_bias=True, attention_bias=True, mlp_bias=True,
                                                 classifier_bias=True, decoder_bias=False, classifier_activation="silu",
                                                 norm_eps=1e-3, hidden_activation="silu")),
    ("ModernBert", "ModernBertModel", dict(MODERN, layer_types=LAYERS, rope_parameters={
        "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
        "full_attention": {"rope_type": "default", "rope_theta": 5000.0}})),
    ("XLMRobertaXL", "XLMRobertaXLModel", ROBERTA),
    ("XLMRobertaXL", "XLMRobertaXLForMaskedLM", dict(ROBERTA, layer_norm_eps=1e-3, hidden_act="relu", type_vocab_size=2)),
    ("XLMRobertaXL", "XLMRobertaXLForMaskedLM", dict(ROBERTA, tie_word_embeddings=False)),
    ("MegatronBert", "MegatronBertModel", BERT),
    ("MegatronBert", "MegatronBertForMaskedLM", dict(BERT, layer_norm_eps=1e-3, hidden_act="relu")),
    ("MegatronBert", "MegatronBertForPreTraining", BERT),
    ("MegatronBert", "MegatronBertForMaskedLM", dict(BERT, tie_word_embeddings=False)),
    ("Ernie", "ErnieModel", BERT),
    ("Ernie", "ErnieForMaskedLM", dict(BERT, use_task_id=True, layer_norm_eps=1e-3)),
    ("Ernie", "ErnieForPreTraining", dict(BERT, use_task_id=True, task_type_vocab_size=5, hidden_act="relu")),
    ("RoFormer", "RoFormerModel", NARROW),
    ("RoFormer", "RoFormerForMaskedLM", dict(NARROW, layer_norm_eps=1e-3, hidden_act="relu")),
    ("RoFormer", "RoFormerForMaskedLM", BERT),
    ("NomicBert", "NomicBertModel", BERT),
    ("NomicBert", "NomicBertForMaskedLM", dict(BERT, head_dim=12, layer_norm_eps=1e-3, hidden_act="gelu", **rope("default"))),
    ("EuroBert", "EuroBertModel", GROUPED),
    ("EuroBert", "EuroBertForMaskedLM", dict(GROUPED, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-3, hidden_act="gelu")),
    ("EuroBert", "EuroBertForMaskedLM", dict(GROUPED, head_dim=12, tie_word_embeddings=True, **LLAMA3)),
]
SIDES = dict(vocab_size=VOCABULARY, d_model=32, encoder_layers=3, decoder_layers=2, encoder_attention_heads=4,
             decoder_attention_heads=4, encoder_ffn_dim=56, decoder_ffn_dim=40, max_position_embeddings=96, init_std=0.2,
             pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=None)
T5 = dict(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=56, num_layers=3, num_decoder_layers=2, num_heads=4,
          initializer_factor=1.0, decoder_start_token_id=0)
TRANSLATORS = [
    ("T5", "T5ForConditionalGeneration", T5),
    ("T5", "T5ForConditionalGeneration", dict(T5, d_kv=12, feed_forward_proj="gated-gelu", tie_word_embeddings=False,
                                              relative_attention_num_buckets=8, relative_attention_max_distance=20)),
    ("T5", "T5ForConditionalGeneration", dict(T5, feed_forward_proj="gated-silu", layer_norm_epsilon=1e-3)),
    ("MT5", "MT5ForConditionalGeneration", dict(T5, tie_word_embeddings=False)),
    ("MT5", "MT5ForConditionalGeneration", dict(T5, feed_forward_proj="relu", d_kv=12)),
    ("UMT5", "UMT5ForConditionalGeneration", T5),
    ("UMT5", "UMT5ForConditionalGeneration", dict(T5, feed_forward_proj="relu", d_kv=12, relative_attention_num_buckets=8,
                                                  relative_attention_max_distance=20)),
    ("Bart", "BartForConditionalGeneration", SIDES),
    ("Bart", "BartForConditionalGeneration", dict(SIDES, decoder_attention_heads=2, scale_embedding=True,
                                                  activation_function="relu")),
    ("PLBart", "PLBartForConditionalGeneration", SIDES),
    ("PLBart", "PLBartForConditionalGeneration", dict(SIDES, scale_embedding=False, decoder_attention_heads=2, activation_function="relu")),
    ("MBart", "MBartForConditionalGeneration", dict(SIDES, scale_embedding=True)),
    ("MBart", "MBartForConditionalGeneration", dict(SIDES, activation_function="silu")),
    ("Marian", "MarianMTModel", dict(SIDES, scale_embedding=True, activation_function="swish")),
    ("Marian", "MarianMTModel", dict(SIDES, decoder_vocab_size=VOCABULARY, tie_word_embeddings=True)),
    ("Pegasus", "PegasusForConditionalGeneration", dict(SIDES, scale_embedding=True)),
    ("Blenderbot", "BlenderbotForConditionalGeneration", dict(SIDES, activation_function="relu")),
    ("M2M100", "M2M100ForConditionalGeneration", SIDES),
    ("M2M100", "M2M100ForConditionalGeneration", dict(SIDES, scale_embedding=False, decoder_attention_heads=2,
                                                      tie_word_embeddings=True)),
]
ENCODERS += [("T5", "T5EncoderModel", T5), ("UMT5", "UMT5EncoderModel", T5), ("MT5", "MT5EncoderModel", dict(T5, feed_forward_proj="relu", d_kv=12))]
