//! The collective operations of a subgroup: votes, sums, scans and shuffles.

use naga::{CollectiveOperation, SubgroupOperation};

use super::arithmetic;
use super::code::{Binary, NONE, Num, Pair, Reg};
use super::together::{Collective, Gather, Kind};
use super::value::POISON;

/// The registers of all lanes of a subgroup, lane after lane.
pub(super) struct Lanes<'a> {
    pub(super) registers: &'a mut [u32],
    /// The number of registers per lane.
    pub(super) stride: usize,
}

impl Lanes<'_> {
    pub(super) fn count(&self) -> usize {
        self.registers.len() / self.stride
    }

    pub(super) fn get(&self, lane: usize, register: Reg) -> u32 {
        self.registers[lane * self.stride + register as usize]
    }

    pub(super) fn words(&self, lane: usize, first: Reg, words: usize) -> &[u32] {
        let at = lane * self.stride + first as usize;
        &self.registers[at..at + words]
    }

    pub(super) fn put(&mut self, lane: usize, first: Reg, words: &[u32]) {
        let at = lane * self.stride + first as usize;
        self.registers[at..at + words.len()].copy_from_slice(words);
    }
}

/// Computes the operation for all lanes.
pub(super) fn run(collective: &Collective, lanes: &mut Lanes) {
    match collective.kind {
        Kind::Ballot => ballot(collective, lanes),
        Kind::Gather(gather, by) => shuffle(collective, gather, by, lanes),
        Kind::Reduce(op, how, num) => reduce(collective, (op, how, num), lanes),
    }
}

fn ballot(collective: &Collective, lanes: &mut Lanes) {
    let mut votes = [0_u32; 4];
    for lane in 0..lanes.count() {
        if lanes.get(lane, collective.from) != 0 {
            votes[lane / 32] |= 1 << (lane % 32);
        }
    }
    for lane in 0..lanes.count() {
        lanes.put(lane, collective.to, &votes);
    }
}

/// A value from a lane that does not exist is poison: WGSL does not define it.
fn shuffle(collective: &Collective, gather: Gather, by: Reg, lanes: &mut Lanes) {
    let words = usize::from(collective.count);
    let mut results = Vec::with_capacity(lanes.count() * words);
    for lane in 0..lanes.count() {
        let by = if by == NONE { 0 } else { lanes.get(lane, by) };
        let (own, by) = (lane as u64, u64::from(by));
        let source = match gather {
            Gather::First => 0,
            Gather::Lane => by,
            Gather::Down => own + by,
            Gather::Up => own.wrapping_sub(by),
            Gather::Xor => own ^ by,
            Gather::Quad => own & !3 | by & 3,
        };
        match usize::try_from(source) {
            Ok(source) if source < lanes.count() => {
                results.extend_from_slice(lanes.words(source, collective.from, words));
            }
            _ => results.extend(std::iter::repeat_n(POISON, words)),
        }
    }
    for (lane, result) in results.chunks(words).enumerate() {
        lanes.put(lane, collective.to, result);
    }
}

fn reduce(
    collective: &Collective,
    (op, how, num): (SubgroupOperation, CollectiveOperation, Num),
    lanes: &mut Lanes,
) {
    let words = usize::from(collective.count) * num.words() as usize;
    let mut results = Vec::with_capacity(lanes.count() * words);
    let mut sum = neutral(op, num).repeat(collective.count.into());
    for lane in 0..lanes.count() {
        if how == CollectiveOperation::ExclusiveScan {
            results.extend_from_slice(&sum);
        }
        // The sum so far, the lane's numbers, and their sum.
        let mut registers = sum.clone();
        registers.extend_from_slice(lanes.words(lane, collective.from, words));
        registers.resize(3 * words, 0);
        let pair = Pair {
            to: 2 * words as Reg,
            a: 0,
            b: words as Reg,
            count: collective.count,
            a_is_one: false,
            b_is_one: false,
        };
        arithmetic::binary(&mut registers, num, operator(op), &pair);
        sum.copy_from_slice(&registers[2 * words..]);
        if how == CollectiveOperation::InclusiveScan {
            results.extend_from_slice(&sum);
        }
    }
    for lane in 0..lanes.count() {
        match how {
            CollectiveOperation::Reduce => lanes.put(lane, collective.to, &sum),
            _ => lanes.put(lane, collective.to, &results[lane * words..][..words]),
        }
    }
}

