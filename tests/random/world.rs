//! A device, the tensors of a program with their expected values, and the errors that it may get.

use std::rc::Rc;
use std::sync::{Arc, Mutex};

use lapidary::interop::Pin;
use lapidary::sim::SimHandle;
use lapidary::{
    Budget, DType, Element, Error, Gpu, Result, Tensor, diagnostics::Finding, stats::PressureGuard,
};

use super::model::{self, Data, Model, Read};
use super::ops::{self, Op};
use crate::common::scattered::Place;
use crate::programs::{self, Dice, Name, Program};

/// Most bytes of the budget's device part, unless the rules say otherwise.
pub(crate) const MOST_BYTES: u64 = 160 << 10;

/// Additional bytes for draining to a lower limit.
const LITTLE_BYTES: u64 = 4 << 10;

/// What a kind of program may do, and what may happen to it.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// The column of weights in [`ops::CALLS`].
    pub(crate) column: usize,
    /// How many of 24 steps compute.
    pub(crate) values_of_24: u32,
    /// Most tensors that a program holds.
    pub(crate) held: usize,
    /// Most elements of a tensor.
    pub(crate) elements: usize,
    /// Memory may be short: the device has no more.
    pub(crate) is_short: bool,
    /// Stores of the app fail, and lose what they have.
    pub(crate) has_stores: bool,
    /// Tensors may be evicted, so everything that fits alone fits.
    pub(crate) leaves: bool,
    /// Tensors may be pinned and then be in the way.
    pub(crate) pins: bool,
    /// Only this program sets budgets and holds tensors.
    pub(crate) alone: bool,
    /// Begins a trouble, now and then.
    pub(crate) trouble: Option<Trouble>,
}

/// Begins a trouble, and gives what ends it.
pub(crate) type Trouble = fn(&mut World) -> End;

pub(crate) type End = fn(&mut World);

/// Why a step has made nothing.
pub(crate) enum Stop {
    /// The program has no suitable tensors for the call.
    Skipped,
    Refused(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Refused(error)
    }
}

pub(crate) type Outcome<T = ()> = std::result::Result<T, Stop>;

/// A tensor of a program, and its expected contents.
#[derive(Clone)]
pub(crate) struct Held {
    name: Name,
    pub(crate) tensor: Tensor,
    pub(crate) model: Model,
    pub(crate) pin: Option<Rc<Pin>>,
}

/// A read under way, and its expected result.
pub(crate) struct Reading {
    pub(crate) name: Name,
    pub(crate) read: Read,
    pub(crate) model: Model,
    pub(crate) expected: Vec<f64>,
    /// Whether the tensor was in doubt at the beginning. A later write does not change that.
    pub(crate) was_unsure: bool,
}

/// Tensors that a callback drops when memory is short.
pub(crate) type Cache = Arc<Mutex<Vec<(Tensor, Vec<u32>)>>>;

pub(crate) struct World {
    pub(crate) program: Program,
    /// The dice of this step.
    pub(crate) rng: Dice,
    pub(crate) gpu: Gpu,
    pub(crate) sim: SimHandle,
    pub(crate) rules: Rules,
    pub(crate) held: Vec<Held>,
    pub(crate) reads: Vec<Reading>,
    pub(crate) cache: Cache,
    pub(crate) guards: Vec<PressureGuard>,
    /// This step, and how many tensors it has made.
    next: Name,
    /// Most elements of what this step picks.
    most: usize,
    /// The storages that this step has picked: its results come of them.
    pub(crate) picked: Vec<Rc<Data>>,
    /// The step at which a trouble ends, and what ends it.
    trouble: Option<(u32, End)>,
    /// Reads of tensors of which a store has lost the value.
    pub(crate) lost: u64,
    /// Faults are armed or were just before, so any work may fail.
    pub(crate) in_fault: bool,
    /// The last step that dropped a read or an eviction half-way, or ran under faults, which do the
    /// same. Then an eviction needs another read-back buffer, or a drain is not over and has one.
    /// The buffer may exceed a budget that was lowered, as guarantee 9 says.
    half_way: Option<u32>,
    /// Bytes that were read once may be lost the next time.
    pub(crate) disk_lies: bool,
    /// The last budget was set while the disk failed, so the host's memory may still exceed it.
    pub(crate) is_above: bool,
    /// The highest limit so far.
    most_bytes: u64,
    /// The excess that the last budget left above its limit.
    shortfall_bytes: u64,
}

