//! Kernels of users, and functions that are called again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lapidary::grad::Gradients;
use lapidary::sim::SimOptions;
use lapidary::{DType, Error, Gpu, Kernel, Tensor};

use super::check::{check, gpu, parameter, spread};

/// `z = x · x + a · y`.
const WGSL: &str = "
    @group(0) @binding(0) var<storage, read> x: array<f32>;
    @group(0) @binding(1) var<storage, read> y: array<f32>;
    @group(0) @binding(2) var<storage, read_write> z: array<f32>;
    @group(0) @binding(3) var<uniform> a: f32;

    @compute @workgroup_size(64)
    fn curve(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&z) { z[id.x] = x[id.x] * x[id.x] + a * y[id.x]; }
    }
";

fn curve(gpu: &Gpu) -> Kernel {
    Kernel::new(gpu, WGSL).unwrap()
}

fn call(kernel: &Kernel, x: &Tensor, y: &Tensor) -> lapidary::Result<Tensor> {
    let call = kernel.call().bind("x", x).bind("y", y);
    let call = call.out("z", x.shape(), DType::F32).params(&3.0_f32);
    call.groups([1, 1, 1]).run_one()
}

#[test]
fn a_kernel_has_the_gradients_of_its_function() {
    let gpu = gpu();
    let kernel = curve(&gpu).with_backward(&["x"], |call| {
        let Some(by_z) = call.gradient("z") else {
            return Ok(vec![]);
        };
        assert!(call.needs("x") && call.saved("y").is_err());
        let a: f32 = bytemuck::pod_read_unaligned(call.params());
        let by_x = ((by_z * call.saved("x")?)? * 2.0)?;
        Ok(vec![("x", by_x), ("y", (by_z * a)?)])
    });
    let [x, y] = [spread(3, -1.0, 1.0), spread(3, -1.0, 1.0)];
    check(&gpu, "a kernel", &[(&x, &[3]), (&y, &[3])], |x| {
        call(&kernel, &x[0].square()?, &x[1])?.exp()
    });
}

#[test]
fn a_kernel_without_a_gradient_is_named_at_the_backward() {
    let gpu = gpu();
    let x = parameter(&gpu, &[1.0, 2.0], &[2]);
    let z = call(&curve(&gpu), &x, &x.detach()).unwrap();
    let error = z.sum_all().unwrap().backward().unwrap_err().to_string();
    assert!(error.contains("`curve` has no gradient"), "{error}");
    assert!(error.contains("tests/grad/custom.rs"), "{error}");
}

#[test]
fn a_gradient_of_a_kernel_that_does_not_fit_is_refused() {
    let gpu = gpu();
    let x = parameter(&gpu, &[1.0, 2.0], &[2]);
    let gradients: [(&str, Tensor); 3] = [
        ("f32[3]", gpu.ones(&[3], DType::F32).unwrap()),
        ("bf16[2]", gpu.ones(&[2], DType::Bf16).unwrap()),
        ("", super::check::gpu().ones(&[2], DType::F32).unwrap()),
    ];
    for (what, given) in gradients {
        let kernel = curve(&gpu).with_backward(&[], move |_| Ok(vec![("x", given.clone())]));
        let z = call(&kernel, &x, &x.detach()).unwrap();
        match z.sum_all().unwrap().backward().unwrap_err() {
            Error::Gradient { reason, .. } => {
                assert!(!what.is_empty() && reason.contains(what), "{reason}");
                assert!(reason.contains("tests/grad/custom.rs"), "{reason}");
            }
            Error::Foreign { .. } => assert!(what.is_empty()),
            error => panic!("{error}"),
        }
    }
}

#[test]
fn nothing_writes_to_what_a_function_of_the_app_returned() {
    let gpu = gpu();
    let kept = gpu.full(&[2], 30.0, DType::F32).unwrap();
    let x = parameter(&gpu, &[1.0, 2.0], &[2]);
    let w = parameter(&gpu, &[1.0, 2.0], &[2]);
    let returned = kept.clone();
    let kernel = curve(&gpu).with_backward(&[], move |_| Ok(vec![("x", returned.clone())]));
    let through = |way: &str| -> lapidary::Result<Tensor> {
        match way {
            "a parameter" => w.mul(2.0),
            "a result" => {
                let y = w.add(&x)?;
                let returned = kept.clone();
                y.on_gradient(move |_| Ok(returned.clone()))?;
                Ok(y)
            }
            _ => call(&kernel, &x, &x.detach()),
        }
    };
    let average = kept.clone();
    w.on_gradient(move |_| Ok(average.clone())).unwrap();
    for way in ["a parameter", "a result", "a kernel"] {
        let loss = || through(way).unwrap().sum_all().unwrap();
        let mut gradients = loss().backward().unwrap();
        loss().backprop().add_to(&mut gradients).unwrap();
        for parameter in [&x, &w] {
            if let Some(gradient) = gradients.get(parameter) {
                assert_eq!(gradient.to_vec::<f32>().unwrap(), [60.0, 60.0], "{way}");
            }
        }
        gradients.clip_global_norm(1.0).unwrap();
        assert_eq!(kept.to_vec::<f32>().unwrap(), [30.0, 30.0], "{way}");
    }
}

