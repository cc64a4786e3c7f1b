//! One device with two users: the app's callbacks, commands and buffers beside our tensors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lapidary::interop::{Access, Bound};
use lapidary::{DType, Error, Gpu, Result, wgpu};

use super::app::App;
use super::{floats, gpu, ramp};

/// The app's own kernel: `y = 2 x + 1` for each element, and `x` becomes 0.
const WGSL: &str = "
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&x)) {
        y[id.x] = 2.0 * x[id.x] + 1.0;
        x[id.x] = 0.0;
    }
}";

#[test]
fn the_apps_callbacks_stay_the_apps() -> Result<()> {
    let app = App::open();
    let (errors, losses) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (hears, loses) = (Arc::clone(&errors), Arc::clone(&losses));
    app.device.on_uncaptured_error(Arc::new(move |_| {
        hears.fetch_add(1, Ordering::SeqCst);
    }));
    app.device.set_device_lost_callback(move |_, _| {
        loses.fetch_add(1, Ordering::SeqCst);
    });
    let gpu = app.gpu();
    let x = gpu.tensor(&ramp(0, 100), &[100])?;
    // Our own refusals of a tensor and of invalid commands do not reach the app.
    assert!(gpu.zeros(&[1 << 40], DType::F32).is_err());
    let gone = app.buffer(400);
    let refused = gpu.with_bound(&[(&x, Access::Read)], |bound| {
        let mut encoder = app.device.create_command_encoder(&Default::default());
        let range = &bound[0];
        encoder.copy_buffer_to_buffer(&range.buffer, range.offset_bytes, &gone, 0, 400);
        gone.destroy();
        vec![encoder.finish()]
    });
    assert!(matches!(refused, Err(Error::Driver { .. })), "{refused:?}");
    assert_eq!(floats(&(&x + 1.0)?), ramp(1, 100));
    assert_eq!(errors.load(Ordering::SeqCst), 0);
    let _ = app.buffer_for(4, wgpu::BufferUsages::empty());
    assert_eq!(errors.load(Ordering::SeqCst), 1, "the app's own mistake");

    app.device.destroy();
    assert!(matches!(x.to_vec::<f32>(), Err(Error::DeviceLost { .. })));
    let _ = app.device.poll(wgpu::PollType::Poll);
    assert_eq!(losses.load(Ordering::SeqCst), 1);
    Ok(())
}

#[test]
fn a_buffer_that_the_app_destroyed_harms_only_those_who_use_it() -> Result<()> {
    let app = App::open();
    let gpu = app.gpu();
    let buffer = app.buffer(400);
    let (x, theirs) = (
        gpu.tensor(&ramp(0, 100), &[100])?,
        gpu.import(&buffer, 0..400, &[100], DType::F32)?,
    );
    gpu.finish()?;
    buffer.destroy();
    // All of these are in the queue together.
    let before = (&x + 1.0)?;
    let wrong = (&theirs + &x)?;
    let after = (&before + 1.0)?;
    x.add_(&after)?;
    assert!(matches!(wrong.to_vec::<f32>(), Err(Error::Poisoned { .. })));
    assert_eq!(floats(&before), ramp(1, 100));
    assert_eq!(floats(&after), ramp(2, 100));
    assert_eq!(floats(&x)[..3], [2.0, 4.0, 6.0]);
    Ok(())
}

#[test]
fn what_starts_inside_a_word_is_not_bound() -> Result<()> {
    let gpu = App::open().gpu();
    let bytes = gpu.tensor(&[1_u8, 2, 3, 4, 5, 6, 7, 8], &[8])?;
    for start in 0..8 {
        let view = bytes.narrow(0, start, 8 - start)?;
        let bound = gpu.with_bound(&[(&view, Access::Read)], |bound| {
            let range = &bound[0];
            assert_eq!(range.size_bytes, 8 - start as u64);
            assert!(range.offset_bytes.is_multiple_of(4));
            vec![]
        });
        match start % 4 {
            0 => bound?,
            _ => assert!(matches!(bound, Err(Error::Shape { .. })), "{bound:?}"),
        }
        // A copy of it is accepted.
        gpu.with_bound(&[(&view.copy()?, Access::Read)], |_| vec![])?;
    }
    Ok(())
}

