//! Runs the events of a trace, by the whole engine or only by its choice of victims.

use std::time::{Duration, Instant};

use lapidary_core::sim::{SimMode, SimOptions};
use lapidary_core::{Budget, Buffer, Error, Gpu, Options, stats::MemoryStats};

use super::outcome::{LAST_THIRD, Outcome, Point, stretches};
use super::spilling::{Order, spill};
use super::trace::{Event, Operand, Role, Trace};

const UNIT_BYTES: u64 = 256;

/// Added to the budget, because the comparison is about slabs.
const STAGING_BYTES: u64 = 64 << 20;

/// Number of operators that an app has typically appended when the engine runs them.
const BATCH: usize = 256;

/// The device, and what the engine may do.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its largest buffer.
    pub limit_bytes: u64,
    /// The limit of slab bytes.
    pub budget_bytes: Option<u64>,
    pub never_move: bool,
}

struct Replay<'a> {
    trace: &'a Trace,
    gpu: Gpu,
    sizes: Vec<u64>,
    held: Vec<Option<Buffer>>,
    refused: u64,
}

/// Runs a trace on a simulated device. Requests that find no memory are counted and skipped.
/// `progress` gets the number of finished events.
pub fn replay(
    trace: &Trace,
    setting: Setting,
    progress: &mut dyn FnMut(usize),
) -> Result<Outcome, Error> {
    let mut replay = Replay {
        trace,
        gpu: open(setting)?,
        sizes: vec![0; trace.storages],
        held: (0..trace.storages).map(|_| None).collect(),
        refused: 0,
    };
    let mut outcome = Outcome::default();
    let mut elapsed = Duration::ZERO;
    let mut before = replay.gpu.memory().stats();
    for (number, (first, end)) in stretches(trace.events.len()).enumerate() {
        if number == LAST_THIRD {
            before = replay.gpu.memory().stats();
        }
        let start = Instant::now();
        let mut events = trace.events[first..end].iter();
        events.try_for_each(|event| replay.event(event))?;
        elapsed += start.elapsed();
        outcome.curve.push(replay.point());
        progress(end);
    }
    outcome.ns_per_event = elapsed.as_nanos() as f64 / trace.events.len().max(1) as f64;
    replay.tell(&before, &mut outcome);
    Ok(outcome)
}

fn open(setting: Setting) -> Result<Gpu, Error> {
    let device = SimOptions {
        mode: SimMode::SizesOnly,
        memory_bytes: u64::MAX,
        max_buffer_bytes: setting.limit_bytes,
        offset_alignment_bytes: UNIT_BYTES,
        lag_submissions: 2,
        ..SimOptions::default()
    };
    let options = Options {
        never_move: setting.never_move,
        ..Options::default()
    };
    let (gpu, _sim) = Gpu::simulated_with(device, options)?;
    if let Some(budget_bytes) = setting.budget_bytes {
        gpu.memory().set_budget(Budget {
            staging_bytes: Some(STAGING_BYTES),
            disk_bytes: Some(0),
            ..Budget::device(budget_bytes.saturating_add(STAGING_BYTES))
        })?;
    }
    Ok(gpu)
}

/// Runs only the choice of victims, on a device of `budget_bytes` without fragmentation.
pub fn choice(trace: &Trace, budget_bytes: u64) -> Outcome {
    let start = Instant::now();
    let spilled = spill(trace, budget_bytes, Order::Choice { batch: BATCH });
    let ns_per_event = start.elapsed().as_nanos() as f64 / trace.events.len().max(1) as f64;
    Outcome {
        peak_live_bytes: trace.peak_live_bytes,
        peak_reserved_bytes: spilled.peak_bytes,
        refused: spilled.refused,
        ns_per_event,
        out_bytes: spilled.out_bytes,
        in_bytes: spilled.in_bytes,
        ..Outcome::default()
    }
}

impl Replay<'_> {
    fn event(&mut self, event: &Event) -> Result<(), Error> {
        match *event {
            Event::Alloc { id, bytes } => {
                self.sizes[id] = bytes;
                if self.trace.has_operators() {
                    return Ok(());
                }
                let placed = self.place(id);
                self.count_refusal(placed)
            }
            Event::Free { id } => {
                self.held[id] = None;
                Ok(())
            }
            Event::Run { first, count } => {
                let operands = &self.trace.operands[first..first + count];
                let ran = self.operator(operands);
                self.count_refusal(ran)
            }
        }
    }

    /// Creates a buffer and places it before the next event.
    fn place(&mut self, id: usize) -> Result<(), Error> {
        let buffer = self.gpu.buffer_zeroed(self.sizes[id])?;
        buffer.force()?;
        self.held[id] = Some(buffer);
        Ok(())
    }

    /// Runs an operator before the next event. The outputs of a refused operator are missing from
    /// then on.
    fn operator(&mut self, operands: &[Operand]) -> Result<(), Error> {
        let of_role = |role| {
            let operands = operands.iter().filter(move |operand| operand.role == role);
            operands.map(|operand| operand.id)
        };
        let present = |id: usize| self.held[id].as_ref();
        let reads: Vec<&Buffer> = of_role(Role::Read).filter_map(present).collect();
        let updates: Vec<&Buffer> = of_role(Role::Update).filter_map(present).collect();
        let makes: Vec<u64> = of_role(Role::Make).map(|id| self.sizes[id]).collect();
        let made = self.gpu.dummy_operator(&reads, &updates, &makes)?;
        match made.iter().chain(updates).next() {
            Some(written) => written.force()?,
            None => self.gpu.flush()?,
        }
        for (id, buffer) in of_role(Role::Make).zip(made) {
            self.held[id] = Some(buffer);
        }
        Ok(())
    }

    fn count_refusal(&mut self, result: Result<(), Error>) -> Result<(), Error> {
        match result {
            Err(Error::NeverFits { .. } | Error::OutOfMemory(_)) => {
                self.refused += 1;
                Ok(())
            }
            other => other,
        }
    }

    /// The highest levels since the last point.
    fn point(&self) -> Point {
        let stats = self.gpu.memory().stats();
        self.gpu.memory().reset_peaks();
        Point {
            live_bytes: stats.requested_bytes.peak,
            reserved_bytes: stats.reserved_bytes.peak,
        }
    }

    fn tell(&self, before: &MemoryStats, outcome: &mut Outcome) {
        let stats = self.gpu.memory().stats();
        let most = |bytes: fn(&Point) -> u64| outcome.curve.iter().map(bytes).max().unwrap_or(0);
        // If requests were refused, the peak counts only what was live.
        outcome.peak_live_bytes = match self.refused {
            0 => self.trace.peak_live_bytes,
            _ => most(|point| point.live_bytes),
        };
        outcome.peak_reserved_bytes = most(|point| point.reserved_bytes);
        outcome.buffers_created = stats.slabs_created;
        outcome.buffers_created_last_third = stats.slabs_created - before.slabs_created;
        outcome.refused = self.refused;
        outcome.allocated_bytes = stats.live_bytes.up;
        outcome.moved_bytes = stats.moved_bytes;
        outcome.compactions_last_third = stats.compactions - before.compactions;
        outcome.out_bytes = stats.evicted_bytes;
        outcome.in_bytes = stats.restored_bytes;
    }
}
