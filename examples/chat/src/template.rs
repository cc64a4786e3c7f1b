//! A conversation as one text, by the model's own template.

use lapidary::files::{MetaValue, ModelFile};
use minijinja::{Environment, Error as Jinja, ErrorKind, context};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::tokenizer::Beside;

/// Steps of a template, so that one from anybody ends.
const MOST_STEPS: u64 = 2_000_000;

/// A model without a template was not made to talk: it continues what was said.
const PLAIN: &str =
    "{{ bos_token }}{% for message in messages %}{{ message.content }}\n{% endfor %}";

/// What one of a conversation said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    pub content: String,
}

impl Message {
    pub fn new(role: &str, content: impl Into<String>) -> Message {
        Message {
            role: role.to_owned(),
            content: content.into(),
        }
    }
}

/// The template of a model.
#[derive(Debug)]
pub struct Template {
    environment: Environment<'static>,
    begin: String,
    end: String,
}

impl Template {
    /// The template of a model: `chat_template.jinja` or an entry of `tokenizer_config.json` in its
    /// folder, or the metadata of a GGUF file.
    ///
    /// # Errors
    ///
    /// [`Error::Template`] for one that cannot be read.
    pub fn load(file: &ModelFile, beside: Beside<'_>) -> Result<Template> {
        let config: Value = beside("tokenizer_config.json")
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        let of_gguf = |key: &str| {
            let text = file.metadata().get(&format!("tokenizer.{key}"));
            text.and_then(MetaValue::as_str).map(str::to_owned)
        };
        let of_token = |name: &str| {
            let list = file.metadata().get("tokenizer.ggml.tokens")?.as_list()?;
            let id = file
                .metadata()
                .get(&format!("tokenizer.ggml.{name}_token_id"))?
                .as_u64()?;
            list.get(id as usize)?.as_str().map(str::to_owned)
        };
        let apart = beside("chat_template.jinja").and_then(|text| String::from_utf8(text).ok());
        let text = apart
            .or_else(|| chosen(&config["chat_template"]))
            .or_else(|| of_gguf("chat_template"));
        let special = |name: &str| {
            let entry = &config[format!("{name}_token")];
            entry
                .as_str()
                .or_else(|| entry["content"].as_str())
                .map(str::to_owned)
        };
        let [begin, end] =
            ["bos", "eos"].map(|name| special(name).or_else(|| of_token(name)).unwrap_or_default());
        let adds_begin = config["add_bos_token"].as_bool().or_else(|| {
            let known = file.metadata().get("tokenizer.ggml.add_bos_token");
            known.and_then(MetaValue::as_bool)
        });
        match text {
            Some(text) => Template::new(text, begin, end),
            // Without a template nothing else says that a text begins with the token.
            None if adds_begin == Some(false) => {
                Template::new(PLAIN.to_owned(), String::new(), end)
            }
            None => Template::new(PLAIN.to_owned(), begin, end),
        }
    }

    /// A template of this text, and the texts of the tokens that begin and end.
    ///
    /// # Errors
    ///
    /// [`Error::Template`] for a text that is no template.
    pub fn new(text: String, begin: String, end: String) -> Result<Template> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_fuel(Some(MOST_STEPS));
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function(
            "raise_exception",
            |reason: String| -> std::result::Result<(), Jinja> {
                Err(Jinja::new(ErrorKind::InvalidOperation, reason))
            },
        );
        environment
            .add_template_owned("chat", text)
            .map_err(explained)?;
        Ok(Template {
            environment,
            begin,
            end,
        })
    }

    /// The text of a conversation, up to where the model speaks.
    ///
    /// # Errors
    ///
    /// [`Error::Template`] if the template refuses the conversation, fails, or does not end.
    pub fn render(&self, messages: &[Message]) -> Result<String> {
        let template = self.environment.get_template("chat").map_err(explained)?;
        let text = template.render(context! {
            messages,
            add_generation_prompt => true,
            bos_token => self.begin,
            eos_token => self.end,
        });
        text.map_err(explained)
    }
}

/// The template of an entry, which may be a list of named ones.
fn chosen(entry: &Value) -> Option<String> {
    let list = entry.as_array().map(Vec::as_slice).unwrap_or_default();
    let default = list.iter().find(|one| one["name"] == "default");
    let text = default.map_or(entry, |one| &one["template"]);
    text.as_str().map(str::to_owned)
}

fn explained(error: Jinja) -> Error {
    Error::Template(format!("{error:#}"))
}

#[cfg(test)]
mod tests;