impl World {
    pub(crate) fn on(program: &Program, gpu: Gpu, sim: SimHandle, rules: Rules) -> World {
        let most_bytes = match rules.alone {
            true => gpu.memory().budget().device_bytes.unwrap_or(u64::MAX),
            false => MOST_BYTES,
        };
        World {
            program: program.clone(),
            rng: program.dice(0),
            gpu,
            sim,
            rules,
            held: Vec::new(),
            reads: Vec::new(),
            cache: Cache::default(),
            guards: Vec::new(),
            next: (0, 0),
            most: usize::MAX,
            picked: Vec::new(),
            trouble: None,
            lost: 0,
            in_fault: false,
            half_way: None,
            disk_lies: false,
            is_above: false,
            most_bytes,
            shortfall_bytes: 0,
        }
    }

    pub(crate) fn say(&self, words: std::fmt::Arguments<'_>) {
        self.program.say(words);
    }

    /// Makes the step of this number.
    pub(crate) fn step(&mut self, number: u32) {
        if self.trouble.is_some_and(|(end, _)| number >= end) {
            self.end_trouble();
        }
        self.rng = self.program.dice(number);
        self.next = (number, 0);
        self.picked.clear();
        if let (Some(begin), None, 0) = (self.rules.trouble, self.trouble, self.rng.u32(..25)) {
            let end = number + self.rng.u32(1..20);
            self.say(format_args!("{number:6} trouble, to step {end}:"));
            self.trouble = Some((end, begin(self)));
            self.say(format_args!("\n"));
        }
        let (name, call) = self.choose();
        self.say(format_args!("{number:6} {name}"));
        match call(self) {
            Ok(()) | Err(Stop::Skipped) => {}
            Err(Stop::Refused(error)) => {
                self.say(format_args!(", refused: {error}"));
                self.judge(name, &error);
            }
        }
        self.check_levels();
        self.say(format_args!("\n"));
    }

    fn choose(&mut self) -> Op {
        self.most = usize::MAX;
        if self.rng.u32(..24) < self.rules.values_of_24 {
            if self.rules.column > 0 {
                // All that such an operation needs at once has to fit.
                self.most = self.rules.elements / 4;
            }
            return ops::VALUES[self.rng.usize(..ops::VALUES.len())];
        }
        let weights = ops::CALLS
            .iter()
            .map(|(_, weights)| weights[self.rules.column]);
        let mut drawn = self.rng.u32(..weights.clone().sum::<u32>());
        let at = weights.take_while(|weight| {
            let is_past = drawn >= *weight;
            drawn = drawn.saturating_sub(*weight);
            is_past
        });
        ops::CALLS[at.count()].0
    }

    /// Ends what a trouble has begun, at the latest at the end of a program.
    pub(crate) fn end_trouble(&mut self) {
        if let Some((_, end)) = self.trouble.take() {
            end(self);
        }
    }

    pub(crate) fn dtype(&mut self) -> DType {
        match self.rules.column > 0 && self.rng.u32(..8) > 0 {
            true => DType::U32,
            false => DType::ALL[self.rng.usize(..DType::ALL.len())],
        }
    }

