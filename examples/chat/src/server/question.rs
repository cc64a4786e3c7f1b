//! What a client asks.

use serde::Deserialize;
use serde_json::Value;

use crate::template::Message;

/// As OpenAI's.
const MOST_STOPS: usize = 4;
const MOST_STOP_BYTES: usize = 1000;

/// A question. Fields that are not here change nothing.
#[derive(Debug, Deserialize)]
pub(super) struct Question {
    pub(super) messages: Vec<Said>,
    #[serde(default)]
    pub(super) stream: bool,
    #[serde(default)]
    pub(super) stream_options: StreamOptions,
    max_completion_tokens: Option<usize>,
    max_tokens: Option<usize>,
    pub(super) temperature: Option<f32>,
    pub(super) top_p: Option<f32>,
    pub(super) seed: Option<u64>,
    stop: Option<Stop>,
    n: Option<u32>,
    logprobs: Option<bool>,
    frequency_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    logit_bias: Option<Value>,
    tools: Option<Value>,
    response_format: Option<Format>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct StreamOptions {
    #[serde(default)]
    pub(super) include_usage: bool,
}

/// One text that ends the answer, or some.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Stop {
    One(String),
    Some(Vec<String>),
}

#[derive(Debug, Deserialize)]
struct Format {
    #[serde(rename = "type")]
    kind: String,
}

impl Question {
    /// The texts that end the answer. Refuses a question whose answer would not be the one that was
    /// asked for.
    pub(super) fn checked(&mut self) -> Result<Vec<String>, String> {
        let is_some = |value: &Option<Value>| match value {
            None | Some(Value::Null) => false,
            Some(Value::Array(all)) => !all.is_empty(),
            Some(Value::Object(all)) => !all.is_empty(),
            Some(_) => true,
        };
        let is_not_text = |format: &Format| format.kind != "text";
        let unknown = [
            ("n", self.n.is_some_and(|n| n != 1)),
            ("logprobs", self.logprobs == Some(true)),
            (
                "frequency_penalty",
                self.frequency_penalty.is_some_and(|by| by != 0.0),
            ),
            (
                "presence_penalty",
                self.presence_penalty.is_some_and(|by| by != 0.0),
            ),
            ("logit_bias", is_some(&self.logit_bias)),
            ("tools", is_some(&self.tools)),
            (
                "response_format",
                self.response_format.as_ref().is_some_and(is_not_text),
            ),
        ];
        if let Some((field, _)) = unknown.iter().find(|(_, is_asked)| *is_asked) {
            return Err(format!("`{field}` is not known here: leave it out"));
        }
        let stops = match self.stop.take() {
            None => Vec::new(),
            Some(Stop::One(text)) => vec![text],
            Some(Stop::Some(texts)) => texts,
        };
        let is_wrong = |text: &String| text.is_empty() || text.len() > MOST_STOP_BYTES;
        match stops.len() > MOST_STOPS || stops.iter().any(is_wrong) {
            true => Err(format!(
                "`stop` takes up to {MOST_STOPS} texts of 1 to {MOST_STOP_BYTES} bytes"
            )),
            false => Ok(stops),
        }
    }

    /// The most tokens of the answer.
    pub(super) fn most_tokens(&self) -> Option<usize> {
        self.max_completion_tokens.or(self.max_tokens)
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Said {
    role: String,
    content: Content,
}

/// A text, or parts of one.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<TextPart>),
}

#[derive(Debug, Deserialize)]
struct TextPart {
    text: String,
}

impl From<Said> for Message {
    fn from(said: Said) -> Message {
        let content = match said.content {
            Content::Text(text) => text,
            Content::Parts(parts) => parts.into_iter().map(|part| part.text).collect(),
        };
        Message {
            role: said.role,
            content,
        }
    }
}