#[test]
fn a_pass_of_the_app_reads_and_writes_tensors() -> Result<()> {
    let app = App::open();
    let (gpu, pipeline) = (app.gpu(), app.compute(WGSL));
    let x = (&gpu.tensor(&ramp(0, 1000), &[1000])? + 1.0)?;
    let y = gpu.zeros(&[1000], DType::F32)?;
    let earlier = x.to_vec_async::<f32>();
    let versions = (x.version(), y.version());
    gpu.with_bound(&[(&x, Access::Write), (&y, Access::Write)], |bound| {
        assert_eq!(bound.ranges().len(), 2);
        assert!(bound[0].size_bytes >= 4000);
        vec![app.pass(&pipeline, bound.ranges(), 16)]
    })?;
    assert!(x.version() > versions.0 && y.version() > versions.1);
    let expected: Vec<f32> = ramp(1, 1000).iter().map(|x| 2.0 * x + 2.0).collect();
    assert_eq!(floats(&(&y + 1.0)?), expected);
    assert_eq!(floats(&x), [0.0; 1000]);
    assert_eq!(pollster::block_on(earlier)?, ramp(1, 1000));
    Ok(())
}

#[test]
fn the_app_may_use_lapidary_while_it_encodes() -> Result<()> {
    let app = App::open();
    let (gpu, pipeline) = (app.gpu(), app.compute(WGSL));
    let x = gpu.tensor(&ramp(0, 64), &[64])?;
    let y = gpu.zeros(&[64], DType::F32)?;
    let mut later = None;
    gpu.with_bound(&[(&x, Access::Write), (&y, Access::Write)], |bound| {
        later = (&y * 10.0).ok();
        vec![app.pass(&pipeline, bound.ranges(), 16)]
    })?;
    let expected: Vec<f32> = ramp(0, 64).iter().map(|x| 20.0 * x + 10.0).collect();
    assert_eq!(floats(&later.expect("an operation")), expected);
    gpu.with_bound(&[], |_| Vec::new())?;
    Ok(())
}

#[test]
fn what_cannot_be_bound_is_refused() -> Result<()> {
    let (app, other) = (App::open(), gpu());
    let gpu = app.gpu();
    let x = gpu.zeros(&[4, 4], DType::F32)?;
    let never = |_: &Bound| -> Vec<wgpu::CommandBuffer> { panic!("nothing is bound") };
    let transposed = gpu.with_bound(&[(&x.t()?, Access::Read)], never);
    assert!(
        matches!(transposed, Err(Error::Shape { .. })),
        "{transposed:?}"
    );
    let foreign = other.zeros(&[4], DType::F32)?;
    let foreign = gpu.with_bound(&[(&x, Access::Read), (&foreign, Access::Read)], never);
    assert!(matches!(foreign, Err(Error::Foreign { .. })), "{foreign:?}");
    assert_eq!(floats(&x), [0.0; 16]);
    Ok(())
}

#[test]
fn a_buffer_of_the_app_is_a_tensor_without_a_copy() -> Result<()> {
    let app = App::open();
    let gpu = app.gpu();
    let start = gpu.caps().offset_alignment_bytes;
    let buffer = app.buffer(start + 4000);
    let bytes: Vec<u8> = ramp(0, 1000).iter().flat_map(|x| x.to_ne_bytes()).collect();
    app.queue.write_buffer(&buffer, start, &bytes);
    let x = gpu.import(&buffer, start..start + 4000, &[10, 100], DType::F32)?;
    assert_eq!(gpu.memory().stats().imported_bytes.now, 4000);
    assert_eq!(gpu.memory().stats().live_bytes.now, 0);
    let sum = (&x + &x)?;
    x.mul_(-1.0)?;
    let expected: Vec<f32> = ramp(0, 1000).iter().map(|x| 2.0 * x).collect();
    assert_eq!(floats(&sum), expected);
    gpu.flush()?;

    // The app sees the written values.
    let copy = app.buffer(4000);
    let mut encoder = app.device.create_command_encoder(&Default::default());
    encoder.copy_buffer_to_buffer(&buffer, start, &copy, 0, 4000);
    app.queue.submit([encoder.finish()]);
    let copy = gpu.import(&copy, 0..4000, &[1000], DType::F32)?;
    let expected: Vec<f32> = ramp(0, 1000).iter().map(|x| -x).collect();
    assert_eq!(floats(&copy), expected);
    drop((x, copy));
    gpu.finish()?;
    assert_eq!(gpu.memory().stats().imported_bytes.now, 0);
    Ok(())
}

