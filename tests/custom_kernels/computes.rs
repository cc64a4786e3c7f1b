//! The results of users' kernels.

use lapidary::{DType, Kernel, Tensor};

use crate::custom_kernels::{SAXPY, SaxpyParams, framed, gpu};

fn saxpy(kernel: &Kernel, x: &Tensor, y: &Tensor, a: f32) -> Tensor {
    let n = x.len() as u32;
    kernel
        .call()
        .bind("x", x)
        .bind("y", y)
        .out("z", x.shape(), DType::F32)
        .params(&SaxpyParams { a, n })
        .groups([n.div_ceil(64), 1, 1])
        .run_one()
        .unwrap()
}

#[test]
fn inputs_outputs_and_parameters_are_bound_by_name() {
    let gpu = gpu();
    let kernel = Kernel::new(&gpu, SAXPY).unwrap();
    assert_eq!(kernel.entry(), "saxpy");
    assert_eq!(
        format!("{kernel:?}"),
        "saxpy(x: array<f32>, y: array<f32>, z: array<f32>)"
    );
    for n in [1_usize, 2, 3, 5, 64, 1000, 4097] {
        let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
        let x = gpu.tensor(&x, &[n]).unwrap();
        let y = gpu.tensor(&vec![0.5_f32; n], &[n]).unwrap();
        let z = saxpy(&kernel, &x, &y, 2.0);
        assert!(z.tag().to_string().contains("computes.rs"), "{}", z.tag());
        let expected: Vec<f32> = (0..n).map(|i| 2.0 * i as f32 + 0.5).collect();
        assert_eq!(z.to_vec::<f32>().unwrap(), expected);
        // One tensor may be bound under two names if it is only read.
        let z = saxpy(&kernel, &x, &x, -1.0);
        assert_eq!(z.to_vec::<f32>().unwrap(), vec![0.0; n]);
    }
}

#[test]
fn the_kernel_may_be_gone_before_its_call_runs() {
    let gpu = gpu();
    let x = gpu.tensor(&[1.0_f32; 100], &[100]).unwrap();
    let y = gpu.tensor(&[2.0_f32; 100], &[100]).unwrap();
    let z = saxpy(&Kernel::new(&gpu, SAXPY).unwrap(), &x, &y, 3.0);
    let z = saxpy(&Kernel::new(&gpu, SAXPY).unwrap(), &z, &y, 2.0);
    assert_eq!(z.to_vec::<f32>().unwrap(), [12.0; 100]);
    drop((x, y, z));
    gpu.flush().unwrap();
    assert_eq!(gpu.memory().stats().pipelines, 0);
}

#[test]
fn a_steady_loop_compiles_once_and_dropping_the_kernel_frees_what_was_compiled() {
    let gpu = gpu();
    let kernel = Kernel::new(&gpu, SAXPY).unwrap();
    let mut x = gpu.tensor(&[1.0_f32; 100], &[100]).unwrap();
    let y = gpu.tensor(&[1.0_f32; 100], &[100]).unwrap();
    let mut seen = vec![];
    for _ in 0..20 {
        x = saxpy(&kernel, &x, &y, 1.0);
        gpu.flush().unwrap();
        seen.push(gpu.memory().stats().pipelines);
    }
    assert_eq!(x.to_vec::<f32>().unwrap(), [21.0; 100]);
    assert_eq!(seen, [seen[0]; 20]);
    assert_eq!(seen[0], 1);
    let clone = kernel.clone();
    drop(kernel);
    gpu.flush().unwrap();
    assert_eq!(gpu.memory().stats().pipelines, 1);
    drop(clone);
    gpu.flush().unwrap();
    assert_eq!(gpu.memory().stats().pipelines, 0);
    drop(saxpy(&Kernel::new(&gpu, SAXPY).unwrap(), &x, &y, 1.0));
    gpu.flush().unwrap();
    gpu.flush().unwrap();
    assert_eq!(gpu.memory().stats().pipelines, 0);
}

