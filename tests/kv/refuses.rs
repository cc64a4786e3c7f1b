//! Each wrong call has an error that says what to do, and changes nothing.

use lapidary::kv::{Attend, KvCache, KvOptions};
use lapidary::{DType, Error, Result};

use super::model::{SMALL, World};
use crate::ops_reduce::model::each;

#[track_caller]
fn refused<T>(result: Result<T>, expected: &str) {
    match result {
        Ok(_) => panic!("no error, where one says {expected}"),
        Err(error) => {
            let error = error.to_string();
            assert!(error.contains(expected), "{error}, not {expected}");
        }
    }
}

#[test]
fn shapes_of_caches_are_checked() {
    for gpu in each() {
        let check = |options: KvOptions, expected: &str| {
            refused(KvCache::new(&gpu, options), expected);
        };
        let good = SMALL.options();
        let with = |change: &dyn Fn(&mut KvOptions)| {
            let mut options = good;
            change(&mut options);
            options
        };
        check(with(&|it| it.layers = 0), "`layers`: 0");
        check(with(&|it| it.kv_heads = 0), "`kv_heads`: 0");
        check(with(&|it| it.head_size = 0), "a multiple of 4, at most 256");
        check(with(&|it| it.head_size = 18), "18: give a multiple of 4");
        check(with(&|it| it.head_size = 260), "260: give a multiple of 4");
        check(
            with(&|it| it.dtype = DType::Bf16),
            "bf16: give F32, F16 or I8",
        );
        check(with(&|it| it.page_tokens = 24), "24: give 16 or 32");
        check(
            with(&|it| it.layers = usize::MAX),
            "use several caches of fewer layers",
        );
    }
}

#[test]
fn steps_of_wrong_numbers_change_nothing() -> Result<()> {
    for gpu in each() {
        let mut world = World::new(&gpu, SMALL);
        let other = KvCache::new(&gpu, SMALL.options())?;
        let mut foreign = other.sequence("foreign");
        let mut talk = world.talk("talk");
        world.step(&mut [(&mut talk, 5)], Attend::default())?;
        let cache = world.cache.clone();
        refused(cache.step(Vec::new()), "no sequence");
        refused(
            cache.step(vec![(&mut talk.sequence, 0)]),
            "leave it out of the step",
        );
        refused(
            cache.step(vec![(&mut talk.sequence, 1), (&mut foreign, 1)]),
            "the sequence `foreign` is of another cache",
        );
        refused(
            cache.step(vec![(&mut talk.sequence, usize::MAX)]),
            "2147483648 are the most",
        );
        refused(
            talk.sequence.truncate(6),
            "6 tokens of the sequence `talk`, which has 5",
        );
        assert_eq!(talk.sequence.len(), 5);
        world.step(&mut [(&mut talk, 1)], Attend::default())?;
    }
    Ok(())
}

#[test]
fn operands_of_wrong_shapes_change_nothing() -> Result<()> {
    let gpus: Vec<_> = each().collect();
    for gpu in &gpus {
        let mut world = World::new(gpu, SMALL);
        let mut talk = world.talk("talk");
        world.step(&mut [(&mut talk, 17)], Attend::default())?;
        let zeros = |shape: &[usize]| gpu.zeros(shape, DType::F32);
        let (q, k) = (zeros(&[2, 4, 16])?, zeros(&[2, 2, 16])?);
        let cache = world.cache.clone();
        {
            let step = cache.step(vec![(&mut talk.sequence, 2)])?;
            let how = Attend::default();
            refused(
                step.attend(2, &q, &k, &k, how),
                "layer 2 of a cache with 2 layers",
            );
            refused(
                step.attend(0, &zeros(&[2, 3, 16])?, &k, &k, how),
                "queries of shape [2, 3, 16]: the step needs [2 tokens, a multiple of 2 heads, 16]",
            );
            refused(
                step.attend(0, &zeros(&[2, 0, 16])?, &k, &k, how),
                "a multiple of 2",
            );
            refused(
                step.attend(0, &zeros(&[2, 64])?, &k, &k, how),
                "queries of shape [2, 64]",
            );
            refused(
                step.attend(0, &q, &zeros(&[1, 2, 16])?, &k, how),
                "keys of shape [1, 2, 16]",
            );
            refused(
                step.attend(0, &q, &k, &zeros(&[2, 2, 12])?, how),
                "values of shape",
            );
            let whole = gpu.zeros(&[2, 2, 16], DType::I32)?;
            refused(
                step.attend(0, &q, &whole, &k, how),
                "i32 where f32, f16 or bf16 is needed",
            );
            let tracked = zeros(&[2, 2, 16])?.requires_grad()?;
            refused(
                step.attend(0, &q, &tracked, &k, how),
                "gradients do not pass through a cache",
            );
            for (how, expected) in [
                (
                    Attend {
                        window: Some(0),
                        ..how
                    },
                    "a window of 0 keys",
                ),
                (
                    Attend {
                        scale: Some(f32::NAN),
                        ..how
                    },
                    "a scale of NaN",
                ),
                (
                    Attend {
                        softcap: Some(0.0),
                        ..how
                    },
                    "the softcap",
                ),
            ] {
                refused(step.attend(0, &q, &k, &k, how), expected);
            }
            for other in gpus.iter().filter(|other| !std::ptr::eq(*other, gpu)) {
                let foreign = other.zeros(&[2, 4, 16], DType::F32)?;
                let result = step.attend(0, &foreign, &k, &k, how);
                assert!(matches!(result, Err(Error::Foreign { .. })), "{result:?}");
            }
        }
        assert_eq!(talk.sequence.len(), 17);
        world.step(&mut [(&mut talk, 1)], Attend::default())?;
    }
    Ok(())
}
