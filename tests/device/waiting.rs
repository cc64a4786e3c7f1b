//! Commands that wait for memory, and what the app writes itself meanwhile.

use lapidary::interop::Access;
use lapidary::{Budget, DType, Error, Gpu, Options};

use super::app::App;
use super::floats;

/// A handle whose tensors have room for these bytes and cannot leave.
fn narrow(app: &App, slab_bytes: u64) -> Gpu {
    let staging_bytes = 1 << 20;
    let options = Options {
        budget: Some(Budget {
            staging_bytes: Some(staging_bytes),
            host_bytes: Some(0),
            disk_bytes: Some(0),
            ..Budget::device(slab_bytes + staging_bytes)
        }),
        ..Options::from_env().unwrap()
    };
    Gpu::adopt_with(&app.adapter, &app.device, &app.queue, options).expect("a budget")
}

#[test]
fn the_app_writes_to_nothing_that_waiting_commands_still_read() {
    let app = App::open();
    let gpu = narrow(&app, 8 << 20);
    let x = gpu.full(&[1 << 10], 5, DType::F32).unwrap();
    let hog = gpu.zeros(&[6 << 20], DType::U8).unwrap();
    x.force().unwrap();
    hog.force().unwrap();
    let column = x.view_as(&[1, 1 << 10]).unwrap();
    let wide = column.broadcast_to(&[1 << 10, 1 << 10]).unwrap();
    let wide = wide.copy().unwrap();
    drop(column);
    assert!(matches!(wide.force(), Err(Error::OutOfMemory(_))));
    let write = || {
        gpu.with_bound(&[(&x, Access::Write)], |bound| {
            let mut encoder = app.device.create_command_encoder(&Default::default());
            let x = &bound[0];
            encoder.clear_buffer(&x.buffer, x.offset_bytes, Some(x.size_bytes));
            vec![encoder.finish()]
        })
    };
    let written = write();
    assert!(matches!(written, Err(Error::OutOfMemory(_))), "{written:?}");
    gpu.with_bound(&[(&x, Access::Read)], |_| Vec::new())
        .unwrap();
    drop(hog);
    wide.force().unwrap();
    write().unwrap();
    assert!(floats(&wide).iter().all(|one| *one == 5.0));
    assert!(floats(&x).iter().all(|one| *one == 0.0));
}