#[test]
fn tensors_are_changed_in_place_and_their_version_tells() {
    let gpu = gpu();
    let kernel = framed(
        &gpu,
        "@group(0) @binding(7) var<storage, read_write> x: array<i32>;",
        "if id.x < arrayLength(&x) { x[id.x] = x[id.x] * x[id.x]; }",
    )
    .unwrap();
    let x = gpu.tensor(&[1, -2, 3, -4, 5], &[5]).unwrap();
    let before = x.version();
    let made = kernel.call().bind("x", &x).groups([1, 1, 1]).run().unwrap();
    assert!(made.is_empty());
    assert_eq!(x.to_vec::<i32>().unwrap(), [1, 4, 9, 16, 25]);
    assert!(x.version() > before);
}

#[test]
fn atomics_count() {
    let gpu = gpu();
    let kernel = framed(
        &gpu,
        "@group(0) @binding(0) var<storage, read_write> bins: array<atomic<u32>>;\n\
         @group(0) @binding(1) var<storage> values: array<u32>;",
        "if id.x < arrayLength(&values) {\n\
           atomicAdd(&bins[values[id.x] % arrayLength(&bins)], 1u);\n\
         }",
    )
    .unwrap();
    let values: Vec<u32> = (0..1000).collect();
    let values = gpu.tensor(&values, &[1000]).unwrap();
    let bins = kernel
        .call()
        .bind("values", &values)
        .out("bins", &[7], DType::U32)
        .groups([16, 1, 1])
        .run_one()
        .unwrap();
    let counted = bins.to_vec::<u32>().unwrap();
    assert_eq!(counted, [143, 143, 143, 143, 143, 143, 142]);
}

#[test]
fn structs_vectors_and_headers_are_tensors_of_their_scalars() {
    let gpu = gpu();
    let kernel = framed(
        &gpu,
        "struct Body { at: vec3<f32>, mass: f32 }\n\
         struct Sums { count: u32, sums: array<u32> }\n\
         @group(0) @binding(0) var<storage, read_write> sums: Sums;\n\
         @group(0) @binding(1) var<storage, read> bodies: array<Body>;\n\
         @group(0) @binding(2) var<uniform> scale: f32;",
        "if id.x < arrayLength(&bodies) {\n\
           let b = bodies[id.x];\n\
           sums.count = arrayLength(&bodies);\n\
           sums.sums[id.x] = u32(scale * (b.at.x + b.at.y + b.at.z + b.mass));\n\
         }",
    )
    .unwrap();
    let bodies: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let bodies = gpu.tensor(&bodies, &[3, 4]).unwrap();
    let sums = kernel
        .call()
        .out("sums", &[4], DType::U32)
        .bind("bodies", &bodies)
        .params(&2.0_f32)
        .groups([1, 1, 1])
        .run_one()
        .unwrap();
    assert_eq!(sums.to_vec::<u32>().unwrap(), [3, 12, 44, 76]);
}

#[test]
fn a_vector_of_three_is_a_parameter() {
    let gpu = gpu();
    let kernel = framed(
        &gpu,
        "@group(0) @binding(0) var<storage, read_write> x: array<f32>;\n\
         @group(0) @binding(1) var<uniform> by: vec3<f32>;",
        "if id.x < 3u { x[id.x] = by[id.x]; }",
    )
    .unwrap();
    let call = kernel.call().out("x", &[3], DType::F32).groups([1, 1, 1]);
    let x = call.params(&[1.0_f32, 2.0, 3.0]).run_one().unwrap();
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0]);
}

