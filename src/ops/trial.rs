//! Which variant of a kernel: the rule's choice, or where trials are made the one that they found.
//! They are made at the call, before it records anything, with its very operands and results of
//! their own.

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::sync::Arc;

use crate::tensor::Tensor;
use lapidary_core::Result;
use lapidary_core::internal::{Runner, Storage, end_trial, prepare_trial};

/// A call whose kernel has variants.
pub(super) struct Call<'a, P> {
    /// Of kernels.
    pub(super) family: &'static str,
    /// What decides which variant is fastest, sizes [in buckets](bucket).
    pub(super) problem: P,
    pub(super) operands: &'a [&'a Tensor],
    /// What any variant takes beside the operands, at most.
    pub(super) scratch_bytes: u64,
}

impl<P: Hash + Display> Call<'_, P> {
    /// The variant to take: the first one, which is the rule's choice, or one that was found
    /// faster. `run` records what a variant does.
    pub(super) fn choose<V: Copy + Hash + Debug>(
        &self,
        variants: &[V],
        run: impl Fn(V) -> Result<Tensor>,
    ) -> V {
        let engine = &self.operands[0].engine;
        let Some(tuning) = engine.tuning() else {
            return variants[0];
        };
        let operands: Vec<&Arc<Storage>> = self.operands.iter().map(|x| &x.storage).collect();
        let mut runner = Runner {
            prepare: &mut || prepare_trial(engine, &operands, self.scratch_bytes),
            run: &mut |index, times| {
                let mut last = run(variants[index]);
                for _ in 1..times {
                    // Each result goes before the next is placed, and leaves it its room.
                    last = last.and_then(|_| run(variants[index]));
                }
                end_trial(engine, last.map(|last| last.storage.clone()))
            },
        };
        let (family, problem) = (self.family, &self.problem);
        variants[tuning.choose(family, problem, variants, &mut runner)]
    }
}

/// A size, up to the next of which there are four from one power of two to the next. Small ones are
/// as they are.
pub(super) fn bucket(size: u64) -> u64 {
    let bits = u64::BITS - size.leading_zeros();
    match size {
        0..=8 => size,
        _ => size.next_multiple_of(1 << (bits - 3)),
    }
}

#[cfg(test)]
mod tests {
    use super::bucket;

    #[test]
    fn sizes_share_a_bucket_with_those_that_are_nearly_as_large() {
        let cases = [
            (0, 0),
            (1, 1),
            (8, 8),
            (9, 10),
            (16, 16),
            (17, 20),
            (129, 160),
            (999, 1024),
            (1024, 1024),
            (1025, 1280),
            (u64::from(u32::MAX), 1 << 32),
        ];
        for (size, expected) in cases {
            assert_eq!(bucket(size), expected, "{size}");
            assert_eq!(bucket(expected), expected, "a bucket is its own");
        }
    }
}
