//! The thread that drives the device.
//!
//! It takes batches from the desk and runs them in steps. Between two steps it looks for urgent
//! texts, which then go first. A batch that finds no room is cut in half, and a lone text comes
//! back later. After a device loss the texts are computed once more on a new device.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use embed::{Error, Model, Result, Tokens};
use lapidary::Gpu;

use crate::desk::{Desk, NO_DEVICE, Text};
use crate::error::Refusal;
use crate::fair::Taken;
use crate::numbers;
use crate::pace::Pace;
use crate::room::Room;
use crate::server::Limits;

/// Tokens of a short text.
const SHORT: usize = 4;
/// A text is computed again after at most this many losses.
const MOST_LOSSES: u32 = 1;
/// A text that finds no room alone is tried again so often, after pauses of these lengths. Others
/// go on meanwhile.
const SHORTAGE_PAUSES: [Duration; 4] = [
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(800),
];
/// Most texts that wait for room at a time. Further ones are refused.
const MOST_SHORT: usize = 64;
/// Pauses after the first attempts to get a new device. After them, what waits is refused.
const REOPEN_PAUSES: [Duration; 5] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];
/// The pause between later attempts.
const REOPEN_LATER: Duration = Duration::from_millis(500);

/// What the worker did, for the program's last line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) batches: u64,
    pub(crate) texts: u64,
    pub(crate) losses: u64,
    pub(crate) splits: u64,
}

#[derive(Debug)]
pub(crate) struct Worker {
    model: Arc<Model>,
    gpu: Gpu,
    desk: Arc<Desk>,
    room: Room,
    pace: Pace,
    /// Texts that found no room alone, and when each is tried again.
    short: Vec<(Instant, Taken<Text>)>,
    /// Declares the device lost after this many batches, to try the recovery.
    lose_every: Option<u64>,
    done: Done,
}

/// What to do about an error.
enum Fault {
    Lost,
    NoRoom,
    Other,
}

impl Worker {
    pub(crate) fn new(model: Arc<Model>, desk: Arc<Desk>, limits: Limits) -> Worker {
        Worker {
            gpu: model.gpu().clone(),
            room: Room::new(model.config.longest, limits.batch_texts),
            pace: Pace::new(),
            short: Vec::new(),
            model,
            desk,
            lose_every: limits.lose_every,
            done: Done::default(),
        }
    }

    /// Reads the weights and compiles kernels, so that the first requests do not wait for that.
    pub(crate) fn warm_up(&mut self) -> Result<()> {
        self.room.refresh(&self.gpu, &self.model.encoder)?;
        let (mut length, mut lone) = (SHORT.min(self.model.config.longest), Duration::ZERO);
        loop {
            let text = Tokens {
                ids: vec![0; length],
                cut_from: None,
            };
            for count in [16, 4, 1, 1] {
                let count = count.min(self.room.texts(length));
                let start = Instant::now();
                let vectors = self.model.encoder.encode(&vec![&text; count])?;
                vectors.to_vec::<f32>()?;
                // The last one finds its kernels compiled.
                if length <= SHORT {
                    lone = start.elapsed();
                }
            }
            if length * 4 > self.model.config.longest {
                self.pace.note_lone(lone);
                return Ok(());
            }
            length *= 4;
        }
    }

    /// Works until the desk is closed and nothing waits.
    pub(crate) fn run(&mut self) -> Done {
        loop {
            self.wait_for_device();
            // A lost device is noticed by the batch.
            if let Err(error) = self.room.refresh(&self.gpu, &self.model.encoder)
                && !matches!(fault(&error), Fault::Lost)
            {
                eprintln!("serve: how much fits is unknown: {error}");
            }
            if let Some(batch) = self.next() {
                self.work(batch, true);
            } else if self.desk.is_closed() && self.short.is_empty() {
                return self.done;
            }
            if let Some(every) = self.lose_every
                && self.done.batches >= (self.done.losses + 1) * every
            {
                self.gpu.notify_lost("the option --lose-every says so");
            }
        }
    }

