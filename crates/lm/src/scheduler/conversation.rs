//! One conversation: its tokens, what of them is in the cache, and what it is to say.

use std::cmp::Reverse;

use lapidary::kv::Sequence;
use lapidary::{DType, Gpu, Tensor};

use super::request::{End, Request};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::sampler::Row;

#[derive(Debug)]
pub(super) struct Conversation {
    sequence: Sequence,
    /// All tokens whose ids the host knows.
    tokens: Vec<u32>,
    speech: Option<Speech>,
    /// Number of requests so far, so that a late token of an earlier one is known as such.
    requests: u64,
}

/// An answer that is under way.
#[derive(Debug)]
struct Speech {
    request: Request,
    /// The most turns of those that spoke when it began. So new requests come before no older one.
    turns_before: usize,
    /// Tokens of the answer that the host knows.
    said: usize,
    /// Tokens that were chosen on the device, and that the host does not know yet.
    unheard: usize,
    /// `[vocabulary]` of f32: 1 for each token of the conversation. Made when it matters.
    seen: Option<Tensor>,
}

impl Conversation {
    pub(super) fn new(sequence: Sequence) -> Conversation {
        Conversation {
            sequence,
            tokens: Vec::new(),
            speech: None,
            requests: 0,
        }
    }

    pub(super) fn name(&self) -> &str {
        self.sequence.name()
    }

    pub(super) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    pub(super) fn bytes(&self) -> u64 {
        self.sequence.bytes()
    }

    /// Number of tokens whose keys and values the cache has.
    pub(super) fn cached(&self) -> usize {
        self.sequence.len()
    }

    pub(super) fn sequence(&mut self) -> &mut Sequence {
        &mut self.sequence
    }

    pub(super) fn is_speaking(&self) -> bool {
        self.speech.is_some()
    }

    /// Whether its next input is a token that the host does not know yet.
    pub(super) fn is_ahead(&self) -> bool {
        self.speech
            .as_ref()
            .is_some_and(|speech| speech.unheard > 0)
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests
    }

    /// What decides its turn: those of a higher priority come first, then those that had fewer
    /// turns.
    pub(super) fn rank(&self, turn_tokens: usize) -> (Reverse<i32>, usize) {
        let speech = self.speech.as_ref();
        let priority = speech.map_or(i32::MIN, |speech| speech.request.priority);
        (Reverse(priority), self.turns(turn_tokens).unwrap_or(0))
    }

    /// The turns that it had, if it speaks.
    pub(super) fn turns(&self, turn_tokens: usize) -> Option<usize> {
        let speech = self.speech.as_ref()?;
        Some(speech.turns_before + (speech.said + speech.unheard) / turn_tokens)
    }

    /// Rows that it has for the next steps: tokens that are not in the cache.
    pub(super) fn waiting_rows(&self, context: usize) -> usize {
        match &self.speech {
            None => 0,
            Some(Speech { unheard: 0, .. }) => self.tokens.len() - self.cached(),
            // The token on its way is an input only if another one may follow it.
            Some(speech) => {
                let goes_on = speech.said + speech.unheard < speech.request.most_tokens;
                usize::from(goes_on && self.cached() + 1 < context)
            }
        }
    }

    pub(super) fn fork(&self, name: &str) -> Conversation {
        Conversation {
            sequence: self.sequence.fork(name),
            tokens: self.tokens.clone(),
            speech: None,
            requests: 0,
        }
    }

    pub(super) fn truncate(&mut self, tokens: usize) -> Result<()> {
        self.tokens.truncate(tokens);
        Ok(self.sequence.truncate(self.cached().min(tokens))?)
    }

    pub(super) fn begin(
        &mut self,
        request: Request,
        context: usize,
        turns_before: usize,
    ) -> Result<()> {
        let tokens = self.tokens.len() + request.prompt.len();
        if tokens > context {
            let sequence = self.name().to_owned();
            return Err(Error::Context {
                sequence,
                tokens,
                context,
            });
        }
        if tokens == self.cached() || request.most_tokens == 0 {
            let name = self.name();
            let reason = match request.most_tokens {
                0 => format!("{name:?} may say 0 tokens: it says 1 or more"),
                _ => format!("{name:?} has nothing to go on from: give it a prompt"),
            };
            return Err(Error::Argument(reason));
        }
        self.tokens.extend(&request.prompt);
        self.requests += 1;
        self.speech = Some(Speech {
            request,
            turns_before,
            said: 0,
            unheard: 0,
            seen: None,
        });
        Ok(())
    }

    /// Ends what it is saying. A token on its way is lost, and so is what the cache has of it.
    pub(super) fn stop(&mut self) {
        self.speech = None;
        let known = self.cached().min(self.tokens.len());
        // Fewer tokens can always be kept.
        let _ = self.sequence.truncate(known);
    }

    /// How its next token is chosen.
    pub(super) fn row(&self) -> Option<Row<'_>> {
        let speech = self.speech.as_ref()?;
        Some(Row {
            sampling: &speech.request.sampling,
            tokens: self.tokens.len() + speech.unheard,
            seen: speech.seen.as_ref(),
        })
    }

    /// Makes what the choice of a token looks at, if it does.
    pub(super) fn prepare(&mut self, gpu: &Gpu, vocabulary: usize) -> Result<()> {
        let Some(speech) = &mut self.speech else {
            return Ok(());
        };
        if speech.request.sampling.repetition_penalty == 1.0 || speech.seen.is_some() {
            return Ok(());
        }
        let mut seen = vec![0.0_f32; vocabulary];
        for &token in &self.tokens {
            seen[token as usize] = 1.0;
        }
        speech.seen = Some(gpu.tensor(&seen, &[vocabulary])?);
        Ok(())
    }

    /// A step was recorded that chooses its next token, `[1]` of u32.
    pub(super) fn chose(&mut self, token: &Tensor) -> Result<()> {
        let Some(speech) = &mut self.speech else {
            return Ok(());
        };
        speech.unheard += 1;
        if let Some(seen) = &speech.seen {
            seen.scatter_(0, token, &token.ones_like()?.cast(DType::F32)?)?;
        }
        Ok(())
    }

    /// The host hears a token.
    pub(super) fn hear(&mut self, token: u32, config: &Config) -> Option<End> {
        let speech = self.speech.as_mut()?;
        self.tokens.push(token);
        speech.said += 1;
        speech.unheard -= 1;
        let end = if config.end_tokens.contains(&token) {
            End::Token
        } else if speech.said >= speech.request.most_tokens {
            End::Most
        } else if self.tokens.len() >= config.context {
            End::Context
        } else {
            return None;
        };
        self.speech = None;
        Some(end)
    }

    /// Its cache may have lost values. The next step reads all of its tokens again.
    pub(super) fn forget_cache(&mut self) -> Result<()> {
        if let Some(speech) = &mut self.speech {
            speech.unheard = 0;
            speech.seen = None;
        }
        Ok(self.sequence.truncate(0)?)
    }
}
