//! The invocations of one workgroup: their order, their barriers, and invocations that never
//! arrive.
//!
//! In each turn one invocation runs until it has to wait or, at random, for a few steps only. A
//! subgroup continues when all its lanes wait at one operation. The workgroup continues when all
//! invocations wait at one barrier. *One* means the same instruction, in the same rounds of all
//! loops and calls.

use std::ops::Range;

use naga::{Barrier, BuiltIn};

use super::code::{Code, Instr, Space};
use super::collective::{self, Lanes};
use super::cooperative;
use super::lane::{Lane, Stop};
use super::memory::Memory;
use super::report::{FindingKind, FoundFault, invocation, split};
use super::shadow::Now;
use crate::dispatch::Dispatch;
use crate::random::Random;

/// The most instructions of one invocation.
const MOST_STEPS: u32 = 1 << 24;

/// The steps of a long turn.
const TURN: u32 = 1 << 12;

/// After this many steps, one invocation gets as many steps as all others together. So an endless
/// invocation is found soon, even if many invocations are endless.
const LONG: u32 = 1 << 16;

/// The invocations of a workgroup.
pub(super) struct Group<'c> {
    code: &'c Code,
    dispatch: &'c Dispatch<'c>,
    size: u32,
    registers: Vec<u32>,
    written: Vec<bool>,
    control: Vec<u32>,
    next: Vec<u32>,
    stops: Vec<Stop>,
    steps_left: Vec<u32>,
    /// The steps that all workgroups may still do.
    all_left: u64,
    /// The passed barriers of workgroup memory and of storage.
    epochs: [u32; 2],
    /// The passed barriers of each subgroup.
    subgroup_epochs: Vec<u32>,
    /// The index of the workgroup.
    index: u32,
    random: Random,
    order: Vec<u32>,
}

impl<'c> Group<'c> {
    pub(super) fn new(dispatch: &'c Dispatch<'c>, most_steps: u64) -> Self {
        let code = &*dispatch.kernel.code;
        let size: u32 = code.workgroup_size.iter().product();
        let count = size as usize;
        Group {
            code,
            dispatch,
            size,
            registers: vec![0; count * stride(code)],
            written: vec![false; count * stride(code)],
            control: vec![0; count * code.control as usize],
            next: vec![code.entry; count],
            stops: vec![Stop::Paused; count],
            steps_left: vec![MOST_STEPS; count],
            all_left: most_steps,
            epochs: [0; 2],
            subgroup_epochs: vec![0; size.div_ceil(dispatch.lanes) as usize],
            index: 0,
            random: Random(dispatch.seed),
            order: (0..size).collect(),
        }
    }

    /// Runs the workgroup of this index to its end. `false` if the steps do not suffice.
    pub(super) fn execute(&mut self, index: u32, memory: &mut Memory) -> bool {
        self.begin(index);
        memory.begin_group();
        loop {
            self.run_all(memory);
            if self.all_left == 0 {
                return false;
            }
            if memory.reports.is_over() {
                // Some invocations stopped between two operations, so no barrier can be complete.
                break;
            }
            if self.meet_in_subgroups(memory) {
                continue;
            }
            if self.stops.iter().all(|stop| *stop == Stop::Ended) || !self.meet(memory) {
                break;
            }
        }
        true
    }

    fn begin(&mut self, index: u32) {
        self.index = index;
        self.next.fill(self.code.entry);
        self.stops.fill(Stop::Paused);
        self.steps_left.fill(MOST_STEPS);
        self.control.fill(0);
        self.epochs = [0; 2];
        self.subgroup_epochs.fill(0);
        for lane in 0..self.size {
            let registers = self.registers_of(lane..lane + 1);
            for &(register, word) in &self.code.constants {
                self.registers[registers.start + register as usize] = word;
            }
            for &(builtin, register) in &self.code.builtins {
                let at = registers.start + register as usize;
                let words = self.builtin(builtin, lane);
                self.registers[at..at + words.len()].copy_from_slice(&words);
            }
        }
    }

    /// The value of a builtin for an invocation.
    fn builtin(&self, builtin: BuiltIn, lane: u32) -> Vec<u32> {
        let [x, y, z] = self.code.workgroup_size;
        let group = split(
            self.index,
            [self.dispatch.workgroups[0], self.dispatch.workgroups[1]],
        );
        let local = split(lane, [x, y]);
        let lanes = self.dispatch.lanes;
        match builtin {
            BuiltIn::GlobalInvocationId => (0..3)
                .map(|axis| group[axis] * [x, y, z][axis] + local[axis])
                .collect(),
            BuiltIn::LocalInvocationId => local.to_vec(),
            BuiltIn::LocalInvocationIndex => vec![lane],
            BuiltIn::WorkGroupId => group.to_vec(),
            BuiltIn::NumWorkGroups => self.dispatch.workgroups.to_vec(),
            BuiltIn::WorkGroupSize => vec![x, y, z],
            BuiltIn::NumSubgroups => vec![self.size.div_ceil(lanes)],
            BuiltIn::SubgroupId => vec![lane / lanes],
            BuiltIn::SubgroupSize => vec![lanes],
            BuiltIn::SubgroupInvocationId => vec![lane % lanes],
            // naga allows a compute kernel no other builtins.
            _ => Vec::new(),
        }
    }