    /// A text that found no room before, if it is its time, or the next batch. `None` if there is
    /// none until the next such time, or no more at all.
    fn next(&mut self) -> Option<Taken<Text>> {
        let due = (0..self.short.len()).min_by_key(|at| self.short[*at].0);
        let until = due.map(|at| self.short[at].0);
        match due.filter(|at| self.short[*at].0 <= Instant::now()) {
            Some(at) => Some(self.short.swap_remove(at).1),
            None => self.desk.next(until, |length| self.most(length)),
        }
    }

    /// Most texts of a length in a batch.
    fn most(&self, length: usize) -> usize {
        self.room.texts(length).min(self.pace.texts(length))
    }

    /// Runs a batch until each text has a vector or a refusal.
    fn work(&mut self, batch: Taken<Text>, may_pause: bool) {
        let mut parts = vec![batch];
        while let Some(mut part) = parts.pop() {
            part.texts.retain(|text| text.answer.is_wanted());
            if part.texts.is_empty() {
                continue;
            }
            let error = match self.compute(&part, may_pause) {
                Ok(()) => continue,
                Err(error) => error,
            };
            match fault(&error) {
                Fault::Lost if self.renew() => {
                    part.texts.retain_mut(survives);
                    parts.push(part);
                }
                Fault::Lost => refuse(part, &NO_DEVICE),
                Fault::NoRoom if part.texts.len() > 1 => {
                    self.done.splits += 1;
                    numbers::split();
                    parts.extend(part.halves());
                }
                Fault::NoRoom => self.put_back(part),
                Fault::Other => {
                    eprintln!("serve: a batch failed: {error}");
                    refuse(part, &Refusal::Failed);
                }
            }
        }
    }

    /// A text that found no room alone is tried again later, or refused if it was tried too often.
    fn put_back(&mut self, mut part: Taken<Text>) {
        let tries = part.texts.first().map_or(0, |text| text.shortages as usize);
        match SHORTAGE_PAUSES.get(tries) {
            Some(pause) if self.short.len() < MOST_SHORT => {
                part.texts.iter_mut().for_each(|text| text.shortages += 1);
                self.short.push((Instant::now() + *pause, part));
            }
            _ => refuse(part, &BUSY),
        }
    }

    /// Computes a batch and answers.
    fn compute(&mut self, batch: &Taken<Text>, may_pause: bool) -> Result<()> {
        let model = self.model.clone();
        let start = Instant::now();
        let mut paused = Duration::ZERO;
        let texts: Vec<&Tokens> = batch.texts.iter().map(|text| &text.tokens).collect();
        let mut encoding = model.encoder.begin(&texts)?;
        let is_whole = self.pace.is_whole(batch.tokens);
        if may_pause && !is_whole {
            let mut steps = 0;
            loop {
                self.gpu.finish()?;
                paused += self.urgent(batch);
                if !batch.texts.iter().any(|text| text.answer.is_wanted()) {
                    numbers::abandoned();
                    return Ok(());
                }
                if !model.encoder.advance(&mut encoding)? {
                    break;
                }
                steps += 1;
            }
            if batch.is_full {
                self.pace
                    .note_step((start.elapsed() - paused) / steps.max(1));
            }
        }
        let vectors = model.encoder.end(encoding)?.to_vec::<f32>()?;
        for (text, vector) in batch
            .texts
            .iter()
            .zip(vectors.chunks(model.config.hidden_size))
        {
            text.answer.put(text.index, vector);
        }
        let time = start.elapsed() - paused;
        if is_whole && batch.texts.len() == 1 {
            self.pace.note_lone(time);
        }
        self.desk.note(batch.texts.len(), time);
        self.done.batches += 1;
        self.done.texts += batch.texts.len() as u64;
        numbers::batch(batch.texts.len(), time);
        Ok(())
    }

    /// Runs what should not wait for `running`, and says how long that took.
    fn urgent(&mut self, running: &Taken<Text>) -> Duration {
        let start = Instant::now();
        while let Some(batch) = self.desk.next_urgent(running, |length| self.most(length)) {
            numbers::pause();
            self.work(batch, false);
        }
        start.elapsed()
    }

