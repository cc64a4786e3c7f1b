"""models.py: what `transformers` makes of small decoders, for tests/lm.

    pip install torch transformers==5.24.0 gguf==0.19.0 numpy
    python models.py

For each family it writes `NAME/config.json`, as transformers does, and `NAME/expected.json`: a prompt, the
logits behind it, and the tokens that follow greedily, computed in f64. The weights are not committed. They
follow from a salt and the names of the tensors, here and in tests/lm/weights.rs, and are rounded to f16. A
folder `gguf_NAME` has a whole file, `model.gguf`, with names and quantization by llama.cpp's package.
"""

import json
import pathlib

import gguf
import numpy
import torch
from transformers import AutoConfig, AutoModelForCausalLM

# Norms, softmax and positions ask for f32 by name, whatever the model's type is.
torch.float32 = torch.float64
torch.float = torch.float64
torch.Tensor.float = torch.Tensor.double

FOLDER = pathlib.Path(__file__).parent
PROMPT = [(7 * at * at + 3 * at + 1) % 96 for at in range(20)]
NEW = 64
# Two logits that are nearer than this could change places by f32's error.
LEAST_MARGIN = 2e-3

SMALL = dict(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    bos_token_id=0,
    eos_token_id=1,
    pad_token_id=0,
)
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=5e5,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)
YARN = dict(rope_type="yarn", rope_theta=1e6, factor=4.0, original_max_position_embeddings=32)
LONG = dict(
    rope_type="longrope",
    rope_theta=1e4,
    short_factor=[1.0 + 0.1 * pair for pair in range(4)],
    long_factor=[2.0 + 0.5 * pair for pair in range(4)],
    original_max_position_embeddings=128,
)
KINDS = ["sliding_attention", "full_attention", "sliding_attention"]
MODELS = {
    "llama2": dict(model_type="llama", num_key_value_heads=4, rms_norm_eps=1e-5),
    "llama3": dict(model_type="llama", tie_word_embeddings=True, rope_parameters=LLAMA3),
    "llama_biased": dict(model_type="llama", attention_bias=True, mlp_bias=True),
    "mistral": dict(model_type="mistral", sliding_window=9, head_dim=12),
    "qwen2": dict(model_type="qwen2"),
    "qwen2_yarn": dict(model_type="qwen2", rope_parameters=YARN),
    "qwen3": dict(model_type="qwen3", head_dim=16, tie_word_embeddings=True),
    "gemma2": dict(model_type="gemma2", head_dim=16, query_pre_attn_scalar=24, sliding_window=8, layer_types=KINDS),
    "gemma3": dict(
        model_type="gemma3_text",
        head_dim=16,
        query_pre_attn_scalar=24,
        sliding_window=8,
        layer_types=KINDS,
        rope_parameters=dict(
            sliding_attention=dict(rope_type="default", rope_theta=1e4),
            full_attention=dict(rope_type="linear", rope_theta=1e6, factor=8.0),
        ),
    ),
    "phi3": dict(model_type="phi3", sliding_window=11),
    "phi3_long": dict(model_type="phi3", rope_parameters=LONG, tie_word_embeddings=True),
    # The prompt is beyond the original context.
    "phi3_longer": dict(model_type="phi3", rope_parameters=LONG, original_max_position_embeddings=12),
    "phi4": dict(model_type="phi3", rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.75)),
}


