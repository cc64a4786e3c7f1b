//! The cores without a library: plain loops over bands, one for each core, which the compiler
//! vectorizes. Nothing is written for a special processor.
#![allow(
    unsafe_code,
    reason = "loops are compiled a second time, for vectors that the processor may not have"
)]

use std::thread;

/// Compiles a function for any processor, and on x86 again for wider vectors, used if supported.
macro_rules! vectorized {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(-> $made:ty)? $body:block)*) => { $(
        fn $name($($arg: $type),*) $(-> $made)? {
            #[inline(always)]
            fn plain($($arg: $type),*) $(-> $made)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn wide($($arg: $type),*) $(-> $made)? {
                    plain($($arg),*)
                }
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    // SAFETY: the processor supports both features.
                    return unsafe { wide($($arg),*) };
                }
            }
            plain($($arg),*)
        }
    )* };
}

const LANES: usize = 32;
/// Number of elements that are summed in `f32` before `f64`.
const BLOCK: usize = 1 << 14;
/// A transposed tile that fits in the first cache.
const TILE: usize = 32;

pub(crate) fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Splits `out` into a band of whole `unit`s for each core. `work` gets the start of its band.
fn in_bands(out: &mut [f32], unit: usize, work: impl Fn(usize, &mut [f32]) + Sync) {
    let band = out.len().div_ceil(unit).div_ceil(threads()).max(1) * unit;
    thread::scope(|scope| {
        let mut bands = out.chunks_mut(band).enumerate();
        let own = bands.next();
        for (number, part) in bands {
            let work = &work;
            scope.spawn(move || work(number * band, part));
        }
        if let Some((_, part)) = own {
            work(0, part);
        }
    });
}

pub(crate) fn add(out: &mut [f32], a: &[f32], b: &[f32]) {
    in_bands(out, LANES, |start, band| {
        add_band(band, &a[start..], &b[start..]);
    });
}

pub(crate) fn chain(out: &mut [f32], [a, b, c, d]: [&[f32]; 4]) {
    in_bands(out, LANES, |start, band| {
        chain_band(band, &a[start..], &b[start..], &c[start..], &d[start..]);
    });
}

pub(crate) fn softmax(out: &mut [f32], x: &[f32], columns: usize) {
    in_bands(out, columns, |start, band| {
        let rows = x[start..].chunks_exact(columns);
        for (out, row) in band.chunks_exact_mut(columns).zip(rows) {
            softmax_row(out, row);
        }
    });
}

pub(crate) fn sum(x: &[f32]) -> f32 {
    let band = x.len().div_ceil(threads()).max(1);
    let parts: Vec<f64> = thread::scope(|scope| {
        let bands: Vec<_> = x
            .chunks(band)
            .map(|part| scope.spawn(move || part.chunks(BLOCK).map(sum_block).sum()))
            .collect();
        let join = |band: thread::ScopedJoinHandle<'_, f64>| band.join().expect("adding up");
        bands.into_iter().map(join).collect()
    });
    parts.iter().sum::<f64>() as f32
}

pub(crate) fn transpose(out: &mut [f32], x: &[f32], rows: usize, columns: usize) {
    in_bands(out, rows * TILE, |start, band| {
        transpose_band(band, x, rows, columns, start / rows);
    });
}

pub(crate) fn gelu(out: &mut [f32], x: &[f32]) {
    in_bands(out, LANES, |start, band| gelu_band(band, &x[start..]));
}

vectorized! {
    fn add_band(out: &mut [f32], a: &[f32], b: &[f32]) {
        for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
            *out = a + b;
        }
    }

    fn chain_band(out: &mut [f32], a: &[f32], b: &[f32], c: &[f32], d: &[f32]) {
        for ((((out, a), b), c), d) in out.iter_mut().zip(a).zip(b).zip(c).zip(d) {
            let sum = a * b + c;
            *out = sum.max(0.0) * d;
        }
    }

    fn softmax_row(out: &mut [f32], row: &[f32]) {
        let mut largest = [f32::NEG_INFINITY; LANES];
        for part in row.chunks(LANES) {
            for (most, &x) in largest.iter_mut().zip(part) {
                *most = if x > *most { x } else { *most };
            }
        }
        let largest = largest.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
        let mut sums = [0.0_f32; LANES];
        for (out, row) in out.chunks_mut(LANES).zip(row.chunks(LANES)) {
            for ((out, sum), &x) in out.iter_mut().zip(&mut sums).zip(row) {
                *out = exp(x - largest);
                *sum += *out;
            }
        }
        let scale = 1.0 / sums.iter().sum::<f32>();
        for out in out {
            *out *= scale;
        }
    }

    fn sum_block(block: &[f32]) -> f64 {
        let mut sums = [0.0_f32; LANES];
        for part in block.chunks(LANES) {
            for (sum, x) in sums.iter_mut().zip(part) {
                *sum += x;
            }
        }
        sums.iter().map(|&sum| f64::from(sum)).sum()
    }

    fn transpose_band(out: &mut [f32], x: &[f32], rows: usize, columns: usize, first: usize) {
        let mut tile = [[0.0_f32; TILE]; TILE];
        for row in (0..rows).step_by(TILE) {
            let height = TILE.min(rows - row);
            for (strip, out) in out.chunks_mut(TILE * rows).enumerate() {
                let column = first + strip * TILE;
                let width = TILE.min(columns - column);
                for (y, line) in x[row * columns..].chunks(columns).take(height).enumerate() {
                    for (tile, x) in tile.iter_mut().zip(&line[column..column + width]) {
                        tile[y] = *x;
                    }
                }
                for (tile, out) in tile.iter().zip(out.chunks_mut(rows)) {
                    out[row..row + height].copy_from_slice(&tile[..height]);
                }
            }
        }
    }

    fn gelu_band(out: &mut [f32], x: &[f32]) {
        for (out, &x) in out.iter_mut().zip(x) {
            *out = 0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2));
        }
    }
}

/// Cody and Waite's reduction and Cephes' polynomial, without a branch. The error is one or two
/// ulp.
#[inline(always)]
fn exp(x: f32) -> f32 {
    /// Adding it leaves an integer in the low bits.
    const ROUNDER: f32 = 12_582_912.0;
    let x = x.clamp(-87.0, 88.0);
    let rounded = x * std::f32::consts::LOG2_E + ROUNDER;
    let power = rounded - ROUNDER;
    let rest = x - power * 0.693_359_4 + power * 2.121_944_4e-4;
    let mut sum = 1.987_569_1e-4;
    for term in [
        1.398_199_9e-3,
        8.333_452e-3,
        4.166_579_6e-2,
        1.666_666_5e-1,
        0.5,
    ] {
        sum = sum * rest + term;
    }
    let exponent = rounded
        .to_bits()
        .wrapping_sub(ROUNDER.to_bits())
        .wrapping_add(127)
        << 23;
    (sum * rest * rest + rest + 1.0) * f32::from_bits(exponent)
}

/// Abramowitz and Stegun's 7.1.26. The error is at most 1.5 × 10⁻⁷.
#[inline(always)]
fn erf(x: f32) -> f32 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x.abs());
    let mut sum = 1.061_405_4;
    for term in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6] {
        sum = sum * t + term;
    }
    (1.0 - sum * t * exp(-x * x)).copysign(x)
}