    /// Mostly small, sometimes empty or of several windows. In programs about memory often of one
    /// size.
    pub(crate) fn shape(&mut self) -> Vec<usize> {
        let most = self.rules.elements;
        if self.rules.column > 0 {
            return vec![match self.rng.u32(..16) {
                0 => self.rng.usize(..4),
                1..4 => most,
                4..8 => most / 4,
                _ => self.rng.usize(1..=most),
            }];
        }
        if self.rng.u32(..6) == 0 {
            return vec![self.rng.usize(10_000..most)];
        }
        let rank = self.rng.usize(0..5);
        let longest = *self.rng.choice(&[2, 5, 9, 33, 300]).expect("some");
        let mut shape: Vec<usize> = (0..rank).map(|_| self.rng.usize(1..=longest)).collect();
        while shape.iter().product::<usize>() > most {
            let largest = shape.iter_mut().max().expect("a product above 1");
            *largest = largest.div_ceil(2);
        }
        if !shape.is_empty() && self.rng.u32(..20) == 0 {
            let axis = self.rng.usize(..shape.len());
            shape[axis] = 0;
        }
        shape
    }

    /// Small numbers. In programs about memory any words, so that no two tensors are alike.
    pub(crate) fn values(&mut self, dtype: DType, len: usize) -> Vec<f64> {
        if self.rules.column > 0 && dtype == DType::U32 {
            return (0..len).map(|_| f64::from(self.rng.u32(..))).collect();
        }
        let lowest = match dtype {
            DType::U32 | DType::U8 | DType::Bool => 0,
            _ => -8,
        };
        let values = (0..len).map(|_| f64::from(self.rng.i32(lowest..16)));
        values.map(|v| model::rounded(dtype, v)).collect()
    }

    /// A tensor of the program.
    pub(crate) fn pick(&mut self) -> Outcome<(Tensor, Model)> {
        self.pick_where(|_| true)
    }

    pub(crate) fn pick_where(&mut self, fits: impl Fn(&Model) -> bool) -> Outcome<(Tensor, Model)> {
        let at = self.pick_at(fits)?;
        let held = &self.held[at];
        self.picked.push(held.model.data.clone());
        Ok((held.tensor.clone(), held.model.clone()))
    }

    pub(crate) fn pick_at(&mut self, fits: impl Fn(&Model) -> bool) -> Outcome<usize> {
        let fits = |m: &Model| m.at.len() <= self.most && fits(m);
        let held = (0..).zip(&self.held).filter(|(_, held)| fits(&held.model));
        let named = held.map(|(at, held)| (held.name, at));
        let at = programs::pick(&mut self.rng, named).ok_or(Stop::Skipped)?;
        let (step, number) = self.held[at].name;
        self.say(format_args!(" t{step}.{number}"));
        Ok(at)
    }

    /// A tensor to write to. Inputs of rematerializers are mostly excluded; otherwise
    /// rematerializers would never run. Beside pins more writes wait for memory.
    pub(crate) fn target(&mut self, fits: impl Fn(&Model) -> bool) -> Outcome<(Tensor, Model)> {
        let (tensor, model) = self.pick_where(fits)?;
        let one_in = if self.rules.pins { 3 } else { 16 };
        match model.data.feeds_rematerializers() && self.rng.u32(..one_in) > 0 {
            true => Err(Stop::Skipped),
            false => Ok((tensor, model)),
        }
    }

    /// An operation wrote these elements. A storage in doubt stays so, unless all of it is new.
    pub(crate) fn wrote(&mut self, model: &Model, values: &[f64], is_new: bool) {
        model.set(values);
        let data = &model.data;
        if is_new && !values.is_empty() && model.is_whole() {
            data.is_unsure.set(false);
        }
        data.written();
        if self.in_fault {
            data.doubt();
        }
        self.picked.iter().for_each(|parent| data.comes_of(parent));
    }

    /// Creates a tensor for the program, often as a view.
    pub(crate) fn fresh(&mut self, dtype: DType, shape: &[usize]) -> Result<(Tensor, Model)> {
        if self.rules.column > 0 {
            let model = Model::new(dtype, shape, self.values(dtype, shape.iter().product()));
            let tensor = model::upload(&self.gpu, dtype, shape, &model.values())?;
            self.hold(tensor.clone(), model.clone());
            return Ok((tensor, model));
        }
        let place = Place::new(&mut self.rng, shape);
        let values = self.values(dtype, place.storage_len());
        let storage = model::upload(&self.gpu, dtype, &[values.len()], &values)?;
        let tensor = place.view(&storage)?;
        let whole = Model::new(dtype, &[values.len()], values);
        let model = whole.view(shape, |index| vec![place.at(index)]);
        self.hold(tensor.clone(), model.clone());
        Ok((tensor, model))
    }

