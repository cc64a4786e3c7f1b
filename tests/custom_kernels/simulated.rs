//! Users' kernels on a simulated device, interpreted or computed by their reference kernels.

use lapidary::sim::{SimMode, SimOptions};
use lapidary::{DType, Error, Gpu, Kernel};

use crate::custom_kernels::{SAXPY, SaxpyParams};

#[test]
fn a_kernel_computes_by_its_text_and_with_a_reference_by_that() {
    let (gpu, sim) = Gpu::simulated(SimOptions::default()).unwrap();
    let x = gpu.tensor(&[1.0_f32, 2.0, 3.0], &[3]).unwrap();
    let y = gpu.tensor(&[1.0_f32; 3], &[3]).unwrap();
    let call = |kernel: &Kernel| {
        let call = kernel.call().bind("x", &x).bind("y", &y);
        let call = call.out("z", &[3], DType::F32).groups([1, 1, 1]);
        call.params(&SaxpyParams { a: 2.0, n: 3 })
    };
    let kernel = Kernel::new(&gpu, SAXPY).unwrap();
    let z = call(&kernel).run_one().unwrap();
    assert_eq!(z.to_vec::<f32>().unwrap(), [3.0, 5.0, 7.0]);

    let kernel = kernel.with_reference(|call| {
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
    assert_eq!(gpu.memory().stats().pipelines, 0);
    assert_eq!(sim.complaints(), [""; 0]);
}

#[test]
fn sizes_alone_need_no_reference() {
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

/// The error of a kernel with one fault, and its line.
#[track_caller]
fn fault_of(body: &str, says: &[&str]) -> lapidary::failure::KernelError {
    let (gpu, _sim) = Gpu::simulated(SimOptions::default()).unwrap();
    let text = format!(
        "@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
var<workgroup> tile: array<u32, 64>;
@compute @workgroup_size(64)
fn shift(@builtin(local_invocation_index) i: u32, @builtin(workgroup_id) group: vec3<u32>) {{
{body}
}}"
    );
    let kernel = Kernel::new(&gpu, &text).unwrap();
    let x = gpu.tensor(&[3_u32; 64], &[64]).unwrap();
    let call = kernel.call().bind("x", &x).out("y", &[64], DType::U32);
    let y = call.groups([2, 1, 1]).run_one().unwrap();
    let error = y.to_vec::<u32>().unwrap_err();
    let Error::Poisoned { cause, .. } = &error else {
        panic!("{error}");
    };
    let Error::Kernel(fault) = &**cause else {
        panic!("{error}");
    };
    for word in says {
        assert!(fault.to_string().contains(word), "{word}: {fault}");
    }
    // The operand that was only read is unchanged, and the device still works.
    assert_eq!(x.to_vec::<u32>().unwrap(), [3; 64]);
    assert_eq!(x.add(&x).unwrap().to_vec::<u32>().unwrap(), [6; 64]);
    (**fault).clone()
}

#[test]
fn a_race_is_the_error_of_what_the_kernel_writes() {
    let fault = fault_of(
        "  tile[i] = x[i];
  y[i] = tile[63u - i];",
        &[
            "a race",
            "`tile`",
            "invocation [",
            "kernel `shift`",
            "tile[i",
        ],
    );
    assert!(fault.excerpt.contains("wgsl:6:") || fault.excerpt.contains("wgsl:7:"));
}

#[test]
fn other_faults_of_a_kernel_are_told_with_their_line() {
    let at = |line: usize| format!("wgsl:{line}:");
    fault_of("  y[0] = group.x + x[i];", &["a race", "`y`", &at(6)]);
    fault_of(
        "  if (i < x[0]) { workgroupBarrier(); y[i] = 1u; }",
        &["not uniform", &at(6)],
    );
    fault_of(
        "  if (group.x == 0u) { y[i] = x[i + 1u]; }",
        &["index 64", "64 elements of `x`", &at(6)],
    );
    fault_of(
        "  if (group.x == 0u) {
    loop { if (x[i] == 4u) { break; } }
    y[i] = 1u;
  }",
        &["does not end", "steps"],
    );
}

const SUM_OF_LANES: &str = "
    @group(0) @binding(0) var<storage, read_write> y: array<u32>;
    @compute @workgroup_size(64)
    fn sum_of_lanes(@builtin(local_invocation_index) i: u32) {
        if WHO {
            y[i] = subgroupAdd(i);
        }
    }";

#[test]
fn subgroup_operations_need_a_device_that_has_subgroups() {
    let text = SUM_OF_LANES.replace("WHO", "true");
    let (gpu, _sim) = Gpu::simulated(SimOptions::default()).unwrap();
    let refused = Kernel::new(&gpu, &text).unwrap_err().to_string();
    assert!(refused.contains("subgroup"), "{refused}");

    for lanes in [4, 16, 64] {
        let (gpu, sim) = Gpu::simulated(SimOptions {
            subgroup_lanes: Some((lanes, lanes)),
            ..SimOptions::default()
        })
        .unwrap();
        let kernel = Kernel::new(&gpu, &text).unwrap();
        let y = kernel.call().out("y", &[64], DType::U32).groups([1, 1, 1]);
        let sums = y.run_one().unwrap().to_vec::<u32>().unwrap();
        for (i, sum) in (0..64).zip(sums) {
            let first = i / lanes * lanes;
            assert_eq!(sum, (first..first + lanes).sum::<u32>(), "{lanes} lanes");
        }
        assert_eq!(sim.complaints(), [""; 0]);
    }
}

#[test]
fn a_subgroup_operation_that_some_lanes_miss_is_found() {
    let (gpu, _sim) = Gpu::simulated(SimOptions {
        subgroup_lanes: Some((4, 64)),
        ..SimOptions::default()
    })
    .unwrap();
    let text = SUM_OF_LANES.replace("WHO", "i % 4u < 3u");
    let kernel = Kernel::new(&gpu, &text).unwrap();
    let y = kernel.call().out("y", &[64], DType::U32).groups([1, 1, 1]);
    let error = y
        .run_one()
        .unwrap()
        .to_vec::<u32>()
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("a subgroup operation in control flow"),
        "{error}"
    );
}

#[test]
fn wgsl_has_zeros_where_nothing_was_written() {
    let (gpu, sim) = Gpu::simulated(SimOptions::default()).unwrap();
    let text = "
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        var<workgroup> tile: array<u32, 4>;
        @compute @workgroup_size(4)
        fn zeros(@builtin(local_invocation_index) i: u32) {
            var own: array<u32, 4>;
            y[i] = tile[i] + own[i];
        }";
    let kernel = Kernel::new(&gpu, text).unwrap();
    let y = kernel.call().out("y", &[4], DType::U32).groups([1, 1, 1]);
    let y = y.run_one().unwrap();
    assert_eq!(y.to_vec::<u32>().unwrap(), [0; 4]);
    assert_eq!(sim.complaints(), [""; 0]);
}
