//! The fastest variant of a kernel for a problem on this device. Tuning finds it when the problem
//! first occurs, keeps it in a small text file, and reads it in the next process. This module
//! knows neither kernels nor devices. The caller gives the variants, the rule's choice first, and
//! runs them.
//!
//! ```text
//! lapidary tuning 1 crc32 5f0c6a1b
//! device llvmpipe (LLVM 15.0.6, 256 bits) / vulkan / llvmpipe Mesa 22.3.6 / lapidary 0.1.0
//! best matmul f32 512 x 512 x 512 = Register { rows: 32, vec4s: 2, lanes: 8 }
//! never matmul Workgroup { rows: 8 }
//! ```
//!
//! Before each trial the module writes a marker (`tuning/markers.rs`). A variant that ends the
//! process leaves its marker behind, and is never tried again. The same holds for a variant that
//! loses the device. `tuning/race.rs` describes the trials.

mod markers;
mod race;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug, Display};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Once, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHasher;

use crate::cache_file::{self, FileKind};
use crate::number_map::NumberMap;
use markers::left_behind;

const KIND: FileKind = FileKind {
    name: "tuning",
    version: 1,
};

/// The most time that all trials of a process may take. A trial in progress then runs to its end.
const MOST_TIME: Duration = Duration::from_secs(4);

/// The time that trials have taken in this process, in nanoseconds.
static SPENT: AtomicU64 = AtomicU64::new(0);

/// The device of the findings, and whether trials can measure time.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    /// The name of the adapter, from which the file's name is made.
    pub(crate) adapter: String,
    /// The versions that must match as well.
    pub(crate) version: String,
    /// Whether the time of a run tells which variant is faster. It does not where reference kernels
    /// run instead of kernels. Then no time is measured, and trials keep the rule's choice.
    pub(crate) has_clock: bool,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// The variant ran.
    Ran,
    /// The variant did not run. There is no room for it, for example, or the device does not
    /// support it.
    Failed,
    /// The device is lost.
    Lost,
}

/// The functions that run variants.
pub struct Runner<'a> {
    /// Finishes other work of the device before a trial.
    pub prepare: &'a mut dyn FnMut() -> Ready,
    /// Runs the variant of this index this many times, and waits until the runs end.
    pub run: &'a mut dyn FnMut(usize, u32) -> Trial,
}

impl Debug for Runner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").finish_non_exhaustive()
    }
}

/// Whether variants can be run now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// Variants can run.
    Yes,
    /// Not now. The next call may ask again.
    Later,
    /// No. Another question at each call would cost too much.
    No,
}

/// Results and cost of trials: see [`Tune::FirstUse`](crate::adapter::Tune::FirstUse).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tuned {
    /// The best variant for each problem (sizes rounded up), found by this `Gpu` or earlier.
    pub best: Vec<(String, String)>,
    /// Variants that lost the device or ended the process.
    pub never: Vec<String>,
    /// Trial runs of variants by this `Gpu`. Several runs in a row count as one.
    pub trials: u64,
    /// Time that these runs took.
    pub time: Duration,
}

/// The findings about a device.
pub struct Tuning {
    device: String,
    has_clock: bool,
    file: Option<PathBuf>,
    spent: &'static AtomicU64,
    clock: fn() -> Duration,
    known: Mutex<Known>,
    /// The first question reads the file.
    reading: Once,
    /// Whether markers cannot be written. Then no variant is tried.
    has_no_markers: AtomicBool,
    /// Allows one trial at a time. No thread waits for it: it could hold what the trial waits for.
    trying: Mutex<()>,
}

#[derive(Default)]
struct Known {
    /// The best variant of each problem.
    best: BTreeMap<String, String>,
    never: BTreeSet<String>,
    /// Variants that another process may be trying now, or that may have ended it.
    unclear: Vec<String>,
    /// The variant for each problem, both by their hashes. It is looked up once per call.
    decided: NumberMap<u64>,
    trials: u64,
    time: Duration,
}

