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

type Heard = lapidary::Result<(Vec<u32>, Vec<f32>)>;
#[cfg(not(target_arch = "wasm32"))]
type Reading = Pin<Box<dyn Future<Output = Heard> + Send>>;
/// In a browser tensors belong to one thread.
#[cfg(target_arch = "wasm32")]
type Reading = Pin<Box<dyn Future<Output = Heard>>>;

/// A step whose tokens are on their way.
pub(super) struct Pending {
    /// The chosen tokens, a row for each speaker.
    chosen: Tensor,
    /// Who gets a token, and for which of its requests.
    speakers: Vec<(ConversationId, u64)>,
    /// The tokens and their log-probabilities.
    reading: Reading,
}

impl Scheduler {
    /// Submits the next step, and returns the tokens of the step before. No token comes of the
    /// first step, and of those that only read prompts.
    ///
    /// # Errors
    ///
    /// Those of lapidary: work that finds no memory, a lost device. No token is lost: the
    /// conversations read theirs again, and go on.
    pub async fn step_async(&mut self) -> Result<Vec<Said>> {
        // A call that was dropped may have left a step unheard. It comes before all others.
        if self.before.is_none() {
            let pieces = self.plan();
            if let Err(error) = self.begin(&pieces).await {
                let of_step = pieces.into_iter().map(|piece| piece.conversation);
                self.start_over(of_step.collect())?;
                return Err(error);
            }
        }
        let Some(before) = &mut self.before else {
            return Ok(Vec::new());
        };
        match before.reading.as_mut().await {
            Ok((tokens, log_probabilities)) => Ok(self.hear(&tokens, &log_probabilities)),
            Err(error) => {
                self.start_over(Vec::new())?;
                Err(error.into())
            }
        }
    }

    /// As [`step_async`](Self::step_async), and waits.
    ///
    /// # Errors
    ///
    /// Those of [`step_async`](Self::step_async).
    #[cfg(not(target_arch = "wasm32"))]
    pub fn step(&mut self) -> Result<Vec<Said>> {
        pollster::block_on(self.step_async())
    }

    /// Records a step, if it has rows, and submits it. The step before is heard next.
    async fn begin(&mut self, pieces: &[Piece]) -> Result<()> {
        let next = match pieces.is_empty() {
            true => None,
            false => self.record(pieces)?,
        };
        self.before = std::mem::replace(&mut self.pending, next);
        if !pieces.is_empty() {
            self.model.gpu().flush_async().await?;
        }
        Ok(())
    }

    /// Records a step. A flush submits it.
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
        // Both reads are queued now, in front of the next step.
        let tokens = chosen.tokens.to_vec_async();
        let log_probabilities = chosen.log_probabilities.to_vec_async();
        Ok(Some(Pending {
            reading: Box::pin(async move { Ok((tokens.await?, log_probabilities.await?)) }),
            chosen: chosen.tokens,
            speakers,
        }))
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

    /// Gives each speaker of the step before its token.
    fn hear(&mut self, tokens: &[u32], log_probabilities: &[f32]) -> Vec<Said> {
        let mut said = Vec::new();
        let speakers = self.before.take().map(|before| before.speakers);
        let speakers = speakers.into_iter().flatten();
        let both = tokens.iter().zip(log_probabilities);
        for ((id, request), (&token, &log_probability)) in speakers.zip(both) {
            let Some(conversation) = self.conversations.get_mut(&id) else {
                continue;
            };
            // It may have ended with the token before, and been asked again.
            if !conversation.is_speaking() || conversation.requests() != request {
                continue;
            }
            let end = conversation.hear(token, self.model.config());
            said.push(Said {
                conversation: id,
                token,
                log_probability,
                end,
            });
        }
        said
    }

    /// Conversations whose cache may have lost values, and those of steps that are under way, drop
    /// what they have, and read their tokens again.
    fn start_over(&mut self, mut conversations: Vec<ConversationId>) -> Result<()> {
        for later in [self.before.take(), self.pending.take()]
            .into_iter()
            .flatten()
        {
            conversations.extend(later.speakers.into_iter().map(|(id, _)| id));
        }
        for id in conversations {
            if let Some(conversation) = self.conversations.get_mut(&id) {
                conversation.forget_cache()?;
            }
        }
        Ok(())
    }
}
