//! Training of the network on the host.

use crate::cases::{BATCH, CLASSES, HIDDEN, INPUTS, RATE};
use crate::openblas::{OpenBlas, Operand};

pub(crate) struct Network<'a> {
    /// Without it products are plain loops, which are slow but good enough for checks.
    blas: Option<&'a OpenBlas>,
    images: &'a [f32],
    classes: &'a [f32],
    weights: [Vec<f32>; 2],
    biases: [Vec<f32>; 2],
    hidden: Vec<f32>,
    outputs: Vec<f32>,
    of_hidden: Vec<f32>,
    of_weights: [Vec<f32>; 2],
}

impl<'a> Network<'a> {
    pub(crate) fn new(blas: Option<&'a OpenBlas>, inputs: &'a [Vec<f32>]) -> Network<'a> {
        let [images, classes, first, second] = inputs else {
            unreachable!("the cases give four inputs");
        };
        Network {
            blas,
            images,
            classes,
            weights: [first.clone(), second.clone()],
            biases: [vec![0.0; HIDDEN], vec![0.0; CLASSES]],
            hidden: vec![0.0; BATCH * HIDDEN],
            outputs: vec![0.0; BATCH * CLASSES],
            of_hidden: vec![0.0; BATCH * HIDDEN],
            of_weights: [vec![0.0; INPUTS * HIDDEN], vec![0.0; HIDDEN * CLASSES]],
        }
    }

    pub(crate) fn step(&mut self) {
        let blas = self.blas;
        let [first, second] = &mut self.weights;
        let sizes = [BATCH, HIDDEN, INPUTS];
        multiply(
            blas,
            sizes,
            (self.images, false),
            (first, false),
            &mut self.hidden,
        );
        for row in self.hidden.chunks_exact_mut(HIDDEN) {
            for (x, bias) in row.iter_mut().zip(&self.biases[0]) {
                *x = (*x + bias).max(0.0);
            }
        }
        let sizes = [BATCH, CLASSES, HIDDEN];
        multiply(
            blas,
            sizes,
            (&self.hidden, false),
            (second, false),
            &mut self.outputs,
        );
        for (row, class) in self
            .outputs
            .chunks_exact_mut(CLASSES)
            .zip(self.classes.chunks_exact(CLASSES))
        {
            loss_gradient(row, &self.biases[1], class);
        }
        // From here the outputs hold their gradient.
        let sizes = [BATCH, HIDDEN, CLASSES];
        multiply(
            blas,
            sizes,
            (&self.outputs, false),
            (second, true),
            &mut self.of_hidden,
        );
        for (gradient, &x) in self.of_hidden.iter_mut().zip(&self.hidden) {
            *gradient = if x > 0.0 { *gradient } else { 0.0 };
        }
        let [of_first, of_second] = &mut self.of_weights;
        let sizes = [HIDDEN, CLASSES, BATCH];
        multiply(
            blas,
            sizes,
            (&self.hidden, true),
            (&self.outputs, false),
            of_second,
        );
        let sizes = [INPUTS, HIDDEN, BATCH];
        multiply(
            blas,
            sizes,
            (self.images, true),
            (&self.of_hidden, false),
            of_first,
        );
        descend(blas, first, of_first);
        descend(blas, second, of_second);
        for (bias, gradient) in self.biases.iter_mut().zip([&self.of_hidden, &self.outputs]) {
            for row in gradient.chunks_exact(bias.len()) {
                descend(None, bias, row);
            }
        }
    }

    /// Weights and biases, layer by layer.
    pub(crate) fn parameters(&self) -> Vec<f32> {
        let layers = self.weights.iter().zip(&self.biases);
        layers
            .flat_map(|(weights, biases)| [&weights[..], biases].concat())
            .collect()
    }
}

/// Adds the bias and computes the gradient of the mean cross entropy.
fn loss_gradient(row: &mut [f32], bias: &[f32], class: &[f32]) {
    for (x, bias) in row.iter_mut().zip(bias) {
        *x += bias;
    }
    let largest = row.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
    let sum: f32 = row.iter().map(|x| (x - largest).exp()).sum();
    for (x, class) in row.iter_mut().zip(class) {
        *x = ((*x - largest).exp() / sum - class) / BATCH as f32;
    }
}

fn descend(blas: Option<&OpenBlas>, parameters: &mut [f32], gradient: &[f32]) {
    match blas {
        Some(blas) => blas.add_scaled(parameters, -RATE, gradient),
        None => {
            for (parameter, gradient) in parameters.iter_mut().zip(gradient) {
                *parameter -= RATE * gradient;
            }
        }
    }
}

fn multiply(
    blas: Option<&OpenBlas>,
    sizes: [usize; 3],
    a: Operand<'_>,
    b: Operand<'_>,
    c: &mut [f32],
) {
    let Some(blas) = blas else {
        return multiply_plainly(sizes, a, b, c);
    };
    blas.multiply(sizes, a, b, c);
}

fn multiply_plainly(
    [m, n, k]: [usize; 3],
    (a, is_a_transposed): Operand<'_>,
    (b, is_b_transposed): Operand<'_>,
    c: &mut [f32],
) {
    let at =
        |x: &[f32], is_transposed: bool, [row, column]: [usize; 2], [rows, columns]: [usize; 2]| {
            match is_transposed {
                true => x[column * rows + row],
                false => x[row * columns + column],
            }
        };
    for (row, c) in c.chunks_exact_mut(n).enumerate() {
        c.fill(0.0);
        for inner in 0..k {
            let a = at(a, is_a_transposed, [row, inner], [m, k]);
            for (column, c) in c.iter_mut().enumerate() {
                *c += a * at(b, is_b_transposed, [inner, column], [k, n]);
            }
        }
    }
}