/// The function fails or panics in the middle of a backward that adds to earlier gradients. None
/// are left, as some would lack a part. Their memory is free, and the next backward succeeds.
#[test]
fn a_function_that_fails_or_panics_leaves_no_partial_gradients() {
    let gpu = gpu();
    let x = parameter(&gpu, &[1.0, 2.0], &[2]);
    let w = parameter(&gpu, &[3.0, 4.0], &[2]);
    let way = Arc::new(AtomicU32::new(0));
    let asked = way.clone();
    let kernel = curve(&gpu).with_backward(&["x"], move |call| {
        let Some(by_z) = call.gradient("z") else {
            return Ok(vec![]);
        };
        let by_x = ((by_z * call.saved("x")?)? * 2.0)?;
        match asked.load(Ordering::Relaxed) {
            1 => Err(by_x.reshape(&[3]).unwrap_err()),
            2 => panic!("the app's function"),
            _ => Ok(vec![("x", by_x)]),
        }
    });
    // When the backward reaches the kernel, `w` already has its gradient.
    let loss = || {
        let z = call(&kernel, &x.exp().unwrap(), &x.detach()).unwrap();
        (z * &w).unwrap().sum_all().unwrap()
    };
    let live = || {
        gpu.finish().unwrap();
        gpu.memory().stats().live_bytes.now
    };
    let numbers = |gradients: &Gradients| {
        [&x, &w].map(|of| gradients.get(of).map(|grad| grad.to_vec::<f32>().unwrap()))
    };
    let without = live();
    let expected = numbers(&loss().backward().unwrap());
    assert!(expected.iter().all(Option::is_some));
    for number in [1, 2] {
        way.store(0, Ordering::Relaxed);
        let mut gradients = loss().backward().unwrap();
        way.store(number, Ordering::Relaxed);
        let ended = catch_unwind(AssertUnwindSafe(|| {
            loss().backprop().add_to(&mut gradients)
        }));
        match number {
            1 => assert!(matches!(ended, Ok(Err(Error::Shape { .. }))), "{ended:?}"),
            _ => assert!(ended.is_err()),
        }
        assert_eq!(numbers(&gradients), [None, None]);
        assert_eq!(live(), without, "way {number}");
        way.store(0, Ordering::Relaxed);
        loss().backprop().add_to(&mut gradients).unwrap();
        assert_eq!(numbers(&gradients), expected, "after way {number}");
    }
}

#[test]
fn a_kernel_that_writes_a_parameter_is_refused_at_the_call() {
    let gpu = gpu();
    let x = parameter(&gpu, &[1.0, 2.0], &[2]);
    let double = Kernel::new(
        &gpu,
        "@group(0) @binding(0) var<storage, read_write> x: array<f32>;
         @compute @workgroup_size(64)
         fn double(@builtin(global_invocation_id) id: vec3<u32>) {
             if id.x < arrayLength(&x) { x[id.x] *= 2.0; }
         }",
    );
    let double = double.unwrap();
    let run = || double.call().bind("x", &x).groups([1, 1, 1]).run();
    assert!(matches!(run(), Err(Error::Gradient { .. })));
    let _no_grad = gpu.no_grad();
    run().unwrap();
    assert_eq!(x.to_vec::<f32>().unwrap(), [2.0, 4.0]);
}

