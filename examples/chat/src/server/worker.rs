//! The thread that has the model. Requests come by a channel, and each gets its answer by its own.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

use lapidary_lm::{ConversationId, End, Request, Sampling, Scheduler, SchedulerOptions};
use tokenizers::Tokenizer;
use tokio::sync::mpsc::UnboundedSender;

use super::stops::Stops;
use crate::error::{Error, Result};
use crate::talk::{Speaker, of_tokenizer};
use crate::template::Message;

/// Conversations that are kept for the next question, whose beginning they may have.
const MOST_IDLE: usize = 16;

/// Steps in a row that may fail before the clients hear of it. A failed one starts over by itself.
const MOST_FAILURES: u32 = 3;

/// A question, and where its answer goes.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) messages: Vec<Message>,
    pub(super) sampling: Sampling,
    pub(super) most_tokens: usize,
    /// The answer ends before the first of these texts.
    pub(super) stops: Vec<String>,
    pub(super) answer: UnboundedSender<Piece>,
}

/// A piece of an answer.
#[derive(Debug)]
pub(super) enum Piece {
    Text(String),
    /// Why the answer ends, as OpenAI's clients know it.
    End(&'static str),
    /// After the end: the tokens that were read, and those of the answer.
    Counts {
        read: usize,
        said: usize,
    },
    /// The question cannot be answered.
    Refused(String),
    Failed(String),
}

type Decode<'t> = Box<dyn FnMut(u32) -> Result<Option<String>> + 't>;

/// An answer under way.
struct Job<'t> {
    answer: UnboundedSender<Piece>,
    decode: Decode<'t>,
    stops: Stops,
    read: usize,
    said: usize,
}

impl Job<'_> {
    /// Hands a token to the client. Returns whether the answer has ended.
    fn say(&mut self, token: u32, end: Option<End>) -> bool {
        self.said += 1;
        let (mut text, mut is_stopped) = (String::new(), false);
        match (self.decode)(token) {
            Ok(Some(piece)) => {
                let said = self.stops.take(&piece);
                (text, is_stopped) = (said.text, said.is_end);
            }
            Ok(None) => {}
            Err(error) => {
                let _ = self.answer.send(Piece::Failed(error.to_string()));
                return true;
            }
        }
        let has_ended = is_stopped || end.is_some();
        if has_ended && !is_stopped {
            text.push_str(&self.stops.rest());
        }
        if !text.is_empty() {
            // A client that is gone is noticed below.
            let _ = self.answer.send(Piece::Text(text));
        }
        if has_ended {
            let reason = match is_stopped || end == Some(End::Token) {
                true => "stop",
                false => "length",
            };
            let (read, said) = (self.read, self.said);
            let _ = self.answer.send(Piece::End(reason));
            let _ = self.answer.send(Piece::Counts { read, said });
        }
        has_ended || self.answer.is_closed()
    }
}

pub(super) struct Worker<'t> {
    speaker: &'t Speaker,
    scheduler: Scheduler,
    jobs: HashMap<ConversationId, Job<'t>>,
    /// The one that was used last is last.
    idle: Vec<ConversationId>,
    /// Steps that have failed since one did not.
    failures: u32,
}