#[test]
fn narrow_types_come_packed_and_an_array_is_as_long_as_its_tensor() {
    let gpu = gpu();
    let kernel = framed(
        &gpu,
        "@group(0) @binding(0) var<storage, read> bytes: array<u32>;\n\
         @group(0) @binding(1) var<storage, read_write> info: array<u32>;",
        "if id.x > 0u { return; }\n\
         info[0] = arrayLength(&bytes); info[1] = bytes[arrayLength(&bytes) - 1u];\n\
         info[2] = bytes[100];",
    )
    .unwrap();
    for n in [1_usize, 3, 4, 5, 8, 9, 12, 13, 16, 17] {
        let bytes = gpu.tensor(&vec![7_u8; n], &[n]).unwrap();
        let info = kernel
            .call()
            .bind("bytes", &bytes)
            .out("info", &[8], DType::U32)
            .groups([1, 1, 1])
            .run_one()
            .unwrap();
        let last = u32::from_le_bytes([0, 1, 2, 3].map(|byte| {
            let at = (n - 1) / 4 * 4 + byte;
            if at < n { 7 } else { 0 }
        }));
        let words = n.div_ceil(4) as u32;
        let info = info.to_vec::<u32>().unwrap();
        assert_eq!((info[0], info[1]), (words, last), "{n} bytes");
        // An index beyond the end reads the tensor itself or zero.
        assert!(
            [0, last, 0x0707_0707].contains(&info[2]),
            "{n} bytes: {info:?}"
        );
    }
}

#[test]
fn what_a_kernel_leaves_out_of_a_new_tensor_is_zero() {
    let gpu = gpu();
    let kernel = framed(
        &gpu,
        "@group(0) @binding(0) var<storage, read_write> y: array<u32>;",
        "if id.x == 3u { y[3] = 9u; }",
    )
    .unwrap();
    // Leaves garbage in the block that the output will take over.
    drop(gpu.tensor(&vec![u32::MAX; 1000], &[1000]).unwrap());
    gpu.finish().unwrap();
    let y = kernel.call().out("y", &[1000], DType::U32);
    let y = y.groups([1, 1, 1]).run_one().unwrap();
    let mut expected = vec![0; 1000];
    expected[3] = 9;
    assert_eq!(y.to_vec::<u32>().unwrap(), expected);
}

#[test]
fn views_are_bound_where_they_lie_or_copied() {
    let gpu = gpu();
    let kernel = framed(
        &gpu,
        "@group(0) @binding(0) var<storage, read> x: array<f32>;\n\
         @group(0) @binding(1) var<storage, read_write> y: array<f32>;",
        "if id.x < arrayLength(&x) { y[id.x] += x[id.x]; }",
    )
    .unwrap();
    let data: Vec<f32> = (0..64 * 6).map(|i| i as f32).collect();
    let x = gpu.tensor(&data, &[64, 6]).unwrap();
    let views = [
        x.clone(),
        x.t().unwrap(),
        x.narrow(0, 32, 16).unwrap(),
        x.narrow(0, 1, 5).unwrap(),
        x.select(1, 2).unwrap(),
        x.flip(&[0]).unwrap(),
    ];
    for view in views {
        let y = kernel.call().bind("x", &view);
        let y = y.out("y", view.shape(), DType::F32).groups([6, 1, 1]);
        let y = y.run_one().unwrap();
        assert_eq!(
            y.to_vec::<f32>().unwrap(),
            view.to_vec::<f32>().unwrap(),
            "{view:?}"
        );
    }
    // Two rows of one tensor, one read and one changed. They do not overlap, so nothing is copied.
    let rows = gpu.tensor(&data[..128 * 2], &[2, 128]).unwrap();
    let (from, to) = (rows.select(0, 0).unwrap(), rows.select(0, 1).unwrap());
    kernel
        .call()
        .bind("x", &from)
        .bind("y", &to)
        .groups([2, 1, 1])
        .run()
        .unwrap();
    let expected: Vec<f32> = (0..128).map(|i| (128 + 2 * i) as f32).collect();
    assert_eq!(to.to_vec::<f32>().unwrap(), expected);
}