    /// Indices, often as a view.
    pub(crate) fn places<T: Element>(&mut self, values: &[T], shape: &[usize]) -> Result<Tensor> {
        let place = Place::new(&mut self.rng, shape);
        let mut storage = vec![values.first().copied(); place.storage_len()];
        for (index, &value) in model::indices(shape).zip(values) {
            storage[place.at(&index)] = Some(value);
        }
        let storage: Vec<T> = storage.into_iter().flatten().collect();
        place.view(&self.gpu.tensor(&storage, &[storage.len()])?)
    }

    /// Names what this step has made.
    pub(crate) fn new_name(&mut self) -> Name {
        let name = self.next;
        self.next.1 += 1;
        name
    }

    /// This step drops a read or an eviction half-way.
    pub(crate) fn note_half_way(&mut self) {
        self.half_way = Some(self.next.0);
    }

    /// Adds a tensor; if there are many, another one is dropped for it.
    pub(crate) fn hold(&mut self, tensor: Tensor, model: Model) {
        assert_eq!(tensor.shape(), model.shape, "{tensor}");
        assert_eq!(tensor.dtype(), model.dtype, "{tensor}");
        if self.held.len() == self.rules.held {
            let named = (0..).zip(&self.held).map(|(at, held)| (held.name, at));
            let at = programs::pick(&mut self.rng, named).expect("it holds some");
            self.held.swap_remove(at);
        }
        if self.in_fault {
            model.data.doubt();
        }
        let (name, pin) = (self.new_name(), None);
        let (step, number) = name;
        self.say(format_args!(
            " => t{step}.{number} {}{:?}",
            tensor.dtype(),
            tensor.shape()
        ));
        self.held.push(Held {
            name,
            tensor,
            model,
            pin,
        });
    }

    /// The outcome of a call that creates a tensor of those that were picked.
    pub(crate) fn made(&mut self, made: Result<Tensor>, model: Model) -> Outcome {
        let made = made?;
        model.data.may_be_part.set(self.most < usize::MAX);
        self.picked
            .iter()
            .for_each(|parent| model.data.comes_of(parent));
        self.hold(made, model);
        Ok(())
    }

    pub(crate) fn set_budget(&mut self, budget: Budget) -> Result<()> {
        self.is_above = self.in_fault;
        let set = self.gpu.memory().set_budget(budget);
        // A device that was lost meanwhile has not reached the limit.
        self.shortfall_bytes = *set.as_ref().unwrap_or(&u64::MAX);
        self.most_bytes = self.most_bytes.max(budget.device_bytes.unwrap_or(u64::MAX));
        set.map(drop)
    }

    /// Checks that a call may fail with this error.
    pub(crate) fn judge(&self, name: &str, error: &Error) {
        let budget = self.gpu.memory().budget();
        let reserved_bytes = budget.device_bytes.unwrap_or(u64::MAX);
        let is_in_order = match error {
            _ if self.in_fault => true,
            Error::Poisoned { cause, .. } => return self.judge(name, cause),
            // The program chose the shapes, so only the device's limits may refuse them.
            Error::NeverFits { .. } if self.rules.is_short => name != "a read",
            Error::NeverFits {
                requested_bytes,
                limit_bytes,
                ..
            } => {
                let is_limit = *limit_bytes >= reserved_bytes / 2 || !self.rules.alone;
                requested_bytes > limit_bytes && is_limit
            }
            // All tiers may rest at the same time, or be full.
            Error::Store(_) | Error::Recompute { .. } | Error::OutOfMemory(_) | Error::Spill(_)
                if self.rules.has_stores =>
            {
                true
            }
            Error::OutOfMemory(_) => self.rules.is_short || !self.rules.leaves || self.rules.pins,
            Error::Driver { message, .. } => self.rules.is_short && message == "out of memory",
            Error::Pinned { .. } => self.rules.pins || !self.rules.alone,
            // A state file lies on that disk, too.
            Error::Source { message, .. } => self.disk_lies && message.contains("the checksum of"),
            // Neither the host nor the disk has room, so the tensor stays.
            Error::Spill(_) => name == "evict" && budget.disk_bytes.is_some(),
            _ => false,
        };
        let stats = self.gpu.memory().stats();
        assert!(is_in_order, "{name}: {error}\n{budget:?}\n{stats}");
    }