impl Debug for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tuning").field(&self.file).finish()
    }
}

impl Tuning {
    /// Keeps the findings in `folder`. Without a folder, they last as long as this value. The file
    /// is read when a finding is first asked for.
    pub(crate) fn new(subject: Subject, folder: Option<&Path>) -> Self {
        let Subject {
            adapter,
            version,
            has_clock,
        } = subject;
        let name = format!("tuning_{:08x}.txt", crc32fast::hash(adapter.as_bytes()));
        // The names come from the driver, so control characters such as line breaks are replaced.
        let device = format!("{adapter} / {version}").replace(char::is_control, " ");
        Tuning {
            device,
            has_clock,
            file: folder.map(|folder| folder.join(name)),
            spent: &SPENT,
            clock,
            known: Mutex::default(),
            reading: Once::new(),
            has_no_markers: AtomicBool::new(false),
            trying: Mutex::default(),
        }
    }

    /// The index of the variant in `variants` that solves the problem fastest, as far as that is
    /// known or can be measured. The first variant is the rule's choice.
    pub fn choose<P: Hash + Display, V: Hash + Debug>(
        &self,
        family: &str,
        problem: &P,
        variants: &[V],
        runner: &mut Runner<'_>,
    ) -> usize {
        let hashes = || variants.iter().map(hash_of);
        let key = hash_of(&(family, problem));
        let decided = |known: &Known| {
            let chosen = *known.decided.get(&key)?;
            // Another problem with the same hash may not have that variant.
            Some(hashes().position(|hash| hash == chosen).unwrap_or(0))
        };
        if let Some(index) = decided(&self.known()) {
            return index;
        }
        let names: Vec<String> = (variants.iter())
            .map(|variant| format!("{family} {variant:?}"))
            .collect();
        let problem = format!("{family} {problem}");
        let (index, is_final) = self.find(&problem, &names, runner, &decided);
        if let (true, Some(hash)) = (is_final, hashes().nth(index)) {
            self.known().decided.insert(key, hash);
        }
        index
    }

    /// The index of the variant, and whether it is final for this process.
    fn find(
        &self,
        problem: &str,
        names: &[String],
        runner: &mut Runner<'_>,
        decided: &dyn Fn(&Known) -> Option<usize>,
    ) -> (usize, bool) {
        let allowed = {
            let known = self.known();
            let allowed = (0..names.len()).filter(|&index| !known.is_barred(&names[index]));
            let allowed: Vec<usize> = allowed.collect();
            let best = known.best.get(problem);
            if let Some(best) = best.and_then(|best| allowed.iter().find(|&&i| names[i] == *best)) {
                return (*best, true);
            }
            allowed
        };
        let first = allowed.first().copied().unwrap_or(0);
        let has_markers = !self.has_no_markers.load(Ordering::Relaxed);
        if allowed.len() < 2 || self.time_left().is_zero() || !has_markers {
            return (first, true);
        }
        let Some(_trying) = self.trying.try_lock() else {
            return (first, false);
        };
        // The thread that tried until now may have solved the same problem.
        if let Some(index) = decided(&self.known()) {
            return (index, false);
        }
        match (runner.prepare)() {
            Ready::Yes => {}
            Ready::Later => return (first, false),
            Ready::No => return (first, true),
        }
        let Some(race) = self.race(names, &allowed, runner) else {
            let known = self.known();
            let first = allowed.iter().find(|&&i| !known.is_barred(&names[i]));
            return (first.copied().unwrap_or(0), true);
        };
        let winner = race.winner;
        if race.base == first && race.is_settled {
            let (problem, winner) = (problem.to_owned(), names[winner].clone());
            self.known().best.insert(problem, winner);
            self.write();
        }
        (winner, true)
    }