#[test]
fn a_checkpoint_computes_again_and_reaches_what_it_captured() {
    let gpu = gpu();
    let [x, w] = [spread(6, -1.0, 1.0), spread(6, -1.0, 1.0)];
    check(&gpu, "a checkpoint", &[(&x, &[2, 3]), (&w, &[3, 2])], |x| {
        // What it captures depends on a parameter by itself.
        let w = x[1].mul(2.0)?;
        let y = x[0].exp()?;
        gpu.checkpoint(&[&y], move |inputs| inputs[0].matmul(&w)?.tanh()?.square())
    });
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let x = parameter(&gpu, &[0.5], &[1]);
    let y = gpu.checkpoint(&[&x], move |inputs| {
        counted.fetch_add(1, Ordering::Relaxed);
        inputs[0].exp()
    });
    let y = y.unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    y.backward().unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[test]
fn a_checkpoint_of_nothing_that_is_tracked_keeps_nothing() {
    let gpu = gpu();
    let [x, w] = [1, 2].map(|seed| gpu.rand_normal(&[64, 64], 0.0, 1.0, seed, DType::F32));
    let (x, w) = (x.unwrap(), w.unwrap());
    let run = |captured: &Tensor| {
        let captured = captured.clone();
        let y = gpu.checkpoint(&[&x], move |inputs| inputs[0].matmul(&captured)?.exp());
        gpu.finish().unwrap();
        (y.unwrap().has_grad(), gpu.memory().stats().saved_bytes)
    };
    assert_eq!(run(&w), (false, 0));
    // A tensor that the function captures counts as well as an input, and so does a view of it.
    let tracked = w.copy().unwrap().requires_grad().unwrap();
    assert!(run(&tracked).0);
    assert!(run(&tracked.t().unwrap()).0);
    let itself = tracked.clone();
    let y = gpu.checkpoint(&[], move |_| Ok(itself.clone())).unwrap();
    let gradients = y.sum_all().unwrap().backward().unwrap();
    assert!(gradients.get(&tracked).is_some());
    assert_eq!(run(&w), (false, 0));
}

#[test]
fn a_write_to_what_a_checkpoint_passed_on_is_a_write_to_nothing_else() {
    let gpu = gpu();
    let [x, p] = [1.0, 3.0].map(|first| parameter(&gpu, &[first, 2.0], &[2]));
    let h = x.mul(2.0).unwrap();
    let y = gpu
        .checkpoint(&[&h], |inputs| Ok(inputs[0].clone()))
        .unwrap();
    y.mul_(&p).unwrap();
    assert_eq!(h.to_vec::<f32>().unwrap(), [2.0, 4.0]);
    let gradients = (&h + &y).unwrap().sum_all().unwrap().backward().unwrap();
    let of = |parameter| gradients.get(parameter).unwrap().to_vec::<f32>().unwrap();
    assert_eq!((of(&x), of(&p)), (vec![8.0, 6.0], vec![2.0, 4.0]));
    // So is a write to a parameter that it captured.
    let captured = x.clone();
    let y = gpu
        .checkpoint(&[], move |_| captured.narrow(0, 1, 1))
        .unwrap();
    y.mul_(7.0).unwrap();
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    let gradient = y.backward().unwrap().get(&x).unwrap();
    assert_eq!(gradient.to_vec::<f32>().unwrap(), [0.0, 7.0]);
}

#[test]
fn a_checkpoint_that_writes_to_an_input_is_refused() {
    let gpu = gpu();
    let x = parameter(&gpu, &[1.0, 2.0], &[2]);
    let h = x.mul(2.0).unwrap();
    let made = gpu.checkpoint(&[&x, &h], |inputs| {
        inputs[1].narrow(0, 0, 1)?.add_(1.0)?;
        inputs[1].exp()
    });
    let error = made.unwrap_err().to_string();
    let parts = ["number 1", "`copy`", file!()];
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
}

/// `y = exp(x)` and `z = x · y`, whose gradient uses `y`.
const TWO_RESULTS: &str = "
    @group(0) @binding(0) var<storage, read> x: array<f32>;
    @group(0) @binding(1) var<storage, read_write> y: array<f32>;
    @group(0) @binding(2) var<storage, read_write> z: array<f32>;

    @compute @workgroup_size(64)
    fn both(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&z) {
            y[id.x] = exp(x[id.x]);
            z[id.x] = x[id.x] * y[id.x];
        }
    }
";