impl Worker<'_> {
    /// Starts the thread, which ends with the last sender.
    pub(super) fn start(speaker: Speaker, options: SchedulerOptions) -> Result<Sender<Asked>> {
        let scheduler = Scheduler::new(&speaker.model, options)?;
        let (sender, asked) = channel();
        thread::spawn(move || {
            let (jobs, idle) = (HashMap::new(), Vec::new());
            Worker {
                speaker: &speaker,
                scheduler,
                jobs,
                idle,
                failures: 0,
            }
            .run(&asked);
        });
        Ok(sender)
    }

    fn run(mut self, asked: &Receiver<Asked>) {
        loop {
            let next = match self.jobs.is_empty() {
                true => asked.recv().map_err(|_| TryRecvError::Disconnected),
                false => asked.try_recv(),
            };
            match next {
                Ok(asked) => self.begin(asked),
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => self.step(),
            }
        }
    }

    fn begin(&mut self, asked: Asked) {
        let answer = asked.answer.clone();
        let piece = match self.started(asked) {
            Ok(()) => return,
            Err(error @ (Error::Template(_) | Error::Model(_))) => {
                Piece::Refused(error.to_string())
            }
            Err(error) => Piece::Failed(error.to_string()),
        };
        // A client that is gone needs no reason.
        let _ = answer.send(piece);
    }

    fn started(&mut self, asked: Asked) -> Result<()> {
        let tokens = self.speaker.tokens(&asked.messages)?;
        let (id, common) = self.conversation(&tokens)?;
        let prompt = tokens[common..].to_vec();
        let request = Request {
            sampling: asked.sampling,
            ..Request::new(prompt, asked.most_tokens)
        };
        if let Err(error) = self.scheduler.say(id, request) {
            self.keep(id);
            return Err(error.into());
        }
        let decode = decoder(&self.speaker.tokenizer);
        let job = Job {
            answer: asked.answer,
            decode,
            stops: Stops::new(asked.stops),
            read: tokens.len(),
            said: 0,
        };
        self.jobs.insert(id, job);
        Ok(())
    }

    /// The conversation that has the longest beginning of these tokens, and the length of that; a
    /// new one if none has any.
    fn conversation(&mut self, tokens: &[u32]) -> Result<(ConversationId, usize)> {
        let common = |at: usize| self.scheduler.common(self.idle[at], tokens);
        let best = (0..self.idle.len()).map(|at| (common(at), at)).max();
        let Some((common, at)) = best.filter(|(common, _)| *common > 0) else {
            return Ok((self.scheduler.open("request"), 0));
        };
        let found = self.idle[at];
        // Another client's conversation stays, and shares what both have in common.
        let id = match 2 * common < self.scheduler.tokens(found).len() {
            true => self.scheduler.fork(found, "request")?,
            false => self.idle.remove(at),
        };
        self.scheduler.truncate(id, common)?;
        Ok((id, common))
    }

    fn step(&mut self) {
        let gone = self.jobs.iter().filter(|(_, job)| job.answer.is_closed());
        let gone: Vec<ConversationId> = gone.map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.end(id));
        let said = match self.scheduler.step() {
            Ok(said) => said,
            Err(error) => return self.failed(&error.to_string()),
        };
        self.failures = 0;
        for said in said {
            let Some(job) = self.jobs.get_mut(&said.conversation) else {
                continue;
            };
            if job.say(said.token, said.end) {
                self.end(said.conversation);
            }
        }
    }

    /// Ends an answer. A client that has gone away hears no more, and takes no more of the device.
    fn end(&mut self, id: ConversationId) {
        self.scheduler.stop(id);
        self.jobs.remove(&id);
        self.keep(id);
    }

    /// The conversations start over by themselves, on a new device if theirs was lost.
    fn failed(&mut self, error: &str) {
        let gpu = self.speaker.model.gpu();
        if gpu.flush().is_err() {
            // If there is no device now, the next step fails too.
            let _ = gpu.reopen();
        }
        self.failures += 1;
        if self.failures < MOST_FAILURES {
            return;
        }
        self.failures = 0;
        for (id, job) in self.jobs.drain() {
            let _ = job.answer.send(Piece::Failed(error.to_owned()));
            self.scheduler.close(id);
        }
    }

    /// Keeps a conversation for the next question. Those that were used longest ago go.
    fn keep(&mut self, id: ConversationId) {
        if self.scheduler.tokens(id).is_empty() {
            // It would only make those with a beginning to share go.
            self.scheduler.close(id);
            return;
        }
        self.idle.push(id);
        while self.idle.len() > MOST_IDLE {
            self.scheduler.close(self.idle.remove(0));
        }
    }
}

fn decoder(tokenizer: &Tokenizer) -> Decode<'_> {
    let mut stream = tokenizer.decode_stream(true);
    Box::new(move |token| stream.step(token).map_err(of_tokenizer))
}
