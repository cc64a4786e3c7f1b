//! The description of a model as Hugging Face's `transformers` writes it: `config.json`.

use std::path::Path;

use serde_json::{Map, Value};

use super::{Config, Family, Rope, Scaling};
use crate::error::{Error, Result};

/// A longer file is not a description.
const MOST_BYTES: u64 = 16 << 20;

/// Reads `config.json`, and the end tokens of `generation_config.json` beside it.
pub(super) fn read(path: &Path) -> Result<Config> {
    let wrong = |reason: String| Error::Description {
        path: path.to_owned(),
        reason,
    };
    let generation = text_of(&path.with_file_name("generation_config.json"));
    let config = text_of(path).map_err(wrong)?;
    parse(path, &config, generation.ok().as_deref())
}

/// Reads the text of `config.json`, and the end tokens of that of `generation_config.json`.
pub(super) fn parse(path: &Path, config: &[u8], generation: Option<&[u8]>) -> Result<Config> {
    let wrong = |reason: String| Error::Description {
        path: path.to_owned(),
        reason,
    };
    let whole = object(config).map_err(wrong)?;
    let kind = text(&whole, "model_type").unwrap_or_default();
    // Models that also see have a description for each part.
    let inner = whole.get("text_config").and_then(Value::as_object);
    let fields = inner.unwrap_or(&whole);
    let named = text(fields, "model_type").unwrap_or(kind);
    let family = Family::of_type(named).or_else(|| Family::of_type(kind));
    let family = family.ok_or_else(|| Error::Architecture {
        path: path.to_owned(),
        found: kind.to_owned(),
        known: Family::known(),
    })?;
    let mut config = described(family, fields).map_err(wrong)?;
    config.end_tokens = end_tokens(fields)
        .or_else(|| end_tokens(&whole))
        .unwrap_or_default();
    if let Some(Ok(generation)) = generation.map(object) {
        for token in end_tokens(&generation).unwrap_or_default() {
            if !config.end_tokens.contains(&token) {
                config.end_tokens.push(token);
            }
        }
    }
    Ok(config)
}

fn text_of(path: &Path) -> std::result::Result<Vec<u8>, String> {
    let told = |error: std::io::Error| error.to_string();
    if std::fs::metadata(path).map_err(told)?.len() > MOST_BYTES {
        return Err(format!("it is larger than {MOST_BYTES} bytes"));
    }
    std::fs::read(path).map_err(told)
}

fn object(text: &[u8]) -> std::result::Result<Map<String, Value>, String> {
    serde_json::from_slice(text).map_err(|error| error.to_string())
}

/// What a family's own description class gives where the file is silent.
struct Defaults {
    heads: Option<u64>,
    kv_heads: Option<u64>,
    head_size: Option<u64>,
    theta: f32,
    eps: f32,
    window: Option<u64>,
    context: Option<u64>,
}

fn defaults(family: Family) -> Defaults {
    let plain = Defaults {
        heads: None,
        kv_heads: None,
        head_size: None,
        theta: 1e4,
        eps: 1e-6,
        window: None,
        context: None,
    };
    match family {
        Family::Gemma2 => Defaults {
            head_size: Some(256),
            window: family.known_caps().0,
            context: Some(8192),
            ..plain
        },
        Family::Gemma3 => Defaults {
            heads: Some(8),
            kv_heads: Some(4),
            head_size: Some(256),
            theta: 1e6,
            window: Some(4096),
            context: Some(131_072),
            ..plain
        },
        Family::Qwen3 => Defaults {
            head_size: Some(128),
            ..plain
        },
        Family::Phi3 => Defaults { eps: 1e-5, ..plain },
        _ => plain,
    }
}

