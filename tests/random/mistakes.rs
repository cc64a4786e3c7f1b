//! Invalid calls.

use half::f16;
use lapidary::sim::SimOptions;
use lapidary::{DType, Error, Gpu, Tensor};

use super::model;
use super::world::{Outcome, World};

/// Invalid calls. Each must give an error and change nothing.
pub(crate) fn mistake(w: &mut World) -> Outcome {
    let (x, model) = w.pick()?;
    let (gpu, rank) = (w.gpu.clone(), model.shape.len());
    let (elsewhere, _) = Gpu::simulated(SimOptions::default())?;
    let foreign = elsewhere.zeros(&[1], model.dtype)?;
    let wrong = if model.dtype == DType::U8 {
        DType::I32
    } else {
        DType::U8
    };
    let other = gpu.zeros(&model.shape, wrong);
    let before = x.version();
    type Call<'a> = Box<dyn Fn() -> bool + 'a>;
    let huge = usize::MAX;
    let beyond = rank as isize;
    let calls: Vec<(&str, Call<'_>)> = vec![
        (
            "too few elements",
            Box::new(|| gpu.tensor(&[1.0_f32], &[2]).is_err()),
        ),
        (
            "more than can be addressed",
            Box::new(|| gpu.zeros(&[huge, huge], DType::F32).is_err()),
        ),
        (
            "an empty shape of huge dimensions",
            Box::new(|| {
                huge_and_empty(&gpu);
                true
            }),
        ),
        (
            "more than a buffer",
            Box::new(|| {
                matches!(
                    gpu.zeros(&[1 << 30], DType::F32),
                    Err(Error::NeverFits { .. })
                )
            }),
        ),
        (
            "nine dimensions",
            Box::new(|| gpu.zeros(&[1; 9], DType::F32).is_err()),
        ),
        (
            "another type",
            Box::new(|| model::typed!(wrong, T, _to => x.to_vec::<T>().is_err())),
        ),
        (
            "another type, written",
            Box::new(|| model::typed!(wrong, T, _to => x.write(&[T::default()]).is_err())),
        ),
        (
            "too many elements, written",
            Box::new(|| model::write(&x, &vec![0.0; model.at.len() + 1]).is_err()),
        ),
        (
            "an axis too far",
            Box::new(|| x.select(beyond, 0).is_err() && x.narrow(beyond, 0, 0).is_err()),
        ),
        (
            "the last axis but all",
            Box::new(|| x.flip(&[-beyond.max(1) - 1]).is_err() && x.flip(&[isize::MIN]).is_err()),
        ),
        (
            "an axis twice",
            Box::new(|| x.flip(&[0, 0]).is_err() && x.permute(&[0, 0]).is_err()),
        ),
        (
            "too many to take",
            Box::new(|| rank == 0 || x.narrow(0, 1, huge).is_err()),
        ),
        (
            "an index too far",
            Box::new(|| {
                rank == 0 || x.select(0, isize::MAX).is_err() && x.select(0, isize::MIN).is_err()
            }),
        ),
        (
            "no step",
            Box::new(|| rank == 0 || x.slice(0, None, None, 0).is_err()),
        ),
        (
            "a shape of other length",
            Box::new(|| x.reshape(&[model.at.len() + 1]).is_err()),
        ),
        (
            "a shape that overflows",
            Box::new(|| x.reshape(&[huge, 2]).is_err()),
        ),
        (
            "no broadcast",
            Box::new(|| x.broadcast_to(&[]).is_err() || rank == 0),
        ),
        (
            "a broadcast beyond all",
            Box::new(|| x.broadcast_to(&[huge; 8]).is_err() || model.at.is_empty()),
        ),
        (
            "a tensor of another device",
            Box::new(|| matches!(x.eq(&foreign), Err(Error::Foreign { .. }))),
        ),
        (
            "a tensor of another device, joined",
            Box::new(|| Tensor::concat(&[&x, &foreign], 0).is_err()),
        ),
        (
            "nothing joined",
            Box::new(|| Tensor::concat(&[], 0).is_err()),
        ),
        (
            "two types",
            Box::new(|| other.as_ref().is_ok_and(|other| x.eq(other).is_err())),
        ),
        (
            "no bools",
            Box::new(|| model.dtype == DType::Bool || x.where_(&x, &x).is_err()),
        ),
        (
            "an axis twice, summed",
            Box::new(|| x.sum(&[0, 0]).is_err()),
        ),
        (
            "one of many",
            Box::new(|| {
                model.at.len() == 1 || model::typed!(model.dtype, T, _to => x.item::<T>().is_err())
            }),
        ),
        (
            "matrices that do not match",
            Box::new(|| {
                let a = gpu.zeros(&[2, 3], DType::F32);
                a.is_ok_and(|a| a.matmul(&a).is_err())
            }),
        ),
        (
            "a step of 0",
            Box::new(|| gpu.arange(0, 9, 0, DType::I32).is_err()),
        ),
        (
            "no number",
            Box::new(|| gpu.arange(0.0, f64::NAN, 1.0, DType::F32).is_err()),
        ),
        (
            "too large for its type",
            Box::new(|| gpu.full(&[1], 300, DType::U8).is_err()),
        ),
        (
            "a matrix beyond all",
            Box::new(|| gpu.eye(huge, DType::F32).is_err() && gpu.eye(1 << 33, DType::U8).is_err()),
        ),
        (
            "f16 beyond f16",
            Box::new(|| gpu.full(&[1], f16::INFINITY, DType::I32).is_err()),
        ),
    ];
    for (name, call) in &calls {
        w.say(format_args!(" {name};"));
        assert!(call(), "{name} is no error for {x:?}");
    }
    assert_eq!(x.version(), before, "a mistake wrote to {x:?}");
    drop(calls);
    w.look(&x, &model);
    Ok(())
}

/// These calls may give anything but a panic.
pub(crate) fn huge_and_empty(gpu: &Gpu) {
    for shape in [
        [usize::MAX, usize::MAX, 0],
        [0, usize::MAX, usize::MAX],
        [1 << 40, 0, 1 << 40],
    ] {
        let Ok(x) = gpu.zeros(&shape, DType::F32) else {
            continue;
        };
        for axis in 0..3 {
            let _ = (
                x.sum(&[axis]),
                x.max(&[axis]),
                x.softmax(axis),
                x.argmax(axis),
            );
            let _ = (
                x.flip(&[axis]),
                x.select(axis, 0),
                x.narrow(axis, 0, 1),
                x.unsqueeze(axis),
            );
            let _ = (
                Tensor::concat(&[&x, &x], axis),
                x.slice(axis, None, None, -1),
            );
            let indices = gpu.tensor(&[0_u32, 0], &[2]);
            let _ = indices.and_then(|indices| x.index_select(axis, &indices));
            let _ = x.transpose(axis, 0).and_then(|x| x.copy());
        }
        let _ = (
            x.sum(&[0, 1]),
            x.sum_all(),
            x.mean_all(),
            x.copy(),
            x.cast(DType::U8),
            x.add(&x),
        );
        let _ = (
            x.matmul(&x),
            x.reshape(&[0]),
            x.reshape(&[usize::MAX, 0]),
            x.to_vec::<f32>(),
        );
        let _ = (
            x.fill_(1.0),
            x.add_(&x),
            x.write::<f32>(&[]),
            x.item::<f32>(),
        );
        let _ = x
            .broadcast_to(&[2, shape[0], shape[1], shape[2]])
            .and_then(|x| x.copy());
    }
}
