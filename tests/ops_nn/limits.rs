//! Sizes about the most tests of loops that a software adapter makes. Results are whole, or are
//! refused.

use fastrand::Rng;
use lapidary::{
    DType, Error, Gpu, Options, Result, Tensor,
    operations::{Conv, Pool},
};

fn gpu() -> Gpu {
    Gpu::open(Options::from_env().unwrap()).expect("an adapter")
}

fn ones(gpu: &Gpu, shape: &[usize]) -> Tensor {
    gpu.full(shape, 1.0, DType::F32).unwrap()
}

/// The elements, unless the call is refused for its size.
fn whole(what: &str, made: Result<Tensor>) -> Option<Vec<f32>> {
    match made {
        Ok(made) => Some(made.to_vec().unwrap()),
        Err(Error::Shape { reason, .. }) if reason.contains("a software adapter runs") => {
            assert!(reason.contains("called at tests/"), "{what}: {reason}");
            None
        }
        Err(error) => panic!("{what}: {error}"),
    }
}

/// How many windows of `kernel` with stride 1 contain each element along an axis.
fn holders(size: usize, kernel: usize) -> Vec<f32> {
    let windows = size - kernel + 1;
    let of = |at: usize| at.min(windows - 1) + 1 - (at + 1).saturating_sub(kernel);
    (0..size).map(|at| of(at) as f32).collect()
}

/// Pools planes by windows of stride 1, and goes back.
fn check_overlapping(gpu: &Gpu, [height, width]: [usize; 2], kernel: [usize; 2]) -> [bool; 2] {
    let what = format!("windows of {kernel:?} in {height} by {width}");
    let x = gpu
        .arange(0, (height * width) as i32, 1, DType::F32)
        .unwrap();
    let x = x.reshape(&[1, 1, height, width]).unwrap();
    let pool = Pool {
        stride: [1, 1],
        ..Pool::new(kernel)
    };
    let [down, across] = [height - kernel[0] + 1, width - kernel[1] + 1];
    let g = ones(gpu, &[1, 1, down, across]);
    let by_max = whole(&what, g.max_pool2d_backward(&x, &pool));
    let by_min = whole(&what, g.max_pool2d_backward(&x.neg().unwrap(), &pool));
    // The last element of each window is its maximum, or the first one.
    let is_last = |row, column| row >= kernel[0] - 1 && column >= kernel[1] - 1;
    let is_first = |row, column| row < down && column < across;
    let ends = by_max.iter().flatten().zip(by_min.iter().flatten());
    for (at, (last, first)) in ends.enumerate() {
        let (row, column) = (at / width, at % width);
        let expected = [is_last(row, column), is_first(row, column)];
        let expected = expected.map(|is| f32::from(u8::from(is)));
        assert_eq!([*last, *first], expected, "maxima of {what} at {at}");
    }
    let [rows, columns] = [holders(height, kernel[0]), holders(width, kernel[1])];
    let by_mean = whole(&what, g.avg_pool2d_backward(&x, &pool));
    for (at, &got) in by_mean.iter().flatten().enumerate() {
        let share = rows[at / width] * columns[at % width] / (kernel[0] * kernel[1]) as f32;
        let fault = format!("means of {what} at {at}: {got}, not {share}");
        assert!((got - share).abs() < 1e-3 * share, "{fault}");
    }
    [by_max.is_some(), by_mean.is_some()]
}

#[test]
fn gradients_of_overlapping_windows_are_whole() {
    let gpu = gpu();
    for (size, kernel) in [
        ([26, 26], [11, 11]),
        ([160, 1], [75, 1]),
        ([1, 300], [1, 120]),
    ] {
        let are_whole = check_overlapping(&gpu, size, kernel);
        assert_eq!(are_whole, [true; 2], "{kernel:?}");
    }
}

#[test]
fn windows_about_the_limit_are_pooled_whole_or_refused() {
    let gpu = gpu();
    let mut are_whole = [0; 2];
    let mut check = |size, kernel| {
        let made = check_overlapping(&gpu, size, kernel);
        are_whole = [0, 1].map(|at| are_whole[at] + u32::from(made[at]));
    };
    for seed in 0..8 {
        let mut rng = Rng::with_seed(seed);
        let height = [1, 2, 5, 126, 127, 128, 8000, 16_249][rng.usize(..8)];
        let width = (16_249 / height).max(1) + rng.usize(..3);
        let more = [rng.usize(..3), rng.usize(..3)];
        check([height + more[0], width + more[1]], [height, width]);
        // In one axis, each element of the middle is in as many windows as a window has elements.
        let kernel = 120 + rng.usize(..20);
        check([2 * kernel, 2], [kernel, 1]);
        check([3, 2 * kernel], [2, kernel]);
    }
    assert!(are_whole.iter().all(|count| *count >= 16), "{are_whole:?}");
    for holders in [16_200, 16_260] {
        let made = check_overlapping(&gpu, [1, 2 * holders], [1, holders]);
        // A GPU may have any number of tests.
        assert!(made[1] || holders > 16_248);
    }
}

