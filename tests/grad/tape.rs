//! What the tape promises.

use lapidary::grad::Gradients;
use lapidary::{DType, Error, Gpu, Tensor};

use super::check::{check, gpu, parameter, spread};

type View = fn(&Tensor) -> lapidary::Result<Tensor>;

#[test]
fn views_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    let x = spread(12, -1.0, 1.0);
    let views: &[(&str, View)] = &[
        ("t", |x| x.t()),
        ("slice", |x| x.slice(1, 1, None, 2)),
        ("select", |x| x.select(0, 1)),
        ("flip", |x| x.flip(&[1])),
        ("reshape", |x| x.reshape(&[2, 6])),
        ("reshape of a transposed one", |x| x.t()?.reshape(&[6, 2])),
        ("broadcast", |x| x.unsqueeze(0)?.broadcast_to(&[2, 3, 4])),
        ("unfold", |x| x.unfold(1, 3, 1)),
        ("two views of one", |x| {
            x.narrow(1, 0, 2)? + x.narrow(1, 2, 2)?
        }),
        ("a view and itself", |x| x.select(0, 0)?.mul(x)),
    ];
    for (name, view) in views {
        check(&gpu, name, &[(&x, &[3, 4])], |x| view(&x[0])?.square());
    }
}

#[test]
fn writes_in_place_are_recorded_through_every_view() {
    let gpu = gpu();
    let [x, y] = [spread(6, -1.0, 1.0), spread(3, -1.0, 1.0)];
    let operands: [(&[f32], &[usize]); 2] = [(&x, &[2, 3]), (&y, &[3])];
    check(&gpu, "add_ to a row", &operands, |x| {
        let sum = x[0].square()?;
        sum.select(0, 1)?.add_(&x[1])?;
        sum.select(0, 0)?.mul_(&x[1])?;
        sum.exp()
    });
    check(&gpu, "copy_ into zeros", &operands, |x| {
        let gpu = gpu.zeros(&[3, 3], DType::F32)?;
        gpu.narrow(0, 1, 2)?.copy_(&x[0])?;
        gpu.select(1, 0)?.copy_(&x[1])?;
        gpu.square()
    });
    check(&gpu, "copy_ of another row", &operands, |x| {
        let made = x[0].square()?;
        made.select(0, 0)?.copy_(&made.select(0, 1)?)?;
        let buffer = gpu.zeros(&[2, 3], DType::F32)?;
        buffer.select(0, 1)?.copy_(&x[1])?;
        buffer.select(0, 0)?.copy_(&buffer.select(0, 1)?)?;
        made.mul(&buffer)
    });
    check(&gpu, "sin_ and fill_", &operands, |x| {
        let made = x[0].mul(&x[1])?;
        made.sin_()?;
        made.select(1, 2)?.fill_(2.0)?;
        made.square()
    });
}

