//! One step: recorded, and its tokens heard while the next one is under way.

use std::future::Future;
use std::pin::Pin;

use lapidary::Tensor;
use lapidary::kv::Sequence;

use super::Scheduler;
use super::conversation::Conversation;
use super::plan::Piece;
use super::request::{ConversationId, Said};
use crate::error::Result;
use crate::sampler::{self, Row};

type Reading<T> = Pin<Box<dyn Future<Output = lapidary::Result<Vec<T>>> + Send>>;

/// A step whose tokens are on their way.
pub(super) struct Pending {
    /// The chosen tokens, a row for each speaker.
    chosen: Tensor,
    /// Who gets a token, and for which of its requests.
    speakers: Vec<(ConversationId, u64)>,
    tokens: Reading<u32>,
    log_probabilities: Reading<f32>,
}

impl Scheduler {
    /// Records the next step, and returns the tokens of the step before. No token comes of the
    /// first step, and of those that only read prompts.
    ///
    /// # Errors
    ///
    /// Those of lapidary: work that finds no memory, a lost device. No token is lost: the
    /// conversations read theirs again, and go on.
    pub async fn step_async(&mut self) -> Result<Vec<Said>> {
        let pieces = self.plan();
        let next = match pieces.is_empty() {
            true => None,
            false => match self.record(&pieces) {
                Ok(next) => next,
                Err(error) => {
                    let of_step = pieces.into_iter().map(|piece| piece.conversation);
                    self.start_over(of_step.collect())?;
                    return Err(error);
                }
            },
        };
        match std::mem::replace(&mut self.pending, next) {
            Some(before) => self.hear(before).await,
            None => Ok(Vec::new()),
        }
    }

    /// As [`step_async`](Self::step_async), and waits.
    ///
    /// # Errors
    ///
    /// Those of [`step_async`](Self::step_async).
    pub fn step(&mut self) -> Result<Vec<Said>> {
        pollster::block_on(self.step_async())
    }

    fn record(&mut self, pieces: &[Piece]) -> Result<Option<Pending>> {
        let (gpu, vocabulary) = (self.model.gpu(), self.model.vocabulary());
        let ids = self.ids(pieces)?;
        let (mut positions, mut last_rows, mut speakers) = (Vec::new(), Vec::new(), Vec::new());
        for piece in pieces {
            let Some(conversation) = self.conversations.get_mut(&piece.conversation) else {
                continue;
            };
            positions.extend((conversation.cached() as u32..).take(piece.rows));
            if piece.speaks {
                conversation.prepare(gpu, vocabulary)?;
                last_rows.push(positions.len() as u32 - 1);
                speakers.push((piece.conversation, conversation.requests()));
            }
        }
        let model = self.model.clone();
        let cache = self.cache.clone();
        let step = cache.step(self.work(pieces))?;
        let hidden = model.hidden(&step, &ids, &positions)?;
        step.finish();
        if speakers.is_empty() {
            model.gpu().flush()?;
            return Ok(None);
        }
        let logits = model.logits(&hidden, &last_rows)?;
        let rows = speakers
            .iter()
            .filter_map(|(id, _)| self.conversations.get(id)?.row());
        let rows: Vec<Row<'_>> = rows.collect();
        let chosen = sampler::choose(model.gpu(), &logits, &rows)?;
        drop(rows);
        for (row, (id, _)) in speakers.iter().enumerate() {
            if let Some(conversation) = self.conversations.get_mut(id) {
                conversation.chose(&chosen.tokens.narrow(0, row, 1)?)?;
            }
        }
        let pending = Pending {
            tokens: Box::pin(chosen.tokens.to_vec_async()),
            log_probabilities: Box::pin(chosen.log_probabilities.to_vec_async()),
            chosen: chosen.tokens,
            speakers,
        };
        model.gpu().flush()?;
        Ok(Some(pending))
    }

    /// The sequences of a step with their rows, in the order of the pieces.
    fn work(&mut self, pieces: &[Piece]) -> Vec<(&mut Sequence, usize)> {
        let place = |id: &ConversationId| pieces.iter().position(|of| of.conversation == *id);
        let mut work: Vec<(usize, &mut Conversation)> = (self.conversations.iter_mut())
            .filter_map(|(id, conversation)| Some((place(id)?, conversation)))
            .collect();
        work.sort_by_key(|(at, _)| *at);
        let parts = work.into_iter();
        parts
            .map(|(at, conversation)| (conversation.sequence(), pieces[at].rows))
            .collect()
    }

    /// The tokens of a step's rows: those that are on the device still, then the host's.
    fn ids(&self, pieces: &[Piece]) -> Result<Tensor> {
        let gpu = self.model.gpu();
        let mut parts = Vec::new();
        let ahead: Vec<u32> = (pieces.iter().filter(|piece| piece.is_ahead))
            .filter_map(|piece| {
                let speakers = &self.pending.as_ref()?.speakers;
                let row = speakers
                    .iter()
                    .position(|(id, _)| *id == piece.conversation)?;
                Some(row as u32)
            })
            .collect();
        if let (Some(pending), false) = (&self.pending, ahead.is_empty()) {
            let is_whole = ahead.iter().copied().eq(0..pending.speakers.len() as u32);
            parts.push(match is_whole {
                true => pending.chosen.clone(),
                false => pending
                    .chosen
                    .index_select(0, &gpu.tensor(&ahead, &[ahead.len()])?)?,
            });
        }
        let known = pieces.iter().filter(|piece| !piece.is_ahead);
        let known = known.filter_map(|piece| {
            let conversation = self.conversations.get(&piece.conversation)?;
            let from = conversation.cached();
            conversation.tokens().get(from..from + piece.rows)
        });
        let known: Vec<u32> = known.flatten().copied().collect();
        if !known.is_empty() {
            parts.push(gpu.tensor(&known, &[known.len()])?);
        }
        match &parts[..] {
            [one] => Ok(one.clone()),
            all => Ok(Tensor::concat(&all.iter().collect::<Vec<_>>(), 0)?),
        }
    }

    /// Gives each speaker its token.
    async fn hear(&mut self, before: Pending) -> Result<Vec<Said>> {
        let read = (before.tokens.await, before.log_probabilities.await);
        let (tokens, log_probabilities) = match read {
            (Ok(tokens), Ok(log_probabilities)) => (tokens, log_probabilities),
            (Err(error), _) | (_, Err(error)) => {
                self.start_over(before.speakers.into_iter().map(|(id, _)| id).collect())?;
                return Err(error.into());
            }
        };
        let mut said = Vec::new();
        for (row, (id, request)) in before.speakers.into_iter().enumerate() {
            let Some(conversation) = self.conversations.get_mut(&id) else {
                continue;
            };
            // It may have ended with the token before, and been asked again.
            if !conversation.is_speaking() || conversation.requests() != request {
                continue;
            }
            let (token, log_probability) = (tokens[row], log_probabilities[row]);
            let end = conversation.hear(token, self.model.config());
            said.push(Said {
                conversation: id,
                token,
                log_probability,
                end,
            });
        }
        Ok(said)
    }

    /// Conversations whose cache may have lost values, and those of the step that is under way,
    /// drop what they have, and read their tokens again.
    fn start_over(&mut self, mut conversations: Vec<ConversationId>) -> Result<()> {
        let later = self.pending.take().map(|pending| pending.speakers);
        conversations.extend(later.into_iter().flatten().map(|(id, _)| id));
        for id in conversations {
            if let Some(conversation) = self.conversations.get_mut(&id) {
                conversation.forget_cache()?;
            }
        }
        Ok(())
    }
}