    /// The result of a read of something that comes of the picked tensors.
    pub(crate) fn had<T>(&self, read: Result<T>) -> Outcome<T> {
        let is_unsure = self.picked.iter().any(|data| data.is_unsure.get());
        read.map_err(|error| {
            if !(is_unsure && is_loss(&error)) {
                self.judge("a read", &error);
            }
            Stop::Skipped
        })
    }

    /// Reads a tensor. Returns whether its value was there; it is right if it was.
    pub(crate) fn look(&mut self, tensor: &Tensor, model: &Model) -> bool {
        let read = pollster::block_on(model::read(tensor));
        let is_unsure = model.data.is_unsure.get();
        self.check(read, model, &model.values(), is_unsure)
    }

    /// Compares the result of a read.
    pub(crate) fn check(
        &mut self,
        read: Result<Vec<f64>>,
        model: &Model,
        expected: &[f64],
        is_unsure: bool,
    ) -> bool {
        let got = match read {
            Ok(got) => got,
            Err(error) => {
                if !(is_unsure && is_loss(&error)) {
                    self.judge("a read", &error);
                }
                let has_gone = matches!(root(&error), Error::Store(_) | Error::Recompute { .. });
                if self.rules.has_stores && has_gone && root(&error).is_final() {
                    // It never comes back. A recipe is of no use if a store has lost its input.
                    self.lost += u64::from(!is_unsure);
                    let is_other = |held: &Held| !Rc::ptr_eq(&held.model.data, &model.data);
                    self.held.retain(is_other);
                }
                return false;
            }
        };
        assert_eq!(got.len(), expected.len());
        let is_same = |a: f64, b: f64| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
        let pairs = got.iter().zip(expected).enumerate();
        let mut wrong = pairs.filter(|(_, (got, expected))| !is_same(**got, **expected));
        if let Some((index, (got, expected))) = wrong.next() {
            let (dtype, shape, more) = (model.dtype, &model.shape, wrong.count());
            panic!("{dtype}{shape:?}: element {index} is {got}, not {expected}, and {more} more");
        }
        true
    }

    /// One of the reads under way.
    pub(crate) fn take_read(&mut self) -> Option<Reading> {
        let named = (0..).zip(&self.reads).map(|(at, read)| (read.name, at));
        let at = programs::pick(&mut self.rng, named)?;
        Some(self.reads.swap_remove(at))
    }

    /// Awaits one of the reads under way, if there are any.
    pub(crate) fn await_one(&mut self) -> bool {
        let Some(reading) = self.take_read() else {
            return false;
        };
        let (step, number) = reading.name;
        self.say(format_args!(" of t{step}.{number}"));
        let read = pollster::block_on(reading.read);
        let is_unsure = reading.was_unsure || reading.model.data.is_unsure.get();
        self.check(read, &reading.model, &reading.expected, is_unsure);
        true
    }

    /// Checks that the limit was never exceeded.
    pub(crate) fn check_levels(&mut self) {
        if self.in_fault {
            self.half_way = Some(self.next.0);
        }
        let device = self.sim.counters();
        let taken_bytes = device.reserved_bytes + device.retiring_bytes;
        let limit_bytes = self.gpu.memory().budget().device_bytes.unwrap_or(u64::MAX);
        if self.rules.alone && self.shortfall_bytes == 0 {
            let is_little = self.half_way.is_some_and(|step| self.next.0 - step < 9);
            let little_bytes = if is_little { LITTLE_BYTES } else { 0 };
            let is_kept = taken_bytes <= limit_bytes.saturating_add(little_bytes);
            assert!(is_kept, "{}", self.gpu.memory().stats());
        }
        // Draining to a lower limit takes a few additional bytes.
        let most_bytes = self.most_bytes.saturating_add(LITTLE_BYTES);
        assert!(device.peak_bytes <= most_bytes, "{device:?}");
    }