    fn registers_of(&self, lanes: Range<u32>) -> Range<usize> {
        let stride = stride(self.code);
        lanes.start as usize * stride..lanes.end as usize * stride
    }

    /// The lanes of a subgroup.
    fn lanes_of(&self, subgroup: u32) -> Range<u32> {
        let first = subgroup * self.dispatch.lanes;
        first..(first + self.dispatch.lanes).min(self.size)
    }

    /// Runs every invocation that can run, in random order.
    fn run_all(&mut self, memory: &mut Memory) {
        loop {
            self.shuffle();
            let ahead = self.ahead();
            let mut is_done = true;
            for turn in 0..self.order.len() {
                let lane = self.order[turn];
                let may_run = self.all_left > 0 && !memory.reports.is_over();
                if self.stops[lane as usize] == Stop::Paused && may_run {
                    let stop = self.take_turn(lane, ahead == Some(lane), memory);
                    is_done &= stop != Stop::Paused;
                }
            }
            if is_done || self.all_left == 0 || memory.reports.is_over() {
                return;
            }
        }
    }

    fn shuffle(&mut self) {
        for at in (1..self.order.len()).rev() {
            let other = self.random.below(at as u64 + 1) as usize;
            self.order.swap(at, other);
        }
    }

    /// The invocation that gets more steps than the others, once some have run for long.
    fn ahead(&self) -> Option<u32> {
        let is_long = |left: &u32| MOST_STEPS - left >= LONG;
        let runs = |lane: &u32| self.stops[*lane as usize] == Stop::Paused;
        let mut lanes = (0..self.size).filter(runs);
        lanes.find(|lane| is_long(&self.steps_left[*lane as usize]))
    }

    fn take_turn(&mut self, index: u32, is_ahead: bool, memory: &mut Memory) -> Stop {
        let lane = index as usize;
        // One turn in four is short on average, so that invocations interleave.
        let turn = match self.random.below(4) {
            _ if is_ahead => TURN.saturating_mul(self.size),
            0 => 1 + self.random.below(64) as u32,
            _ => TURN,
        };
        let turn = turn.min(self.steps_left[lane]);
        let registers = self.registers_of(index..index + 1);
        let control = self.code.control as usize;
        let mut running = Lane {
            now: self.now(index),
            written: &mut self.written[registers.clone()],
            registers: &mut self.registers[registers],
            control: &mut self.control[lane * control..(lane + 1) * control],
            next: self.next[lane],
            shared_epoch: self.epochs[0],
            poisons_private: !self.dispatch.zeroes_private,
        };
        let (stop, left) = running.run(self.code, memory, turn);
        self.next[lane] = running.next;
        self.stops[lane] = stop;
        self.steps_left[lane] -= turn - left;
        self.all_left = self.all_left.saturating_sub(u64::from(turn - left));
        if stop == Stop::Paused && self.steps_left[lane] == 0 {
            let instr = self.next[lane];
            let detail = format!("it has done {MOST_STEPS} steps");
            memory
                .reports
                .add(self.fault(FindingKind::Endless, instr, index, detail));
            self.stops[lane] = Stop::Ended;
        }
        self.stops[lane]
    }

    /// The identity and the epochs of an invocation for accesses to storage.
    fn now(&self, lane: u32) -> Now {
        Now {
            who: self.index * self.size + lane + 1,
            instr: 0,
            epoch: self.epochs[1],
            subgroup_epoch: self.subgroup_epochs[(lane / self.dispatch.lanes) as usize],
            group_size: self.size,
            lanes: self.dispatch.lanes,
        }
    }

    /// Continues the subgroups whose lanes all wait at one operation. Returns whether there was
    /// one.
    fn meet_in_subgroups(&mut self, memory: &mut Memory) -> bool {
        let mut some = false;
        for subgroup in 0..self.subgroup_epochs.len() as u32 {
            let lanes = self.lanes_of(subgroup);
            let first = lanes.start as usize;
            if !is_of_subgroup(self.stops[first]) || self.stranger(lanes.clone()).is_some() {
                continue;
            }
            self.together(subgroup, memory);
            let lanes = lanes.start as usize..lanes.end as usize;
            self.stops[lanes].fill(Stop::Paused);
            some = true;
        }
        some
    }

