//! An invocation: it executes instructions until it has to wait.

use super::arithmetic;
use super::bits;
use super::code::{Address, Atomic, Code, Count, Flow, Instr, Move, NONE, Num, Reg, Space};
use super::code::{IndexBound, MemoryAccess};
use super::geometry::{self, Operands};
use super::memory::Memory;
use super::report::{FindingKind, FoundFault};
use super::shadow::Now;
use super::value::Number;

/// The reason why an invocation has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It has executed all steps of its turn.
    Paused,
    Barrier(naga::Barrier),
    Collective(u32),
    Cooperative(u32),
    Ended,
}

/// The state of an invocation, borrowed from its workgroup.
#[derive(Debug)]
pub(super) struct Lane<'a> {
    pub(super) registers: &'a mut [u32],
    /// Marks the registers of variables that were written.
    pub(super) written: &'a mut [bool],
    /// The rounds of loops, and the return places of calls.
    pub(super) control: &'a mut [u32],
    /// The next instruction.
    pub(super) next: u32,
    /// Its identity and epochs, for accesses to storage buffers.
    pub(super) now: Now,
    /// The passed barriers of workgroup memory.
    pub(super) shared_epoch: u32,
    /// Whether reading private memory before a write is a fault.
    pub(super) poisons_private: bool,
}

