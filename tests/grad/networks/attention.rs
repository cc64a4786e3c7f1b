//! Attention and rotary position embedding.

use lapidary::operations::Causal;

use super::{check_shapes, check_twice};
use crate::grad::check::gpu;

/// Shapes of queries, keys and values, and how later keys are hidden.
const ATTENTIONS: &[(&str, [&[usize]; 3], Causal)] = &[
    ("of one head", [&[3, 2], &[2, 2], &[2, 3]], Causal::No),
    (
        "causal",
        [&[1, 3, 2], &[1, 3, 2], &[1, 3, 2]],
        Causal::FirstKey,
    ),
    (
        "with a cache",
        [&[1, 2, 2], &[1, 4, 2], &[1, 4, 2]],
        Causal::LastKey,
    ),
    (
        "with queries before all keys",
        [&[1, 3, 2], &[1, 2, 2], &[1, 2, 2]],
        Causal::LastKey,
    ),
    (
        "with fewer keys than positions",
        [&[1, 2, 2], &[1, 4, 2], &[1, 4, 1]],
        Causal::FirstKey,
    ),
    (
        "in groups of heads",
        [&[1, 2, 2, 3], &[1, 1, 2, 3], &[1, 1, 2, 2]],
        Causal::No,
    ),
    (
        "of samples that share keys",
        [&[2, 2, 1, 2], &[1, 1, 3, 2], &[1, 2, 3, 1]],
        Causal::No,
    ),
    (
        "of one query for all heads",
        [&[1, 1, 2], &[2, 2, 2], &[2, 2, 2]],
        Causal::LastKey,
    ),
];

#[test]
fn attention_has_the_gradients_that_differences_show() {
    let gpu = gpu();
    for &(what, shapes, causal) in ATTENTIONS {
        check_shapes(&gpu, what, &shapes, |x| {
            x[0].scaled_dot_product_attention(&x[1], &x[2], None, causal, None)
        });
        let what = format!("{what}, scaled");
        check_shapes(&gpu, &what, &shapes, |x| {
            x[0].scaled_dot_product_attention(&x[1], &x[2], None, causal, Some(1.5))
        });
    }
}

#[test]
fn attention_with_a_mask_has_the_gradients_that_differences_show() {
    let gpu = gpu();
    let shapes: [&[usize]; 3] = [&[1, 2, 2, 2], &[1, 1, 3, 2], &[1, 1, 3, 2]];
    let [q, k, v] = shapes;
    let masks: &[&[usize]] = &[&[1, 2, 2, 3], &[2, 1, 3], &[2, 3], &[2, 1], &[3], &[]];
    for mask in masks {
        for causal in [Causal::No, Causal::LastKey] {
            let what = format!("a mask of {mask:?}, {causal:?}");
            check_shapes(&gpu, &what, &[q, k, v, mask], |x| {
                x[0].scaled_dot_product_attention(&x[1], &x[2], Some(&x[3]), causal, None)
            });
        }
    }
    // The second query sees no key.
    let bools = [true, false, true, false, false, false];
    let bools = gpu.tensor(&bools, &[2, 3]).unwrap();
    check_shapes(&gpu, "a mask of bools", &shapes, |x| {
        x[0].scaled_dot_product_attention(&x[1], &x[2], Some(&bools), false, None)
    });
    check_shapes(&gpu, "a mask of bools, causal", &shapes, |x| {
        x[0].scaled_dot_product_attention(&x[1], &x[2], Some(&bools), true, None)
    });
    let below = f32::NEG_INFINITY;
    let floats = [0.5, below, 0.0, below, below, below];
    let floats = gpu.tensor(&floats, &[2, 3]).unwrap();
    check_shapes(&gpu, "a mask of infinities", &shapes, |x| {
        x[0].scaled_dot_product_attention(&x[1], &x[2], Some(&floats), false, None)
    });
}

#[test]
fn gradients_of_attention_have_gradients() {
    let gpu = gpu();
    for &(what, shapes, causal) in ATTENTIONS {
        check_twice(&gpu, what, &shapes, |x| {
            x[0].scaled_dot_product_attention(&x[1], &x[2], None, causal, None)
        });
    }
    let bools = [true, false, true, false, false, false];
    let bools = gpu.tensor(&bools, &[2, 3]).unwrap();
    let shapes: [&[usize]; 4] = [&[1, 2, 2], &[1, 3, 2], &[1, 3, 2], &[2, 3]];
    check_twice(&gpu, "a mask of bools", &shapes[..3], |x| {
        x[0].scaled_dot_product_attention(&x[1], &x[2], Some(&bools), false, None)
    });
    check_twice(&gpu, "a mask of floats", &shapes, |x| {
        x[0].scaled_dot_product_attention(&x[1], &x[2], Some(&x[3]), true, None)
    });
}

#[test]
fn rotations_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    let shapes: [&[usize]; 3] = [&[2, 1, 5], &[1, 2], &[1, 2]];
    let lines: [&[usize]; 3] = [&[2, 4], &[2, 1], &[2, 1]];
    for interleaved in [false, true] {
        for shapes in [shapes, lines] {
            let what = format!("rotary of {shapes:?}, interleaved: {interleaved}");
            check_shapes(&gpu, &what, &shapes, |x| {
                x[0].rotary(&x[1], &x[2], interleaved)
            });
            check_twice(&gpu, &what, &shapes, |x| {
                x[0].rotary(&x[1], &x[2], interleaved)
            });
        }
        let angles = [0.3_f32, 0.7];
        let angles = gpu.tensor(&angles, &[1, 2]).unwrap();
        check_shapes(&gpu, "rotary by fixed angles", &shapes[..1], |x| {
            x[0].rotary(&angles.cos()?, &angles.sin()?, interleaved)
        });
    }
}
