//! Fused commands are one dispatch, and tensors without a holder take no memory.

use lapidary::sim::{Fault, FaultKind, SimOptions, Site};
use lapidary::{Budget, DType, Error, Gpu, Residency, Result, Tensor};

use crate::fusion::{options, simulated};

/// The dispatches of some work, its peak memory in tensors of the inputs' size, and its fused
/// kernels.
fn counts(work: impl Fn(&Gpu, &[Tensor]) -> Result<Vec<Tensor>>) -> (u64, u64, Vec<String>) {
    let (gpu, sim) = simulated(true, SimOptions::default());
    let inputs = (0..4).map(|seed| gpu.rand_normal(&[64, 64], 0.0, 1.0, seed, DType::F32));
    let inputs: Vec<Tensor> = inputs.collect::<Result<_>>().expect("room");
    gpu.finish().expect("a device");
    gpu.memory().reset_peaks();
    let (before, live_bytes) = (
        sim.counters().dispatches,
        gpu.memory().stats().live_bytes.now,
    );
    let held = work(&gpu, &inputs).expect("shapes that fit");
    gpu.finish().expect("a device");
    let made = sim.counters().dispatches - before;
    let peak_bytes = gpu.memory().stats().live_bytes.peak - live_bytes;
    drop(held);
    let names = gpu.fused_kernels().into_iter().map(|kernel| kernel.name);
    (made, peak_bytes.div_ceil(64 * 64 * 4), names.collect())
}

#[track_caller]
fn check(
    work: impl Fn(&Gpu, &[Tensor]) -> Result<Vec<Tensor>>,
    dispatches: u64,
    tensors: u64,
    names: &[&str],
) {
    let (made, peak, fused) = counts(work);
    let fused: Vec<&str> = fused.iter().map(String::as_str).collect();
    assert_eq!((made, peak, &fused[..]), (dispatches, tensors, names));
}

#[test]
fn a_chain_is_one_dispatch_and_takes_only_its_result() {
    check(
        |_, x| Ok(vec![(((&x[0] * &x[1])? + &x[2])?.relu()? * &x[3])?]),
        1,
        1,
        &["relu(a * b + c) * d"],
    );
}

#[test]
fn what_is_composed_of_others_is_one_dispatch() {
    check(
        |_, x| Ok(vec![x[0].nan_to_num(0.0, None, None)?]),
        1,
        1,
        &["where(a == s3, s4, where(a == s1, s2, where(is_nan(a), s0, a)))"],
    );
    check(
        |_, x| Ok(vec![x[0].is_close(&x[1], 0.1, 0.2, true)?]),
        1,
        1,
        &["logical_or(is_close(a, b, s0, s1), logical_and(is_nan(a), is_nan(b)))"],
    );
    check(
        |_, x| Ok(vec![(x[0].lerp(&x[1], &x[2])?.softshrink(0.5)? * &x[3])?]),
        1,
        1,
        &["(lerp(a, b, c) - clamp(lerp(a, b, c), s0, s1)) * d"],
    );
}

#[test]
fn what_is_made_of_nothing_is_made_where_it_is_read() {
    check(
        |gpu, x| {
            let ones = gpu.ones(&[64, 64], DType::F32)?;
            let halves = gpu.full(&[64, 64], 0.5, DType::F32)?;
            let numbers = gpu.arange(0.0, 4096.0, 1.0, DType::F32)?;
            let numbers = numbers.reshape(&[64, 64])?;
            Ok(vec![(((&x[0] + ones)? * halves)? - numbers)?])
        },
        1,
        1,
        &["(a + s0) * s1 - arange(s2, s0)"],
    );
    check(
        |gpu, x| {
            let numbers = gpu.arange(0, 4096, 1, DType::I32)?.reshape(&[64, 64])?;
            let even = numbers.bitwise_and(&gpu.full(&[64, 64], 1, DType::I32)?)?;
            let picked = even.eq(0)?.where_(&x[0], &x[1])?;
            Ok(vec![(picked.sum(&[1])? + gpu.ones(&[64], DType::F32)?)?])
        },
        1,
        1,
        &["sum(where(bitwise_and(arange(s0, s1), s1) == s0, a, b)) + s2"],
    );
}

