//! Cooperative matrices, which belong to a whole subgroup.
//!
//! Every lane has the whole matrix in its registers, row by row: WGSL does not define how a device
//! distributes the elements over the lanes. It also does not define which lane accesses which
//! element of memory. So this module decides that at random, and finds a lane that relies on its
//! own element.

use super::code::{NONE, Reg, Space};
use super::collective::Lanes;
use super::memory::Memory;
use super::shadow::Now;
use super::together::{Cooperative, Operand};
use super::value::Half;
use super::value::Number;

impl Operand {
    /// The address and the stride of the matrix, as a lane has them.
    fn seen_by(&self, lanes: &Lanes, lane: usize) -> (u32, u32) {
        let dynamic = match self.place.dynamic {
            NONE => 0,
            dynamic => lanes.get(lane, dynamic),
        };
        let at = self.place.at.wrapping_add(dynamic);
        (at, lanes.get(lane, self.stride))
    }

    /// The address of an element: a word, or a byte of a buffer.
    fn element(&self, (at, stride): (u32, u32), row: u32, column: u32) -> u32 {
        let (line, in_line) = match self.row_major {
            true => (row, column),
            false => (column, row),
        };
        let number = line
            .wrapping_mul(stride)
            .wrapping_mul(self.unit)
            .wrapping_add(in_line);
        let bytes = match (self.space, self.is_half) {
            (Space::Buffer(_), true) => 2,
            (Space::Buffer(_), false) => 4,
            _ => 1,
        };
        at.wrapping_add(number.wrapping_mul(bytes))
    }
}

/// Whether all lanes have the same address and stride.
pub(super) fn is_uniform(operation: &Cooperative, lanes: &Lanes) -> bool {
    let (Cooperative::Load { operand, .. } | Cooperative::Store { operand, .. }) = operation else {
        return true;
    };
    let first = operand.seen_by(lanes, 0);
    (1..lanes.count()).all(|lane| operand.seen_by(lanes, lane) == first)
}

/// Runs the operation for all lanes. `now` is the first lane's; `turn` decides which lane accesses
/// which element.
pub(super) fn run(
    operation: &Cooperative,
    lanes: &mut Lanes,
    memory: &mut Memory,
    now: impl Fn(Space, u32) -> Now,
    turn: u32,
) {
    match *operation {
        Cooperative::Load {
            matrix,
            rows,
            columns,
            operand,
        } => {
            let place = operand.seen_by(lanes, 0);
            let mut words = Vec::with_capacity((rows * columns) as usize);
            for index in 0..rows * columns {
                let at = operand.element(place, index / columns, index % columns);
                let now = now(operand.space, taker(index, turn, lanes));
                words.push(match (operand.space, operand.is_half) {
                    (Space::Buffer(buffer), true) => memory.load_bytes(buffer, at, 2, &now),
                    _ => memory.load(operand.space, at, &now),
                });
            }
            give(lanes, matrix, &words);
        }
        Cooperative::Store {
            matrix,
            rows,
            columns,
            operand,
        } => {
            let place = operand.seen_by(lanes, 0);
            for index in 0..rows * columns {
                let at = operand.element(place, index / columns, index % columns);
                let lane = taker(index, turn, lanes);
                let word = lanes.get(lane as usize, matrix + index);
                let now = now(operand.space, lane);
                match (operand.space, operand.is_half) {
                    (Space::Buffer(buffer), true) => {
                        memory.store_bytes(buffer, at, word, 2, &now);
                    }
                    _ => memory.store(operand.space, at, word, &now),
                }
            }
        }
        Cooperative::MultiplyAdd {
            to,
            factors,
            sum,
            shape,
            is_half,
        } => {
            let words = product(lanes, factors, sum, shape, is_half);
            give(lanes, to, &words);
        }
    }
}

fn taker(index: u32, turn: u32, lanes: &Lanes) -> u32 {
    index.wrapping_add(turn) % lanes.count() as u32
}

fn give(lanes: &mut Lanes, to: Reg, words: &[u32]) {
    for lane in 0..lanes.count() {
        lanes.put(lane, to, words);
    }
}

fn product(
    lanes: &Lanes,
    [a, b]: [Reg; 2],
    sum: Reg,
    [rows, inner, columns]: [u32; 3],
    [halves, half_sums]: [bool; 2],
) -> Vec<u32> {
    let number = |at: Reg, is_half: bool| {
        let word = [lanes.get(0, at)];
        match is_half {
            true => Half::get(&word, 0).0,
            false => f32::get(&word, 0),
        }
    };
    let mut words = vec![0; (rows * columns) as usize];
    for (index, word) in (0..).zip(words.iter_mut()) {
        let (row, column) = (index / columns, index % columns);
        let mut total = number(sum + index, half_sums);
        for k in 0..inner {
            let left = number(a + row * inner + k, halves);
            total += left * number(b + k * columns + column, halves);
        }
        let mut put = [0];
        match half_sums {
            true => Half(total).put(&mut put, 0),
            false => total.put(&mut put, 0),
        }
        *word = put[0];
    }
    words
}
