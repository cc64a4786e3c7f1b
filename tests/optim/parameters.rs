//! Named parameters: in order, counted, and loaded as a whole or not at all.

use lapidary::optim::Parameters;
use lapidary::{DType, Error, Gpu, Options, Tensor};

use super::elements;

fn gpu() -> Gpu {
    Gpu::open(Options::from_env().unwrap()).expect("the tests need an adapter")
}

fn model(gpu: &Gpu) -> Parameters {
    let mut model = Parameters::default();
    assert!(model.is_empty());
    let w = gpu.ones(&[2, 3], DType::F32).unwrap();
    let b = gpu.zeros(&[3], DType::Bf16).unwrap();
    assert!(model.add("layer.w", w).unwrap().has_grad());
    model.add("layer.b", b).unwrap();
    model
}

#[test]
fn they_have_names_an_order_and_counts() {
    let gpu = gpu();
    let model = model(&gpu);
    assert_eq!(
        (model.len(), model.elements(), model.size_bytes()),
        (2, 9, 30)
    );
    let names: Vec<&str> = model.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["layer.w", "layer.b"]);
    assert_eq!(model.tensors()[1].shape(), [3]);
    assert_eq!(model.get("layer.b").unwrap().tag().name(), Some("layer.b"));
    assert!(model.get("layer").is_none());
    let state = model.state("model");
    assert_eq!(state[0].0, "model.layer.w");
    assert!(!state[0].1.has_grad(), "it is saved, not trained");
}

#[test]
fn a_name_is_given_once_and_only_to_floats() {
    let gpu = gpu();
    let mut model = model(&gpu);
    let again = model.add("layer.w", gpu.ones(&[1], DType::F32).unwrap());
    let text = again.unwrap_err().to_string();
    assert!(text.contains("layer.w"), "{text}");
    let integers = model.add("n", gpu.ones(&[1], DType::I32).unwrap());
    assert!(matches!(integers, Err(Error::DType { .. })), "{integers:?}");
    assert_eq!(model.len(), 2);
}

#[test]
fn a_state_that_does_not_fit_changes_nothing() {
    let (gpu, other) = (gpu(), gpu());
    let model = model(&gpu);
    let load = |gpu: &Gpu, dtype, shape: &[usize]| {
        model.load_state("model", |name| match name {
            "model.layer.w" => gpu.full(&[2, 3], 5.0, DType::F32),
            _ => gpu.full(shape, 5.0, dtype),
        })
    };
    let error = load(&gpu, DType::Bf16, &[4]).unwrap_err();
    assert!(
        error.to_string().contains("`model.layer.b` has shape [4]"),
        "{error}"
    );
    let error = load(&gpu, DType::F32, &[3]).unwrap_err();
    assert!(matches!(error, Error::DType { .. }), "{error}");
    let error = load(&other, DType::Bf16, &[3]).unwrap_err();
    assert!(matches!(error, Error::Foreign { .. }), "{error}");
    let values = || -> Vec<f32> { model.tensors().into_iter().flat_map(elements).collect() };
    assert_eq!(values(), [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
    load(&gpu, DType::Bf16, &[3]).unwrap();
    assert_eq!(values(), [5.0; 9]);
    assert!(
        model.tensors().into_iter().all(Tensor::has_grad),
        "they are still parameters"
    );
}