fn operator(op: SubgroupOperation) -> Binary {
    match op {
        SubgroupOperation::All | SubgroupOperation::And => Binary::And,
        SubgroupOperation::Any | SubgroupOperation::Or => Binary::Or,
        SubgroupOperation::Add => Binary::Add,
        SubgroupOperation::Mul => Binary::Multiply,
        SubgroupOperation::Min => Binary::Min,
        SubgroupOperation::Max => Binary::Max,
        SubgroupOperation::Xor => Binary::Xor,
    }
}

/// The result of a reduction over no lanes.
fn neutral(op: SubgroupOperation, num: Num) -> Vec<u32> {
    let wide = |word: u64| vec![word as u32, (word >> 32) as u32];
    let whole = |word: i64| match num {
        Num::I64 | Num::U64 => wide(word as u64),
        _ => vec![word as u32],
    };
    let half = |x: f32| vec![u32::from(half::f16::from_f32(x).to_bits())];
    let float = |x: f32| match num {
        Num::F16 => half(x),
        _ => vec![x.to_bits()],
    };
    let is_float = matches!(num, Num::F32 | Num::F16);
    match op {
        SubgroupOperation::All => vec![1],
        SubgroupOperation::And if num == Num::Bool => vec![1],
        SubgroupOperation::And => whole(-1),
        SubgroupOperation::Any | SubgroupOperation::Or | SubgroupOperation::Xor => whole(0),
        SubgroupOperation::Add if is_float => float(0.0),
        SubgroupOperation::Add => whole(0),
        SubgroupOperation::Mul if is_float => float(1.0),
        SubgroupOperation::Mul => whole(1),
        SubgroupOperation::Min if is_float => float(f32::INFINITY),
        SubgroupOperation::Max if is_float => float(f32::NEG_INFINITY),
        SubgroupOperation::Min => match num {
            Num::I32 => whole(i32::MAX.into()),
            Num::I64 => whole(i64::MAX),
            _ => whole(-1),
        },
        SubgroupOperation::Max => match num {
            Num::I32 => whole(i32::MIN.into()),
            Num::I64 => whole(i64::MIN),
            _ => whole(0),
        },
    }
}

#[cfg(test)]
mod tests {
    use naga::CollectiveOperation::{ExclusiveScan, InclusiveScan, Reduce};
    use naga::SubgroupOperation::{Add, Max};

    use super::*;

    fn results(kind: Kind, values: [u32; 4]) -> Vec<u32> {
        let mut registers: Vec<u32> = values.iter().flat_map(|value| [*value, 1, 0]).collect();
        let mut lanes = Lanes {
            registers: &mut registers,
            stride: 3,
        };
        let collective = Collective {
            to: 2,
            from: 0,
            count: 1,
            kind,
        };
        run(&collective, &mut lanes);
        (0..4).map(|lane| lanes.get(lane, 2)).collect()
    }

    #[test]
    fn sums_and_scans_go_from_lane_to_lane() {
        let of = |op, how| results(Kind::Reduce(op, how, Num::U32), [5, 1, 7, 2]);
        assert_eq!(of(Add, Reduce), [15; 4]);
        assert_eq!(of(Add, InclusiveScan), [5, 6, 13, 15]);
        assert_eq!(of(Add, ExclusiveScan), [0, 5, 6, 13]);
        assert_eq!(of(Max, InclusiveScan), [5, 5, 7, 7]);
    }

    #[test]
    fn a_lane_that_does_not_exist_gives_poison() {
        let of = |gather| results(Kind::Gather(gather, 1), [5, 1, 7, 2]);
        assert_eq!(of(Gather::Down), [1, 7, 2, POISON]);
        assert_eq!(of(Gather::Up), [POISON, 5, 1, 7]);
        assert_eq!(of(Gather::Xor), [1, 5, 2, 7]);
        assert_eq!(of(Gather::Lane), [1; 4]);
    }
}