    /// The findings, for reports.
    pub(crate) fn findings(&self) -> Tuned {
        let known = self.known();
        Tuned {
            best: known.best.clone().into_iter().collect(),
            never: known.never.iter().cloned().collect(),
            trials: known.trials,
            time: known.time,
        }
    }

    /// The rest of the time for trials.
    fn time_left(&self) -> Duration {
        if !self.has_clock {
            return MOST_TIME;
        }
        let spent = Duration::from_nanos(self.spent.load(Ordering::Relaxed));
        MOST_TIME.saturating_sub(spent)
    }

    /// The time since a fixed moment. It stands still without a clock.
    fn now(&self) -> Duration {
        match self.has_clock {
            true => (self.clock)(),
            false => Duration::ZERO,
        }
    }

    /// Locks the findings. Callers take no other lock and call no foreign code meanwhile.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.reading.call_once_force(|_| self.read());
        self.known.lock()
    }

    /// Reads the findings of earlier processes, and the markers of those that ended during a trial.
    fn read(&self) {
        let Some(file) = &self.file else { return };
        if let Some(text) = cache_file::read(file, KIND) {
            let text = String::from_utf8_lossy(&text);
            if !self.known.lock().enter(&text, &self.device) {
                let file = file.display();
                log::warn!(
                    "lapidary: {file} is not used: it was written for another driver or version"
                );
            }
        }
        let left = left_behind(file);
        for (name, _) in &left.ended {
            log::warn!("lapidary: `{name}` ended a process and will not be tried again");
            self.known.lock().never.insert(name.clone());
        }
        self.known.lock().unclear.extend(left.unclear);
        // A marker is removed only if the disk has its variant among the findings.
        if !left.ended.is_empty() && self.write() {
            left.ended.iter().for_each(|(_, marker)| marker.remove());
        }
    }

    /// Writes the findings, together with those that other processes wrote meanwhile. Returns
    /// whether they are kept. Only one thread calls this at a time: the one that tries, or the one
    /// that starts.
    fn write(&self) -> bool {
        let Some(file) = &self.file else { return false };
        let mut theirs = Known::default();
        if let Ok(Some(text)) = cache_file::look(file, KIND) {
            theirs.enter(&String::from_utf8_lossy(&text), &self.device);
        }
        let mut text = format!("device {}\n", self.device);
        {
            let mut known = self.known.lock();
            for (problem, variant) in theirs.best {
                known.best.entry(problem).or_insert(variant);
            }
            known.never.extend(theirs.never);
            for (problem, variant) in &known.best {
                text += &format!("best {problem} = {variant}\n");
            }
            for variant in &known.never {
                text += &format!("never {variant}\n");
            }
        }
        cache_file::replace_for_sure(file, KIND, text.as_bytes())
    }

    /// Bars a variant from further trials. Returns whether that is kept.
    fn bar(&self, name: &str) -> bool {
        {
            let mut known = self.known();
            known.never.insert(name.to_owned());
            known.decided.clear();
        }
        self.write()
    }
}

impl Known {
    fn is_barred(&self, name: &str) -> bool {
        self.never.contains(name) || self.unclear.iter().any(|other| other == name)
    }

    /// Reads the findings in a file's text. `false` if they concern another device.
    fn enter(&mut self, text: &str, device: &str) -> bool {
        let mut lines = text.lines();
        if lines.next().and_then(|line| line.strip_prefix("device ")) != Some(device) {
            return false;
        }
        for line in lines.filter(|line| !line.contains(char::is_control)) {
            let best = line.strip_prefix("best ");
            if let Some((problem, variant)) = best.and_then(|line| line.split_once(" = ")) {
                self.best.insert(problem.to_owned(), variant.to_owned());
            } else if let Some(variant) = line.strip_prefix("never ") {
                self.never.insert(variant.to_owned());
            }
        }
        true
    }
}

fn clock() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    value.hash(&mut hasher);
    hasher.finish()
}
