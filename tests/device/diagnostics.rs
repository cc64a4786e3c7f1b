//! Bugs that only an app on a real device can cause, and the findings of diagnostics.

use lapidary::interop::Access;
use lapidary::{
    DType, Gpu, Kernel, Options, Tensor,
    diagnostics::{Diagnostics, Finding},
    wgpu,
};

use crate::app::App as AppDevice;
use crate::{floats, ramp};

/// An app with its own device and diagnostics.
struct App {
    device: wgpu::Device,
    gpu: Gpu,
}

fn app() -> App {
    let AppDevice {
        adapter,
        device,
        queue,
    } = AppDevice::open();
    let options = Options {
        diagnostics: Some(Diagnostics::all()),
        ..Options::from_env().unwrap()
    };
    let gpu = Gpu::adopt_with(&adapter, &device, &queue, options).unwrap();
    App { device, gpu }
}

impl App {
    /// The app's own commands clear a range from the tensor's beginning, even beyond its end.
    fn clear(&self, tensor: &Tensor, start: u64, size_bytes: u64) -> (wgpu::Buffer, u64) {
        let mut place = None;
        let bound = [(tensor, Access::Write)];
        let cleared = self.gpu.with_bound(&bound, |bound| {
            let range = &bound[0];
            let at = range.offset_bytes + start;
            place = Some((range.buffer.clone(), range.offset_bytes));
            let mut encoder = self.device.create_command_encoder(&Default::default());
            encoder.clear_buffer(&range.buffer, at, Some(size_bytes));
            vec![encoder.finish()]
        });
        cleared.unwrap();
        place.unwrap()
    }

    #[track_caller]
    fn one(&self) -> Finding {
        let mut found = self.gpu.diagnostics().check().unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }
}

#[test]
fn the_apps_own_commands_that_pass_the_end_of_a_tensor_are_found() {
    let app = app();
    let x = app.gpu.tensor(&ramp(0, 100), &[100]).unwrap().named("x");
    let behind = app.gpu.tensor(&ramp(7, 10), &[10]).unwrap();
    behind.force().unwrap();
    app.clear(&x, 396, 36);
    let found = app.one();
    let Finding::Overrun {
        made_at,
        size_bytes,
        first_byte,
        end_byte,
        words,
        suspects,
        ..
    } = &found
    else {
        panic!("{found}");
    };
    assert_eq!(made_at.as_ref().unwrap().name(), Some("x"), "{found}");
    assert_eq!(
        (*size_bytes, *first_byte, *end_byte, *words),
        (400, 400, 432, 8)
    );
    assert!(suspects[0].contains("app"), "{found}");
    assert_eq!(floats(&behind), ramp(7, 10));
    // The app may write within the tensor.
    app.clear(&x, 0, 400);
    assert_eq!(app.gpu.diagnostics().check().unwrap(), []);
    assert_eq!(floats(&x), [0.0; 100]);
}

#[test]
fn a_write_through_a_range_that_the_app_kept_too_long_is_found() {
    let app = app();
    let x = app
        .gpu
        .tensor(&ramp(0, 64), &[64])
        .unwrap()
        .named("short-lived");
    let other = app.gpu.tensor(&ramp(1, 64), &[64]).unwrap();
    let (buffer, start) = app.clear(&x, 0, 16);
    drop(x);
    app.gpu.flush().unwrap();
    let stale = app.gpu.with_bound(&[(&other, Access::Read)], |_| {
        let mut encoder = app.device.create_command_encoder(&Default::default());
        encoder.clear_buffer(&buffer, start + 32, Some(8));
        vec![encoder.finish()]
    });
    stale.unwrap();
    let found = app.one();
    let Finding::WrittenAfterFree {
        made_at,
        first_byte,
        end_byte,
        words,
        ..
    } = &found
    else {
        panic!("{found}");
    };
    assert_eq!(
        made_at.as_ref().unwrap().name(),
        Some("short-lived"),
        "{found}"
    );
    assert_eq!((*first_byte, *end_byte, *words), (32, 40, 2), "{found}");
    assert_eq!(floats(&other), ramp(1, 64));
}

#[test]
fn a_users_kernel_is_found_that_overruns_and_one_that_leaves_a_rest() {
    let app = app();
    let kernel = Kernel::new(
        &app.gpu,
        "@group(0) @binding(0) var<storage, read_write> y: array<f32>;
        @group(0) @binding(1) var<storage, read_write> len: array<u32>;
        @compute @workgroup_size(64)
        fn count(@builtin(global_invocation_id) id: vec3<u32>) {
            y[id.x] = f32(id.x);
            if id.x == 0u { len[0] = arrayLength(&y); }
        }",
    )
    .unwrap();
    let run = |len: usize| {
        let call = kernel
            .call()
            .out("y", &[len], DType::F32)
            .out("len", &[1], DType::U32);
        let made = call.groups([2, 1, 1]).run().unwrap();
        assert_eq!(made[1].to_vec::<u32>().unwrap(), [len as u32]);
        made[0].clone()
    };
    // With 128 invocations, 100 elements have 28 invocations too many, 130 lack two, and 128 are
    // right.
    let y = run(100);
    assert_eq!(floats(&y), ramp(0, 100));
    let found = app.one();
    let Finding::Overrun {
        first_byte,
        end_byte,
        words,
        suspects,
        ..
    } = &found
    else {
        panic!("{found}");
    };
    assert_eq!((*first_byte, *end_byte, *words), (400, 512, 28), "{found}");
    assert_eq!(suspects[..], ["the kernel `count`"]);
    let y = run(130);
    assert_eq!(floats(&y), [ramp(0, 128), vec![0.0; 2]].concat());
    let found = app.one();
    assert!(
        matches!(
            &found,
            Finding::Unwritten {
                words: 2,
                first_word: 128,
                ..
            }
        ),
        "{found}"
    );
    assert_eq!(floats(&run(128)), ramp(0, 128));
    assert_eq!(app.gpu.diagnostics().check().unwrap(), []);
}

#[test]
fn a_nan_is_found_where_it_is_born_and_a_right_network_has_none() {
    let app = app();
    let gpu = &app.gpu;
    let x = gpu.tensor(&ramp(1, 35), &[5, 7]).unwrap();
    let weights = gpu.rand_normal(&[7, 3], 0.0, 0.1, 1, DType::F16).unwrap();
    let y = x
        .cast(DType::F16)
        .unwrap()
        .matmul(&weights)
        .unwrap()
        .softmax(1)
        .unwrap();
    let (mean, best) = (y.mean_all().unwrap(), y.argmax(1).unwrap());
    mean.force().unwrap();
    best.force().unwrap();
    assert_eq!(gpu.diagnostics().check().unwrap(), []);
    let z = (&(&x - 3.0).unwrap().sqrt().unwrap() * 2.0).unwrap();
    assert!(floats(&z)[0].is_nan());
    let found = app.one();
    let Finding::NonFinite {
        operation,
        nans,
        first_element,
        ..
    } = &found
    else {
        panic!("{found}");
    };
    assert_eq!(
        (operation.as_deref(), *nans, *first_element),
        (Some("sqrt"), 2, 0),
        "{found}"
    );
}
