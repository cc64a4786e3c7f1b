//! Programs that read, that fail, and that panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

use lapidary::{DType, Error, Gpu, Kernel, Result, Tensor};

use super::gpu;

type Read = fn(&Tensor) -> Result<()>;

#[test]
fn a_read_is_an_error_with_its_line() {
    let gpu = gpu();
    let x = gpu.tensor(&[1.0_f32], &[1]).unwrap();
    let reads: &[(&str, u32, Read)] = &[
        ("item", line!(), |x| x.item::<f32>().map(drop)),
        ("to_vec", line!(), |x| x.to_vec::<f32>().map(drop)),
        ("read", line!(), |x| {
            pollster::block_on(x.to_vec_async::<f32>()).map(drop)
        }),
        ("read_into", line!(), |x| x.read_into::<f32>(&mut vec![])),
        ("read_with", line!(), |x| x.read_with(|_: &[f32]| ())),
        ("of a view", line!(), |x| {
            x.broadcast_to(&[3])?.to_vec::<f32>().map(drop)
        }),
        ("a buffer", line!(), |x| {
            x.buffer().expect("one").to_vec::<f32>().map(drop)
        }),
    ];
    for &(name, line, read) in reads {
        let of_device = gpu.dry_run(|_| read(&x));
        let of_dry = gpu.dry_run(|gpu| read(&gpu.zeros(&[1], DType::F32)?));
        for found in [of_device, of_dry] {
            check_line(name, line, found);
        }
    }
    assert_eq!(x.item::<f32>().unwrap(), 1.0);
}

#[test]
fn so_is_a_save() {
    let gpu = gpu();
    let folder = std::env::temp_dir().join(format!("lapidary-dry-saves-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("never-written");
    let matrix = gpu.ones(&[64, 64], DType::F32).unwrap();
    for x in [&matrix, &matrix.t().unwrap()] {
        let tensors = [("x", x)];
        let line = line!();
        let saved = gpu.dry_run(|gpu| gpu.files().save_state(&path, &tensors));
        check_line("save_state", line, saved.map(drop));
        #[cfg(feature = "model-files")]
        {
            let line = line!();
            let saved = gpu.dry_run(|gpu| gpu.files().save_model(&path, &tensors, &[]));
            check_line("save_model", line, saved.map(drop));
        }
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The read is at this line or the next one.
fn check_line<T: std::fmt::Debug>(name: &str, line: u32, found: Result<T>) {
    let Err(Error::DryRunRead { at }) = found else {
        panic!("{name}: {found:?}");
    };
    let (file, found) = at.rsplit_once(':').expect("a line");
    let found: u32 = found.parse().expect("a number");
    assert!(file.ends_with("reads.rs"), "{name}: {at}");
    assert!((line..=line + 1).contains(&found), "{name}: {at}");
}

#[test]
fn a_program_may_leave_its_reads_out() {
    let gpu = gpu();
    let x = gpu.tensor(&[1.0_f32, 3.0], &[2]).unwrap();
    let program = |gpu: &Gpu| {
        let loss = x.sum_all()?;
        match gpu.is_dry() {
            true => Ok(0.0),
            false => loss.item::<f32>(),
        }
    };
    gpu.dry_run(program).unwrap();
    assert_eq!(program(&gpu).unwrap(), 4.0);
}

#[test]
fn after_errors_and_panics_the_device_goes_on() {
    let gpu = gpu();
    let x = gpu.tensor(&[1.0_f32, 2.0], &[2]).unwrap();
    let wrong = gpu.dry_run(|_| x.reshape(&[3]));
    assert!(matches!(wrong, Err(Error::Shape { .. })), "{wrong:?}");
    let panic = catch_unwind(AssertUnwindSafe(|| {
        gpu.dry_run(|_| {
            x.add_(&x)?;
            if x.len() == 2 {
                std::panic::resume_unwind(Box::new("the program's own"));
            }
            Ok(())
        })
    }));
    assert!(panic.is_err() && !gpu.is_dry());
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    let too_large = gpu.dry_run(|gpu| gpu.zeros(&[1 << 31, 1], DType::F32));
    assert!(matches!(too_large, Err(Error::NeverFits { .. })));
}

#[test]
fn kernels_of_the_app_take_part() {
    let gpu = gpu();
    let text = "
        @group(0) @binding(0) var<storage, read_write> x: array<f32>;
        @group(0) @binding(1) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(64)
        fn twice(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < arrayLength(&y) { y[id.x] = 2.0 * x[id.x]; }
        }";
    let kernel = Kernel::new(&gpu, text).unwrap();
    let x = gpu.ones(&[1 << 16], DType::F32).unwrap();
    let program = |_: &Gpu| {
        let call = kernel.call().bind("x", &x).out("y", &[1 << 16], DType::F32);
        call.groups([1024, 1, 1]).run_one()? + &x
    };
    let dry = super::check(&gpu, "a custom kernel", program);
    assert_eq!(dry.launches, 2, "{dry}");
    assert_eq!(program(&gpu).unwrap().to_vec::<f32>().unwrap()[0], 3.0);
}
