//! Operands that need more bindings than a dispatch has: elementwise operations and copies.

use lapidary::{DType, Error, Gpu, Result, Tensor, wgpu};

use super::app::App;

const WINDOW_BYTES: u64 = 16 << 10;

/// Five windows of f32 and i32, and a bit; not a multiple of anything.
const LEN: usize = 5 * (WINDOW_BYTES as usize) / 4 + 83;

fn numbers(len: usize, by: i32) -> Vec<i32> {
    (0..len as i32)
        .map(|i| i.wrapping_mul(by) % 30_011)
        .collect()
}

#[track_caller]
fn check(what: &str, got: Result<Tensor>, expected: impl Fn(usize) -> i32) -> Result<()> {
    let got = got?;
    let shape = got.shape().to_vec();
    let got = got.cast(DType::I32)?.to_vec::<i32>()?;
    for (index, &got) in got.iter().enumerate() {
        assert_eq!(got, expected(index), "{what}: element {index} of {shape:?}");
    }
    Ok(())
}

fn line(gpu: &Gpu) -> Result<()> {
    let (x, y) = (numbers(LEN, 7), numbers(LEN, 11));
    let (a, b) = (gpu.tensor(&x, &[LEN])?, gpu.tensor(&y, &[LEN])?);
    check("sum", &a + &b, |i| x[i] + y[i])?;
    check("sum with itself", &a + &a, |i| 2 * x[i])?;
    let turned = a.flip(&[0])?;
    check("sum with itself, flipped", &a + &turned, |i| {
        x[i] + x[LEN - 1 - i]
    })?;
    check("scalar", a.mul(3), |i| 3 * x[i])?;
    check("scalar in front", 5 - &a, |i| 5 - x[i])?;
    check("negative", a.neg(), |i| -x[i])?;
    check("mask", a.lt(&b), |i| i32::from(x[i] < y[i]))?;
    check("choice", a.lt(&b)?.where_(&a, &b), |i| x[i].min(y[i]))?;
    check("bytes", a.cast(DType::U8), |i| i32::from(x[i] as u8))?;
    check("copy", a.copy(), |i| x[i])?;
    check("flip", turned.copy(), |i| x[LEN - 1 - i])?;
    check("every third", a.slice(0, 1, None, 3)?.copy(), |i| {
        x[3 * i + 1]
    })?;
    let half = LEN / 2;
    let (low, high) = (a.narrow(0, 0, half)?, a.narrow(0, half, half)?);
    check("both halves", &low + &high, |i| x[i] + x[half + i])?;
    a.add_(&b)?;
    check("in place", Ok(a.clone()), |i| x[i] + y[i])?;
    a.clamp_(0, 100)?;
    check("clamped", Ok(a.clone()), |i| (x[i] + y[i]).clamp(0, 100))?;
    // A part that begins in the middle of a word. Nothing else may be written through it.
    let bytes = a.cast(DType::U8)?;
    bytes
        .narrow(0, 3, LEN - 10)?
        .copy_(&b.narrow(0, 0, LEN - 10)?.cast(DType::U8)?)?;
    check("unaligned", Ok(bytes), |i| {
        match (3..LEN - 7).contains(&i) {
            true => i32::from(y[i - 3] as u8),
            false => (x[i] + y[i]).clamp(0, 100),
        }
    })?;
    a.slice(0, 1, None, 2)?.copy_(&b.narrow(0, 0, LEN / 2)?)?;
    check("scattered", Ok(a), |i| match i % 2 {
        1 => y[i / 2],
        _ => (x[i] + y[i]).clamp(0, 100),
    })?;
    let sevens = gpu.full(&[8 * WINDOW_BYTES as usize / 4], 7, DType::I32)?;
    check("filled", Ok(sevens.clone()), |_| 7)?;
    sevens.fill_(9)?;
    check("filled again", Ok(sevens), |_| 9)
}