#[test]
fn declarations_may_be_written_in_any_way() {
    let gpu = gpu();
    let text = "
        enable subgroups;
        alias Floats = array<f32>;
        const GROUP = 0;
        /* @group(0) @binding(0) var<storage, read> no: u32; */ var<private> twice : f32 = 2.0;
        @group(GROUP) @binding(5 - 2) var < storage /* ) */
            , read > // var<storage, read> x: u32;
            x
            : Floats;
        @binding(9,) @group((0)) var<storage,read_write,> y: Floats; @group(0)
        @binding(1) var<uniform> factor: vec2<f32>;
        @group(3) @binding(0) var unused: texture_2d<f32>;
        @compute @workgroup_size(32, 2) fn main(@builtin(local_invocation_index) i: u32) {
            y[i] = twice * x[i] * factor.x + factor.y;
        }";
    let kernel = Kernel::new(&gpu, text).unwrap();
    let x = gpu.tensor(&[3.0_f32; 64], &[64]).unwrap();
    let call = kernel.call().bind("x", &x).out("y", &[64], DType::F32);
    let y = call.params(&[10.0_f32, 1.0]).groups([1, 1, 1]);
    assert_eq!(y.run_one().unwrap().to_vec::<f32>().unwrap(), [61.0; 64]);
}

#[test]
fn of_several_entry_points_one_is_named_and_only_what_it_uses_is_bound() {
    let gpu = gpu();
    let text = "
        @group(0) @binding(0) var<storage, read_write> a: array<u32>;
        @group(0) @binding(0) var<storage, read_write> b: array<f32>;
        @compute @workgroup_size(1) fn first() { a[0] = 1u; }
        @compute @workgroup_size(1) fn second() { b[0] = 2.0; }";
    let first = Kernel::with_entry(&gpu, text, "first").unwrap();
    let second = Kernel::with_entry(&gpu, text, "second").unwrap();
    let a = first.call().out("a", &[1], DType::U32).groups([1, 1, 1]);
    let b = second.call().out("b", &[1], DType::F32).groups([1, 1, 1]);
    let (a, b) = (a.run_one().unwrap(), b.run_one().unwrap());
    assert_eq!(a.item::<u32>().unwrap(), 1);
    assert_eq!(b.item::<f32>().unwrap(), 2.0);
}

#[test]
fn entry_points_that_share_bindings_in_another_order_do_not_collide() {
    let gpu = gpu();
    let text = "
        @group(0) @binding(0) var<storage, read> a: array<u32>;
        @group(0) @binding(1) var<storage, read> b: array<u32>;
        @group(0) @binding(2) var<storage, read_write> sum: array<u32>;
        @group(0) @binding(3) var<uniform> by: vec4<u32>;
        @compute @workgroup_size(1) fn first() { sum[0] = a[0] + by.x; }
        @compute @workgroup_size(1) fn second() { sum[0] = a[0] + b[0]; }
        @compute @workgroup_size(1) fn third() { sum[0] = b[0] * by.y; }";
    let [a, b] = [3_u32, 4].map(|value| gpu.tensor(&[value], &[1]).unwrap());
    for (entry, inputs, has_params, sum) in [
        ("first", &[("a", &a)][..], true, 13),
        ("second", &[("a", &a), ("b", &b)], false, 7),
        ("third", &[("b", &b)], true, 80),
    ] {
        let kernel = Kernel::with_entry(&gpu, text, entry).unwrap();
        let mut call = kernel.call().out("sum", &[1], DType::U32);
        for (name, tensor) in inputs {
            call = call.bind(name, *tensor);
        }
        if has_params {
            call = call.params(&[10_u32, 20, 0, 0]);
        }
        let made = call.groups([1, 1, 1]).run_one().unwrap();
        assert_eq!(made.item::<u32>().unwrap(), sum, "{entry}");
    }
}

#[test]
fn kernels_are_called_from_many_threads() {
    let gpu = gpu();
    let kernel = Kernel::new(&gpu, SAXPY).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (gpu, kernel) = (&gpu, &kernel);
            scope.spawn(move || {
                let y = gpu.tensor(&[1.0_f32; 10], &[10]).unwrap();
                let mut x = gpu.tensor(&[thread as f32; 10], &[10]).unwrap();
                for _ in 0..8 {
                    x = saxpy(kernel, &x, &y, 1.0);
                }
                assert_eq!(x.to_vec::<f32>().unwrap(), [thread as f32 + 8.0; 10]);
            });
        }
    });
}