#[test]
fn adaptive_windows_are_whole() -> Result<()> {
    let gpu = gpu();
    let mut rng = Rng::with_seed(1);
    let mut sizes = vec![[4, 30_001, 1], [2, 32_499, 1], [2, 16_001, 2]];
    let random = |_| [rng.usize(1..7), rng.usize(3..50_003), rng.usize(1..6)];
    sizes.extend((0..12).map(random));
    let mut are_whole = [0; 3];
    for [output, height, width] in sizes {
        let what = format!("{output} windows of {height} by {width}");
        let x = ones(&gpu, &[1, 1, height, width]);
        let mean = whole(&what, x.adaptive_avg_pool2d([output, 1]));
        let mut means = mean.iter().flatten();
        assert!(means.all(|&y| (y - 1.0).abs() < 1e-5), "{what}: {mean:?}");
        let x = gpu.arange(0, (height * width) as i32, 1, DType::F32)?;
        let x = x.reshape(&[1, 1, height, width])?;
        let last = |window: usize| ((window + 1) * height).div_ceil(output) * width - 1;
        let max = whole(&what, x.adaptive_max_pool2d([output, 1]));
        let expected: Vec<f32> = (0..output).map(|window| last(window) as f32).collect();
        are_whole = [
            are_whole[0] + u32::from(mean.is_some()),
            are_whole[1] + u32::from(max.is_some()),
            are_whole[2],
        ];
        assert!(max.is_none_or(|max| max == expected), "{what}");
        let g = ones(&gpu, &[1, 1, output, 1]);
        let by_max = whole(&what, g.adaptive_max_pool2d_backward(&x));
        are_whole[2] += u32::from(by_max.is_some());
        let is_last = |at: usize| (0..output).any(|window| last(window) == at);
        for (at, got) in by_max.into_iter().flatten().enumerate() {
            assert_eq!(got, f32::from(u8::from(is_last(at))), "{what} at {at}");
        }
    }
    assert!(are_whole.iter().all(|count| *count > 0), "{are_whole:?}");
    Ok(())
}

#[test]
fn convolutions_of_many_channels_are_whole() -> Result<()> {
    let gpu = gpu();
    for (channels, kernel) in [
        (4600, [3, 3]),
        (16_000, [1, 2]),
        (13_100, [2, 1]),
        (21_000, [1, 1]),
    ] {
        let shape = [1, channels, kernel[0], kernel[1]];
        let y = ones(&gpu, &shape).conv2d(&ones(&gpu, &shape), None, &Conv::default())?;
        let expected = (channels * kernel[0] * kernel[1]) as f32;
        let what = format!("{channels} channels, {kernel:?}");
        assert_eq!(y.item::<f32>()?, expected, "{what}");
    }
    Ok(())
}

#[test]
fn rows_of_short_runs_are_reduced_whole() -> Result<()> {
    let gpu = gpu();
    for (repeats, run) in [(3400, 8), (900, 47), (6000, 2)] {
        let x = ones(&gpu, &[1, 1, run]).broadcast_to(&[3000, repeats, run])?;
        let sum = x.sum(&[1, 2])?.to_vec::<f32>()?;
        let expected = (repeats * run) as f32;
        let is_whole = sum.iter().all(|&sum| sum == expected);
        assert!(is_whole, "{repeats} runs of {run}: {}", sum[0]);
    }
    Ok(())
}

#[test]
fn long_rows_are_searched_and_scanned_whole() -> Result<()> {
    let gpu = gpu();
    let x = gpu.arange(0, 9_000_001, 1, DType::F32)?;
    assert_eq!(x.argmax(0)?.item::<u32>()?, 9_000_000);
    assert_eq!(x.neg()?.argmin(0)?.item::<u32>()?, 9_000_000);
    let x = gpu.full(&[260, 66_001], 1, DType::I8)?;
    let last = x.cumsum(1)?.narrow(1, 66_000, 1)?;
    assert_eq!(last.to_vec::<i32>()?, [66_001; 260]);
    let last = x.t()?.cumsum(0)?.narrow(0, 66_000, 1)?;
    assert_eq!(last.to_vec::<i32>()?, [66_001; 260]);
    Ok(())
}

#[test]
fn the_longest_rows_are_normalized_whole_on_the_way_back() -> Result<()> {
    let gpu = gpu();
    for length in [61_436, 61_440, 61_444, 65_536, 65_540] {
        let x: Vec<f32> = (0..64 * length).map(|at| (at % 4) as f32).collect();
        let g: Vec<f32> = (0..64 * length).map(|at| (at % 4 % 3) as f32).collect();
        let x = gpu.tensor(&x, &[64, length])?.requires_grad()?;
        let g = gpu.tensor(&g, &[64, length])?;
        let y = x.layer_norm(&[length], None, None, 1e-5)?;
        let gradients = y.backprop().seed(&g).run()?;
        let gradient = gradients.get(&x).unwrap();
        let ends = gradient.narrow(1, length - 8, 8)?.to_vec::<f32>()?;
        let first = gradient.narrow(1, 0, 4)?.to_vec::<f32>()?;
        for (at, got) in ends.into_iter().enumerate() {
            let expected = first[at % 4];
            let what = format!("{length}, {at}: {got}, not {expected}");
            assert!((got - expected).abs() < 1e-4 && expected != 0.0, "{what}");
        }
    }
    Ok(())
}

#[test]
fn attention_over_many_keys_is_whole() -> Result<()> {
    let gpu = gpu();
    for (keys, size) in [(150_000, 4), (190_000, 4), (100_000, 16)] {
        let q = gpu.zeros(&[1, 1, 8, size], DType::F32)?;
        let k = gpu.zeros(&[1, 1, keys, size], DType::F32)?;
        let v = gpu.zeros(&[1, 1, keys, 4], DType::F32)?;
        v.narrow(2, keys - 1000, 1000)?.fill_(1.0)?;
        let y = q.scaled_dot_product_attention(&k, &v, None, false, None)?;
        let (y, expected) = (y.to_vec::<f32>()?, 1000.0 / keys as f32);
        let what = format!("{keys} keys of {size}: {}, not {expected}", y[0]);
        let is_near = |y: &f32| (y - expected).abs() < 1e-3 * expected;
        assert!(y.iter().all(is_near), "{what}");
    }
    Ok(())
}