#[test]
fn what_is_held_is_made_too() {
    check(
        |_, x| {
            let product = (&x[0] * &x[1])?;
            let sum = (&product + 1.0)?;
            Ok(vec![product, sum])
        },
        1,
        2,
        &["a * b; a * b + s0"],
    );
}

#[test]
fn what_is_computed_twice_is_computed_once() {
    check(
        |_, x| Ok(vec![(x[0].exp()? * (x[0].exp()? + &x[1])?)?]),
        1,
        1,
        &["exp(a) * (exp(a) + b)"],
    );
}

#[test]
fn casts_comparisons_and_choices_are_part_of_it() {
    check(
        |_, x| {
            let large = x[0].gt(0.5)?;
            let y = large.where_(&x[1].cast(DType::F16)?.cast(DType::F32)?, &x[2])?;
            Ok(vec![y.clamp(-1.0, 1.0)?])
        },
        1,
        1,
        &["clamp(where(a > s0, f32(f16(b)), c), s1, s2)"],
    );
}

#[test]
fn rows_columns_and_turned_operands_are_read_where_they_are() {
    check(
        |_, x| {
            let row = x[1].narrow(0, 3, 1)?;
            let column = x[2].narrow(1, 5, 1)?;
            Ok(vec![((&x[0] + row)? * (column - &x[3].t()?)?)?])
        },
        1,
        1,
        &["(a + b) * (c - d)"],
    );
}

#[test]
fn a_view_of_what_is_computed_is_computed_where_it_is_read() {
    let sees = |view: fn(&Tensor) -> Result<Tensor>, with: usize, name: &str| {
        let work = |_: &Gpu, x: &[Tensor]| {
            let sum = (&x[0] + x[1].narrow(0, 2, 1)?)?;
            Ok(vec![(view(&sum)? * &view(&x[with])?)?])
        };
        let (made, _, names) = counts(work);
        assert_eq!((made, &names[..]), (1, &[name.to_string()][..]));
    };
    sees(|x| x.t(), 2, "(a + b) * c");
    sees(|x| x.narrow(1, 3, 40), 2, "(a + b) * c");
    sees(|x| x.flip(&[0]), 2, "(a + b) * c");
    sees(|x| x.slice(0, None, None, 3), 0, "(a + b) * a");
    // The operand is computed once for each of two columns of blocks.
    sees(
        |x| x.reshape(&[1, 64, 64])?.broadcast_to(&[2, 64, 64]),
        3,
        "(a + b) * c",
    );
    // Rows that were split in two differ from the rows of before.
    let (made, _, _) = counts(|_, x| {
        let sum = (&x[0] + &x[1].narrow(1, 2, 1)?)?;
        Ok(vec![(sum.reshape(&[128, 32])?.t()? * 2.0)?])
    });
    assert_eq!(made, 2);
}

#[test]
fn two_expressions_that_take_turns_are_two_dispatches() {
    check(
        |_, x| {
            let (a, b) = ((&x[0] + 1.0)?, (&x[1] + 2.0)?);
            let (a, b) = (a.relu()?, b.neg()?);
            Ok(vec![(a * 2.0)?, (b * 3.0)?])
        },
        2,
        2,
        &["relu(a + s0) * s1", "neg(a + s0) * s1"],
    );
}

#[test]
fn what_is_written_in_place_is_read_before_and_known_after() {
    check(
        |_, x| {
            let before = (&x[0] * 2.0)?;
            x[0].add_(&x[1])?;
            Ok(vec![(before + &x[0])?])
        },
        1,
        1,
        &["a + b; a * s0 + (a + b)"],
    );
}

