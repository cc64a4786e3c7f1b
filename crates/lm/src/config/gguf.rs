//! The description of a model in the metadata of a GGUF file, with llama.cpp's keys.

use std::collections::BTreeMap;
use std::path::Path;

use lapidary::files::{MetaValue, ModelFile};

use super::{Config, Family, Rope, Scaling};
use crate::error::{Error, Result};

const ARCHITECTURE: &str = "general.architecture";
/// Factors of LongRoPE.
const SHORT_FACTORS: &str = "rope_factors_short.weight";
/// Those of a longer context than the original one.
pub(crate) const LONG_FACTORS: &str = "rope_factors_long.weight";
/// Tensors whose elements divide the frequencies: of Llama 3, and of LongRoPE.
pub(crate) const FACTORS: [&str; 2] = ["rope_freqs.weight", SHORT_FACTORS];

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
    let mut context = fields.size("context_length", None)?;
    let original = fields.size("rope.scaling.original_context_length", Some(context))?;
    if file.names().any(|name| name == SHORT_FACTORS) {
        // The factors of a longer context are worse within this one, so an app asks for them.
        context = context.min(original);
    }
    let rotated = fields.size("rope.dimension_count", Some(head_size))?;
    let theta = fields.number("rope.freq_base").unwrap_or(1e4);
    let scaling = scaling(family, fields, file, original)?;
    // 27 billion parameters of either Gemma scale by another number, which the file does not say.
    let query = match (family, layers) {
        (Family::Gemma2, 46) | (Family::Gemma3, 62) => (hidden / heads.max(1)) as f32,
        _ => head_size as f32,
    };
    let (_, [of_scores, of_logits]) = family.known_caps();
    let cap = |key: &str, known: Option<f32>| {
        let cap = fields.number(key).or(known);
        cap.filter(|cap| *cap != 0.0)
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
        score_cap: cap("attn_logit_softcapping", of_scores),
        logit_cap: cap("final_logit_softcapping", of_logits),
        context,
        end_tokens: end_tokens(fields),
        has_output: false,
        neighbour_pairs: family == Family::Llama,
    })
}

fn windows(
    family: Family,
    fields: &Fields<'_>,
    layers: usize,
) -> std::result::Result<Vec<Option<usize>>, String> {
    let layers = layers.min(1 << 16);
    // Early files of Gemma 2 do not say it, and 0 means none.
    let known = family.known_caps().0.unwrap_or(0) as usize;
    let window = fields.size("attention.sliding_window", Some(known))?;
    if window == 0 {
        return Ok(vec![None; layers]);
    }
    Ok(family.windows(layers, 0, window, None))
}

fn scaling(
    family: Family,
    fields: &Fields<'_>,
    file: &ModelFile,
    original: usize,
) -> std::result::Result<Scaling, String> {
    // Llama 3's and Phi's factors are a tensor.
    if file.names().any(|name| FACTORS.contains(&name)) {
        let attention = fields.number("rope.scaling.attn_factor").unwrap_or(1.0);
        return Ok(Scaling::Each {
            factors: Vec::new(),
            long_factors: Vec::new(),
            original,
            attention,
        });
    }
    // The second is the name of early files, which have no type beside it.
    let factor = fields
        .number("rope.scaling.factor")
        .or_else(|| fields.number("rope.scale_linear"))
        .filter(|factor| *factor != 0.0)
        .unwrap_or(1.0);
    Ok(
        match fields.get("rope.scaling.type").and_then(MetaValue::as_str) {
            Some("none") => Scaling::None,
            None if factor == 1.0 => Scaling::None,
            None | Some("linear") => Scaling::Linear(factor),
            Some("yarn") => Scaling::Yarn {
                factor,
                attention: 0.1 * factor.ln() + 1.0,
                fast: 32.0,
                slow: 1.0,
                original: original as f32,
            },
            Some("longrope") if family == Family::Phi3 => Scaling::None,
            Some(other) => {
                let known = "none, linear, yarn, longrope";
                return Err(format!("its positions are {other:?}; known are {known}"));
            }
        },
    )
}

/// Texts of tokens that end a turn. Files often name the end of a text alone.
const END_TEXTS: [&str; 8] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "<|eom_id|>",
];

/// Tokens that end a text or a turn.
fn end_tokens(fields: &Fields<'_>) -> Vec<u32> {
    let of_tokenizer = |name: &str| fields.all.get(&format!("tokenizer.ggml.{name}"));
    let names = ["eos_token_id", "eot_token_id", "eom_token_id"];
    let named = names.into_iter().filter_map(of_tokenizer);
    let named = named.filter_map(MetaValue::as_u64);
    let list = |name: &str| {
        of_tokenizer(name)
            .and_then(MetaValue::as_list)
            .unwrap_or_default()
    };
    // Control tokens have type 3, those that users defined type 4.
    let special = |kind: &MetaValue| matches!(kind.as_i64(), Some(3 | 4));
    let texts = list("tokens").iter().zip(list("token_type")).zip(0..);
    let by_text = texts.filter_map(|((text, kind), id)| {
        let is_end = text.as_str().is_some_and(|text| END_TEXTS.contains(&text));
        (is_end && special(kind)).then_some(id)
    });
    let mut tokens: Vec<u32> = named
        .chain(by_text)
        .filter_map(|token| u32::try_from(token).ok())
        .collect();
    tokens.sort_unstable();
    tokens.dedup();
    tokens
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