/// Asserts that an import fails with an error that contains `reason`.
#[track_caller]
fn refuses(gpu: &Gpu, buffer: &wgpu::Buffer, bytes: (u64, u64), shape: &[usize], reason: &str) {
    match gpu.import(buffer, bytes.0..bytes.1, shape, DType::F32) {
        Ok(tensor) => panic!("{tensor} was imported, without: {reason}"),
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains(reason), "{text:?} does not say {reason:?}");
        }
    }
}

#[test]
fn what_cannot_be_imported_is_refused_with_the_reason() -> Result<()> {
    let app = App::open();
    let gpu = app.gpu();
    let buffer = app.buffer(1024);
    let usages = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC;
    refuses(
        &gpu,
        &app.buffer_for(1024, usages),
        (0, 64),
        &[16],
        "usages",
    );
    refuses(&gpu, &buffer, (0, 64), &[17], "takes");
    refuses(&gpu, &buffer, (0, 64), &[12], "takes");
    refuses(&gpu, &buffer, (0, 0), &[4], "takes");
    refuses(&gpu, &buffer, (64, 0), &[16], "takes");
    refuses(&gpu, &buffer, (0, u64::MAX), &[16], "takes");
    refuses(&gpu, &buffer, (0, 64), &[usize::MAX, 2], "bytes");
    refuses(&gpu, &buffer, (4, 68), &[16], "multiple");
    refuses(&gpu, &buffer, (1024, 1088), &[16], "end");
    refuses(&gpu, &buffer, (u64::MAX - 63, u64::MAX), &[16], "");
    let held = gpu.import(&buffer, 0..512, &[128], DType::F32)?;
    refuses(&gpu, &buffer, (256, 512), &[64], "");
    refuses(&gpu, &buffer, (0, 512), &[128], "");
    let beside = gpu.import(&buffer, 512..1024, &[128], DType::F32)?;
    assert_eq!(floats(&(&held + &beside)?), [0.0; 128]);
    drop(held);
    // A dropped import does not block a new one, even before other work has run.
    let again = gpu.import(&buffer, 256..512, &[64], DType::F32)?;
    refuses(&gpu, &buffer, (256, 512), &[64], "overlaps");
    drop(again);
    gpu.finish()?;
    gpu.import(&buffer, 256..512, &[64], DType::F32)?;
    Ok(())
}

#[test]
fn an_import_shorter_than_its_padding_is_written_as_a_whole() -> Result<()> {
    let app = App::open();
    let gpu = app.gpu();
    let buffer = app.buffer(64);
    let bytes = gpu.import(&buffer, 0..16, &[3], DType::U8)?;
    bytes.write(&[7_u8, 8, 9])?;
    assert_eq!(bytes.to_vec::<u8>()?, [7, 8, 9]);
    Ok(())
}

#[test]
fn a_buffer_of_another_device_spoils_only_what_touches_it() -> Result<()> {
    let (app, other) = (App::open(), App::open());
    let gpu = app.gpu();
    let x = gpu.tensor(&ramp(0, 16), &[16])?;
    match gpu.import(&other.buffer(64), 0..64, &[16], DType::F32) {
        Err(error) => assert!(matches!(error, Error::Buffer { .. }), "{error:?}"),
        Ok(foreign) => {
            let result = (&foreign + &x)?.to_vec::<f32>();
            assert!(result.is_err(), "{result:?}");
        }
    }
    assert_eq!(floats(&(&x + 1.0)?), ramp(1, 16));
    Ok(())
}

#[test]
fn a_tensor_without_elements_is_not_bound_as_the_rest_of_its_slab() -> Result<()> {
    let gpu = gpu();
    let empty = gpu.tensor(&ramp(0, 16), &[16])?.narrow(0, 4, 0)?;
    let bound = gpu.with_bound(&[(&empty, Access::Write)], |_| Vec::new());
    assert!(matches!(bound, Err(Error::Shape { .. })), "{bound:?}");
    Ok(())
}