impl Lane<'_> {
    /// Executes at most `steps` instructions. Returns the number of steps left.
    pub(super) fn run(&mut self, code: &Code, memory: &mut Memory, mut steps: u32) -> (Stop, u32) {
        while steps > 0 {
            steps -= 1;
            let at = self.next as usize;
            self.next += 1;
            match &code.instrs[at] {
                Instr::Move(step) => self.shift(code, memory, at as u32, step),
                Instr::Unary {
                    num,
                    op,
                    to,
                    a,
                    count,
                } => arithmetic::unary(self.registers, *num, *op, (*to, *a), *count),
                Instr::Binary { num, op, pair } => {
                    arithmetic::binary(self.registers, *num, *op, pair);
                }
                Instr::Ternary {
                    num,
                    op,
                    to,
                    a,
                    b,
                    c,
                    count,
                } => arithmetic::ternary(self.registers, *num, *op, [*to, *a, *b, *c], *count),
                Instr::Cast {
                    from,
                    into,
                    to,
                    a,
                    count,
                } => arithmetic::cast(self.registers, *from, *into, (*to, *a), *count),
                Instr::Geometry {
                    op,
                    is_half,
                    to,
                    a,
                    b,
                    c,
                    shape,
                } => {
                    let (to, a, b, c, shape) = (*to, *a, *b, *c, *shape);
                    let at = Operands { to, a, b, c, shape };
                    geometry::run(self.registers, *op, *is_half, &at);
                }
                Instr::Pack { op, to, a, b } => bits::pack(self.registers, *op, *to, *a, *b),
                Instr::Memory(access) => self.access(code, memory, at as u32, access),
                Instr::Flow(flow) => {
                    if let Some(stop) = self.flow(code, flow) {
                        return (stop, steps);
                    }
                }
            }
            if memory.reports.is_over() {
                return (Stop::Ended, steps);
            }
        }
        (Stop::Paused, 0)
    }

    fn flow(&mut self, code: &Code, flow: &Flow) -> Option<Stop> {
        match *flow {
            Flow::Jump(target) => self.next = target,
            Flow::JumpUnless { condition, target } => {
                if self.registers[condition as usize] == 0 {
                    self.next = target;
                }
            }
            Flow::JumpIf { condition, target } => {
                if self.registers[condition as usize] != 0 {
                    self.next = target;
                }
            }
            Flow::Switch { value, table } => {
                let (value, switch) = (
                    self.registers[value as usize],
                    &code.switches[table as usize],
                );
                let case = switch.cases.iter().find(|case| case.0 == value);
                self.next = case.map_or(switch.default, |case| case.1);
            }
            Flow::Call { target, control } => {
                self.control[control as usize] = self.next;
                self.next = target;
            }
            Flow::Return { control } => {
                self.next = std::mem::take(&mut self.control[control as usize]);
            }
            Flow::Round { control } => self.control[control as usize] += 1,
            Flow::Over { control } => self.control[control as usize] = 0,
            Flow::Barrier(barrier) => return Some(Stop::Barrier(barrier)),
            Flow::Collective(index) => return Some(Stop::Collective(index)),
            Flow::Cooperative(index) => return Some(Stop::Cooperative(index)),
            Flow::End => return Some(Stop::Ended),
        }
        None
    }

    fn shift(&mut self, code: &Code, memory: &mut Memory, instr: u32, step: &Move) {
        match *step {
            Move::Copy { to, from, words } => copy(self.registers, to, from, words),
            Move::Splat {
                to,
                from,
                words,
                count,
            } => {
                for lane in 0..u32::from(count) {
                    copy(
                        self.registers,
                        to + lane * u32::from(words),
                        from,
                        words.into(),
                    );
                }
            }
            Move::Swizzle {
                to,
                from,
                words,
                count,
                pattern,
            } => {
                let words = u32::from(words);
                for (lane, part) in (0..u32::from(count)).zip(pattern) {
                    let from = from + u32::from(part) * words;
                    copy(self.registers, to + lane * words, from, words);
                }
            }
            Move::Select {
                to,
                condition,
                accept,
                reject,
                words,
                each,
            } => {
                for word in 0..words {
                    let condition = if each { condition + word } else { condition };
                    let from = match self.registers[condition as usize] {
                        0 => reject,
                        _ => accept,
                    };
                    self.registers[(to + word) as usize] = self.registers[(from + word) as usize];
                }
            }
            Move::Pick {
                to,
                from,
                index,
                bound,
            } => {
                let bound = &code.bounds[bound as usize];
                let index = self.checked(memory, instr, bound, index);
                copy(
                    self.registers,
                    to,
                    from + index * bound.stride,
                    bound.stride,
                );
            }
            Move::Holds {
                to,
                from,
                count,
                all,
            } => {
                let lanes = &self.registers[from as usize..from as usize + usize::from(count)];
                let holds = match all {
                    true => lanes.iter().all(|lane| *lane != 0),
                    false => lanes.iter().any(|lane| *lane != 0),
                };
                self.registers[to as usize] = holds.into();
            }
        }
    }

    /// The index if it is within its bound. Otherwise clamps it and reports a fault.
    fn checked(&mut self, memory: &mut Memory, instr: u32, bound: &IndexBound, index: Reg) -> u32 {
        let index = self.registers[index as usize];
        let count = match bound.count {
            Count::Fixed(count) => count,
            Count::Runtime {
                buffer,
                first_bytes,
            } => memory.length(buffer, first_bytes, bound.stride),
        };
        if index < count {
            return index;
        }
        let shown = match bound.signed {
            true => i64::from(index as i32),
            false => i64::from(index),
        };
        memory.reports.add(FoundFault {
            kind: FindingKind::Index,
            instr,
            at: 0,
            is_buffer: false,
            who: self.now.who,
            other: None,
            detail: format!("index {shown} is outside of the {count} elements"),
        });
        match bound.signed && (index as i32) < 0 {
            true => 0,
            false => count.saturating_sub(1),
        }
    }

    fn address(&self, address: Address) -> u32 {
        match address.dynamic {
            NONE => address.at,
            dynamic => address.at.wrapping_add(self.registers[dynamic as usize]),
        }
    }

    /// Its identity and epochs for a memory.
    fn now(&self, space: Space, instr: u32) -> Now {
        let epoch = match space {
            Space::Shared => self.shared_epoch,
            _ => self.now.epoch,
        };
        Now {
            instr,
            epoch,
            ..self.now
        }
    }

    fn access(&mut self, code: &Code, memory: &mut Memory, instr: u32, access: &MemoryAccess) {
        match *access {
            MemoryAccess::Index {
                to,
                previous,
                index,
                bound,
            } => {
                let bound = &code.bounds[bound as usize];
                let offset = self
                    .checked(memory, instr, bound, index)
                    .wrapping_mul(bound.stride);
                self.registers[to as usize] = match previous {
                    NONE => offset,
                    previous => self.registers[previous as usize].wrapping_add(offset),
                };
            }
            MemoryAccess::Begin {
                at,
                words,
                is_written,
            } => {
                let variable = at as usize..(at + words) as usize;
                self.written[variable.clone()].fill(is_written);
                if !is_written {
                    self.registers[variable].fill(0);
                }
            }
            MemoryAccess::Length { to, bound } => {
                let bound = &code.bounds[bound as usize];
                if let Count::Runtime {
                    buffer,
                    first_bytes,
                } = bound.count
                {
                    let length = memory.length(buffer, first_bytes, bound.stride);
                    self.registers[to as usize] = length;
                }
            }
            MemoryAccess::Load {
                to,
                space,
                from,
                words,
            } => self.load(memory, self.now(space, instr), (space, from), to, words),
            MemoryAccess::Store {
                from,
                space,
                to,
                words,
            } => self.store(memory, self.now(space, instr), (space, to), from, words),
            MemoryAccess::LoadHalves {
                to,
                buffer,
                from,
                count,
            } => {
                let (from, now) = (self.address(from), self.now(Space::Buffer(buffer), instr));
                for half in 0..count {
                    let value = memory.load_bytes(buffer, from + 2 * half, 2, &now);
                    self.registers[(to + half) as usize] = value & 0xffff;
                }
            }
            MemoryAccess::StoreHalves {
                from,
                buffer,
                to,
                count,
            } => {
                let (to, now) = (self.address(to), self.now(Space::Buffer(buffer), instr));
                for half in 0..count {
                    let value = self.registers[(from + half) as usize];
                    memory.store_bytes(buffer, to + 2 * half, value, 2, &now);
                }
            }
            _ => self.atomic(memory, instr, access),
        }
    }

    fn load(
        &mut self,
        memory: &mut Memory,
        now: Now,
        (space, from): (Space, Address),
        to: Reg,
        words: u32,
    ) {
        let from = self.address(from);
        if space != Space::Private {
            let step = step_of(space);
            for word in 0..words {
                let value = memory.load(space, from + word * step, &now);
                self.registers[(to + word) as usize] = value;
            }
            return;
        }
        let variable = from as usize..(from + words) as usize;
        if self.poisons_private {
            if let Some(word) = self.written[variable].iter().position(|written| !written) {
                memory.reports.unwritten(false, word as u32, &now);
            }
        }
        copy(self.registers, to, from, words);
    }

    fn store(
        &mut self,
        memory: &mut Memory,
        now: Now,
        (space, to): (Space, Address),
        from: Reg,
        words: u32,
    ) {
        let to = self.address(to);
        if space != Space::Private {
            let step = step_of(space);
            for word in 0..words {
                let value = self.registers[(from + word) as usize];
                memory.store(space, to + word * step, value, &now);
            }
            return;
        }
        self.written[to as usize..(to + words) as usize].fill(true);
        copy(self.registers, to, from, words);
    }

    fn atomic(&mut self, memory: &mut Memory, instr: u32, access: &MemoryAccess) {
        match *access {
            MemoryAccess::AtomicLoad {
                to,
                space,
                from,
                words,
            } => {
                let (from, now) = (self.address(from), self.now(space, instr));
                for word in 0..u32::from(words) {
                    let at = from + word * step_of(space);
                    let value = memory.exchange(space, at, &now, |old| old);
                    self.registers[(to + word) as usize] = value;
                }
            }
            MemoryAccess::AtomicStore {
                from,
                space,
                to,
                words,
            } => {
                let (to, now) = (self.address(to), self.now(space, instr));
                for word in 0..u32::from(words) {
                    let value = self.registers[(from + word) as usize];
                    memory.replace(space, to + word * step_of(space), value, &now);
                }
            }
            MemoryAccess::Atomic {
                num,
                op,
                old,
                value,
                space,
                place,
            } => {
                let (at, now) = (self.address(place), self.now(space, instr));
                let operand = operand(self.registers, num, value);
                let width = num.words();
                let before = read_wide(memory, space, at, width, &now);
                let after = changed(num, op, before, operand);
                write_wide(memory, space, at, width, after, &now);
                self.put_wide(old, width, before);
            }
            MemoryAccess::CompareExchange {
                old,
                value,
                compare,
                words,
                space,
                place,
            } => {
                let (at, now, width) = (self.address(place), self.now(space, instr), words.into());
                let num = if words == 2 { Num::U64 } else { Num::U32 };
                let before = read_wide(memory, space, at, width, &now);
                let is_equal = before == operand(self.registers, num, compare);
                if is_equal {
                    let value = operand(self.registers, num, value);
                    write_wide(memory, space, at, width, value, &now);
                }
                self.put_wide(old, width, before);
                if old != NONE {
                    self.registers[(old + width) as usize] = is_equal.into();
                }
            }
            // `access` handles the others.
            _ => {}
        }
    }

    fn put_wide(&mut self, to: Reg, words: u32, value: u64) {
        match (to, words) {
            (NONE, _) => {}
            (to, 2) => value.put(self.registers, to as usize),
            (to, _) => self.registers[to as usize] = value as u32,
        }
    }
}

