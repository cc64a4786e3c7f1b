//! A driver that refuses buffers through wgpu: the reactions and the errors.

use std::sync::Arc;

use lapidary::units::MIB;
use lapidary::{DType, Error, Gpu, Result, Tensor, wgpu};

use super::app::{App, USED};
use super::gpu;
use super::scarce::{self, Memory};

/// Elements of a tensor of 1 MiB.
const LEN: usize = 256 << 10;

/// An app's device whose driver has this memory. The host maps slabs if possible.
pub(crate) fn app(memory: &Arc<Memory>, maps: bool) -> App {
    let mut features = USED;
    features.set(wgpu::Features::MAPPABLE_PRIMARY_BUFFERS, maps);
    let adapter = scarce::adapter(&gpu().caps().name, memory);
    App::on(adapter, features, |_| ())
}

/// Tensors of 1 MiB, each filled with its number.
fn fill(gpu: &Gpu, count: usize) -> Result<Vec<Tensor>> {
    let make = |number: usize| {
        let tensor = gpu.full(&[LEN], number as i32, DType::I32)?;
        tensor.force().map(|()| tensor)
    };
    (0..count).map(make).collect()
}

#[track_caller]
fn check(tensors: &[Tensor]) -> Result<()> {
    for (number, tensor) in tensors.iter().enumerate() {
        assert_eq!(tensor.to_vec::<i32>()?, [number as i32; LEN], "{tensor}");
    }
    Ok(())
}

#[test]
fn what_the_driver_has_no_room_for_leaves_and_comes_back() -> Result<()> {
    for maps in [false, true] {
        let memory = Memory::of(12 * MIB);
        let gpu = app(&memory, maps).gpu();
        let tensors = fill(&gpu, 32)?;
        let sum = tensors[0].add(&tensors[31])?;
        assert_eq!(sum.narrow(0, 7, 1)?.item::<i32>()?, 31);
        check(&tensors)?;
        let stats = gpu.memory().stats();
        assert!(
            memory.refused() > 0 && stats.device_bytes.now < 12 * MIB,
            "{stats}"
        );
        assert!(stats.evicted_bytes >= 20 * MIB, "{stats}");
    }
    Ok(())
}

#[test]
fn what_finds_no_room_runs_when_the_driver_has_some() -> Result<()> {
    for maps in [false, true] {
        let memory = Memory::of(12 * MIB);
        let gpu = app(&memory, maps).gpu();
        let tensors = fill(&gpu, 8)?;
        let pins: Vec<_> = tensors.iter().map(Tensor::pin).collect::<Result<_>>()?;
        let more = gpu.full(&[8 * LEN], 3, DType::I32)?;
        let error = more.force().expect_err("8 MiB are pinned, and 4 are left");
        assert!(matches!(error, Error::OutOfMemory(_)) && !error.is_final());
        let message = error.to_string();
        assert!(
            message.contains("pinned") && message.contains("refusals.rs"),
            "{message}"
        );
        check(&tensors)?;
        memory.set(64 * MIB);
        assert_eq!(more.narrow(0, 8 * LEN - 1, 1)?.item::<i32>()?, 3);
        check(&tensors)?;
        drop(pins);
    }
    Ok(())
}

/// Uploads, evicts, restores and reads. The result is right, or memory was short.
fn work(gpu: &Gpu) {
    let values: Vec<i32> = (0..LEN as i32).collect();
    let there_and_back = || {
        let up = gpu.tensor(&values, &[LEN])?;
        let more = up.add(1)?;
        more.evict()?;
        more.add(-1)?.to_vec::<i32>()
    };
    match there_and_back() {
        Ok(back) => assert_eq!(back, values),
        Err(error) => assert!(matches!(error, Error::OutOfMemory(_)), "{error}"),
    }
}

#[test]
fn every_buffer_is_refused_once_every_second_time_and_for_ever() -> Result<()> {
    for maps in [false, true] {
        let memory = Memory::of(64 * MIB);
        let app = app(&memory, maps);
        for step in [u64::MAX, 2, 1] {
            // From the first buffer on, from the second, and so on, up to the last.
            for first in 0.. {
                let gpu = app.gpu();
                let before = memory.refused();
                memory.refuse(Some((first, step)));
                let seven = gpu.full(&[LEN], 7, DType::I32)?;
                let is_there = seven.force().is_ok();
                work(&gpu);
                memory.refuse(None);
                assert_eq!(seven.to_vec::<i32>()?, [7; LEN], "was there: {is_there}");
                work(&gpu);
                if memory.refused() == before {
                    assert!(first > 0, "nothing was created");
                    break;
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_device_without_any_memory_is_not_adopted() {
    let memory = Memory::of(64 * MIB);
    let app = app(&memory, false);
    let adopt = || Gpu::adopt(&app.adapter, &app.device, &app.queue);
    memory.set(0);
    let error = adopt()
        .expect_err("not even a probe can be made")
        .to_string();
    assert!(error.contains("no memory left"), "{error}");
    memory.set(64 * MIB);
    assert!(adopt().is_ok());
}