    /// The first lane that is not at the same place as lane 0 of the range.
    fn stranger(&self, mut lanes: Range<u32>) -> Option<u32> {
        let first = lanes.start as usize;
        let control = self.code.control as usize;
        let rounds = |lane: usize| &self.control[lane * control..(lane + 1) * control];
        lanes.find(|&lane| {
            let lane = lane as usize;
            self.stops[lane] != self.stops[first]
                || self.next[lane] != self.next[first]
                || rounds(lane) != rounds(first)
        })
    }

    fn together(&mut self, subgroup: u32, memory: &mut Memory) {
        let lanes = self.lanes_of(subgroup);
        let first = lanes.start;
        // All lanes have stopped right after this instruction.
        let instr = self.next[first as usize] - 1;
        let now = self.now(first);
        let registers = self.registers_of(lanes);
        let stop = self.stops[first as usize];
        let mut together = Lanes {
            registers: &mut self.registers[registers],
            stride: stride(self.code),
        };
        match stop {
            Stop::Collective(index) => {
                collective::run(&self.code.collectives[index as usize], &mut together);
            }
            Stop::Cooperative(index) => {
                let operation = &self.code.cooperatives[index as usize];
                if !cooperative::is_uniform(operation, &together) {
                    let detail = "other lanes name another place in memory".to_string();
                    memory
                        .reports
                        .add(self.fault(FindingKind::Subgroup, instr, first, detail));
                    return;
                }
                let [shared, storage] = self.epochs;
                let now = |space, lane| Now {
                    who: now.who + lane,
                    instr,
                    epoch: if space == Space::Shared {
                        shared
                    } else {
                        storage
                    },
                    ..now
                };
                let turn = self.random.below(u64::from(self.dispatch.lanes)) as u32;
                cooperative::run(operation, &mut together, memory, now, turn);
            }
            _ => self.subgroup_epochs[subgroup as usize] += 1,
        }
    }

    /// Continues the workgroup if all invocations wait at one barrier. Otherwise reports the fault
    /// and returns `false`.
    fn meet(&mut self, memory: &mut Memory) -> bool {
        let waits = |stop: &Stop| is_of_subgroup(*stop);
        if let Some(lane) = self.stops.iter().position(waits) {
            return self.is_left_alone(lane as u32, memory);
        }
        if let Some(stranger) = self.stranger(0..self.size) {
            let is_waiting = |lane: &u32| self.stops[*lane as usize] != Stop::Ended;
            let (lane, other) = match is_waiting(&0) {
                true => (0, stranger),
                false => (stranger, 0),
            };
            let detail = self.detail(other);
            let instr = self.next[lane as usize] - 1;
            memory
                .reports
                .add(self.fault(FindingKind::Barrier, instr, lane, detail));
            return false;
        }
        let Stop::Barrier(barrier) = self.stops[0] else {
            return false;
        };
        self.epochs[0] += u32::from(barrier.contains(Barrier::WORK_GROUP));
        self.epochs[1] += u32::from(barrier.contains(Barrier::STORAGE));
        self.stops.fill(Stop::Paused);
        true
    }

    /// Reports a lane that waits for its subgroup, of which another lane never arrives.
    fn is_left_alone(&self, lane: u32, memory: &mut Memory) -> bool {
        let lanes = self.lanes_of(lane / self.dispatch.lanes);
        let place = |lane: u32| (self.stops[lane as usize], self.next[lane as usize]);
        let other = lanes.clone().find(|other| place(*other) != place(lane));
        let other = other.unwrap_or(if lanes.start == lane {
            lane + 1
        } else {
            lanes.start
        });
        let instr = self.next[lane as usize] - 1;
        let fault = self.fault(FindingKind::Subgroup, instr, lane, self.detail(other));
        memory.reports.add(fault);
        false
    }

    /// The place of an invocation that does not arrive.
    fn detail(&self, lane: u32) -> String {
        let who = invocation(self.code, self.dispatch.workgroups, self.now(lane).who);
        let at = self.next[lane as usize].saturating_sub(1);
        match (self.stops[lane as usize], &self.code.instrs[at as usize]) {
            (Stop::Ended, _) => format!("{who} has ended"),
            (_, Instr::Flow(_)) => {
                let line = super::report::line_of(self.code, &self.dispatch.kernel.text, at);
                format!("{who} waits in line {line}, or in another round of a loop")
            }
            _ => format!("{who} does not"),
        }
    }

    fn fault(&self, kind: FindingKind, instr: u32, lane: u32, detail: String) -> FoundFault {
        FoundFault {
            kind,
            instr,
            at: 0,
            is_buffer: false,
            who: self.now(lane).who,
            other: None,
            detail,
        }
    }
}

/// The registers of an invocation; never 0, so that lanes can be told apart.
fn stride(code: &Code) -> usize {
    code.registers.max(1) as usize
}

fn is_of_subgroup(stop: Stop) -> bool {
    match stop {
        Stop::Collective(_) | Stop::Cooperative(_) => true,
        Stop::Barrier(barrier) => barrier == Barrier::SUB_GROUP,
        Stop::Paused | Stop::Ended => false,
    }
}