#[test]
fn reductions_and_norms_compute_what_they_read() {
    let reads = |work: fn(&Tensor) -> Result<Tensor>, name: &str| {
        let fused = |_: &Gpu, x: &[Tensor]| Ok(vec![work(&((&x[0] * 0.5)? + &x[1])?)?]);
        check(fused, 1, 1, &[name]);
    };
    reads(|x| x.sum(&[1]), "sum(a * s0 + b)");
    reads(|x| x.mean(&[0]), "mean(a * s0 + b)");
    reads(|x| x.max(&[1]), "max(a * s0 + b)");
    reads(|x| x.softmax(1), "softmax(a * s0 + b)");
    reads(|x| x.log_softmax(-1), "log_softmax(a * s0 + b)");
    reads(
        |x| x.layer_norm(&[64], None, None, 1e-5),
        "layer_norm(a * s0 + b)",
    );
    reads(|x| x.argmax(1), "argreduce(a * s0 + b)");
    // A tensor with a holder is computed once and then read.
    check(
        |_, x| {
            let sum = (&x[0] + &x[1])?;
            Ok(vec![sum.softmax(1)?, sum])
        },
        2,
        2,
        &[],
    );
}

#[test]
fn what_becomes_of_a_reduction_or_a_norm_is_part_of_it() {
    let goes_on = |work: fn(&[Tensor]) -> Result<Tensor>, name: &str| {
        let (made, _, names) = counts(|_, x| Ok(vec![work(x)?]));
        assert_eq!((made, &names[..]), (1, &[name.to_string()][..]));
    };
    goes_on(
        |x| (x[0].mean(&[1])? + 1e-5)?.rsqrt(),
        "rsqrt(mean(x) + s0)",
    );
    goes_on(|x| x[0].softmax(1)? * &x[1], "softmax(x) * a");
    goes_on(
        |x| (x[0].layer_norm(&[64], None, None, 1e-5)? * x[1].narrow(0, 0, 1)?)?.relu(),
        "relu(layer_norm(x) * a)",
    );
    goes_on(|x| x[0].sum(&[0])?.cast(DType::F16), "f16(sum(x))");
    goes_on(
        |x| x[0].argmax(1)?.cast(DType::F32)? * 0.5,
        "f32(argreduce(x)) * s0",
    );
    // A tensor with a holder is written and then read.
    let held = counts(|_, x| {
        let sum = x[0].sum(&[1])?;
        Ok(vec![(&sum * 2.0)?, sum])
    });
    assert_eq!(held.0, 2);
}

#[test]
fn a_reduction_or_a_norm_has_an_expression_on_either_side() {
    let is_one = |work: fn(&[Tensor]) -> Result<Tensor>, name: &str| {
        let (made, _, names) = counts(|_, x| Ok(vec![work(x)?]));
        assert_eq!((made, &names[..]), (1, &[name.to_string()][..]));
    };
    is_one(
        |x| ((&x[0] * &x[1])?.sum(&[1])? / 64.0)?.sqrt(),
        "sqrt(sum(a * b) / s0)",
    );
    is_one(
        |x| ((&x[0] * 0.5)? + &x[1])?.softmax(1)? * &x[2],
        "softmax(a * s0 + b) * c",
    );
    // One row before and one after.
    is_one(
        |x| {
            let moved = (&x[0] + x[1].narrow(0, 3, 1)?)?;
            let normed = moved.layer_norm(&[64], None, None, 1e-5)?;
            ((normed * x[2].narrow(0, 5, 1)?)? + 0.5)?.relu()
        },
        "relu(layer_norm(a + b) * c + s0)",
    );
    is_one(
        |x| (1.0 - x[0].square()?)?.argmax(1)?.cast(DType::F32)? * 2.0,
        "f32(argreduce(s0 - square(a))) * s1",
    );
    // Scores of several heads with one mask for all of them.
    is_one(
        |x| {
            let scores = x[0].reshape(&[4, 32, 32])?;
            let mask = x[1].reshape(&[4, 32, 32])?.select(0, 1)?;
            ((scores * 0.125)? + mask)?.softmax(-1)? * x[2].reshape(&[4, 32, 32])?
        },
        "softmax(a * s0 + b) * c",
    );
    // Two reductions with expressions between them.
    let (made, _, names) = counts(|_, x| {
        let y = ((&x[0] + &x[1])?.softmax(1)? * &x[2])?;
        Ok(vec![(y.sum(&[1])? + 1.0)?.log()?])
    });
    assert_eq!(made, 2, "{names:?}");
    // A tensor between them that has a holder is written and then read.
    for held in [1, 2] {
        let (made, _, names) = counts(|_, x| {
            let sum = (&x[0] + &x[1])?;
            let softmax = sum.softmax(1)?;
            let product = (&softmax * &x[2])?;
            let between = if held == 1 { sum } else { softmax };
            Ok(vec![product, between])
        });
        assert_eq!(made, 2, "{names:?}");
    }
    // Rows that are not whole vec4s are read and written by elements, and then no expression is
    // fused with them.
    let (made, _, names) = counts(|_, x| {
        let odd = x[0]
            .reshape(&[4096])?
            .narrow(0, 0, 63 * 65)?
            .reshape(&[63, 65])?;
        Ok(vec![(((odd * 0.5)?.softmax(1)? * 2.0)? + 1.0)?])
    });
    assert_eq!((made, &names[..]), (3, &["a * s0 + s1".to_owned()][..]));
    // A kernel does not write what its reduction still reads.
    let (made, _, names) = counts(|_, x| {
        x[0].add_(&(&x[0] * 2.0)?.softmax(1)?)?;
        Ok(vec![])
    });
    assert_eq!(made, 2, "{names:?}");
}

