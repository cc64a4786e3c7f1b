//! Users' kernels on a simulated device, by their twins.

use lapidary::sim::{SimMode, SimOptions};
use lapidary::{DType, Gpu, Kernel};

use crate::{SAXPY, SaxpyParams, shown};

#[test]
fn a_kernel_with_a_twin_computes_and_one_without_says_what_it_needs() {
    let (gpu, sim) = Gpu::simulated(SimOptions::default()).unwrap();
    let x = gpu.tensor(&[1.0_f32, 2.0, 3.0], &[3]).unwrap();
    let y = gpu.tensor(&[1.0_f32; 3], &[3]).unwrap();
    let call = |kernel: &Kernel| {
        let call = kernel.call().bind("x", &x).bind("y", &y);
        let call = call.out("z", &[3], DType::F32).groups([1, 1, 1]);
        call.params(&SaxpyParams { a: 2.0, n: 3 })
    };
    let kernel = Kernel::new(&gpu, SAXPY).unwrap();
    let (message, _) = shown(call(&kernel).run());
    assert!(message.contains("with_twin"), "{message}");

    let kernel = kernel.with_twin(|call| {
        let a: f32 = bytemuck::pod_read_unaligned(&call.params()[..4]);
        let (x, y) = (call.read::<f32>("x"), call.read::<f32>("y"));
        let z: Vec<f32> = x.iter().zip(&y).map(|(x, y)| a * x + y).collect();
        assert_eq!(call.read::<f32>("no"), [0.0; 0]);
        call.write("no", &z);
        call.write("z", &z);
    });
    let z = call(&kernel).run_one().unwrap();
    assert_eq!(z.to_vec::<f32>().unwrap(), [3.0, 5.0, 7.0]);
    drop(kernel);
    gpu.flush().unwrap();
    gpu.flush().unwrap();
    assert_eq!(gpu.memory().pipelines, 0);
    assert_eq!(sim.complaints(), [""; 0]);
}

#[test]
fn sizes_alone_need_no_twin() {
    let options = SimOptions {
        mode: SimMode::SizesOnly,
        ..SimOptions::default()
    };
    let (gpu, sim) = Gpu::simulated(options).unwrap();
    let x = gpu.zeros(&[1000], DType::F32).unwrap();
    let kernel = Kernel::new(&gpu, SAXPY).unwrap();
    let z = kernel.call().bind("x", &x).bind("y", &x);
    let z = z.out("z", &[1000], DType::F32).groups([16, 1, 1]);
    let z = z.params(&SaxpyParams { a: 2.0, n: 3 }).run_one().unwrap();
    z.force().unwrap();
    assert_eq!(sim.complaints(), [""; 0]);
}
