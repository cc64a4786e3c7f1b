//! Several conversations over one model: they join and leave between tokens.
//!
//! A step takes rows of as many conversations as it may: one of each that decodes, and pieces of
//! prompts in the room that is left. The tokens of a step are read after the next step was
//! recorded, so the device does not wait for the host. A conversation beyond what the cache may
//! occupy waits: its pages are ordinary memory, which lapidary evicts, and it goes on to the same
//! tokens.

mod conversation;
mod plan;
mod request;
mod step;

use std::collections::BTreeMap;

use lapidary::DType;
use lapidary::kv::KvCache;

use crate::error::{Error, Result};
use crate::model::LanguageModel;
use conversation::Conversation;
pub use request::{ConversationId, End, Request, Said};
use step::Pending;

/// How a [`Scheduler`] shares out a step.
#[derive(Clone, Copy, Debug)]
pub struct SchedulerOptions {
    /// The type of cached keys and values: `f32`, `f16` or `i8`.
    pub cache: DType,
    /// The most rows of a step. Prompts are taken in pieces of what others leave.
    pub rows: usize,
    /// The most bytes of cache that a step may need. More conversations take turns. Without it,
    /// half of the budget or of the ceiling of the model's share, if there is one.
    pub cache_bytes: Option<u64>,
    /// After so many tokens a conversation lets others of its priority have its place. The first
    /// turn of a new request comes after those of all that wait.
    pub turn_tokens: usize,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        SchedulerOptions {
            cache: DType::F16,
            rows: 256,
            cache_bytes: None,
            turn_tokens: 64,
        }
    }
}

/// Runs conversations over one model, a step at a time.
pub struct Scheduler {
    model: LanguageModel,
    cache: KvCache,
    options: SchedulerOptions,
    conversations: BTreeMap<ConversationId, Conversation>,
    next: u64,
    /// The step whose tokens are heard next, while a call waits for them.
    before: Option<Pending>,
    /// The step that was recorded last.
    pending: Option<Pending>,
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self
            .conversations
            .values()
            .map(|conversation| conversation.name());
        f.debug_list().entries(names).finish()
    }
}

impl Scheduler {
    /// A scheduler without conversations.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for steps without rows. Those of [`LanguageModel::cache`].
    pub fn new(model: &LanguageModel, options: SchedulerOptions) -> Result<Scheduler> {
        if options.rows == 0 || options.turn_tokens == 0 {
            let reason = "a step has 1 row or more, and a turn 1 token or more";
            return Err(Error::Argument(reason.into()));
        }
        let conversations = BTreeMap::new();
        let cache = model.cache(options.cache)?;
        let model = model.clone();
        Ok(Scheduler {
            model,
            cache,
            options,
            conversations,
            next: 0,
            before: None,
            pending: None,
        })
    }

    /// Opens a conversation. Reports of memory show its pages under this name.
    pub fn open(&mut self, name: &str) -> ConversationId {
        self.insert(Conversation::new(self.cache.sequence(name)))
    }

    fn insert(&mut self, conversation: Conversation) -> ConversationId {
        let id = ConversationId::new(self.next);
        self.next += 1;
        self.conversations.insert(id, conversation);
        id
    }

    /// Opens a conversation that begins as another one is now. They share the pages of it.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for one that is closed, or is speaking.
    pub fn fork(&mut self, id: ConversationId, name: &str) -> Result<ConversationId> {
        let fork = self.idle(id)?.fork(name);
        Ok(self.insert(fork))
    }

    /// Forgets all tokens of a conversation but the first ones.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for one that is closed, or is speaking.
    pub fn truncate(&mut self, id: ConversationId, tokens: usize) -> Result<()> {
        self.idle(id)?.truncate(tokens)
    }

    /// How many of these tokens a conversation begins with. At least the last of them is left,
    /// since an answer follows from a row of a step.
    pub fn common(&self, id: ConversationId, tokens: &[u32]) -> usize {
        let both = self.tokens(id).iter().zip(tokens);
        let common = both.take_while(|(known, token)| known == token).count();
        common.min(tokens.len().saturating_sub(1))
    }

    /// Closes a conversation, whatever it is doing, and frees its pages. Unknown ones are ignored.
    pub fn close(&mut self, id: ConversationId) {
        self.conversations.remove(&id);
    }

    /// Ends what a conversation is saying. What it said stays.
    pub fn stop(&mut self, id: ConversationId) {
        if let Some(conversation) = self.conversations.get_mut(&id) {
            conversation.stop();
        }
    }

    /// All tokens of a conversation: those of its prompts, and what it said.
    pub fn tokens(&self, id: ConversationId) -> &[u32] {
        self.conversations
            .get(&id)
            .map_or(&[], Conversation::tokens)
    }

    /// Bytes of cache that a conversation has, shared ones included.
    pub fn cache_bytes(&self, id: ConversationId) -> u64 {
        self.conversations.get(&id).map_or(0, Conversation::bytes)
    }

    /// Asks a conversation to go on. [`step`](Self::step) does it.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for a conversation that is closed or still speaking, one that has no
    /// token to go on from, and a sampling of impossible numbers. [`Error::Token`] for a token
    /// beyond the vocabulary. [`Error::Context`] for a prompt that has no place in the context.
    pub fn say(&mut self, id: ConversationId, request: Request) -> Result<()> {
        request.sampling.check()?;
        let vocabulary = self.model.vocabulary();
        let beyond = request
            .prompt
            .iter()
            .find(|&&token| token as usize >= vocabulary);
        if let Some(&token) = beyond {
            return Err(Error::Token { token, vocabulary });
        }
        let context = self.model.config().context;
        let speaking = self.conversations.values();
        let turns = speaking.filter_map(|one| one.turns(self.options.turn_tokens));
        let turns_before = turns.max().unwrap_or(0);
        self.idle(id)?.begin(request, context, turns_before)
    }

    /// Whether a conversation has something to say, or a token is on its way.
    pub fn is_busy(&self) -> bool {
        self.before.is_some()
            || self.pending.is_some()
            || self.conversations.values().any(Conversation::is_speaking)
    }

    fn idle(&mut self, id: ConversationId) -> Result<&mut Conversation> {
        let conversation = self.conversations.get_mut(&id);
        let conversation =
            conversation.ok_or_else(|| Error::Argument("the conversation is closed".into()))?;
        match conversation.is_speaking() {
            false => Ok(conversation),
            true => {
                let name = conversation.name();
                Err(Error::Argument(format!(
                    "{name:?} is still speaking: wait, or close it"
                )))
            }
        }
    }
}
