//! The device is lost during use: every call says so, nothing hangs, nothing panics.

use lapidary::interop::Access;
use lapidary::{DType, Error, Gpu, Options, Result, Tensor};

use super::app::App;
use super::{gpu, ramp};

#[track_caller]
fn assert_lost<T>(what: &str, result: Result<T>) {
    match result {
        Err(Error::DeviceLost { .. }) => (),
        Err(error) => panic!("{what}: {error}"),
        Ok(_) => panic!("{what} succeeded"),
    }
}

/// Every kind of call, on a device that is known to be lost.
fn assert_all_lost(gpu: &Gpu, x: &Tensor) {
    assert_lost("tensor", gpu.tensor(&[1.0_f32], &[1]));
    assert_lost("zeros", gpu.zeros(&[4], DType::F32));
    assert_lost("full", gpu.full(&[4], 1.0, DType::F32));
    assert_lost("add", x + x);
    assert_lost("matmul", x.matmul(x));
    assert_lost("sum", x.sum_all());
    assert_lost("contiguous", x.flip(&[0]).and_then(|x| x.contiguous()));
    assert_lost("in place", x.add_(1.0));
    assert_lost("write", x.write(&ramp(0, x.len())));
    assert_lost("force", x.force());
    assert_lost("read", pollster::block_on(x.to_vec_async::<f32>()));
    assert_lost("to_vec", x.to_vec::<f32>());
    assert_lost("flush", gpu.flush());
    assert_lost("finish", gpu.finish());
    assert_lost("poll", gpu.poll());
    assert_lost("trim", gpu.memory().trim(0));
    let encode = |_: &_| panic!("nothing is bound on a lost device");
    assert_lost("with_bound", gpu.with_bound(&[(x, Access::Read)], encode));
    // Calls that need no device still work.
    assert_eq!(x.shape(), [100]);
    assert!(!gpu.memory().stats().to_string().is_empty());
    assert!(x.narrow(0, 2, 3).is_ok());
}

#[test]
fn a_device_that_the_app_destroys_is_lost_to_every_call() -> Result<()> {
    let app = App::open();
    let gpu = app.gpu();
    let x = gpu.tensor(&ramp(0, 100), &[100])?;
    let y = (&x + 1.0)?;
    y.force()?;
    let queued = (&y * 2.0)?;
    let reading = queued.to_vec_async::<f32>();
    let buffer = app.buffer(64);
    app.device.destroy();
    assert_lost("a read under way", pollster::block_on(reading));
    assert_all_lost(&gpu, &x);
    assert_lost("import", gpu.import(&buffer, 0..64, &[16], DType::F32));
    assert_lost("adopt", Gpu::adopt(&app.adapter, &app.device, &app.queue));
    drop(gpu);
    assert_lost("an operation without the Gpu", &y + &y);
    drop((x, y, queued));
    Ok(())
}

#[test]
fn the_app_may_say_that_the_device_is_lost() -> Result<()> {
    let app = App::open();
    let gpu = app.gpu();
    let x = gpu.tensor(&ramp(0, 100), &[100])?;
    let reading = (&x + 1.0)?.to_vec_async::<f32>();
    gpu.notify_lost("the driver was reset");
    assert_lost("a read under way", pollster::block_on(reading));
    assert_all_lost(&gpu, &x);
    let error = gpu.flush().expect_err("it is lost").to_string();
    assert!(error.contains("the driver was reset"), "{error}");
    Ok(())
}

#[test]
fn a_lost_device_lets_go_of_everything_and_the_next_one_works() -> Result<()> {
    let lost = gpu();
    let tensors: Vec<Tensor> = (0..50)
        .map(|i| lost.full(&[1000 * (i + 1)], 1.0, DType::F32))
        .collect::<Result<_>>()?;
    lost.flush()?;
    lost.notify_lost("for this test");
    drop(lost);
    drop(tensors);
    let again = gpu();
    assert_eq!(
        again.tensor(&ramp(0, 5), &[5])?.to_vec::<f32>()?,
        ramp(0, 5)
    );
    Ok(())
}

#[test]
fn a_loss_ends_the_waits_of_other_threads() -> Result<()> {
    let app = App::open();
    let gpu = app.gpu();
    let x = gpu.zeros(&[1 << 20], DType::F32)?;
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    // Ends with the loss and not before.
                    loop {
                        if let Err(error) = (&x + 1.0).and_then(|y| y.to_vec::<f32>()) {
                            return error;
                        }
                    }
                })
            })
            .collect();
        std::thread::sleep(std::time::Duration::from_millis(50));
        app.device.destroy();
        for thread in waiting {
            let error = thread.join().expect("no thread panics");
            assert!(matches!(error, Error::DeviceLost { .. }), "{error:?}");
        }
    });
    Ok(())
}

#[test]
fn commands_for_a_device_that_was_replaced_meanwhile_are_not_submitted() -> Result<()> {
    // What is evicted outlives the device.
    let gpu = Gpu::open(Options {
        host_heap: Some(false),
        ..Options::from_env()?
    })?;
    let x = gpu.tensor(&ramp(0, 1 << 16), &[1 << 16])?;
    x.evict()?;
    let version = x.version();
    let encode = |_: &_| {
        gpu.notify_lost("on purpose");
        gpu.reopen().expect("another device can be had");
        Vec::new()
    };
    assert_lost("with_bound", gpu.with_bound(&[(&x, Access::Write)], encode));
    // It was not written, and its copy survived.
    assert_eq!(x.version(), version);
    assert_eq!(x.to_vec::<f32>()?, ramp(0, 1 << 16));
    Ok(())
}
