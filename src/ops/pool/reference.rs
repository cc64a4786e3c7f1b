//! The reference kernels of pool: every window folds its elements, or distributes its gradient.

use super::kernel::{PoolFold, fold_of, is_adaptive};
use super::windows::Params;
use lapidary_core::internal::ReferenceCall;

pub(crate) fn run(call: &mut ReferenceCall) {
    let p: Params = call.params();
    for at in 0..p.planes[0] * p.planes[3] * p.kernel[0] {
        let window = Window::new(&p, call.variant.code, at);
        match fold_of(call.variant.code) {
            PoolFold::Mean => {
                let values = window
                    .places
                    .iter()
                    .map(|&place| value(call, &p, &window, place));
                let sum: f64 = values.map(f64::from).sum();
                call.put_f32(1, at as usize, (sum / f64::from(window.counted)) as f32);
            }
            PoolFold::Max => {
                let place = place_of_maximum(call, &p, &window).unwrap_or(0);
                let maximum = value(call, &p, &window, place);
                call.put_f32(1, at as usize, maximum);
            }
            PoolFold::Place => {
                let place = place_of_maximum(call, &p, &window).unwrap_or(0);
                call.put_int(1, at as usize, place);
            }
            PoolFold::Position => {
                let place = place_of_maximum(call, &p, &window);
                let position = window.places.iter().position(|&one| Some(one) == place);
                call.put_int(1, at as usize, position.unwrap_or(0) as u32);
            }
        }
    }
}

pub(crate) fn run_chosen(call: &mut ReferenceCall) {
    let p: Params = call.params();
    for at in 0..p.planes[0] * p.planes[3] * p.kernel[0] {
        let window = Window::new(&p, call.variant.code, at);
        let position = call.int(1, (p.rest[0] + at) as usize);
        let place = window.places.get(position as usize).copied().unwrap_or(0);
        let chosen = value(call, &p, &window, place);
        call.put_f32(2, at as usize, chosen);
    }
}

pub(crate) fn run_backward(call: &mut ReferenceCall) {
    let p: Params = call.params();
    let area = p.planes[1] * p.planes[2];
    let mut sums = vec![0.0_f64; (p.planes[0] * area) as usize];
    for at in 0..p.planes[0] * p.planes[3] * p.kernel[0] {
        let window = Window::new(&p, call.variant.code, at);
        let g = f64::from(call.f32(1, (p.rest[0] + at) as usize));
        let places = match fold_of(call.variant.code) {
            PoolFold::Mean => window.places.clone(),
            _ => {
                let position = call.int(0, (p.margin[3] + at) as usize);
                let place = window.places.get(position as usize);
                place.copied().into_iter().collect()
            }
        };
        let share = match fold_of(call.variant.code) {
            PoolFold::Mean => g / f64::from(window.counted),
            _ => g,
        };
        for place in places {
            sums[(window.plane * area + place) as usize] += share;
        }
    }
    for (at, sum) in sums.into_iter().enumerate() {
        call.put_f32(2, at, sum as f32);
    }
}

/// A window.
struct Window {
    plane: u32,
    /// Its elements in the plane.
    places: Vec<u32>,
    /// The divisor of its mean.
    counted: u32,
}

impl Window {
    fn new(p: &Params, code: u64, at: u32) -> Self {
        let [height, width, down] = [p.planes[1], p.planes[2], p.planes[3]];
        let across = p.kernel[0];
        let is_adaptive = is_adaptive(code);
        let rows = Span::new(
            is_adaptive,
            at / across % down,
            [height, down, p.kernel[1]],
            p,
            0,
        );
        let columns = Span::new(is_adaptive, at % across, [width, across, p.kernel[2]], p, 1);
        let of_row = |&row: &u32| {
            columns
                .places
                .iter()
                .map(move |column| row * width + column)
        };
        Window {
            plane: at / (across * down),
            places: rows.places.iter().flat_map(of_row).collect(),
            counted: match p.rest[1] {
                0 => rows.counted * columns.counted,
                divisor => divisor,
            },
        }
    }
}

/// A window along one axis.
struct Span {
    places: Vec<u32>,
    counted: u32,
}

impl Span {
    fn new(
        is_adaptive: bool,
        window: u32,
        [input, output, kernel]: [u32; 3],
        p: &Params,
        axis: usize,
    ) -> Self {
        if is_adaptive {
            let end = ((window + 1) * input).div_ceil(output);
            let places: Vec<u32> = (window * input / output..end).collect();
            let counted = places.len() as u32;
            return Span { places, counted };
        }
        let stride = [p.kernel[3], p.margin[0]][axis];
        let (padding, dilation) = (p.margin[1 + axis], p.dilation[axis]);
        let taps = (0..kernel).map(|tap| window * stride + tap * dilation);
        let inside = taps
            .clone()
            .filter(|at| (padding..padding + input).contains(at));
        let places: Vec<u32> = inside.map(|at| at - padding).collect();
        let counted = match p.rest[2] {
            0 => places.len(),
            _ => taps.filter(|&at| at < input + 2 * padding).count(),
        };
        Span {
            places,
            counted: counted as u32,
        }
    }
}

fn value(call: &ReferenceCall, p: &Params, window: &Window, place: u32) -> f32 {
    let area = p.planes[1] * p.planes[2];
    call.f32(0, (p.margin[3] + window.plane * area + place) as usize)
}

/// The first maximum, or the last NaN.
fn place_of_maximum(call: &ReferenceCall, p: &Params, window: &Window) -> Option<u32> {
    let mut highest: Option<(f32, u32)> = None;
    for &place in &window.places {
        let x = value(call, p, window, place);
        if x.is_nan() || highest.is_none_or(|(highest, _)| x > highest) {
            highest = Some((x, place));
        }
    }
    highest.map(|(_, place)| place)
}
