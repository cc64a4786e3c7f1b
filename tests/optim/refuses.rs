//! Bad input: errors with the numbers, and nothing has changed.

use lapidary::optim::{AdamW, AdamWOptions, LossScaler, LossScalerOptions, Sgd, SgdOptions};
use lapidary::{DType, Error, Gpu, Options, Tensor, grad::Gradients};

use super::{elements, gradients, parameter};

fn gpu() -> Gpu {
    Gpu::open(Options::from_env().unwrap()).expect("the tests need an adapter")
}

#[track_caller]
fn check_option<T>(made: Result<T, Error>, name: &str, part: &str) {
    match made.err() {
        Some(Error::Option { option, reason }) => {
            assert_eq!(option, name);
            assert!(reason.contains(part), "{reason}");
        }
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn lists_of_parameters() {
    let (gpu, other) = (gpu(), gpu());
    let w = parameter(&gpu, &[1.0, 2.0], &[2]);
    let new = |list: &[&Tensor]| Sgd::new(list, SgdOptions::default()).map(drop);
    check_option(new(&[]), "parameters", "empty");
    let b = parameter(&gpu, &[1.0], &[1]);
    check_option(new(&[&w, &b, &w]), "parameters", "numbers 0 and 2");
    let own = w.detach().requires_grad().unwrap();
    check_option(new(&[&w, &own]), "parameters", "numbers 0 and 1");
    let free = gpu.ones(&[2], DType::F32).unwrap();
    for bad in [
        &free,
        &w.detach(),
        &w.square().unwrap(),
        &w.narrow(0, 0, 1).unwrap(),
    ] {
        let error = new(&[&b, bad]).unwrap_err();
        assert!(matches!(error, Error::Gradient { .. }), "{error}");
        assert!(error.to_string().contains("number 1"), "{error}");
    }
    let whole = gpu.ones(&[2], DType::I32).unwrap();
    assert!(matches!(new(&[&whole]), Err(Error::DType { .. })));
    let foreign = parameter(&other, &[1.0], &[1]);
    assert!(matches!(new(&[&w, &foreign]), Err(Error::Foreign { .. })));
}

#[test]
fn options() {
    let gpu = gpu();
    let w = parameter(&gpu, &[1.0, 2.0], &[2]);
    let sgd = |set: fn(&mut SgdOptions)| {
        let mut options = SgdOptions::default();
        set(&mut options);
        Sgd::new(&[&w], options)
    };
    check_option(sgd(|of| of.lr = -1.0), "lr", "-1");
    check_option(sgd(|of| of.lr = f64::NAN), "lr", "NaN");
    check_option(sgd(|of| of.lr = 1e39), "lr", "finite");
    check_option(sgd(|of| of.momentum = -0.5), "momentum", "-0.5");
    check_option(sgd(|of| of.dampening = f64::INFINITY), "dampening", "inf");
    check_option(sgd(|of| of.weight_decay = -1.0), "weight_decay", "-1");
    check_option(sgd(|of| of.nesterov = true), "nesterov", "0 and 0");
    let adam = |set: fn(&mut AdamWOptions)| {
        let mut options = AdamWOptions::default();
        set(&mut options);
        AdamW::new(&[&w], options)
    };
    check_option(adam(|of| of.betas.1 = 1.0), "betas", "1");
    check_option(adam(|of| of.eps = -1.0), "eps", "-1");
    let error = adam(|of| of.state_dtype = DType::F16).unwrap_err();
    assert!(matches!(error, Error::DType { .. }), "{error}");
    let mut good = adam(|_| {}).unwrap();
    check_option(good.set_learning_rate(f64::NAN), "lr", "NaN");
    check_option(good.set_learning_rate(-1e-3), "lr", "-0.001");
    assert_eq!(good.learning_rate(), 1e-3);
    let scaler = |set: fn(&mut LossScalerOptions)| {
        let mut options = LossScalerOptions::default();
        set(&mut options);
        LossScaler::new(&gpu, options)
    };
    check_option(scaler(|of| of.initial_scale = 0.0), "initial_scale", "0");
    check_option(
        scaler(|of| of.initial_scale = 1e38),
        "initial_scale",
        "2¹²⁶",
    );
    check_option(scaler(|of| of.growth_factor = 1.0), "growth_factor", "1");
    check_option(scaler(|of| of.backoff_factor = 1.0), "backoff_factor", "1");
    check_option(scaler(|of| of.growth_interval = 0), "growth_interval", "0");
}

#[test]
fn gradients_of_others_and_no_gradients() {
    let (gpu, other) = (gpu(), gpu());
    let [w, free] = [
        parameter(&gpu, &[1.0, 2.0], &[2]),
        parameter(&gpu, &[1.0], &[1]),
    ];
    let foreign = parameter(&other, &[1.0], &[1]);
    let mut sgd = Sgd::new(&[&w], SgdOptions::default()).unwrap();
    let mut scaler = LossScaler::new(&gpu, LossScalerOptions::default()).unwrap();
    let mut theirs = gradients(&[(&foreign, &[1.0])]);
    assert!(matches!(sgd.step(&theirs), Err(Error::Foreign { .. })));
    let scaled = sgd.step_scaled(&theirs, &mut scaler);
    assert!(matches!(scaled, Err(Error::Foreign { .. })));
    let unscaled = scaler.unscale(&mut theirs);
    assert!(matches!(unscaled, Err(Error::Foreign { .. })));
    let loss = foreign.square().unwrap();
    assert!(matches!(scaler.scale(&loss), Err(Error::Foreign { .. })));
    let mut none = Gradients::default();
    let versions = [w.version(), sgd.state("sgd")[0].1.version()];
    sgd.step(&none).unwrap();
    sgd.step_scaled(&none, &mut scaler).unwrap();
    sgd.step(&gradients(&[(&free, &[1.0])])).unwrap();
    assert_eq!([w.version(), sgd.state("sgd")[0].1.version()], versions);
    let error = none.clip_global_norm(1.0).unwrap_err();
    assert!(matches!(error, Error::Gradient { .. }), "{error}");
    let mut some = gradients(&[(&w, &[3.0, 4.0])]);
    check_option(some.clip_global_norm(-1.0), "max_norm", "-1");
    check_option(some.clip_global_norm(f64::NAN), "max_norm", "NaN");
    let norm = some.clip_global_norm(f64::INFINITY).unwrap();
    assert_eq!(norm.item::<f32>().unwrap(), 5.0);
    assert_eq!(elements(&some.get(&w).unwrap()), [3.0, 4.0]);
}

#[test]
fn states_that_do_not_fit() {
    let (gpu, other) = (gpu(), gpu());
    let w = parameter(&gpu, &[1.0, 2.0], &[2]);
    let mut adam = AdamW::new(&[&w], AdamWOptions::default()).unwrap();
    adam.step(&gradients(&[(&w, &[1.0, 1.0])])).unwrap();
    let state = |adam: &AdamW| -> Vec<f32> {
        let all = adam.state("adam");
        all.iter()
            .flat_map(|(_, tensor)| elements(tensor))
            .collect()
    };
    let before = state(&adam);
    let mut load = |gpu: &Gpu, shape: &[usize], dtype| {
        let get = |name: &str| match name {
            "adam.step" => gpu.ones(&[1], DType::U32),
            "adam.exp_avg.0" => gpu.ones(&[2], DType::F32),
            _ => gpu.ones(shape, dtype),
        };
        adam.load_state("adam", get)
    };
    let error = load(&gpu, &[3], DType::F32).unwrap_err();
    assert!(matches!(error, Error::Shape { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("`adam.exp_avg_sq.0` has shape [3]"),
        "{error}"
    );
    let error = load(&gpu, &[2], DType::Bf16).unwrap_err();
    assert!(matches!(error, Error::DType { .. }), "{error}");
    let error = load(&other, &[2], DType::F32).unwrap_err();
    assert!(matches!(error, Error::Foreign { .. }), "{error}");
    assert_eq!(state(&adam), before);
}
