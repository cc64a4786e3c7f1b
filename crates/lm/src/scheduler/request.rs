//! What a conversation is asked, and what it says.

use crate::sampler::Sampling;

/// What a conversation is to say next.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The tokens to read before, behind what the conversation has.
    pub prompt: Vec<u32>,
    /// The most tokens to say. It also ends with one of [`Config::end_tokens`](crate::Config).
    pub most_tokens: usize,
    /// How they are chosen.
    pub sampling: Sampling,
    /// Conversations of a higher priority come first.
    pub priority: i32,
}

impl Request {
    /// A prompt that is answered with the likeliest tokens, at most so many.
    pub fn new(prompt: Vec<u32>, most_tokens: usize) -> Request {
        Request {
            prompt,
            most_tokens,
            ..Request::default()
        }
    }
}

/// The number of a conversation of a [`Scheduler`](crate::Scheduler).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConversationId(u64);

impl ConversationId {
    pub(super) fn new(number: u64) -> ConversationId {
        ConversationId(number)
    }
}

/// Why a conversation stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// It said a token that ends a text.
    Token,
    /// It said as many tokens as it may.
    Most,
    /// Its next token has no place in the model's context.
    Context,
}

/// A token that a conversation said.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Said {
    /// Who said it.
    pub conversation: ConversationId,
    /// The token.
    pub token: u32,
    /// The logarithm of the probability that the model gave it.
    pub log_probability: f32,
    /// Whether it was the last one, and why.
    pub end: Option<End>,
}
