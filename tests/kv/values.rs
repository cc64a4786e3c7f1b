//! The values of attention over pages.

use lapidary::kv::{Attend, KvCache};
use lapidary::{DType, Result, operations::Causal};

use super::model::{SMALL, Shape, World};
use crate::ops_reduce::model::each;

/// Prompts, single tokens and both in one step, over the ends of pages, tiles and runs of keys.
#[test]
fn steps_of_any_lengths_give_attention() -> Result<()> {
    for gpu in each() {
        for (heads, kv_heads, size, dtype, page_tokens) in [
            (4, 2, 16, DType::F32, 16),
            (8, 1, 64, DType::F16, 32),
            (3, 3, 12, DType::F16, 16),
            (6, 2, 20, DType::I8, 16),
            (12, 1, 8, DType::F32, 16),
        ] {
            let shape = Shape {
                heads,
                kv_heads,
                size,
                dtype,
                page_tokens,
                ..SMALL
            };
            let mut world = World::new(&gpu, shape);
            let [mut a, mut b, mut c] = ["a", "b", "c"].map(|name| world.talk(name));
            world.step(&mut [(&mut a, 70), (&mut b, 3)], Attend::default())?;
            for _ in 0..3 {
                world.step(&mut [(&mut b, 1), (&mut a, 1)], Attend::default())?;
            }
            world.step(
                &mut [(&mut a, 1), (&mut c, 17), (&mut b, 2)],
                Attend::default(),
            )?;
        }
    }
    Ok(())
}

#[test]
fn a_long_sequence_is_divided_into_runs_of_keys() -> Result<()> {
    for gpu in each() {
        let shape = Shape {
            layers: 1,
            dtype: DType::F16,
            ..SMALL
        };
        let mut world = World::new(&gpu, shape);
        let mut talk = world.talk("long");
        world.step(&mut [(&mut talk, 600)], Attend::default())?;
        world.step(&mut [(&mut talk, 1)], Attend::default())?;
    }
    Ok(())
}

#[test]
fn windows_scales_and_softcaps_are_followed() -> Result<()> {
    for gpu in each() {
        let mut world = World::new(&gpu, SMALL);
        let mut talk = world.talk("capped");
        for (count, window, softcap) in [
            (40, Some(1), None),
            (1, Some(64), Some(0.5)),
            (100, Some(17), Some(2.0)),
            (1, Some(20), None),
            (1, Some(usize::MAX), Some(50.0)),
            (2, None, Some(1e8)),
            (1, None, Some(f32::MAX)),
            (130, None, None),
            (3, Some(65), None),
        ] {
            let how = Attend {
                scale: Some(0.7),
                window,
                softcap,
            };
            world.step(&mut [(&mut talk, count)], how)?;
        }
    }
    Ok(())
}

/// Queries of f16, views of q, and the plain operation as the oracle.
#[test]
fn it_gives_what_the_plain_operation_gives() -> Result<()> {
    for gpu in each() {
        let cache = KvCache::new(&gpu, SMALL.options())?;
        let mut sequence = cache.sequence("plain");
        let qkv = gpu.rand_normal(&[90, 8, 16], 0.0, 1.0, 3, DType::F16)?;
        let part = |start, len| qkv.narrow(1, start, len);
        let (q, k, v) = (part(0, 4)?, part(4, 2)?, part(6, 2)?);
        let heads_first = |x: &lapidary::Tensor| x.transpose(0, 1);
        let expected = heads_first(&q)?.scaled_dot_product_attention(
            &heads_first(&k)?,
            &heads_first(&v)?,
            None,
            Causal::LastKey,
            None,
        )?;
        let expected = heads_first(&expected)?.cast(DType::F32)?.to_vec::<f32>()?;
        let mut got = Vec::new();
        for (start, len) in [(0, 33), (33, 1), (34, 56)] {
            let step = cache.step(vec![(&mut sequence, len)])?;
            let rows = |x: &lapidary::Tensor| x.narrow(0, start as isize as usize, len);
            let y = step.attend(1, &rows(&q)?, &rows(&k)?, &rows(&v)?, Attend::default())?;
            assert_eq!((y.dtype(), y.shape()), (DType::F16, &[len, 4, 16][..]));
            got.extend(y.cast(DType::F32)?.to_vec::<f32>()?);
            step.finish();
        }
        for (at, (got, expected)) in got.iter().zip(&expected).enumerate() {
            assert!((got - expected).abs() < 4e-3, "{at}: {got}, not {expected}");
        }
    }
    Ok(())
}
