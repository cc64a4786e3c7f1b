//! The families of decoders, and what they do differently.

/// A family of decoders. All have rotary positions, grouped heads, and a gated feed-forward part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Family {
    /// Llama 2 and 3, SmolLM and SmolLM2, and others of that form.
    Llama,
    /// Mistral 7B, with a window.
    Mistral,
    /// Qwen 2 and 2.5: queries, keys and values have a bias.
    Qwen2,
    /// Qwen 3: queries and keys are normalized.
    Qwen3,
    /// Gemma 2: norms before and after each part, capped scores, every other layer has a window.
    Gemma2,
    /// Gemma 3: five of six layers have a window, and other positions.
    Gemma3,
    /// Phi 3 and 4: queries, keys and values are one matrix, and so are gate and up.
    Phi3,
}

impl Family {
    /// All families, with their names in `config.json` and in GGUF.
    #[rustfmt::skip]
    const NAMES: [(Family, &'static [&'static str], &'static str); 7] = [
        (Family::Llama, &["llama"], "llama"),
        (Family::Mistral, &["mistral"], "mistral"),
        (Family::Qwen2, &["qwen2"], "qwen2"),
        (Family::Qwen3, &["qwen3"], "qwen3"),
        (Family::Gemma2, &["gemma2"], "gemma2"),
        (Family::Gemma3, &["gemma3_text", "gemma3"], "gemma3"),
        (Family::Phi3, &["phi3"], "phi3"),
    ];

    /// The family of a `model_type` of `config.json`.
    pub(crate) fn of_type(name: &str) -> Option<Family> {
        let row = Family::NAMES
            .iter()
            .find(|(_, types, _)| types.contains(&name));
        row.map(|(family, ..)| *family)
    }

    /// The family of a `general.architecture` of GGUF.
    pub(crate) fn of_gguf(name: &str) -> Option<Family> {
        let row = Family::NAMES.iter().find(|(.., known)| *known == name);
        row.map(|(family, ..)| *family)
    }

    /// All names that are understood, for an error.
    pub(crate) fn known() -> String {
        let names = Family::NAMES.iter().flat_map(|(_, types, _)| types.iter());
        names.copied().collect::<Vec<_>>().join(", ")
    }

    /// Whether it is one of Gemma's.
    pub(crate) fn is_gemma(self) -> bool {
        matches!(self, Family::Gemma2 | Family::Gemma3)
    }

    /// Whether its gates have an activation of this name in `config.json`.
    pub(super) fn has_activation(self, name: &str) -> bool {
        match self.is_gemma() {
            // Early files say "gelu" and mean its approximation.
            true => name.starts_with("gelu"),
            false => matches!(name, "silu" | "swish"),
        }
    }

    /// Gemma 2's window, and its caps of scores and logits, for descriptions that leave them out.
    pub(super) fn known_caps(self) -> (Option<u64>, [Option<f32>; 2]) {
        match self {
            Family::Gemma2 => (Some(4096), [Some(50.0), Some(30.0)]),
            _ => (None, [None; 2]),
        }
    }

    /// The window of each layer, if those from `first` on have one, but for one in `every` as its
    /// description says or as the family has it.
    pub(super) fn windows(
        self,
        layers: usize,
        first: usize,
        window: usize,
        every: Option<usize>,
    ) -> Vec<Option<usize>> {
        let every = every.unwrap_or(match self {
            Family::Gemma2 => 2,
            Family::Gemma3 => 6,
            _ => usize::MAX,
        });
        let is_local = |layer: usize| layer >= first && !(layer + 1).is_multiple_of(every);
        let of_layer = |layer| is_local(layer).then_some(window);
        (0..layers).map(of_layer).collect()
    }

    /// Whether it normalizes each head of queries and of keys.
    pub(crate) fn norms_heads(self) -> bool {
        matches!(self, Family::Qwen3 | Family::Gemma3)
    }
}
