//! The description of a model in the metadata of a GGUF file, with llama.cpp's keys.

use std::collections::BTreeMap;
use std::path::Path;

use lapidary::files::{MetaValue, ModelFile};

use super::{Config, Family, Rope, Scaling};
use crate::error::{Error, Result};

const ARCHITECTURE: &str = "general.architecture";

/// Whether the metadata describe a model.
pub(super) fn is_described(file: &ModelFile) -> bool {
    file.metadata().contains_key(ARCHITECTURE)
}

pub(super) fn read(path: &Path, file: &ModelFile) -> Result<Config> {
    let name = file
        .metadata()
        .get(ARCHITECTURE)
        .and_then(MetaValue::as_str)
        .unwrap_or_default();
    let family = Family::of_gguf(name).ok_or_else(|| Error::Architecture {
        path: path.to_owned(),
        found: name.to_owned(),
        known: Family::known(),
    })?;
    let fields = Fields {
        all: file.metadata(),
        name,
    };
    described(family, &fields, file).map_err(|reason| Error::Description {
        path: path.to_owned(),
        reason,
    })
}

fn described(
    family: Family,
    fields: &Fields<'_>,
    file: &ModelFile,
) -> std::result::Result<Config, String> {
    let layers = fields.size("block_count", None)?;
    let hidden = fields.size("embedding_length", None)?;
    let heads = fields.size("attention.head_count", None)?;
    let even = hidden.checked_div(heads).or(Some(0));
    let head_size = fields.size("attention.key_length", even)?;
    let context = fields.size("context_length", None)?;
    let rotated = fields.size("rope.dimension_count", Some(head_size))?;
    let theta = fields.number("rope.freq_base").unwrap_or(1e4);
    let scaling = scaling(family, fields, file, context)?;
    // 27 billion parameters of either Gemma scale by another number, which the file does not say.
    let query = match (family, layers) {
        (Family::Gemma2, 46) | (Family::Gemma3, 62) => (hidden / heads.max(1)) as f32,
        _ => head_size as f32,
    };
    Ok(Config {
        family,
        layers,
        hidden,
        feed_forward: fields.size("feed_forward_length", None)?,
        heads,
        kv_heads: fields.size("attention.head_count_kv", Some(heads))?,
        head_size,
        norm_eps: fields
            .number("attention.layer_norm_rms_epsilon")
            .unwrap_or(1e-5),
        rope: Rope {
            theta,
            rotated,
            scaling,
        },
        local_rope: (family == Family::Gemma3).then_some(Rope {
            theta: fields.number("rope.freq_base_swa").unwrap_or(1e4),
            rotated,
            scaling: Scaling::None,
        }),
        windows: windows(family, fields, layers)?,
        score_scale: 1.0 / query.sqrt(),
        score_cap: fields.number("attn_logit_softcapping"),
        logit_cap: fields.number("final_logit_softcapping"),
        context,
        end_tokens: end_tokens(fields),
        neighbour_pairs: family == Family::Llama,
    })
}

fn windows(
    family: Family,
    fields: &Fields<'_>,
    layers: usize,
) -> std::result::Result<Vec<Option<usize>>, String> {
    let layers = layers.min(1 << 16);
    let window = match fields.get("attention.sliding_window") {
        Some(_) => fields.size("attention.sliding_window", None)?,
        None => return Ok(vec![None; layers]),
    };
    let every = match family {
        Family::Gemma2 => 2,
        Family::Gemma3 => 6,
        _ => usize::MAX,
    };
    let is_local = |layer: usize| !(layer + 1).is_multiple_of(every);
    Ok((0..layers)
        .map(|layer| is_local(layer).then_some(window))
        .collect())
}

fn scaling(
    family: Family,
    fields: &Fields<'_>,
    file: &ModelFile,
    context: usize,
) -> std::result::Result<Scaling, String> {
    // Llama 3's and Phi's factors are a tensor.
    if file
        .names()
        .any(|name| name == "rope_freqs.weight" || name == "rope_factors_short.weight")
    {
        let attention = fields.number("rope.scaling.attn_factor").unwrap_or(1.0);
        return Ok(Scaling::Each {
            factors: Vec::new(),
            attention,
        });
    }
    let factor = fields.number("rope.scaling.factor").unwrap_or(1.0);
    Ok(
        match fields.get("rope.scaling.type").and_then(MetaValue::as_str) {
            None | Some("none") => Scaling::None,
            Some("linear") => Scaling::Linear(factor),
            Some("yarn") => Scaling::Yarn {
                factor,
                attention: 0.1 * factor.ln() + 1.0,
                fast: 32.0,
                slow: 1.0,
                original: (fields.number("rope.scaling.original_context_length"))
                    .unwrap_or(context as f32 / factor),
            },
            Some("longrope") if family == Family::Phi3 => Scaling::None,
            Some(other) => {
                let known = "none, linear, yarn, longrope";
                return Err(format!("its positions are {other:?}; known are {known}"));
            }
        },
    )
}

/// Tokens that end a text or a turn.
fn end_tokens(fields: &Fields<'_>) -> Vec<u32> {
    let names = ["eos_token_id", "eot_token_id", "eom_token_id"];
    let values = names.map(|name| fields.all.get(&format!("tokenizer.ggml.{name}")));
    let tokens = values.into_iter().flatten().filter_map(MetaValue::as_u64);
    tokens
        .filter_map(|token| u32::try_from(token).ok())
        .collect()
}

/// The metadata, by keys without the name of the architecture.
struct Fields<'a> {
    all: &'a BTreeMap<String, MetaValue>,
    name: &'a str,
}

impl Fields<'_> {
    fn get(&self, key: &str) -> Option<&MetaValue> {
        self.all.get(&format!("{}.{key}", self.name))
    }

    fn number(&self, key: &str) -> Option<f32> {
        self.get(key)?.as_f64().map(|number| number as f32)
    }

    fn size(&self, key: &str, known: Option<usize>) -> std::result::Result<usize, String> {
        let name = self.name;
        match self.get(key) {
            None => known.ok_or_else(|| format!("`{name}.{key}` is missing")),
            Some(value) => {
                let size = value.as_u64().and_then(|size| usize::try_from(size).ok());
                size.ok_or_else(|| format!("`{name}.{key}` is no size"))
            }
        }
    }
}
