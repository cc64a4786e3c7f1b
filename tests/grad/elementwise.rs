//! Operations on single elements.

use lapidary::{Result, Tensor};

use super::check::{check, gpu, spread};

type Unary = fn(&Tensor) -> Result<Tensor>;

/// Operations with numbers at which they are smooth.
const UNARY: &[(&str, f32, f32, Unary)] = &[
    ("neg", -2.0, 2.0, Tensor::neg),
    ("abs", 0.2, 2.0, Tensor::abs),
    ("square", -2.0, 2.0, Tensor::square),
    ("relu", 0.1, 2.0, Tensor::relu),
    ("exp", -1.0, 1.0, Tensor::exp),
    ("log", 0.5, 3.0, Tensor::log),
    ("sqrt", 0.5, 3.0, Tensor::sqrt),
    ("rsqrt", 0.5, 3.0, Tensor::rsqrt),
    ("recip", 0.5, 3.0, Tensor::recip),
    ("sin", -2.0, 2.0, Tensor::sin),
    ("cos", -2.0, 2.0, Tensor::cos),
    ("tanh", -2.0, 2.0, Tensor::tanh),
    ("erf", -1.5, 1.5, Tensor::erf),
    ("sigmoid", -3.0, 3.0, Tensor::sigmoid),
    ("silu", -3.0, 3.0, Tensor::silu),
    ("gelu", -3.0, 3.0, Tensor::gelu),
    ("gelu_tanh", -3.0, 3.0, Tensor::gelu_tanh),
    ("exp2", -1.0, 1.0, Tensor::exp2),
    ("expm1", -1.0, 1.0, Tensor::expm1),
    ("log2", 0.5, 3.0, Tensor::log2),
    ("log10", 0.5, 3.0, Tensor::log10),
    ("log1p", -0.5, 2.0, Tensor::log1p),
    ("frac", 0.1, 0.9, Tensor::frac),
    ("tan", -1.0, 1.0, Tensor::tan),
    ("asin", -0.8, 0.8, Tensor::asin),
    ("acos", -0.8, 0.8, Tensor::acos),
    ("atan", -2.0, 2.0, Tensor::atan),
    ("sinh", -1.0, 1.0, Tensor::sinh),
    ("cosh", -1.0, 1.0, Tensor::cosh),
    ("asinh", -2.0, 2.0, Tensor::asinh),
    ("acosh", 1.3, 3.0, Tensor::acosh),
    ("atanh", -0.7, 0.7, Tensor::atanh),
    ("softplus", -3.0, 3.0, Tensor::softplus),
    ("log_sigmoid", -3.0, 3.0, Tensor::log_sigmoid),
    ("softsign", -3.0, 3.0, Tensor::softsign),
    ("mish", -3.0, 3.0, Tensor::mish),
    ("hardsigmoid", -2.9, 2.9, Tensor::hardsigmoid),
    ("hardswish", -2.9, 2.9, Tensor::hardswish),
    ("erfc", -1.5, 1.5, Tensor::erfc),
    ("erfinv", -0.7, 0.7, Tensor::erfinv),
    ("ndtr", -2.0, 2.0, Tensor::ndtr),
    ("sinc", 0.2, 0.8, Tensor::sinc),
    ("logit", 0.2, 0.8, Tensor::logit),
    ("tanhshrink", -2.0, 2.0, Tensor::tanhshrink),
    ("deg2rad", -2.0, 2.0, Tensor::deg2rad),
    ("rad2deg", -0.1, 0.1, Tensor::rad2deg),
    ("floor", 0.1, 0.9, Tensor::floor),
    ("clamp", -2.0, 2.0, |x| x.clamp(-3.0, 3.0)),
    ("leaky_relu", -2.0, -0.1, |x| x.leaky_relu(0.1)),
    ("elu", -2.0, -0.1, |x| x.elu(1.5)),
    ("elu above 0", 0.1, 2.0, |x| x.elu(1.5)),
    ("selu", -2.0, -0.1, Tensor::selu),
    ("celu", -2.0, -0.1, |x| x.celu(1.5)),
    ("cube", 0.3, 2.0, |x| x.pow_scalar(3.0)),
    ("number less", -2.0, 2.0, |x| 1.0 - x),
    ("number by", 0.5, 2.0, |x| 3.0 / x),
    ("half", -2.0, 2.0, |x| x / 2.0),
    ("scaled", -2.0, 2.0, |x| (x * 3.0)? + 1.0),
    ("maximum_scalar", 0.6, 2.0, |x| x.maximum_scalar(0.5)),
];

#[test]
fn unary_operations_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    for &(name, low, high, f) in UNARY {
        check(&gpu, name, &[(&spread(5, low, high), &[5])], |x| f(&x[0]));
    }
}

type Binary = fn(&Tensor, &Tensor) -> Result<Tensor>;

const BINARY: &[(&str, [f32; 2], [f32; 2], Binary)] = &[
    ("add", [-2.0, 2.0], [-2.0, 2.0], |a, b| a + b),
    ("sub", [-2.0, 2.0], [-2.0, 2.0], |a, b| a - b),
    ("mul", [-2.0, 2.0], [-2.0, 2.0], |a, b| a * b),
    ("div", [-2.0, 2.0], [0.5, 2.0], |a, b| a / b),
    ("pow", [0.5, 2.0], [-1.0, 2.0], Tensor::pow),
    ("atan2", [0.5, 2.0], [0.5, 2.0], Tensor::atan2),
    ("hypot", [0.5, 2.0], [0.5, 2.0], Tensor::hypot),
    ("copysign", [0.5, 2.0], [-2.0, -0.5], Tensor::copysign),
    ("maximum", [-2.0, -0.1], [0.1, 2.0], Tensor::maximum),
    ("minimum", [-2.0, -0.1], [0.1, 2.0], Tensor::minimum),
    ("fmax", [-2.0, -0.1], [0.1, 2.0], Tensor::fmax),
    ("fmin", [-2.0, -0.1], [0.1, 2.0], Tensor::fmin),
    ("logaddexp", [-1.0, 1.0], [-1.0, 1.0], Tensor::logaddexp),
    ("logaddexp2", [-1.0, 1.0], [-1.0, 1.0], Tensor::logaddexp2),
    ("xlogy", [0.5, 2.0], [0.5, 2.0], Tensor::xlogy),
    ("xlog1py", [0.5, 2.0], [0.5, 2.0], Tensor::xlog1py),
    ("rem", [2.1, 2.9], [1.6, 1.9], |a, b| a % b),
    ("remainder", [2.1, 2.9], [1.6, 1.9], Tensor::remainder),
];

#[test]
fn binary_operations_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    for &(name, a, b, f) in BINARY {
        let [a, b] = [spread(4, a[0], a[1]), spread(2, b[0], b[1])];
        // The second operand is broadcast.
        check(&gpu, name, &[(&a, &[2, 2]), (&b, &[2, 1])], |x| {
            f(&x[0], &x[1])
        });
    }
}