fn step_of(space: Space) -> u32 {
    match space {
        Space::Buffer(_) => 4,
        _ => 1,
    }
}

fn operand(registers: &[u32], num: Num, at: Reg) -> u64 {
    match num.words() {
        2 => u64::get(registers, at as usize),
        _ => registers[at as usize].into(),
    }
}

fn read_wide(memory: &mut Memory, space: Space, at: u32, words: u32, now: &Now) -> u64 {
    let low = memory.exchange(space, at, now, |old| old);
    let high = match words {
        2 => memory.exchange(space, at + step_of(space), now, |old| old),
        _ => 0,
    };
    u64::from(low) | u64::from(high) << 32
}

fn write_wide(memory: &mut Memory, space: Space, at: u32, words: u32, value: u64, now: &Now) {
    memory.replace(space, at, value as u32, now);
    if words == 2 {
        memory.replace(space, at + step_of(space), (value >> 32) as u32, now);
    }
}

/// The value after an atomic operation.
fn changed(num: Num, op: Atomic, a: u64, b: u64) -> u64 {
    let signed = |is_less: bool| if is_less { a } else { b };
    match (op, num) {
        (Atomic::Add, Num::F32) => {
            let sum = f32::from_bits(a as u32) + f32::from_bits(b as u32);
            sum.to_bits().into()
        }
        (Atomic::Add, _) => a.wrapping_add(b),
        (Atomic::Subtract, Num::F32) => {
            let difference = f32::from_bits(a as u32) - f32::from_bits(b as u32);
            difference.to_bits().into()
        }
        (Atomic::Subtract, _) => a.wrapping_sub(b),
        (Atomic::And, _) => a & b,
        (Atomic::Or, _) => a | b,
        (Atomic::Xor, _) => a ^ b,
        (Atomic::Min, Num::I32) => signed((a as i32) < b as i32),
        (Atomic::Max, Num::I32) => signed(a as i32 > b as i32),
        (Atomic::Min, Num::I64) => signed((a as i64) < b as i64),
        (Atomic::Max, Num::I64) => signed(a as i64 > b as i64),
        (Atomic::Min, _) => a.min(b),
        (Atomic::Max, _) => a.max(b),
        (Atomic::Exchange, _) => b,
    }
}

fn copy(registers: &mut [u32], to: Reg, from: Reg, words: u32) {
    if words == 1 {
        registers[to as usize] = registers[from as usize];
        return;
    }
    registers.copy_within(from as usize..(from + words) as usize, to as usize);
}
