//! Errors about a model's files are sentences that say what to do. The model is a small one,
//! made for the test.

use std::fs;
use std::path::{Path, PathBuf};

use embed::small::{WIDTH, WORDS, config, shapes, tokenizer, weights};
use embed::{Config, Entry, Files, Index, Model};
use lapidary::{Gpu, Options, files::ModelFile};
use serde_json::{Value, json};

/// A model of these parts, or the error.
fn model(
    config: &Value,
    tokenizer: &Value,
    shapes: &[(String, Vec<usize>)],
) -> Result<Model, String> {
    model_with(config, tokenizer, weights(shapes))
}

/// As `model`, with an existing file of weights.
fn model_with(config: &Value, tokenizer: &Value, weights: Vec<u8>) -> Result<Model, String> {
    let gpu = Gpu::open(Options::from_env().unwrap()).unwrap();
    let (config, tokenizer) = (config.to_string(), tokenizer.to_string());
    let files = Files {
        config: config.as_bytes(),
        sentences: None,
        tokenizer: tokenizer.as_bytes(),
    };
    let file = ModelFile::from_bytes(weights).map_err(|error| error.to_string())?;
    Model::new(&gpu, files, &file).map_err(|error| error.to_string())
}

/// A folder that does not exist yet.
fn folder(of: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("embed-test-{}-{of}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}

#[track_caller]
fn says<T: std::fmt::Debug>(result: Result<T, String>, parts: &[&str]) {
    let sentence = result.unwrap_err();
    for part in parts {
        assert!(sentence.contains(part), "{part:?} is not in: {sentence}");
    }
}

#[test]
fn a_small_model_that_is_whole_encodes_also_empty_and_long_texts() {
    let model = model(&config(), &tokenizer(&WORDS), &shapes()).unwrap();
    let texts = [
        "stone cutter",
        "",
        "Stone Cutter",
        &"stone ".repeat(50),
        "a word it does not know",
    ];
    let embedded = pollster::block_on(model.embed(&texts, |_| {})).unwrap();
    assert_eq!(
        (embedded.cut, embedded.vectors.len()),
        (1, texts.len() * WIDTH)
    );
    let vectors: Vec<_> = embedded.vectors.chunks(WIDTH).collect();
    for vector in &vectors {
        let length: f32 = vector.iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-5);
    }
    let distance = |a: &[f32], b: &[f32]| {
        a.iter()
            .zip(b)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f32::max)
    };
    assert!(distance(vectors[0], vectors[2]) < 1e-6);
    assert!(distance(vectors[0], vectors[1]) > 1e-3);
    let none: [&str; 0] = [];
    let embedded = pollster::block_on(model.embed(&none, |_| {})).unwrap();
    assert!(embedded.vectors.is_empty());
}

#[test]
fn another_architecture_is_refused() {
    let with = |key: &str, value: Value| {
        let mut config = config();
        config[key] = value;
        model(&config, &tokenizer(&WORDS), &shapes())
    };
    says(
        with("model_type", json!("gpt2")),
        &["config.json", "\"gpt2\"", "\"bert\"", "fetch-model"],
    );
    says(
        with("hidden_act", json!("relu")),
        &["hidden_act", "\"relu\""],
    );
    says(
        with("position_embedding_type", json!("relative_key")),
        &["position_embedding_type"],
    );
    says(
        with("num_attention_heads", json!(3)),
        &["3 heads", "get the model again"],
    );
    says(
        with("num_attention_heads", json!(0)),
        &["num_attention_heads is 0"],
    );
    says(
        with("hidden_size", json!(-1)),
        &["config.json", "no description"],
    );
    says(with("layer_norm_eps", json!(-1.0)), &["layer_norm_eps"]);
    let parsed = Config::parse(b"{", None).map_err(|error| error.to_string());
    says(parsed, &["config.json", "all-MiniLM-L6-v2"]);
    let parsed = Config::parse(config().to_string().as_bytes(), Some(b"[]"))
        .map_err(|error| error.to_string());
    says(parsed, &["sentence_bert_config.json", "remove the file"]);
}

#[test]
fn tensors_that_are_missing_or_of_another_shape_are_named() {
    let name = "encoder.layer.0.output.dense.weight";
    let without: Vec<_> = shapes()
        .into_iter()
        .filter(|(other, _)| other != name)
        .collect();
    says(
        model(&config(), &tokenizer(&WORDS), &without),
        &[name, "none of its 20 tensors"],
    );
    let mut turned = shapes();
    let of = turned.iter_mut().find(|(other, _)| other == name).unwrap();
    of.1.reverse();
    says(
        model(&config(), &tokenizer(&WORDS), &turned),
        &[name, "[16, 8]", "[8, 16]"],
    );
    let mut wider = config();
    wider["vocab_size"] = json!(7);
    says(
        model(&wider, &tokenizer(&WORDS), &shapes()),
        &["word_embeddings", "[6, 8]", "[7, 8]"],
    );
}

