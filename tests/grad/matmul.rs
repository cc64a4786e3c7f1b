//! Products.

use super::check::{check, gpu, spread};

#[test]
fn products_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    let shapes: &[[&[usize]; 2]] = &[
        [&[2, 3], &[3, 2]],
        [&[3], &[3, 2]],
        [&[2, 3], &[3]],
        [&[3], &[3]],
        [&[2, 2, 3], &[3, 2]],
        [&[2, 2, 3], &[2, 3, 1]],
        [&[2, 3], &[2, 3, 2]],
        [&[2, 1, 2, 3], &[2, 3, 1]],
    ];
    for [a, b] in shapes {
        let [len_a, len_b] = [a, b].map(|shape| shape.iter().product());
        let operands = [spread(len_a, -1.0, 1.0), spread(len_b, -1.0, 1.0)];
        let operands = [(&operands[0][..], *a), (&operands[1][..], *b)];
        check(&gpu, &format!("{a:?} times {b:?}"), &operands, |x| {
            x[0].matmul(&x[1])
        });
    }
}

#[test]
fn linear_layers_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    let [x, w, bias] = [
        spread(6, -1.0, 1.0),
        spread(6, -1.0, 1.0),
        spread(2, -1.0, 1.0),
    ];
    let operands: [(&[f32], &[usize]); 3] = [(&x, &[2, 3]), (&w, &[2, 3]), (&bias, &[2])];
    check(&gpu, "linear", &operands, |x| {
        x[0].linear(&x[1], Some(&x[2]))
    });
}
