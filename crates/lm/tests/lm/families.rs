//! Each family of decoders makes the logits and the tokens that `transformers` makes.

use lapidary::diagnostics::KernelTime;
use lapidary::files::{ModelFile, WeightForm};
use lapidary::operations::BlockFormat;
use lapidary::{Gpu, Options};

use crate::weights::{expected, folder, gpu, greedy, model, safetensors};

fn check(name: &str) {
    check_on(&gpu(), name);
}

fn check_on(gpu: &Gpu, name: &str) {
    let expected = expected(name);
    let model = model(gpu, name, WeightForm::Stored);
    let (logits, tokens) = greedy(&model, &expected.prompt, expected.prompt.len(), 64);
    assert_eq!(logits.len(), expected.logits.len());
    for (at, (got, wanted)) in logits.iter().zip(&expected.logits).enumerate() {
        let close = (got - wanted).abs() <= 1e-5 * wanted.abs().max(1.0);
        assert!(close, "{name}: logit {at} is {got}, not {wanted}");
    }
    assert_eq!(tokens, expected.tokens, "{name}");
    let (_, in_pieces) = greedy(&model, &expected.prompt, 7, 64);
    assert_eq!(in_pieces, expected.tokens, "{name}, in pieces");
}

/// Files of GGUF have blocks that llama.cpp's package made. The host makes the same of the weights
/// in f16, as it reads them.
#[test]
fn blocks_that_the_host_makes_are_those_of_the_package() {
    for (name, format) in [
        ("gguf_qwen2", BlockFormat::Q5_0),
        ("gguf_qwen3", BlockFormat::Q8_0),
        ("gguf_gemma2", BlockFormat::Q5_1),
        ("gguf_gemma3", BlockFormat::Q4_0),
        ("gguf_phi3", BlockFormat::Q4_1),
    ] {
        let gpu = gpu();
        let stored = ModelFile::open(folder(name).join("model.gguf")).unwrap();
        let floats = ModelFile::from_bytes(safetensors(&expected(name))).unwrap();
        let made = floats.weights_as(WeightForm::Blocks(format)).unwrap();
        for (of_stored, of_made) in [
            ("token_embd", "embed_tokens"),
            ("blk.0.ffn_down", "layers.0.mlp.down_proj"),
            ("blk.1.attn_output", "layers.1.self_attn.o_proj"),
        ] {
            let bytes = |file: &ModelFile, name: &str| -> Vec<u8> {
                let weight = gpu.files().load_weight_backed(file, name).unwrap();
                assert_eq!(weight.blocks(), Some(format));
                weight.tensors()[0].to_vec().unwrap()
            };
            let stored = bytes(&stored, &format!("{of_stored}.weight"));
            let made = bytes(&made, &format!("model.{of_made}.weight"));
            assert_eq!(made, stored, "{name}: {of_made}");
        }
    }
}

#[test]
fn the_adapter_says_the_same() {
    let gpu = Gpu::open(Options::from_env().unwrap()).expect("the tests need an adapter");
    for name in ["llama3", "gemma2", "gguf_qwen3"] {
        check_on(&gpu, name);
    }
}

#[test]
fn kernel_times_name_the_parts_of_a_model() {
    let gpu = Gpu::open(Options::from_env().unwrap()).expect("the tests need an adapter");
    gpu.kernels().time(true).unwrap();
    let model = model(&gpu, "llama3", WeightForm::Stored);
    greedy(&model, &[3, 1, 2], 3, 1);
    let times = gpu.kernels().times().unwrap();
    for scope in ["layer 0/attention", "layer 2/feed forward", "logits"] {
        let of_scope = |time: &&KernelTime| {
            let tag = time.tag.as_ref();
            tag.and_then(|tag| tag.scope()) == Some(scope)
        };
        let calls: u64 = times.iter().filter(of_scope).map(|time| time.calls).sum();
        assert!(calls > 0, "{scope}: {times:?}");
    }
}

macro_rules! families {
    ($($name:ident),* $(,)?) => { $(
        #[test]
        fn $name() {
            check(stringify!($name));
        }
    )* };
}

families!(
    llama2,
    llama3,
    llama_biased,
    mistral,
    qwen2,
    qwen2_yarn,
    qwen3,
    gemma2,
    gemma3,
    phi3,
    phi3_long,
    phi3_longer,
    phi4,
    gguf_llama,
    gguf_qwen2,
    gguf_qwen3,
    gguf_gemma2,
    gguf_gemma3,
    gguf_phi3,
    gguf_phi3_longer,
);