/// Rows that end inside vec4s, with too few elements to be cut at vec4s, and sums along both axes.
fn planes(gpu: &Gpu, rows: usize, columns: usize, dtype: DType) -> Result<()> {
    let len = rows * columns;
    let x: Vec<i32> = (0..len as i32).map(|i| i * 31 % 97).collect();
    let a = gpu.tensor(&x, &[rows, columns])?.cast(dtype)?;
    let row: Vec<i32> = (0..columns as i32).map(|i| i % 4).collect();
    let b = gpu.tensor(&row, &[columns])?.cast(dtype)?;
    let at = |column: usize, row: usize| x[row * columns + column];
    check("row added", &a + &b, |i| x[i] + row[i % columns])?;
    let turned = a.t()?;
    check("turned", turned.contiguous(), |i| at(i / rows, i % rows))?;
    check("turned sum", turned.add(&turned), |i| {
        2 * at(i / rows, i % rows)
    })?;
    let other = turned.contiguous()?;
    check("both ways", other.t()?.add(&a), |i| 2 * x[i])?;
    let column = a.narrow(1, columns / 2, 1)?.copy()?;
    check("column added", a.sub(&column), |i| {
        let difference = x[i] - at(columns / 2, i / columns);
        if dtype == DType::U8 {
            i32::from(difference as u8)
        } else {
            difference
        }
    })?;
    let target = gpu.zeros(&[columns, rows], dtype)?;
    target.t()?.copy_(&a)?;
    check("through a turned view", Ok(target), |i| {
        at(i / rows, i % rows)
    })
}

fn run(gpu: &Gpu) -> Result<()> {
    line(gpu)?;
    planes(gpu, 3, 10_001, DType::I32)?;
    planes(gpu, 203, 251, DType::F16)
}

#[test]
fn what_needs_more_bindings_than_there_are_is_computed_in_parts() -> Result<()> {
    let app = App::with(wgpu::Features::empty(), |limits| {
        limits.max_storage_buffer_binding_size = WINDOW_BYTES;
        limits.max_storage_buffers_per_shader_stage = 8;
    });
    run(&app.gpu())
}

#[cfg(feature = "sim")]
#[test]
fn a_simulated_device_computes_in_parts_and_with_few_bindings() -> Result<()> {
    use lapidary::sim::SimOptions;
    for (max_storage_bindings, offset_alignment_bytes) in [(8, 256), (5, 4)] {
        let (gpu, sim) = Gpu::simulated(SimOptions {
            max_binding_bytes: WINDOW_BYTES,
            max_storage_bindings,
            offset_alignment_bytes,
            dirty: true,
            ..SimOptions::default()
        })?;
        run(&gpu)?;
        planes(&gpu, 151, 171, DType::F32)?;
        planes(&gpu, 5, 20_003, DType::U8)?;
        gpu.finish()?;
        assert_eq!(sim.complaints(), [""; 0]);
    }
    Ok(())
}

#[cfg(feature = "sim")]
#[test]
fn more_windows_than_a_layout_counts_are_no_other_windows() -> Result<()> {
    let (gpu, sim) = Gpu::simulated(lapidary::sim::SimOptions {
        max_binding_bytes: 1 << 10,
        max_storage_bindings: 1000,
        ..Default::default()
    })?;
    let numbers = numbers(300 << 8, 3);
    let x = gpu.tensor(&numbers, &[300, 256])?;
    check("negative", x.neg(), |i| -numbers[i])?;
    let error = x.max_all().err();
    assert!(matches!(error, Some(Error::NeverFits { .. })), "{error:?}");
    assert_eq!(sim.complaints(), [""; 0]);
    Ok(())
}

#[test]
fn what_cannot_be_computed_in_parts_never_fits() -> Result<()> {
    let app = App::with(wgpu::Features::empty(), |limits| {
        limits.max_storage_buffer_binding_size = WINDOW_BYTES;
        limits.max_storage_buffers_per_shader_stage = 8;
    });
    let gpu = app.gpu();
    let large = gpu.zeros(&[4, WINDOW_BYTES as usize / 4], DType::F32)?;
    let error = large.softmax(1).err();
    assert!(matches!(error, Some(Error::NeverFits { .. })), "{error:?}");
    // Slices of it work, and nothing was damaged.
    let slice = large.narrow(0, 1, 2)?.copy()?;
    assert_eq!(slice.softmax(1)?.sum_all()?.item::<f32>()?.round(), 2.0);
    Ok(())
}