fn described(family: Family, fields: &Map<String, Value>) -> std::result::Result<Config, String> {
    let known = defaults(family);
    let activation = text(fields, "hidden_activation").or_else(|| text(fields, "hidden_act"));
    if let Some(other) = activation.filter(|name| !family.has_activation(name)) {
        return Err(format!(
            "its activation is {other:?}; known are silu, and gelu for Gemma"
        ));
    }
    let layers = size(fields, "num_hidden_layers", None)?;
    let hidden = size(fields, "hidden_size", None)?;
    let heads = size(fields, "num_attention_heads", known.heads)?;
    let even = (hidden as u64).checked_div(heads as u64).or(Some(0));
    let head_size = size(fields, "head_dim", known.head_size.or(even))?;
    let mut context = size(fields, "max_position_embeddings", known.context)?;
    // From version 5 on, `transformers` has one object for all positions, or one a kind of layer.
    let positions = fields.get("rope_parameters").and_then(Value::as_object);
    let of_kind = |kind: &str| positions.and_then(|all| all.get(kind)?.as_object());
    let global = of_kind("full_attention").or(positions);
    let rotated = rotated(fields, global, head_size);
    let theta = global.and_then(|all| number(all, "rope_theta"));
    let theta = theta
        .or_else(|| number(fields, "rope_theta"))
        .unwrap_or(known.theta);
    let scaling = global.or_else(|| fields.get("rope_scaling").and_then(Value::as_object));
    let scaling = scaling
        .map(|all| scaling_of(all, fields, context))
        .transpose()?;
    if let Some(Scaling::Each { original, .. }) = &scaling {
        // The factors of a longer context are worse within this one, so an app asks for them.
        context = context.min(*original);
    }
    let rope = Rope {
        theta,
        rotated,
        scaling: scaling.unwrap_or(Scaling::None),
    };
    let local_theta = of_kind("sliding_attention").and_then(|all| number(all, "rope_theta"));
    let local_theta = local_theta.or_else(|| number(fields, "rope_local_base_freq"));
    let local_rope = (family == Family::Gemma3).then(|| Rope {
        theta: local_theta.unwrap_or(1e4),
        rotated,
        scaling: Scaling::None,
    });
    let query = number(fields, "query_pre_attn_scalar").unwrap_or(match family.is_gemma() {
        true => 256.0,
        false => head_size as f32,
    });
    let (_, [of_scores, of_logits]) = family.known_caps();
    let cap = |name: &str, known: Option<f32>| match fields.get(name) {
        None => known,
        Some(_) => number(fields, name).filter(|cap| *cap != 0.0),
    };
    Ok(Config {
        family,
        layers,
        hidden,
        feed_forward: size(fields, "intermediate_size", None)?,
        heads,
        kv_heads: size(
            fields,
            "num_key_value_heads",
            known.kv_heads.or(Some(heads as u64)),
        )?,
        head_size,
        norm_eps: number(fields, "rms_norm_eps").unwrap_or(known.eps),
        rope,
        local_rope,
        windows: windows(family, fields, layers, known.window)?,
        score_scale: 1.0 / query.sqrt(),
        score_cap: cap("attn_logit_softcapping", of_scores),
        logit_cap: cap("final_logit_softcapping", of_logits),
        context,
        end_tokens: Vec::new(),
        has_output: fields.get("tie_word_embeddings") == Some(&Value::Bool(false)),
        neighbour_pairs: false,
    })
}

/// The elements of a head that are rotated.
fn rotated(fields: &Map<String, Value>, rope: Option<&Map<String, Value>>, size: usize) -> usize {
    let share = rope.and_then(|rope| number(rope, "partial_rotary_factor"));
    let share = share.or_else(|| number(fields, "partial_rotary_factor"));
    (size as f32 * share.unwrap_or(1.0)) as usize
}

/// The window of each layer.
fn windows(
    family: Family,
    fields: &Map<String, Value>,
    layers: usize,
    known: Option<u64>,
) -> std::result::Result<Vec<Option<usize>>, String> {
    let kinds = fields.get("layer_types").and_then(Value::as_array);
    if let Some(kinds) = kinds.filter(|kinds| kinds.len() != layers) {
        let count = kinds.len();
        return Err(format!("layer_types has {count} of {layers} layers"));
    }
    let used = fields.get("use_sliding_window").and_then(Value::as_bool);
    let is_qwen = matches!(family, Family::Qwen2 | Family::Qwen3);
    // Some files of Llama name a window that `transformers` does not use.
    let off = used == Some(false) || is_qwen && used.is_none() || family == Family::Llama;
    let is_given = fields
        .get("sliding_window")
        .is_some_and(|window| !window.is_null());
    if off || !(is_given || known.is_some()) || layers > 1 << 16 {
        return Ok(vec![None; layers.min(1 << 16)]);
    }
    let window = size(fields, "sliding_window", known)?;
    if let Some(kinds) = kinds {
        let is_local = |kind: &Value| kind.as_str() == Some("sliding_attention");
        return Ok(kinds
            .iter()
            .map(|kind| is_local(kind).then_some(window))
            .collect());
    }
    let first = match fields.get("max_window_layers") {
        Some(_) if is_qwen => size(fields, "max_window_layers", None)?,
        _ => 0,
    };
    let every = match family {
        Family::Gemma3 => Some(size(fields, "sliding_window_pattern", Some(6))?.max(1)),
        _ => None,
    };
    Ok(family.windows(layers, first, window, every))
}

