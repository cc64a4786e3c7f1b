//! Runs the events of a trace, by the engine or by the choice of victims alone.

use std::time::Instant;

use lapidary::sim::{SimMode, SimOptions};
use lapidary::{Budget, DType, Error, Gpu, MemoryStats, Options, Tensor};

use crate::spilling::{Order, spill};
use crate::trace::{Event, Operand, Role, Trace};

const UNIT_BYTES: u64 = 256;

/// Staging is no part of what is compared, so it comes on top of the budget for slabs.
const STAGING_BYTES: u64 = 64 << 20;

/// Operators that an app has appended, as a rule, when the engine comes to run them.
const BATCH: usize = 256;

/// What became of one trace.
pub(crate) struct Outcome {
    pub(crate) peak_live_bytes: u64,
    pub(crate) peak_reserved_bytes: u64,
    pub(crate) buffers_created: u64,
    pub(crate) buffers_created_last_third: u64,
    /// What found no room: requests, or operators where the trace tells of them.
    pub(crate) refused: u64,
    pub(crate) ns_per_event: f64,
    pub(crate) moved_bytes: u64,
    pub(crate) compactions_last_third: u64,
    pub(crate) out_bytes: u64,
    pub(crate) in_bytes: u64,
    /// Bytes in both directions for one who knows the future, where the trace tells what is read.
    pub(crate) reference_bytes: Option<u64>,
}

impl Outcome {
    /// Peak reserved over peak live.
    pub(crate) fn ratio(&self) -> f64 {
        self.peak_reserved_bytes as f64 / self.peak_live_bytes.max(1) as f64
    }
}

struct Replay<'a> {
    trace: &'a Trace,
    gpu: Gpu,
    sizes: Vec<usize>,
    held: Vec<Option<Tensor>>,
    refused: u64,
}

/// Runs a trace on a simulated device whose slabs may take so many bytes. What finds no room is
/// counted and skipped.
pub(crate) fn replay(
    trace: &Trace,
    limit_bytes: u64,
    budget_bytes: Option<u64>,
    never_move: bool,
) -> Result<Outcome, Error> {
    let device = SimOptions {
        mode: SimMode::SizesOnly,
        memory_bytes: u64::MAX,
        max_buffer_bytes: limit_bytes,
        offset_alignment_bytes: UNIT_BYTES,
        lag_submissions: 2,
        ..SimOptions::default()
    };
    let options = Options {
        never_move,
        ..Options::default()
    };
    let (gpu, _sim) = Gpu::simulated_with(device, options)?;
    if let Some(budget_bytes) = budget_bytes {
        gpu.set_budget(Budget {
            staging_bytes: Some(STAGING_BYTES),
            disk_bytes: Some(0),
            ..Budget::device(budget_bytes.saturating_add(STAGING_BYTES))
        })?;
    }
    let mut replay = Replay {
        trace,
        gpu,
        sizes: vec![0; trace.storages],
        held: (0..trace.storages).map(|_| None).collect(),
        refused: 0,
    };
    let last_third_from = trace.events.len() * 2 / 3;
    let (early, late) = trace.events.split_at(last_third_from);
    let start = Instant::now();
    early.iter().try_for_each(|event| replay.event(event))?;
    let before = replay.gpu.memory();
    late.iter().try_for_each(|event| replay.event(event))?;
    let ns_per_event = start.elapsed().as_nanos() as f64 / trace.events.len().max(1) as f64;
    Ok(replay.outcome(&before, ns_per_event))
}

/// The choice of victims alone, on a device of so many bytes where every hole fits.
pub(crate) fn choice(trace: &Trace, budget_bytes: u64) -> Outcome {
    let start = Instant::now();
    let spilled = spill(trace, budget_bytes, Order::Choice { batch: BATCH });
    let ns_per_event = start.elapsed().as_nanos() as f64 / trace.events.len().max(1) as f64;
    Outcome {
        peak_live_bytes: trace.peak_live_bytes,
        peak_reserved_bytes: spilled.peak_bytes,
        buffers_created: 0,
        buffers_created_last_third: 0,
        refused: spilled.refused,
        ns_per_event,
        moved_bytes: 0,
        compactions_last_third: 0,
        out_bytes: spilled.out_bytes,
        in_bytes: spilled.in_bytes,
        reference_bytes: None,
    }
}

impl Replay<'_> {
    fn event(&mut self, event: &Event) -> Result<(), Error> {
        match *event {
            Event::Alloc { id, bytes } => {
                self.sizes[id] = usize::try_from(bytes).unwrap_or(usize::MAX);
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

    /// A tensor that is placed before the next event.
    fn place(&mut self, id: usize) -> Result<(), Error> {
        let tensor = self.gpu.zeros(&[self.sizes[id]], DType::U8)?;
        tensor.force()?;
        self.held[id] = Some(tensor);
        Ok(())
    }

    /// An operator that has run before the next event. What an operator that was refused should
    /// have made is missing from now on.
    fn operator(&mut self, operands: &[Operand]) -> Result<(), Error> {
        let of_role = |role| {
            let operands = operands.iter().filter(move |operand| operand.role == role);
            operands.map(|operand| operand.id)
        };
        let present = |id: usize| self.held[id].as_ref();
        let reads: Vec<&Tensor> = of_role(Role::Read).filter_map(present).collect();
        let updates: Vec<&Tensor> = of_role(Role::Update).filter_map(present).collect();
        let makes: Vec<usize> = of_role(Role::Make).map(|id| self.sizes[id]).collect();
        let made = self.gpu.stand_in(&reads, &updates, &makes)?;
        match made.iter().chain(updates).next() {
            Some(written) => written.force()?,
            None => self.gpu.flush()?,
        }
        for (id, tensor) in of_role(Role::Make).zip(made) {
            self.held[id] = Some(tensor);
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

    fn outcome(&self, before: &MemoryStats, ns_per_event: f64) -> Outcome {
        let stats = self.gpu.memory();
        Outcome {
            // Of refused requests only the live part is missing from the peak.
            peak_live_bytes: match self.refused {
                0 => self.trace.peak_live_bytes,
                _ => stats.requested_bytes.peak,
            },
            peak_reserved_bytes: stats.reserved_bytes.peak,
            buffers_created: stats.slabs_created,
            buffers_created_last_third: stats.slabs_created - before.slabs_created,
            refused: self.refused,
            ns_per_event,
            moved_bytes: stats.moved_bytes,
            compactions_last_third: stats.compactions - before.compactions,
            out_bytes: stats.put_out_bytes,
            in_bytes: stats.brought_in_bytes,
            reference_bytes: None,
        }
    }
}