#[test]
fn a_value_that_was_overwritten_is_an_error_with_both_lines() {
    let gpu = gpu();
    let w = parameter(&gpu, &[1.0, 2.0], &[2]);
    let y = w.exp().unwrap();
    let z = y.square().unwrap().sum_all().unwrap();
    y.add_(1.0).unwrap();
    let error = z.backward().unwrap_err();
    let Error::Gradient { reason, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(reason.matches("tests/grad/tape.rs").count(), 3, "{error}");
    assert!(reason.contains("square"), "{error}");
    // An operation in place is named by its caller too.
    let (y, factor) = (w.exp().unwrap(), w.detach().sin().unwrap());
    y.mul_(&factor).unwrap();
    factor.add_(1.0).unwrap();
    let error = y.sum_all().unwrap().backward().unwrap_err().to_string();
    assert_eq!(error.matches("tests/grad/tape.rs").count(), 3, "{error}");
    // An upload has no line.
    let input = gpu.ones(&[2], DType::F32).unwrap();
    let loss = (&w * &input).unwrap().sum_all().unwrap();
    input.write(&[2.0_f32, 2.0]).unwrap();
    let error = loss.backward().unwrap_err().to_string();
    assert!(error.contains("an upload"), "{error}");
}

#[test]
fn gradients_of_gradients_are_those_of_the_formula() {
    let gpu = gpu();
    let x = parameter(&gpu, &[0.5, 1.5, -1.0], &[3]);
    let y = x.pow(3.0).unwrap().sum_all().unwrap();
    let first = y.backprop().record().run().unwrap().get(&x).unwrap();
    let second = first
        .sum_all()
        .unwrap()
        .backward()
        .unwrap()
        .get(&x)
        .unwrap();
    assert_eq!(second.to_vec::<f32>().unwrap(), [3.0, 9.0, -6.0]);
}

#[test]
fn gradients_of_gradients_pass_through_views_and_products() {
    let gpu = gpu();
    let [x, w] = [spread(6, -1.0, 1.0), spread(6, -1.0, 1.0)];
    let operands: [(&[f32], &[usize]); 2] = [(&x, &[2, 3]), (&w, &[3, 2])];
    check(&gpu, "the gradient of a network", &operands, |x| {
        let inner: Vec<Tensor> = x
            .iter()
            .map(|x| x.clone().requires_grad())
            .collect::<Result<_, _>>()?;
        let y = inner[0]
            .narrow(1, 0, 2)?
            .matmul(&inner[1].t()?.narrow(1, 0, 2)?.t()?)?
            .tanh()?;
        let gradients = y.sum_all()?.backprop().record().run()?;
        gradients.get(&inner[0]).expect("it depends on it").square()
    });
}

#[test]
fn nothing_is_recorded_under_no_grad_and_on_detached_handles() {
    let gpu = gpu();
    let w = parameter(&gpu, &[1.0, 2.0], &[2]);
    {
        let _no_grad = gpu.no_grad();
        assert!(!w.exp().unwrap().has_grad());
        w.add_(1.0).unwrap();
    }
    assert!(w.exp().unwrap().has_grad());
    assert!(!w.detach().exp().unwrap().has_grad());
    let error = w.add_(1.0).unwrap_err();
    assert!(matches!(error, Error::Gradient { .. }), "{error}");
}

#[test]
fn bad_requests_are_refused_with_the_reason() {
    let gpu = gpu();
    let w = parameter(&gpu, &[1.0, 2.0], &[2]);
    let y = w.square().unwrap();
    assert!(matches!(y.backward(), Err(Error::Shape { .. })));
    let loss = y.sum_all().unwrap();
    loss.backward().unwrap();
    let twice = loss.backward().unwrap_err().to_string();
    assert!(twice.contains("freed"), "{twice}");
    let free = gpu.ones(&[], DType::F32).unwrap();
    assert!(matches!(free.backward(), Err(Error::Gradient { .. })));
    let integers = gpu.ones(&[2], DType::I32).unwrap();
    assert!(matches!(integers.requires_grad(), Err(Error::DType { .. })));
}

#[test]
fn a_gradient_of_the_app_that_does_not_fit_is_refused_and_nothing_is_lost() {
    let (gpu, other) = (gpu(), gpu());
    let w = parameter(&gpu, &[1.0, 2.0], &[2]);
    let y = w.square().unwrap();
    let ones = |gpu: &Gpu, len: usize, dtype| gpu.ones(&[len], dtype).unwrap();
    let seeded = |seed: &Tensor| y.backprop().seed(seed).run();
    let shape = seeded(&ones(&gpu, 3, DType::F32)).unwrap_err();
    assert!(matches!(shape, Error::Shape { .. }), "{shape}");
    assert!(shape.to_string().contains("[3]"), "{shape}");
    let dtype = seeded(&ones(&gpu, 2, DType::Bf16)).unwrap_err();
    assert!(matches!(dtype, Error::DType { .. }), "{dtype}");
    let foreign = seeded(&ones(&other, 2, DType::F32)).unwrap_err();
    assert!(matches!(foreign, Error::Foreign { .. }), "{foreign}");
    // The history is still there.
    let gradients = seeded(&ones(&gpu, 2, DType::F32)).unwrap();
    let gradient = gradients.get(&w).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(gradient, [2.0, 4.0]);
    let foreign = ones(&other, 2, DType::F32);
    let y = w.square().unwrap();
    y.on_gradient(move |_| Ok(foreign.clone())).unwrap();
    let error = y.sum_all().unwrap().backward().unwrap_err();
    assert!(matches!(error, Error::Foreign { .. }), "{error}");
}

#[test]
fn a_long_chain_goes_backward_and_is_dropped_without_recursion() {
    let gpu = gpu();
    let w = parameter(&gpu, &[1.0], &[1]);
    let mut y = w.clone();
    for _ in 0..100_000 {
        y = y.neg().unwrap();
    }
    drop(y);
    let mut y = w.clone();
    for _ in 0..10_000 {
        y = y.neg().unwrap();
    }
    let gradient = y.backward().unwrap().get(&w).unwrap();
    assert_eq!(gradient.to_vec::<f32>().unwrap(), [1.0]);
}

#[test]
fn chains_through_saved_values_and_functions_are_dropped_without_recursion() {
    let gpu = gpu();
    let w = parameter(&gpu, &[1.0], &[1]);
    // What a product saves is a storage whose history has the product before.
    let mut held = gpu.zeros(&[1], DType::F32).unwrap();
    for _ in 0..20_000 {
        let next = gpu.zeros(&[1], DType::F32).unwrap();
        next.copy_(&(held.detach() * &w).unwrap()).unwrap();
        held = next;
    }
    drop(held);
    // A function holds the result of the function before.
    let mut y = w.clone();
    for _ in 0..20_000 {
        let before = y.clone();
        y = gpu.checkpoint(&[&w], move |_| before.neg()).unwrap();
    }
    drop(y);
    // A function that sees the gradient holds the result, or the parameter, before.
    for is_leaf in [false, true] {
        let mut held = w.neg().unwrap();
        for _ in 0..20_000 {
            let next = match is_leaf {
                true => parameter(&gpu, &[1.0], &[1]),
                false => w.neg().unwrap(),
            };
            let before = held;
            next.on_gradient(move |gradient| gradient * &before.detach())
                .unwrap();
            held = next;
        }
        drop(held);
    }
}

#[test]
fn a_buffer_is_written_and_goes_backward_in_every_round() {
    let gpu = gpu();
    let w = parameter(&gpu, &[1.0, 2.0], &[2]);
    let buffer = gpu.zeros(&[2], DType::F32).unwrap();
    for _ in 0..3 {
        buffer.copy_(&w.mul(3.0).unwrap()).unwrap();
        let loss = buffer.square().unwrap().sum_all().unwrap();
        let gradient = loss.backward().unwrap().get(&w).unwrap();
        assert_eq!(gradient.to_vec::<f32>().unwrap(), [18.0, 36.0]);
    }
}

#[test]
fn a_storage_never_holds_itself() {
    let gpu = gpu();
    let live_before = gpu.memory().stats().live_bytes.now;
    let w = parameter(&gpu, &[0.5], &[1]);
    let state = gpu.ones(&[1], DType::F32).unwrap();
    let next = state.mul(&w).unwrap();
    let error = state.copy_(&next).unwrap_err();
    assert!(matches!(error, Error::Gradient { .. }), "{error}");
    drop(next);
    state.copy_(&w).unwrap();
    drop((state, w));
    gpu.finish().unwrap();
    assert_eq!(gpu.memory().stats().live_bytes.now, live_before);
}

#[test]
fn a_detached_handle_can_be_a_parameter_of_its_own() {
    let gpu = gpu();
    let x = parameter(&gpu, &[2.0], &[1]);
    let own = x.detach().requires_grad().unwrap();
    let loss = (&own * &x).unwrap().square().unwrap();
    let gradients = loss.backward().unwrap();
    for one in [&own, &x] {
        assert_eq!(gradients.get(one).unwrap().to_vec::<f32>().unwrap(), [16.0]);
    }
    let flat = gpu.zeros(&[4], DType::F32).unwrap();
    let half = |start: isize| flat.narrow(0, start, 2).unwrap().requires_grad();
    half(0).unwrap();
    assert!(matches!(half(2), Err(Error::Gradient { .. })));
}

#[test]
fn gradients_share_no_memory_and_can_be_written() {
    let gpu = gpu();
    let [a, b] = [1.0, 2.0].map(|of| parameter(&gpu, &[of, of], &[2]));
    let seed = gpu.ones(&[2], DType::F32).unwrap();
    let sum = (&a + &b).unwrap();
    let gradients = sum.backprop().seed(&seed).run().unwrap();
    gradients.get(&a).unwrap().mul_(5.0).unwrap();
    for untouched in [&seed, &gradients.get(&b).unwrap()] {
        assert_eq!(untouched.to_vec::<f32>().unwrap(), [1.0, 1.0]);
    }
    let gradient = a.sum_all().unwrap().backward().unwrap().get(&a).unwrap();
    gradient.mul_(5.0).unwrap();
}

#[test]
fn a_gradient_may_be_the_gradient_of_what_is_added_to_it() {
    let gpu = gpu();
    for way in ["seed", "hook"] {
        let x = parameter(&gpu, &[1.0, 2.0], &[2]);
        let w = parameter(&gpu, &[3.0, 4.0], &[2]);
        let mut gradients = Gradients::default();
        let loss = w.square().unwrap().sum_all().unwrap();
        loss.backprop().add_to(&mut gradients).unwrap();
        let of = |gradients: &Gradients, parameter: &Tensor| {
            let gradient = gradients.get(parameter).unwrap();
            gradient.to_vec::<f32>().unwrap()
        };
        let seed = gradients.get(&w).unwrap();
        assert_eq!(of(&gradients, &w), [6.0, 8.0]);
        // The sum for `w` is written before the gradient of `h` is used.
        let y = (x.mul(2.0).unwrap() + &w).unwrap();
        match way {
            "seed" => y.backprop().seed(&seed).add_to(&mut gradients).unwrap(),
            _ => {
                y.on_gradient(move |_| Ok(seed.clone())).unwrap();
                let loss = y.sum_all().unwrap();
                loss.backprop().add_to(&mut gradients).unwrap();
            }
        }
        assert_eq!(of(&gradients, &w), [12.0, 16.0], "{way}");
        assert_eq!(of(&gradients, &x), [12.0, 16.0], "{way}");
    }
}

#[test]
fn guards_end_in_any_order() {
    let gpu = gpu();
    let w = parameter(&gpu, &[1.0], &[1]);
    let first = gpu.no_grad();
    let second = gpu.no_grad();
    drop(first);
    assert!(!w.exp().unwrap().has_grad());
    drop(second);
    assert!(w.exp().unwrap().has_grad());
}

#[test]
fn what_is_not_recorded_is_refused() {
    let gpu = gpu();
    let w = parameter(&gpu, &[1.0], &[1]);
    assert!(matches!(w.write(&[2.0_f32]), Err(Error::Gradient { .. })));
    let y = w.exp().unwrap();
    assert!(matches!(y.write(&[2.0_f32]), Err(Error::Gradient { .. })));
    let view = y.unsqueeze(0).unwrap();
    let hook = |gradient: &Tensor| Ok(gradient.clone());
    assert!(matches!(
        view.on_gradient(hook),
        Err(Error::Gradient { .. })
    ));
    let _no_grad = gpu.no_grad();
    w.write(&[2.0_f32]).unwrap();
}