#[test]
fn what_others_need_in_between_is_made_in_time() {
    check(
        |_, x| {
            let y = (&x[0] + &x[1])?.relu()?;
            let z = y.matmul(&x[2])?;
            Ok(vec![((y + z)? * 2.0)?])
        },
        3,
        2,
        &["relu(a + b)", "(a + b) * s0"],
    );
}

#[test]
fn a_long_chain_is_few_dispatches_whenever_it_is_flushed() {
    let mut made = Vec::new();
    for flush_at in [0, 100, 999] {
        let (gpu, sim) = simulated(true, SimOptions::default());
        let mut x = gpu.zeros(&[64], DType::F32).unwrap();
        for step in 0..1000 {
            x = (x + 1.0).unwrap();
            if step == flush_at {
                gpu.poll().unwrap();
            }
        }
        assert_eq!(x.to_vec::<f32>().unwrap(), [1000.0; 64]);
        made.push((sim.counters().dispatches, sim.counters().pipelines_created));
    }
    // Fifteen kernels of 64 operations and a shorter one. The first of each kind may not take over
    // its operand's block.
    assert!(
        made.iter()
            .all(|&(dispatches, pipelines)| dispatches == 16 && pipelines <= 4),
        "{made:?}"
    );
}

#[test]
fn what_waits_for_more_does_not_keep_more_than_it_makes() {
    let (gpu, _sim) = simulated(true, SimOptions::default());
    let work = || -> Result<Vec<Tensor>> {
        let [a, b] = [0, 1].map(|seed| gpu.rand_normal(&[1024, 256], 0.0, 1.0, seed, DType::F32));
        let sum = (a? + b?)?;
        // Enough commands that the engine runs them, although no result was requested.
        let others = (0..300).map(|_| gpu.zeros(&[4], DType::F32));
        let mut held = others.collect::<Result<Vec<_>>>()?;
        held.push(sum);
        Ok(held)
    };
    let held = work().unwrap();
    assert_eq!(held[300].residency(), Residency::Device);
}

#[test]
fn where_the_kernel_cannot_be_had_its_parts_do_the_work() {
    let (gpu, sim) = simulated(true, SimOptions::default());
    let x = gpu.ones(&[64], DType::F32).unwrap();
    gpu.finish().unwrap();
    for work in [
        |x: &Tensor| (x + 1.0)?.neg()?.exp()?.log(),
        |x: &Tensor| (x + 1.0)?.neg()?.sum(&[]),
    ] {
        let refused = Fault::once(Site::CreatePipeline, 1, FaultKind::Invalid);
        sim.arm(refused);
        let before = sim.counters().faults;
        let y = work(&x).unwrap().to_vec::<f32>().unwrap();
        assert!(y == [-2.0; 64] || y == [-128.0], "{y:?}");
        assert_eq!(sim.counters().faults - before, 1);
    }
}