    /// Replaces the lost device. `false` if there is none after some attempts; then requests are
    /// refused.
    fn renew(&mut self) -> bool {
        for pause in REOPEN_PAUSES {
            if self.reopen() {
                return true;
            }
            // An urgent batch has waited already.
            if self.desk.is_down() {
                return false;
            }
            thread::sleep(pause);
        }
        eprintln!("serve: the device is lost, and there is no other");
        self.desk.set_down(true);
        let short = self.short.drain(..);
        short.for_each(|(_, part)| refuse(part, &NO_DEVICE));
        false
    }

    /// Waits for a device, if there is none.
    fn wait_for_device(&mut self) {
        while self.desk.is_down() && !self.desk.is_closed() {
            match self.reopen() {
                true => self.desk.set_down(false),
                false => thread::sleep(REOPEN_LATER),
            }
        }
    }

    /// One attempt to replace the lost device.
    fn reopen(&mut self) -> bool {
        match self.gpu.reopen() {
            Ok(_) => {
                self.done.losses += 1;
                numbers::loss();
                true
            }
            // The device is not lost: an urgent batch has replaced it.
            Err(lapidary::Error::Option { .. }) => true,
            Err(_) => false,
        }
    }
}

impl Drop for Worker {
    /// Nobody waits for a worker that is gone, whatever ended it.
    fn drop(&mut self) {
        self.desk.end(thread::panicking());
    }
}

fn refuse(batch: Taken<Text>, refusal: &Refusal) {
    for text in batch.texts {
        text.answer.refuse(refusal);
    }
}

/// Counts a loss. `false` if the text had too many, and is refused.
fn survives(text: &mut Text) -> bool {
    text.losses += 1;
    if text.losses > MOST_LOSSES {
        text.answer.refuse(&Refusal::Unavailable {
            why: "the device was lost twice",
            retry_after_s: 1,
        });
    }
    text.losses <= MOST_LOSSES
}

/// The refusal of a text for which there was no room.
const BUSY: Refusal = Refusal::Unavailable {
    why: "the server is busy",
    retry_after_s: 2,
};

fn fault(error: &Error) -> Fault {
    match error {
        Error::Gpu(error) => fault_of_gpu(error),
        _ => Fault::Other,
    }
}

fn fault_of_gpu(error: &lapidary::Error) -> Fault {
    match error {
        lapidary::Error::DeviceLost { .. } => Fault::Lost,
        lapidary::Error::OutOfMemory(_)
        | lapidary::Error::NeverFits { .. }
        | lapidary::Error::Spill(_) => Fault::NoRoom,
        lapidary::Error::Poisoned { cause, .. } => fault_of_gpu(cause),
        _ => Fault::Other,
    }
}

#[cfg(test)]
mod tests {
    use embed::small;
    use lapidary::sim::SimOptions;

    use super::*;
    use crate::tenants::{Tenant, Tenants};

    #[test]
    fn a_worker_that_panics_leaves_a_desk_that_is_not_alive() {
        let (gpu, _) = Gpu::simulated(SimOptions::default()).unwrap();
        let model = Arc::new(small::model(&gpu).unwrap());
        for panics in [false, true] {
            let tenant = Tenant {
                name: "alice".into(),
                key: "a-long-secret-key".into(),
                weight: 1,
            };
            let tenants = Tenants::new(vec![tenant]).unwrap();
            let desk = Arc::new(Desk::new(tenants, 8, 4));
            let worker = Worker::new(model.clone(), desk.clone(), Limits::default());
            assert!(desk.is_alive() && desk.is_ready());
            let ended = thread::spawn(move || {
                let _worker = worker;
                assert!(!panics, "a test panics");
            });
            assert_eq!(ended.join().is_err(), panics);
            assert_eq!((desk.is_alive(), desk.is_ready()), (!panics, false));
        }
    }
}
