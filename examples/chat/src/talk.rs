//! A conversation with a model: what was said, and the model's next answer, piece by piece.

use std::path::Path;

use lapidary::files::ModelFile;
use lapidary_lm::{
    ConversationId, End, LanguageModel, Request, Sampling, Scheduler, SchedulerOptions,
};
use tokenizers::Tokenizer;

use crate::error::{Error, Result};
use crate::template::{Message, Template};
use crate::tokenizer::{self, Beside};

/// Everything of a model that a conversation needs.
#[derive(Debug)]
pub struct Speaker {
    pub model: LanguageModel,
    pub tokenizer: Tokenizer,
    pub template: Template,
}

impl Speaker {
    /// Opens a model with its tokenizer and its template.
    ///
    /// # Errors
    ///
    /// Those of [`LanguageModel::of_file`] and of [`new`](Self::new).
    #[cfg(feature = "program")]
    pub fn open(
        gpu: &lapidary::Gpu,
        path: &Path,
        options: lapidary_lm::ModelOptions,
    ) -> Result<Speaker> {
        let file = ModelFile::open(path)?;
        let model = LanguageModel::of_file(gpu, path, &file, options)?;
        let beside = |name: &str| std::fs::read(tokenizer::beside(path, name)).ok();
        Speaker::new(model, path, &file, &beside)
    }

    /// An open model with its tokenizer and its template, from the files beside it.
    ///
    /// # Errors
    ///
    /// Those of [`tokenizer::load`] and [`Template::load`].
    pub fn new(
        model: LanguageModel,
        path: &Path,
        file: &ModelFile,
        beside: Beside<'_>,
    ) -> Result<Speaker> {
        let tokenizer = tokenizer::load(path, file, beside, model.vocabulary())?;
        let template = Template::load(file, beside)?;
        Ok(Speaker {
            model,
            tokenizer,
            template,
        })
    }

    /// The tokens of a conversation, up to where the model speaks.
    ///
    /// # Errors
    ///
    /// [`Error::Template`], and [`Error::Tokenizer`] for a text that has no tokens.
    pub fn tokens(&self, messages: &[Message]) -> Result<Vec<u32>> {
        let text = self.template.render(messages)?;
        // The template has written the tokens that begin a text.
        let encoded = self
            .tokenizer
            .encode_fast(text, false)
            .map_err(of_tokenizer)?;
        Ok(encoded.get_ids().to_vec())
    }
}

pub(crate) fn of_tokenizer(error: tokenizers::Error) -> Error {
    Error::Tokenizer {
        path: "the model".into(),
        reason: error.to_string(),
    }
}

/// What an answer took.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// Tokens of the prompt that were not in the cache.
    pub read: usize,
    /// Tokens that were said.
    pub said: usize,
    /// Why it ended.
    pub end: Option<End>,
    /// How often the device was lost and opened again.
    pub reopened: u32,
}

/// One conversation.
#[derive(Debug)]
pub struct Talk {
    speaker: Speaker,
    scheduler: Scheduler,
    id: ConversationId,
    messages: Vec<Message>,
    pub sampling: Sampling,
    pub most_tokens: usize,
}

impl Talk {
    /// A conversation in which nothing was said.
    ///
    /// # Errors
    ///
    /// Those of [`Scheduler::new`].
    pub fn new(speaker: Speaker, options: SchedulerOptions) -> Result<Talk> {
        let mut scheduler = Scheduler::new(&speaker.model, options)?;
        let id = scheduler.open("chat");
        let (sampling, messages) = (Sampling::default(), Vec::new());
        Ok(Talk {
            speaker,
            scheduler,
            id,
            messages,
            sampling,
            most_tokens: 512,
        })
    }

    /// All that was said.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Replaces what was said. What the new conversation has in common with the old one stays in
    /// the cache.
    pub fn set_messages(&mut self, messages: Vec<Message>) {
        self.messages = messages;
    }

    /// Drops the cached keys and values, such as those of a lost device. The next answer reads the
    /// conversation again.
    ///
    /// # Errors
    ///
    /// Those of [`Scheduler::truncate`].
    pub fn forget(&mut self) -> Result<()> {
        Ok(self.scheduler.truncate(self.id, 0)?)
    }

    /// Goes back by a question and its answer, and returns the question.
    pub fn go_back(&mut self) -> Option<String> {
        let at = self
            .messages
            .iter()
            .rposition(|message| message.role == "user")?;
        let question = self.messages.drain(at..).next()?;
        Some(question.content)
    }

    /// Bytes of keys and values.
    pub fn cache_bytes(&self) -> u64 {
        self.scheduler.cache_bytes(self.id)
    }

    /// Asks, and calls `hear` with each piece of the answer and what it took so far. If it fails,
    /// nothing was said.
    ///
    /// # Errors
    ///
    /// [`Error::Template`], [`Error::Tokenizer`], and those of the model: a conversation that has
    /// no place in the context, and what lapidary returns for memory and device.
    #[cfg(feature = "program")]
    pub fn ask(&mut self, question: &str, hear: impl FnMut(&str, &Report)) -> Result<Report> {
        pollster::block_on(self.ask_async(question, hear))
    }

    /// As [`ask`](Self::ask), as a future: the only form in a browser.
    ///
    /// # Errors
    ///
    /// Those of [`ask`](Self::ask).
    pub async fn ask_async(
        &mut self,
        question: &str,
        hear: impl FnMut(&str, &Report),
    ) -> Result<Report> {
        self.messages.push(Message::new("user", question));
        match self.answer(hear).await {
            Ok((text, report)) => {
                self.messages.push(Message::new("assistant", text));
                Ok(report)
            }
            Err(error) => {
                self.messages.pop();
                self.scheduler.stop(self.id);
                // What the cache has may be lost with the work that failed.
                self.forget()?;
                Err(error)
            }
        }
    }

    async fn answer(&mut self, mut hear: impl FnMut(&str, &Report)) -> Result<(String, Report)> {
        let tokens = self.speaker.tokens(&self.messages)?;
        let common = self.scheduler.common(self.id, &tokens);
        self.scheduler.truncate(self.id, common)?;
        let request = Request {
            prompt: tokens[common..].to_vec(),
            most_tokens: self.most_tokens,
            sampling: self.sampling,
            ..Request::default()
        };
        self.scheduler.say(self.id, request)?;
        let mut report = Report {
            read: tokens.len() - common,
            said: 0,
            end: None,
            reopened: 0,
        };
        let mut decoder = self.speaker.tokenizer.decode_stream(true);
        let (mut text, mut may_reopen) = (String::new(), true);
        while self.scheduler.is_busy() {
            let said = match self.scheduler.step_async().await {
                // The scheduler reads the conversation again, and goes on with the next token.
                Err(_) if may_reopen && self.has_reopened().await => {
                    may_reopen = false;
                    report.reopened += 1;
                    continue;
                }
                said => said?,
            };
            may_reopen = true;
            for said in said {
                report.said += 1;
                report.end = said.end;
                if let Some(piece) = decoder.step(said.token).map_err(of_tokenizer)? {
                    hear(&piece, &report);
                    text.push_str(&piece);
                }
            }
        }
        Ok((text, report))
    }

    /// Opens the device again if it was lost. Returns whether that is so.
    async fn has_reopened(&self) -> bool {
        let gpu = self.speaker.model.gpu();
        let is_lost = matches!(
            gpu.flush_async().await,
            Err(lapidary::Error::DeviceLost { .. })
        );
        is_lost && gpu.reopen_async().await.is_ok()
    }
}
