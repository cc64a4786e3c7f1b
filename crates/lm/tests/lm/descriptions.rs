//! Descriptions as they lie on people's disks, and such that no model can have.

use std::path::PathBuf;

use lapidary::files::ModelFile;
use lapidary_lm::{Config, Error, Family, LanguageModel, ModelOptions, Result, Scaling};
use lapidary_testing::model_file::file_with;
use serde_json::{Value, json};

use crate::weights::{expected, folder, gpu, safetensors};

/// A folder with this description, deleted after the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, description: &str) -> Folder {
        let name = format!("lapidary-lm-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("config.json"), description).unwrap();
        Folder(path)
    }

    fn read(&self) -> Result<Config> {
        let file = ModelFile::from_bytes(file_with(&[("x", "F32", &[1], &[0; 4])])).unwrap();
        Config::read(&self.0, &file)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn read(name: &str, description: &Value) -> Result<Config> {
    Folder::new(name, &description.to_string()).read()
}

#[test]
fn llama_3_1() {
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "eos_token_id": [128001, 128008, 128009],
        "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 131072,
        "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
        "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
        "rope_scaling": {
            "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"
        },
    });
    let config = read("llama31", &config).unwrap();
    assert_eq!(
        (config.family, config.layers, config.head_size),
        (Family::Llama, 32, 128)
    );
    assert_eq!(
        (config.heads, config.kv_heads, config.rope.theta),
        (32, 8, 5e5)
    );
    let wanted = Scaling::Llama3 {
        factor: 8.0,
        low: 1.0,
        high: 4.0,
        original: 8192.0,
    };
    assert_eq!(config.rope.scaling, wanted);
    assert_eq!(config.end_tokens, [128001, 128008, 128009]);
    assert_eq!(config.windows, [None; 32]);
}

#[test]
fn gemma_3_whose_text_is_a_part() {
    let config = json!({
        "architectures": ["Gemma3ForConditionalGeneration"], "eos_token_id": [1, 106],
        "model_type": "gemma3", "vision_config": { "hidden_size": 1152 },
        "text_config": {
            "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
            "num_hidden_layers": 34, "rope_scaling": { "factor": 8.0, "rope_type": "linear" },
            "sliding_window": 1024
        },
    });
    let config = read("gemma3", &config).unwrap();
    assert_eq!(
        (config.heads, config.kv_heads, config.head_size),
        (8, 4, 256)
    );
    assert_eq!(config.rope.scaling, Scaling::Linear(8.0));
    assert_eq!(
        (config.rope.theta, config.local_rope.unwrap().theta),
        (1e6, 1e4)
    );
    assert_eq!(
        config.windows[..6],
        [[Some(1024); 5].as_slice(), &[None]].concat()
    );
    assert_eq!(
        (config.score_scale, config.end_tokens),
        (1.0 / 16.0, vec![1, 106])
    );
}

#[test]
fn windows_of_mistral_and_of_qwen() {
    let of = |kind: &str, more: Value| {
        let mut config = json!({
            "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768,
            "model_type": kind, "num_attention_heads": 32, "num_hidden_layers": 4,
            "num_key_value_heads": 8, "rope_theta": 10000.0, "sliding_window": 4096,
        });
        config
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        read(kind, &config).unwrap().windows
    };
    assert_eq!(of("mistral", json!({})), [Some(4096); 4]);
    assert_eq!(of("mistral", json!({ "sliding_window": null })), [None; 4]);
    let unused = json!({ "use_sliding_window": false, "max_window_layers": 3 });
    assert_eq!(of("qwen2", unused), [None; 4]);
    let used = json!({ "use_sliding_window": true, "max_window_layers": 3 });
    assert_eq!(of("qwen2", used), [None, None, None, Some(4096)]);
}

#[test]
fn phi_3_5_has_factors_of_two_contexts() {
    let factors: Vec<f32> = (0..48).map(|pair| 1.0 + pair as f32 / 8.0).collect();
    let long = vec![64.0; 48];
    let config = json!({
        "hidden_size": 3072, "intermediate_size": 8192, "max_position_embeddings": 131072,
        "model_type": "phi3", "num_attention_heads": 32, "num_hidden_layers": 32,
        "original_max_position_embeddings": 4096, "sliding_window": 262144,
        "rope_scaling": { "long_factor": long, "short_factor": factors, "type": "longrope" },
    });
    let config = read("phi35", &config).unwrap();
    let Scaling::Each {
        factors: found,
        long_factors,
        original,
        attention,
    } = config.rope.scaling
    else {
        panic!("{:?}", config.rope.scaling);
    };
    assert_eq!(
        (found, config.norm_eps, config.kv_heads),
        (factors, 1e-5, 32)
    );
    assert_eq!((long_factors, original, config.context), (long, 4096, 4096));
    assert!((attention - 1.190_238).abs() < 1e-5, "{attention}");
}