#[test]
fn a_checkpoint_that_goes_to_another_device_is_refused() {
    let devices = [(); 2].map(|()| Gpu::simulated(SimOptions::default()).unwrap().0);
    let [here, there] = &devices;
    let x = parameter(here, &[1.0, 2.0], &[2]);
    let other = there.clone();
    let moving = move |inputs: &[Tensor]| inputs[0].to(&other)?.square();
    for made in [
        here.checkpoint(&[&x], moving),
        there.checkpoint(&[&x], |inputs| inputs[0].square()),
    ] {
        match made {
            Err(Error::Foreign { operation }) => assert_eq!(operation, "checkpoint"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_gradient_of_gradients_through_another_result_is_an_error_with_the_line() {
    let gpu = gpu();
    let kernel = Kernel::new(&gpu, TWO_RESULTS).unwrap();
    let kernel = kernel.with_backward(&["x", "y"], |call| {
        let y = call.saved("y")?;
        let by_x = match (call.gradient("y"), call.gradient("z")) {
            (Some(by_y), _) => (by_y * y)?,
            (_, Some(by_z)) => (by_z * (y * (call.saved("x")? + 1.0)?)?)?,
            _ => return Ok(vec![]),
        };
        Ok(vec![("x", by_x)])
    });
    let x = parameter(&gpu, &[0.5, 1.0, -1.0, 2.0], &[4]);
    let call = kernel.call().bind("x", &x);
    let call = call.out("y", &[4], DType::F32).out("z", &[4], DType::F32);
    let (results, line) = (call.groups([1, 1, 1]).run(), line!());
    let results = results.unwrap();
    let second = |of: &Tensor| {
        let first = of.sum_all()?.backprop().record().run()?;
        let by_x = first.get(&x).expect("it depends on it");
        let value = by_x.to_vec::<f32>()?;
        let second = by_x.sum_all()?.backward()?;
        Ok::<_, Error>((
            value,
            second.get(&x).expect("it depends on it").to_vec::<f32>()?,
        ))
    };
    // The second derivative of `y` is `y`, which its own gradient saves.
    let (first, of_first) = second(&results[0]).unwrap();
    assert_eq!(first, of_first);
    let error = second(&results[1]).unwrap_err().to_string();
    assert!(
        error.contains("`y`, another result of the kernel `both`"),
        "{error}"
    );
    assert!(error.contains(&format!("custom.rs:{line}")), "{error}");
    // The gradient itself is right.
    let first = results[1].sum_all().unwrap().backward().unwrap();
    let by_x = first.get(&x).unwrap().to_vec::<f32>().unwrap();
    assert!((by_x[1] - 2.0 * 1_f32.exp()).abs() < 1e-4, "{by_x:?}");
}

#[test]
fn a_hook_sees_the_whole_gradient_and_may_change_it() {
    let gpu = gpu();
    let x = parameter(&gpu, &[1.0, 2.0], &[2]);
    let y = x.mul(3.0).unwrap();
    y.on_gradient(|gradient| gradient.mul(10.0)).unwrap();
    x.on_gradient(|gradient| gradient.add(1.0)).unwrap();
    let loss = (&y + &y).unwrap().sum_all().unwrap();
    let gradient = loss.backward().unwrap().get(&x).unwrap();
    assert_eq!(gradient.to_vec::<f32>().unwrap(), [61.0, 61.0]);
    x.on_gradient(|gradient| gradient.sum_all()).unwrap();
    let loss = x.square().unwrap().sum_all().unwrap();
    assert!(matches!(loss.backward(), Err(Error::Gradient { .. })));
    let free = gpu.ones(&[1], DType::F32).unwrap();
    assert!(free.on_gradient(|gradient| Ok(gradient.clone())).is_err());
}

#[test]
fn a_parameter_marked_after_a_checkpoint_captured_it_gets_both_gradients() {
    let gpu = gpu();
    let w = parameter(&gpu, &[1.0, 2.0], &[2]);
    let x = parameter(&gpu, &[3.0, 4.0], &[2]);
    let t = gpu.tensor(&[5.0_f32, 6.0], &[2]).unwrap();
    let b = w.mul(2.0).unwrap();
    let captured = t.clone();
    let product = move |inputs: &[Tensor]| &inputs[0] * &captured;
    let c = gpu.checkpoint(&[&x], product).unwrap();
    let t = t.requires_grad().unwrap();
    let seen = Arc::new(AtomicU32::new(0));
    let calls = Arc::clone(&seen);
    t.on_gradient(move |gradient| {
        calls.fetch_add(1, Ordering::Relaxed);
        gradient.clamp(-20.0, 20.0)
    })
    .unwrap();
    // The first sum has the gradient of `t` for that of `b`.
    let loss = (&b + &t).unwrap().mul(&c).unwrap().sum_all().unwrap();
    let gradients = loss.backward().unwrap();
    let of = |parameter: &Tensor| gradients.get(parameter).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(of(&w), [30.0, 48.0]);
    // (2w + t + t) · x, with the hook applied once to the whole: 36 and 64.
    assert_eq!(of(&t), [20.0, 20.0]);
    assert_eq!(seen.load(Ordering::Relaxed), 1);
}