#[test]
fn what_needs_more_room_than_its_parts_gives_way_to_them() {
    let budget = Budget {
        device_bytes: Some(32 << 20),
        host_bytes: Some(0),
        disk_bytes: Some(0),
        ..Budget::default()
    };
    let (gpu, _sim) = simulated(true, SimOptions::default());
    let tensor = |value: f32| gpu.full(&[1 << 18], value, DType::F32).unwrap();
    let [a, b, c, d] = [1.0, 2.0, 3.0, 4.0].map(tensor);
    gpu.finish().unwrap();
    gpu.memory().set_budget(budget).unwrap();
    // Five tensors of 1 MiB in one kernel are less than a quarter of the free budget. With these
    // pins they are more.
    let pins = (0..22).map(|_| gpu.zeros(&[1 << 18], DType::F32).unwrap().pin().unwrap());
    let pins: Vec<_> = pins.collect();
    let y = (((&a * &b).unwrap() + &c).unwrap() * &d).unwrap();
    drop((a, b, c, d));
    assert_eq!(y.to_vec::<f32>().unwrap(), vec![20.0; 1 << 18]);
    drop(pins);
}

#[test]
fn a_part_that_has_no_value_takes_no_other_with_it() {
    let (gpu, sim) = simulated(true, SimOptions::default());
    let x = gpu.ones(&[8, 8], DType::F32).unwrap();
    gpu.finish().unwrap();
    sim.arm(Fault::once(Site::CreatePipeline, 1, FaultKind::Invalid));
    let bad = x.matmul(&x).unwrap();
    let [y, z] = [(&x + 1.0).unwrap(), (&x + 2.0).unwrap()];
    let w = (&y + &bad).unwrap();
    let all = ((&w + &z).unwrap() * 2.0).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [2.0; 64]);
    assert_eq!(z.to_vec::<f32>().unwrap(), [3.0; 64]);
    for lost in [&bad, &w, &all] {
        assert!(matches!(lost.to_vec::<f32>(), Err(Error::Poisoned { .. })));
    }
}

#[test]
fn without_fusion_every_operation_is_a_dispatch() {
    let (gpu, sim) = simulated(false, SimOptions::default());
    let x = gpu.ones(&[64], DType::F32).unwrap();
    gpu.finish().unwrap();
    let before = sim.counters().dispatches;
    let y = ((&x + 1.0).unwrap() * 2.0).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [4.0; 64]);
    assert_eq!(sim.counters().dispatches - before, 2);
    assert_eq!(gpu.fused_kernels(), []);
}

/// A fill treats its storage as words, for every type of the tensor.
#[test]
fn what_is_filled_and_then_written_in_part_holds_both() {
    for fuse in [false, true] {
        let gpu = Gpu::open(options(fuse)).expect("an adapter");
        let x = gpu.tensor(&[5_u8, 6, 7, 8], &[4]).unwrap();
        let y = gpu.full(&[16], 9, DType::U8).unwrap();
        y.narrow(0, 0, 4).unwrap().copy_(&x).unwrap();
        let expected = [5, 6, 7, 8, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9];
        assert_eq!(y.to_vec::<u8>().unwrap(), expected, "fused: {fuse}");
        let read = (y.narrow(0, 0, 4).unwrap() + 1).unwrap();
        y.fill_(3).unwrap();
        assert_eq!(read.to_vec::<u8>().unwrap(), [6, 7, 8, 9], "fused: {fuse}");
        assert_eq!(y.to_vec::<u8>().unwrap(), [3; 16], "fused: {fuse}");
    }
}

#[test]
fn a_group_norm_of_a_narrow_type_is_one_kernel_with_weight_and_bias() {
    let (_, _, kernels) = counts(|gpu, x| {
        let x = x[0].cast(DType::F16)?.reshape(&[4, 16, 8, 8])?;
        let weight = gpu.rand_normal(&[16], 0.0, 1.0, 9, DType::F32)?;
        Ok(vec![x.group_norm(4, Some(&weight), Some(&weight), 1e-5)?])
    });
    assert_eq!(kernels, ["f16(layer_norm(f16(a)) * b + b)"]);
}