#[test]
fn what_no_model_can_be_is_refused() {
    let good = json!({
        "hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": 128,
        "model_type": "llama", "num_attention_heads": 4, "num_hidden_layers": 2,
    });
    read("good", &good).unwrap();
    for (key, value, told) in [
        ("hidden_size", Value::Null, "`hidden_size` is missing"),
        ("hidden_size", json!("32"), "`hidden_size` is \"32\""),
        ("num_hidden_layers", json!(0), "it has 0 layers"),
        ("num_hidden_layers", json!(1_u64 << 40), "layers"),
        ("num_attention_heads", json!(0), "heads"),
        (
            "num_key_value_heads",
            json!(3),
            "4 heads share 3 heads of keys unevenly",
        ),
        (
            "head_dim",
            json!(7),
            "7 of 7 elements of a head are rotated",
        ),
        ("rope_theta", json!(0.0), "the base of its positions is 0"),
        ("rms_norm_eps", json!(-1.0), "its norms add -1"),
        (
            "rope_scaling",
            json!({ "type": "dynamic", "factor": 2.0 }),
            "known are default, linear",
        ),
        (
            "rope_scaling",
            json!({ "type": "linear" }),
            "`linear` of its positions has no factor",
        ),
        (
            "layer_types",
            json!(["full_attention"]),
            "layer_types has 1 of 2 layers",
        ),
    ] {
        let mut config = good.clone();
        config["sliding_window"] = json!(8);
        config[key] = value;
        let error = read("bad", &config).unwrap_err();
        assert!(matches!(error, Error::Description { .. }), "{error}");
        assert!(error.to_string().contains(told), "{key}: {error}");
    }
    let mut other = good;
    other["model_type"] = json!("mamba");
    let error = read("other", &other).unwrap_err();
    assert!(matches!(error, Error::Architecture { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("known are llama, mistral, qwen2"),
        "{error}"
    );
    for text in ["", "[]", "{", "\0"] {
        let error = Folder::new("text", text).read().unwrap_err();
        assert!(matches!(error, Error::Description { .. }), "{error}");
    }
}

#[test]
fn a_file_that_lacks_a_tensor_or_has_another_shape_says_so() {
    let of = expected("llama3");
    let path = folder("llama3").join("model.safetensors");
    let file = ModelFile::from_bytes(safetensors(&of)).unwrap();
    let config = Config::read(&path, &file).unwrap();
    let mut deeper = config.clone();
    deeper.layers += 1;
    deeper.windows.push(None);
    let error = LanguageModel::new(&gpu(), &file, deeper)
        .unwrap_err()
        .to_string();
    assert!(error.contains("model.layers.3."), "{error}");
    let mut wider = config;
    wider.feed_forward *= 2;
    let error = LanguageModel::new(&gpu(), &file, wider)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("[64, 32]") && error.contains("[128, 32]"),
        "{error}"
    );
    let error = LanguageModel::open(&gpu(), "/nowhere", ModelOptions::default());
    assert!(matches!(error, Err(Error::Lapidary(_))));
}

fn small_llama() -> Value {
    json!({
        "hidden_size": 64, "intermediate_size": 128, "max_position_embeddings": 256,
        "model_type": "llama", "num_attention_heads": 4, "num_hidden_layers": 2,
    })
}

#[test]
fn an_activation_that_the_family_lacks_is_refused() {
    let mut config = small_llama();
    for (name, is_known) in [("silu", true), ("relu", false), ("gelu", false)] {
        config["hidden_act"] = json!(name);
        let read = read("activation", &config);
        match is_known {
            true => drop(read.unwrap()),
            false => assert!(read.unwrap_err().to_string().contains(name)),
        }
    }
}

#[test]
fn a_window_that_llama_does_not_use_is_none() {
    let mut config = small_llama();
    config["sliding_window"] = json!(16);
    assert_eq!(read("window", &config).unwrap().windows, [None, None]);
    config["model_type"] = json!("mistral");
    assert_eq!(
        read("window", &config).unwrap().windows,
        [Some(16), Some(16)]
    );
}

#[test]
fn a_model_that_lacks_its_own_output_is_refused() {
    let description = std::fs::read(folder("llama3").join("config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&description).unwrap();
    config["tie_word_embeddings"] = json!(false);
    let description = config.to_string().into_bytes();
    let config = Config::from_json("config.json".as_ref(), &description, None).unwrap();
    let file = ModelFile::from_bytes(safetensors(&expected("llama3"))).unwrap();
    let error = LanguageModel::new(&gpu(), &file, config).unwrap_err();
    assert!(error.to_string().contains("lm_head.weight"), "{error}");
}