def numbers(name, count):
    """Numbers from -1 to 1 that follow from a name: SplitMix64 from its FNV-1a hash on."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 % 2**64
    with numpy.errstate(over="ignore"):
        z = numpy.uint64(seed) + numpy.arange(1, count + 1, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        z = z ^ (z >> numpy.uint64(31))
    return (z >> numpy.uint64(40)).astype(numpy.float32) / numpy.float32(2**23) - numpy.float32(1.0)


def weight(name, shape):
    """A tensor: norms near 1 (Gemma's near 0, which works as well), biases small, matrices as they are begun."""
    values = numbers(name, int(numpy.prod(shape))).reshape(shape)
    if len(shape) == 1:
        values = values * numpy.float32(0.25) + numpy.float32(0.0 if name.endswith("bias") else 0.75)
    else:
        values = values * numpy.float32(2.0 / numpy.sqrt(shape[-1]))
    return values.astype(numpy.float16)


# The type of the matrices in files of GGUF.
Type = gguf.GGMLQuantizationType
FILES = {
    "gguf_llama": (Type.Q4_0, dict(model_type="llama", rope_parameters=LLAMA3)),
    "gguf_qwen2": (Type.Q5_0, dict(model_type="qwen2")),
    "gguf_qwen3": (Type.Q8_0, dict(model_type="qwen3", head_dim=16, tie_word_embeddings=True)),
    "gguf_gemma2": (
        Type.Q5_1,
        dict(model_type="gemma2", head_dim=16, query_pre_attn_scalar=16, sliding_window=8, layer_types=KINDS),
    ),
    "gguf_gemma3": (
        Type.Q4_0,
        dict(
            MODELS["gemma3"],
            query_pre_attn_scalar=16,
            num_hidden_layers=6,
            layer_types=["sliding_attention"] * 5 + ["full_attention"],
            rope_parameters=dict(
                sliding_attention=dict(rope_type="default", rope_theta=1e4),
                full_attention=dict(rope_type="default", rope_theta=1e6),
            ),
        ),
    ),
    "gguf_phi3": (Type.Q4_1, dict(model_type="phi3", sliding_window=11)),
    "gguf_phi3_longer": (Type.Q8_0, MODELS["phi3_longer"]),
}


def set_weights(model, salt, stored):
    """Gives a model its weights, as they are after they were stored."""
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            values = weight(f"{salt} {key}", tuple(parameter.shape)).astype(numpy.float32)
            parameter.copy_(torch.from_numpy(stored(values).astype(numpy.float64)))


def follow(model):
    """The logits behind the prompt, the tokens that follow, and how near two logits came."""
    with torch.no_grad():
        tokens, first, margin = list(PROMPT), None, numpy.inf
        for _ in range(NEW):
            logits = model(torch.tensor([tokens]), use_cache=False).logits[0, -1]
            first = logits if first is None else first
            two = logits.topk(2).values
            margin = min(margin, float(two[0] - two[1]))
            tokens.append(int(logits.argmax()))
    return first, tokens[len(PROMPT) :], margin


def computed(name, special, stored):
    """A model whose logits keep apart, and what it says."""
    config = AutoConfig.for_model(**{**SMALL, **special})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").double().eval()
    for salt in range(100):
        set_weights(model, salt, stored)
        first, tokens, margin = follow(model)
        if margin > LEAST_MARGIN and len(set(tokens)) > 7:
            break
    else:
        raise ValueError(f"no weights of {name} keep their logits apart")
    folder = FOLDER / name
    folder.mkdir(exist_ok=True)
    expected = dict(
        salt=salt,
        tensors={key: list(value.shape) for key, value in model.named_parameters()},
        prompt=PROMPT,
        logits=[round(value, 7) for value in first.tolist()],
        tokens=tokens,
    )
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")
    print(name, f"salt {salt}, margin {margin:.4f}", tokens[:12])
    return config, salt, model


def neighbours(values, heads):
    """Rows in the order for pairs of neighbours, as llama.cpp stores queries and keys of a Llama."""
    return values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def llama3_factors(size):
    """The divisors of the frequencies, which llama.cpp stores as a tensor."""
    factors = []
    for pair in range(size // 2):
        wavelength = 2 * numpy.pi * LLAMA3["rope_theta"] ** (2 * pair / size)
        original, factor = LLAMA3["original_max_position_embeddings"], LLAMA3["factor"]
        low, high = LLAMA3["low_freq_factor"], LLAMA3["high_freq_factor"]
        smooth = min(max((original / wavelength - low) / (high - low), 0.0), 1.0)
        factors.append(1.0 / ((1.0 - smooth) / factor + smooth))
    return numpy.array(factors, dtype=numpy.float32)


def write_gguf(name, kind, config, salt, model):
    arch = config.model_type.removesuffix("_text")
    writer = gguf.GGUFWriter(FOLDER / name / "model.gguf", arch)
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(size)
    writer.add_rope_dimension_count(size)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    positions = config.rope_parameters
    writer.add_rope_freq_base(positions.get("full_attention", positions)["rope_theta"])
    writer.add_eos_token_id(config.eos_token_id)
    writer.add_token_list([f"<{token}>" for token in range(config.vocab_size)])
    if getattr(config, "sliding_window", None) and arch != "qwen2":
        writer.add_sliding_window(config.sliding_window)
    if arch == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if arch == "llama":
        writer.add_tensor("rope_freqs.weight", llama3_factors(size))
    if positions.get("rope_type") == "longrope":
        original = positions["original_max_position_embeddings"]
        writer.add_rope_scaling_orig_ctx_len(original)
        stretched = numpy.log(config.max_position_embeddings / original)
        writer.add_rope_scaling_attn_factors(float(numpy.sqrt(1.0 + stretched / numpy.log(original))))
        for length in ["short", "long"]:
            factors = numpy.array(positions[f"{length}_factor"], dtype=numpy.float32)
            writer.add_tensor(f"rope_factors_{length}.weight", factors)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[arch.upper()], config.num_hidden_layers)
    for key, parameter in model.named_parameters():
        values = weight(f"{salt} {key}", tuple(parameter.shape)).astype(numpy.float32)
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        heads = heads.get(key.split(".")[-2]) if arch == "llama" else None
        values = values if heads is None else neighbours(values, heads)
        if arch.startswith("gemma") and key.endswith("norm.weight"):
            values = values + numpy.float32(1.0)
        stored = names.get_name(key, try_suffixes=(".weight", ".bias"))
        if values.ndim == 1:
            writer.add_tensor(stored, values)
        else:
            writer.add_tensor(stored, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    for name, special in MODELS.items():
        config, _, _ = computed(name, special, lambda values: values)
        text = json.dumps(config.to_diff_dict() | SMALL | special, indent=1, sort_keys=True)
        (FOLDER / name / "config.json").write_text(text + "\n")
    for name, (kind, special) in FILES.items():

        def stored(values):
            if values.ndim == 1:
                return values
            return gguf.quants.dequantize(gguf.quants.quantize(values, kind), kind)

        write_gguf(name, kind, *computed(name, special, stored))


main()
