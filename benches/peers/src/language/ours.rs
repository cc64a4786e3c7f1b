//! Our side: conversations of a scheduler.

use std::path::Path;
use std::time::Instant;

use lapidary::files::WeightForm;
use lapidary::{DType, Gpu};
use lapidary_lm::{
    ConversationId, LanguageModel, ModelOptions, Request, Said, Scheduler, SchedulerOptions,
};

use crate::candle::Candle;
use crate::{PROMPT, Result, TOKENS, prompt};

pub(crate) struct Ours(LanguageModel);

impl Ours {
    pub(crate) fn open(gpu: &Gpu, path: &Path, weights: WeightForm) -> Result<Ours> {
        let context = None;
        let options = ModelOptions { weights, context };
        Ok(Ours(LanguageModel::open(gpu, path, options)?))
    }

    /// So many conversations, which say the same at once.
    pub(crate) fn talk(&self, count: usize) -> Result<Talk> {
        // candle's cache is of f32.
        let (cache, rows) = (DType::F32, PROMPT);
        let options = SchedulerOptions {
            cache,
            rows,
            ..SchedulerOptions::default()
        };
        let mut scheduler = Scheduler::new(&self.0, options)?;
        let ids = (0..count).map(|_| scheduler.open("one")).collect();
        Ok(Talk { scheduler, ids })
    }

    /// Refuses if candle's probability of our first token is another one.
    pub(crate) fn check(&self, candle: &Candle, most: f32) -> Result {
        let said = self.talk(1)?.say(prompt(), 1)?;
        let theirs = candle.clone().log_probability(said[0].token)?;
        let ours = said[0].log_probability;
        match (ours - theirs).abs() <= most {
            true => Ok(()),
            false => Err(format!("candle says {theirs}, lapidary {ours}").into()),
        }
    }
}

pub(crate) struct Talk {
    scheduler: Scheduler,
    ids: Vec<ConversationId>,
}

impl Talk {
    /// Each says so many tokens behind its next part of the prompt.
    fn say(&mut self, prompt: Vec<u32>, most: usize) -> Result<Vec<Said>> {
        for &id in &self.ids {
            self.scheduler.say(id, Request::new(prompt.clone(), most))?;
        }
        self.go_on(|_| false)
    }

    /// Steps until all are silent, or enough was said.
    fn go_on(&mut self, is_enough: impl Fn(&[Said]) -> bool) -> Result<Vec<Said>> {
        let mut said = Vec::new();
        while self.scheduler.is_busy() && !is_enough(&said) {
            said.extend(self.scheduler.step()?);
        }
        Ok(said)
    }

    fn truncate(&mut self, tokens: usize) -> Result {
        let mut ids = self.ids.iter();
        ids.try_for_each(|&id| Ok(self.scheduler.truncate(id, tokens)?))
    }

    /// Tokens a second behind so many.
    pub(crate) fn decode(&mut self, context: usize) -> Result<f64> {
        self.truncate(context - 1)?;
        let known = self.scheduler.tokens(self.ids[0]).len();
        for &id in &self.ids {
            let behind = prompt()[known..context].to_vec();
            self.scheduler.say(id, Request::new(behind, TOKENS + 1))?;
        }
        let first = self.go_on(|said| !said.is_empty())?;
        assert_eq!(first.len(), self.ids.len(), "they speak at once");
        let start = Instant::now();
        let said = self.go_on(|_| false)?.len();
        Ok(said as f64 / start.elapsed().as_secs_f64())
    }

    /// Tokens a second of a whole prompt, to its first token.
    pub(crate) fn prefill(&mut self) -> Result<f64> {
        self.truncate(0)?;
        let start = Instant::now();
        self.say(prompt(), 1)?;
        Ok(PROMPT as f64 / start.elapsed().as_secs_f64())
    }
}
