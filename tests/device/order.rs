//! Calls run in order, and a loop that repeats itself creates nothing new.

use std::thread;

use lapidary::{DType, Gpu, Result, Tensor};

use super::app::App;
use super::{floats, gpu, ramp, small};

#[test]
fn a_read_sees_what_was_written_before_it_and_nothing_later() -> Result<()> {
    let gpu = gpu();
    let x = gpu.tensor(&ramp(0, 1000), &[1000])?;
    let doubled = (&x * 2.0)?;
    let before = x.to_vec_async::<f32>();
    x.fill_(-1.0)?;
    let between = x.to_vec_async::<f32>();
    x.write(&ramp(5, 1000))?;
    let after = x.to_vec_async::<f32>();
    assert_eq!(pollster::block_on(after)?, ramp(5, 1000));
    assert_eq!(pollster::block_on(between)?, [-1.0; 1000]);
    assert_eq!(pollster::block_on(before)?, ramp(0, 1000));
    let expected: Vec<f32> = ramp(0, 1000).iter().map(|x| 2.0 * x).collect();
    assert_eq!(floats(&doubled), expected);
    Ok(())
}

#[test]
fn what_goes_in_many_pieces_arrives_in_order_with_and_without_staging() -> Result<()> {
    for gpu in [gpu(), App::open().gpu()] {
        let data = ramp(0, 7_000_001);
        let x = gpu.upload_with(&[data.len()], |out| {
            data.chunks(1_500_000)
                .for_each(|part| out.extend_from_slice(part));
        })?;
        let doubled = (&x * 2.0)?;
        let before = x.to_vec_async::<f32>();
        x.write(&ramp(5, data.len()))?;
        assert!(pollster::block_on(before)? == data);
        assert!(floats(&x) == ramp(5, data.len()));
        let expected: Vec<f32> = data.iter().map(|x| 2.0 * x).collect();
        assert!(floats(&doubled) == expected);
    }
    Ok(())
}

#[test]
fn many_reads_are_under_way_and_may_be_forgotten() -> Result<()> {
    let gpu = gpu();
    let mut reads = Vec::new();
    for i in 0..40 {
        let x = gpu.full(&[1 + i * 500], i as f32, DType::F32)?;
        let read = x.to_vec_async::<f32>();
        if i % 4 == 3 {
            drop(read);
        } else {
            reads.push((i, read));
        }
    }
    for (i, read) in reads.into_iter().rev() {
        assert_eq!(pollster::block_on(read)?, vec![i as f32; 1 + i * 500]);
    }
    Ok(())
}

#[test]
fn memory_that_is_used_again_at_once_keeps_the_order() -> Result<()> {
    let gpu = gpu();
    let mut total = gpu.zeros(&[50_000], DType::F32)?;
    let mut expected = 0.0;
    for step in 0..60 {
        // Three storages are dropped in each step, and the next step takes over their blocks.
        let part = (&gpu.full(&[50_000], step as f32, DType::F32)? + 1.0)?;
        total = (&total + &part)?;
        expected += step as f32 + 1.0;
        if step % 7 == 0 {
            gpu.flush()?;
        }
    }
    assert!(floats(&total).iter().all(|&x| x == expected));
    assert!(gpu.memory().stats().live_bytes.peak < 60 * 200_000);
    Ok(())
}

#[test]
fn what_a_freed_tensor_held_is_never_seen_in_zeros() -> Result<()> {
    let gpu = gpu();
    for len in [1, 5, 4096, 100_001] {
        drop(gpu.full(&[len], 3.0, DType::F32)?.to_vec::<f32>()?);
        assert_eq!(floats(&gpu.zeros(&[len], DType::F32)?), vec![0.0; len]);
    }
    Ok(())
}

#[test]
fn a_long_chain_in_place_runs_step_by_step() -> Result<()> {
    let gpu = gpu();
    let x = gpu.tensor(&[1_i32, 2, 3], &[3])?;
    for _ in 0..500 {
        x.mul_(3)?;
        x.add_(1)?;
    }
    let step = |x: i32| (0..500).fold(x, |x, _| x.wrapping_mul(3).wrapping_add(1));
    assert_eq!(x.to_vec::<i32>()?, [1, 2, 3].map(step));
    Ok(())
}

/// One step of a training loop.
fn step(gpu: &Gpu, weight: &Tensor, seed: usize) -> Result<f32> {
    let x = gpu.tensor(&small(64 * 100, seed), &[64, 100])?;
    let hidden = x.matmul(weight)?.relu()?;
    let loss = hidden.softmax(-1)?.square()?.mean_all()?;
    let gradient = x.t()?.matmul(&hidden)?;
    weight.sub_(&(&gradient * 1e-6)?)?;
    loss.item()
}

#[test]
fn a_steady_loop_creates_nothing_after_three_rounds() -> Result<()> {
    let gpu = gpu();
    let weight = gpu.tensor(&small(100 * 80, 7), &[100, 80])?;
    for round in 0..3 {
        step(&gpu, &weight, round)?;
    }
    let before = gpu.memory().stats();
    for round in 3..30 {
        assert!(step(&gpu, &weight, round)?.is_finite());
    }
    let after = gpu.memory().stats();
    assert_eq!(after.slabs_created, before.slabs_created);
    assert_eq!(after.reserved_bytes.now, before.reserved_bytes.now);
    assert_eq!(after.pipelines, before.pipelines);
    assert_eq!(after.bind_groups, before.bind_groups);
    assert_eq!(after.upload_bytes.now, before.upload_bytes.now);
    assert_eq!(after.readback_bytes.now, before.readback_bytes.now);
    assert_eq!(after.live_bytes.now, before.live_bytes.now);
    Ok(())
}

#[test]
fn threads_share_a_device_and_each_gets_its_own_results() {
    let gpu = gpu();
    let work = |seed: usize| -> Result<()> {
        for round in 0..15 {
            let x = gpu.tensor(&small(3000, seed), &[3000])?;
            let y = (&(&x * 2.0)? + round as f32)?;
            let expected: Vec<f32> = small(3000, seed)
                .iter()
                .map(|x| 2.0 * x + round as f32)
                .collect();
            assert_eq!(floats(&y), expected, "thread {seed}, round {round}");
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || work(seed))).collect();
        for thread in threads {
            thread
                .join()
                .expect("no thread panics")
                .expect("no call fails");
        }
    });
}

#[test]
fn tensors_outlive_the_handle_and_their_memory_comes_back() -> Result<()> {
    let x = {
        let gpu = gpu();
        gpu.tensor(&ramp(0, 10), &[10])?
    };
    let y = (&x + 1.0)?;
    assert_eq!(floats(&y), ramp(1, 10));

    let gpu = gpu();
    let large = gpu.full(&[1 << 20], 1.0, DType::F32)?;
    large.force()?;
    assert!(gpu.memory().stats().live_bytes.now >= 4 << 20);
    thread::spawn(move || drop(large))
        .join()
        .expect("a drop never panics");
    gpu.finish()?;
    assert_eq!(gpu.memory().stats().live_bytes.now, 0);
    gpu.memory().trim(0)?;
    gpu.finish()?;
    assert_eq!(gpu.memory().stats().reserved_bytes.now, 0);
    Ok(())
}