    /// Reads all tensors, and drops those without a value. Returns those whose commands found no
    /// room: they wait, and run with later work.
    pub(crate) fn check_all(&mut self) -> Vec<Rc<Data>> {
        while self.await_one() {}
        let mut waiting = Vec::new();
        for held in std::mem::take(&mut self.held) {
            let data = &held.model.data;
            if self.look(&held.tensor, &held.model) {
                // Reading no elements says nothing about the storage.
                let is_unsure = data.is_unsure.get() && held.model.at.is_empty();
                data.is_unsure.set(is_unsure || self.disk_lies);
                self.held.push(held);
            } else if !data.is_unsure.get() {
                waiting.push(Rc::clone(data));
                self.held.push(held);
            }
        }
        let cached = self.cache.lock().expect("callbacks let go of it").clone();
        for (tensor, expected) in cached {
            match tensor.to_vec::<u32>() {
                Ok(got) => assert!(got == expected, "wrong bytes in {tensor}"),
                Err(error) => self.judge("a cached read", &error),
            }
        }
        waiting
    }

    /// Checks all tensors and drops them.
    pub(crate) fn drop_all(&mut self) {
        self.say(format_args!("       at the end:"));
        self.end_trouble();
        match self.rules.is_short {
            true => while self.await_one() {},
            false => drop(self.check_all()),
        }
        self.cache.lock().expect("callbacks let go of it").clear();
        self.guards.clear();
        // Where memory is short, dropping one makes room to read the others.
        while let Some(held) = self.held.pop() {
            let is_hidden = self.rules.is_short && !self.look(&held.tensor, &held.model);
            if is_hidden && !self.held.is_empty() {
                drop(self.held.swap_remove(0));
                self.held.insert(0, held);
            }
        }
    }

    /// Checks all tensors and that nothing stays alive.
    pub(crate) fn end(mut self) {
        self.drop_all();
        let found = self.gpu.diagnostics().findings().take();
        let is_a_bug = |finding: &&Finding| !matches!(finding, Finding::NonFinite { .. });
        if let Some(bug) = found.iter().find(is_a_bug) {
            panic!("{bug}");
        }
        assert_eq!(self.gpu.finish().map_err(|error| error.to_string()), Ok(()));
        let memory = self.gpu.memory().stats();
        let left = [
            memory.live_storages,
            memory.live_bytes,
            memory.retiring_bytes,
        ];
        assert_eq!(left.map(|level| level.now), [0; 3], "{memory}");
        // A file that could not be truncated is truncated or reused the next time.
        let left = [
            memory.host_bytes.now,
            memory.spilled_bytes.now,
            memory.queued,
        ];
        assert_eq!(left, [0; 3], "{memory}");
        self.check_levels();
        drop(self.gpu);
        let left = self.sim.counters();
        assert_eq!((left.buffers_live, left.submissions_pending), (0, 0));
        assert_eq!((left.pipelines_live, left.bind_groups_live), (0, 0));
        assert_eq!(self.sim.complaints(), [""; 0]);
    }
}

/// The error at the beginning of a chain of causes.
fn root(error: &Error) -> &Error {
    match error {
        Error::Poisoned { cause, .. } => root(cause),
        other => other,
    }
}

/// An error of a tensor that has lost its value. A rematerializer may need another one that became
/// useless.
pub(crate) fn is_loss(error: &Error) -> bool {
    matches!(
        error,
        Error::Poisoned { .. }
            | Error::DeviceLost { .. }
            | Error::SpillCorrupt { .. }
            | Error::Recompute { .. }
    )
}