fn scaling_of(
    fields: &Map<String, Value>,
    of_model: &Map<String, Value>,
    context: usize,
) -> std::result::Result<Scaling, String> {
    let kind = text(fields, "rope_type")
        .or_else(|| text(fields, "type"))
        .unwrap_or("default");
    let factor =
        || number(fields, "factor").ok_or(format!("`{kind}` of its positions has no factor"));
    let original = original_of(fields).or_else(|| original_of(of_model));
    let or = |name: &str, other: f32| number(fields, name).unwrap_or(other);
    Ok(match kind {
        "default" => Scaling::None,
        "linear" => Scaling::Linear(factor()?),
        "llama3" => Scaling::Llama3 {
            factor: factor()?,
            low: or("low_freq_factor", 1.0),
            high: or("high_freq_factor", 4.0),
            original: original.unwrap_or(8192.0),
        },
        "yarn" => {
            let factor = factor()?;
            Scaling::Yarn {
                factor,
                attention: or("attention_factor", 0.1 * factor.ln() + 1.0),
                fast: or("beta_fast", 32.0),
                slow: or("beta_slow", 1.0),
                original: original.unwrap_or(context as f32),
            }
        }
        // "su" is an older name of it.
        "longrope" | "su" => {
            let original = original.unwrap_or(context as f32);
            let factor = number(fields, "factor").unwrap_or(context as f32 / original);
            let attention = match factor <= 1.0 {
                true => 1.0,
                false => (1.0 + factor.ln() / original.ln()).sqrt(),
            };
            Scaling::Each {
                factors: numbers(fields, "short_factor")?,
                long_factors: numbers(fields, "long_factor")?,
                original: original as usize,
                attention: or("attention_factor", attention),
            }
        }
        other => {
            let known = "default, linear, llama3, yarn, longrope";
            return Err(format!("its positions are {other:?}; known are {known}"));
        }
    })
}

/// The context before the positions were scaled.
fn original_of(fields: &Map<String, Value>) -> Option<f32> {
    number(fields, "original_max_position_embeddings")
}

fn end_tokens(fields: &Map<String, Value>) -> Option<Vec<u32>> {
    let token = |value: &Value| u32::try_from(value.as_u64()?).ok();
    match fields.get("eos_token_id")? {
        Value::Array(all) => Some(all.iter().filter_map(token).collect()),
        one => Some(vec![token(one)?]),
    }
}

fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    fields.get(name)?.as_str()
}

fn number(fields: &Map<String, Value>, name: &str) -> Option<f32> {
    fields.get(name)?.as_f64().map(|number| number as f32)
}

fn numbers(fields: &Map<String, Value>, name: &str) -> std::result::Result<Vec<f32>, String> {
    let list = fields.get(name).and_then(Value::as_array);
    let list = list.ok_or_else(|| format!("`{name}` is missing"))?;
    let each = list
        .iter()
        .map(|one| one.as_f64().map(|number| number as f32));
    each.collect::<Option<Vec<f32>>>()
        .ok_or_else(|| format!("`{name}` is no list of numbers"))
}

fn size(
    fields: &Map<String, Value>,
    name: &str,
    known: Option<u64>,
) -> std::result::Result<usize, String> {
    let number = match fields.get(name) {
        None | Some(Value::Null) => known.ok_or_else(|| format!("`{name}` is missing"))?,
        Some(value) => value
            .as_u64()
            .ok_or_else(|| format!("`{name}` is {value}"))?,
    };
    usize::try_from(number).map_err(|_| format!("`{name}` is {number}"))
}
