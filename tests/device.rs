//! Tests for every real adapter, with one device for each test and only the public interface.
//! Custom kernels are part of it.
//!
//! They fail on a machine without an adapter. `LAPIDARY_ADAPTER` chooses an adapter other than the
//! default. The same tests run under Vulkan's validation layer.

#[path = "device/any_limits.rs"]
mod any_limits;
#[path = "device/apart.rs"]
mod apart;
#[path = "device/app.rs"]
mod app;
#[path = "device/bound_at_once.rs"]
mod bound_at_once;
#[path = "device/caches.rs"]
mod caches;
mod custom_kernels;
#[path = "device/diagnostics.rs"]
mod diagnostics;
mod dry_run;
#[path = "device/dx12.rs"]
mod dx12;
#[path = "device/everyday.rs"]
mod everyday;
#[path = "device/heap.rs"]
mod heap;
#[path = "device/holders.rs"]
mod holders;
#[path = "device/hostile.rs"]
mod hostile;
#[path = "device/isolation.rs"]
mod isolation;
#[path = "device/large.rs"]
mod large;
#[path = "device/limits.rs"]
mod limits;
#[path = "device/linear.rs"]
mod linear;
#[path = "device/loader.rs"]
mod loader;
#[path = "device/loss.rs"]
mod loss;
#[path = "device/open.rs"]
mod open;
#[path = "device/order.rs"]
mod order;
#[path = "device/parts.rs"]
mod parts;
#[path = "device/ping_pong.rs"]
mod ping_pong;
#[path = "device/plain.rs"]
mod plain;
#[path = "device/pressure.rs"]
mod pressure;
mod programs;
// Metal does not count the bytes that it hands out.
#[cfg(not(target_vendor = "apple"))]
#[path = "device/refusals.rs"]
mod refusals;
#[cfg(not(target_vendor = "apple"))]
#[path = "device/scarce.rs"]
mod scarce;
mod several;
#[path = "device/sharing.rs"]
mod sharing;
#[path = "shares/tenant.rs"]
mod tenant;
#[path = "device/timing.rs"]
mod timing;
#[path = "device/values.rs"]
mod values;
#[path = "device/waiting.rs"]
mod waiting;

use lapidary::{Gpu, Options, Tensor};

/// A separate device for a test.
fn gpu() -> Gpu {
    Gpu::open(Options::from_env().unwrap()).expect("these tests need an adapter")
}

/// The integers from `first` on, as floats.
fn ramp(first: i32, len: usize) -> Vec<f32> {
    (first..).take(len).map(|value| value as f32).collect()
}

/// Small integers that repeat. Their sums and products are exact.
fn small(len: usize, seed: usize) -> Vec<f32> {
    let value = |i: usize| ((i * 7 + i / 11 + seed * 5) % 9) as f32 - 4.0;
    (0..len).map(value).collect()
}

/// Are they equal within 1e-5 of max(1, expected)? NaN equals NaN.
#[track_caller]
fn assert_close(got: &[f32], expected: &[f32]) {
    assert_eq!(got.len(), expected.len());
    for (at, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        let close = got == expected
            || got.is_nan() && expected.is_nan()
            || (got - expected).abs() <= 1e-5 * expected.abs().max(1.0);
        assert!(close, "element {at} is {got}, not {expected}");
    }
}

/// Reads a tensor of f32.
#[track_caller]
fn floats(tensor: &Tensor) -> Vec<f32> {
    match tensor.to_vec::<f32>() {
        Ok(values) => values,
        Err(error) => panic!("{tensor}: {error}"),
    }
}
