//! Optimizers: PyTorch's values, launches and memory, loss scaling, accumulation, saved states, and
//! what is refused.

mod accumulates;
mod launches;
mod parameters;
mod refuses;
#[cfg(feature = "model-files")]
mod resumes;
mod scaler;
mod types;
mod values;

use lapidary::{Gpu, Tensor, grad::Gradients};

/// A parameter with these elements.
fn parameter(gpu: &Gpu, elements: &[f32], shape: &[usize]) -> Tensor {
    let made = gpu.tensor(elements, shape).expect("the shape fits");
    made.requires_grad().expect("floats have gradients")
}

/// Gradients with these elements.
fn gradients(of: &[(&Tensor, &[f32])]) -> Gradients {
    let mut gradients = Gradients::default();
    for (parameter, elements) in of {
        let seed = parameter.detach().zeros_like().expect("memory");
        let seed = seed.cast(lapidary::DType::F32).expect("memory");
        seed.write(elements).expect("as many elements");
        let seed = seed.cast(parameter.dtype()).expect("memory");
        // A copy, since the seed of a parameter would be its gradient.
        let same = parameter.copy().expect("memory");
        let backprop = same.backprop().seed(&seed);
        backprop.add_to(&mut gradients).expect("it has a history");
    }
    gradients
}

fn elements(tensor: &Tensor) -> Vec<f32> {
    let wide = tensor.detach().cast(lapidary::DType::F32);
    wide.and_then(|wide| wide.to_vec()).expect("it has a value")
}
