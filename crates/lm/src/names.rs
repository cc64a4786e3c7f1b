//! The names of a decoder's tensors, in either kind of file.

use lapidary::files::ModelFile;

/// A tensor of a layer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    AttentionNorm,
    Query,
    Key,
    Value,
    QueryKeyValue,
    QueryNorm,
    KeyNorm,
    AttentionOutput,
    AfterAttentionNorm,
    FeedNorm,
    Gate,
    Up,
    GateUp,
    Down,
    AfterFeedNorm,
}

/// How a file names its tensors.
#[derive(Clone, Debug)]
pub(crate) enum Names {
    /// As `transformers` does, with what stands before `embed_tokens`.
    Transformers {
        prefix: String,
        /// There are norms after each part, too. Then one name means another tensor.
        after: bool,
    },
    /// As llama.cpp does.
    Gguf,
}

impl Names {
    pub(crate) fn of(file: &ModelFile, after: bool) -> Names {
        const EMBEDDING: &str = "embed_tokens.weight";
        if file.names().any(|name| name == "token_embd.weight") {
            return Names::Gguf;
        }
        let prefix = file.names().find_map(|name| name.strip_suffix(EMBEDDING));
        let prefix = prefix.unwrap_or("model.").to_owned();
        Names::Transformers { prefix, after }
    }

    /// The rows of the tokens.
    pub(crate) fn embedding(&self) -> String {
        match self {
            Names::Transformers { prefix, .. } => format!("{prefix}embed_tokens.weight"),
            Names::Gguf => "token_embd.weight".into(),
        }
    }

    /// The norm behind the last layer.
    pub(crate) fn last_norm(&self) -> String {
        match self {
            Names::Transformers { prefix, .. } => format!("{prefix}norm.weight"),
            Names::Gguf => "output_norm.weight".into(),
        }
    }

    /// What makes logits, if it is not the embedding's matrix: its possible names.
    pub(crate) fn output(&self) -> Vec<String> {
        match self {
            Names::Transformers { prefix, .. } => {
                let outer = prefix.strip_suffix("model.").unwrap_or(prefix);
                vec![format!("{outer}lm_head.weight"), "lm_head.weight".into()]
            }
            Names::Gguf => vec!["output.weight".into()],
        }
    }

    /// A tensor of a layer, without `.weight` or `.bias`.
    pub(crate) fn layer(&self, layer: usize, part: Part) -> String {
        match self {
            Names::Transformers { prefix, after } => {
                format!("{prefix}layers.{layer}.{}", transformers(part, *after))
            }
            Names::Gguf => format!("blk.{layer}.{}", gguf(part)),
        }
    }
}

fn transformers(part: Part, after: bool) -> &'static str {
    match part {
        Part::AttentionNorm => "input_layernorm",
        Part::Query => "self_attn.q_proj",
        Part::Key => "self_attn.k_proj",
        Part::Value => "self_attn.v_proj",
        Part::QueryKeyValue => "self_attn.qkv_proj",
        Part::QueryNorm => "self_attn.q_norm",
        Part::KeyNorm => "self_attn.k_norm",
        Part::AttentionOutput => "self_attn.o_proj",
        Part::AfterAttentionNorm => "post_attention_layernorm",
        Part::FeedNorm if after => "pre_feedforward_layernorm",
        Part::FeedNorm => "post_attention_layernorm",
        Part::Gate => "mlp.gate_proj",
        Part::Up => "mlp.up_proj",
        Part::GateUp => "mlp.gate_up_proj",
        Part::Down => "mlp.down_proj",
        Part::AfterFeedNorm => "post_feedforward_layernorm",
    }
}

fn gguf(part: Part) -> &'static str {
    match part {
        Part::AttentionNorm => "attn_norm",
        Part::Query => "attn_q",
        Part::Key => "attn_k",
        Part::Value => "attn_v",
        Part::QueryKeyValue => "attn_qkv",
        Part::QueryNorm => "attn_q_norm",
        Part::KeyNorm => "attn_k_norm",
        Part::AttentionOutput => "attn_output",
        Part::AfterAttentionNorm => "post_attention_norm",
        Part::FeedNorm => "ffn_norm",
        Part::Gate => "ffn_gate",
        Part::Up | Part::GateUp => "ffn_up",
        Part::Down => "ffn_down",
        Part::AfterFeedNorm => "post_ffw_norm",
    }
}