#[test]
fn a_tokenizer_that_does_not_fit_is_refused() {
    let more = [&WORDS[..], &["extra"]].concat();
    says(
        model(&config(), &tokenizer(&more), &shapes()),
        &["tokenizer.json", "\"extra\" is token 6", "6 rows"],
    );
    says(
        model(&config(), &json!({"a": 1}), &shapes()),
        &["tokenizer.json", "no tokenizer"],
    );
    let mut beside = tokenizer(&WORDS);
    beside["post_processor"]["special_tokens"]["[SEP]"]["ids"] = json!([99]);
    says(
        model(&config(), &beside, &shapes()),
        &["tokenizer.json", "token 99 beside a text", "6 rows"],
    );
    let mut bare = tokenizer(&WORDS);
    bare["post_processor"] = Value::Null;
    says(
        model(&config(), &bare, &shapes()),
        &["tokenizer.json", "0 tokens around a text"],
    );
}

#[test]
fn a_folder_that_lacks_a_file_or_has_half_of_one_is_told_so() {
    let folder = folder("model");
    let gpu = Gpu::open(Options::from_env().unwrap()).unwrap();
    let open = || Model::open(&gpu, &folder).map_err(|error| error.to_string());
    says(
        open(),
        &[folder.to_str().unwrap(), "no config.json", "fetch-model"],
    );
    fs::create_dir(&folder).unwrap();
    let put = |name: &str, bytes: &[u8]| fs::write(folder.join(name), bytes).unwrap();
    put("config.json", config().to_string().as_bytes());
    says(open(), &["no tokenizer.json"]);
    put("tokenizer.json", tokenizer(&WORDS).to_string().as_bytes());
    says(open(), &["model.safetensors"]);
    let whole = weights(&shapes());
    put("model.safetensors", &whole[..whole.len() - 1]);
    says(open(), &["model.safetensors", "ownload it again"]);
    put("model.safetensors", &whole);
    let model = open().unwrap();
    // Nothing has been read so far. The file changes now.
    put("model.safetensors", &whole[..100]);
    let texts = ["stone"];
    let refused =
        pollster::block_on(model.embed(&texts, |_| {})).map_err(|error| error.to_string());
    says(refused, &["model.safetensors"]);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn an_index_of_another_model_is_refused_also_if_its_vectors_are_as_wide() {
    let path = folder("index").with_extension("index");
    let made = model(&config(), &tokenizer(&WORDS), &shapes()).unwrap();
    let entry = Entry {
        text: "stone cutter".into(),
        place: "texts.txt".into(),
        line: 1,
    };
    let embedded = pollster::block_on(made.embed(&[&entry.text], |_| {})).unwrap();
    let index = pollster::block_on(Index::new(made.gpu(), vec![entry], &embedded)).unwrap();
    index.save(made.gpu(), &path).unwrap();
    let load = |model: Result<Model, String>| {
        let model = model?;
        let id = pollster::block_on(model.id()).map_err(|error| error.to_string())?;
        let loaded = Index::load(model.gpu(), &path, id);
        loaded.map_err(|error| error.to_string())
    };

    let same = load(model(&config(), &tokenizer(&WORDS), &shapes()));
    assert_eq!(same.unwrap().entries(), index.entries());

    let refused = [path.to_str().unwrap(), "another model", "`embed index`"];
    let mut described = config();
    described["layer_norm_eps"] = json!(1e-5);
    says(
        load(model(&described, &tokenizer(&WORDS), &shapes())),
        &refused,
    );
    // The same description, and other weights. The last two tensors are the norm of the embeddings.
    let mut trained = weights(&shapes());
    let at = trained.len() - 2 * WIDTH * 4;
    trained[at] ^= 1;
    says(
        load(model_with(&config(), &tokenizer(&WORDS), trained)),
        &refused,
    );

    // Another state file of lapidary.
    let gpu = made.gpu();
    let other = gpu.tensor(&[1.0_f32], &[1]).unwrap();
    gpu.files()
        .save_state(&path, &[("vectors", &other)])
        .unwrap();
    says(
        load(model(&config(), &tokenizer(&WORDS), &shapes())),
        &["no index", "`embed index`"],
    );
    fs::remove_file(&path).unwrap();
}

#[test]
fn that_an_index_cannot_be_written_is_said_before_it_is_made() {
    let folder = folder("prepared");
    let path = folder.join("deeper").join("embed.index");
    let prepare = |path: &Path| Index::prepare(path).map_err(|error| error.to_string());
    prepare(&path).unwrap();
    let left = fs::read_dir(folder.join("deeper")).unwrap().count();
    assert_eq!(left, 0, "a file was left behind");
    fs::write(&path, "an older index").unwrap();
    prepare(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"an older index");

    let below = path.join("embed.index");
    says(
        prepare(&below),
        &[below.to_str().unwrap(), "cannot be written"],
    );
    says(
        prepare(&folder),
        &[folder.to_str().unwrap(), "the path is not a file"],
    );
    says(
        prepare(&folder.join("new/")),
        &["does not end with a file name"],
    );
    fs::remove_dir_all(&folder).unwrap();
}
