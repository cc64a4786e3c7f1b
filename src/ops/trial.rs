//! Chooses a variant of a kernel: the rule's choice or, with tuning, the fastest one found. Trials
//! run at the call, before it records anything. They use its own operands and separate results.

use std::fmt::{Debug, Display};
use std::hash::Hash;

use crate::tensor::Tensor;
use lapidary_core::Result;
use lapidary_core::internal::{Runner, end_trial, prepare_trial};

/// A call whose kernel has variants.
pub(super) struct Call<'a, P> {
    /// The name of the family of kernels.
    pub(super) family: &'static str,
    /// What decides which variant is fastest, with sizes [in buckets](bucket).
    pub(super) problem: P,
    pub(super) operands: &'a [&'a Tensor],
    /// Most scratch bytes that a variant takes beside the operands.
    pub(super) scratch_bytes: u64,
}

impl<P: Hash + Display> Call<'_, P> {
    /// The variant to use: the first, which is the rule's choice, or one that trials found faster.
    /// `run` records what a variant does.
    #[track_caller]
    pub(super) fn choose<V: Copy + Hash + Debug>(
        &self,
        variants: &[V],
        run: impl Fn(V) -> Result<Tensor>,
    ) -> V {
        let engine = &*self.operands[0].engine.here();
        let Some(tuning) = engine.tuning() else {
            return variants[0];
        };
        let operands: Vec<_> = self.operands.iter().map(|x| x.storage.here()).collect();
        let mut runner = Runner {
            prepare: &mut || prepare_trial(engine, &operands, self.scratch_bytes),
            run: &mut |index, times| {
                let mut last = run(variants[index]);
                for _ in 1..times {
                    // The next result is placed after this one is dropped, and can use its memory.
                    last = last.and_then(|_| run(variants[index]));
                }
                end_trial(engine, last.map(|last| last.storage.here().clone()))
            },
        };
        let (family, problem) = (self.family, &self.problem);
        variants[tuning.choose(family, problem, variants, &mut runner)]
    }
}

/// Rounds a size up to a bucket. There are four buckets for each power of two. Sizes up to 8 stay
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
