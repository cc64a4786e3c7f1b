//! The largest batch that fits.

use lapidary::stats::Fit;
use lapidary::{Budget, DType, Error, Gpu, Result};

use super::gpu;
use super::transformer::Transformer;

const TOKENS: usize = 16;

#[test]
fn the_batch_that_was_found_fits_and_a_larger_one_does_not() {
    let gpu = gpu();
    let net = Transformer::new(&gpu, 2, 64).unwrap();
    gpu.finish().unwrap();
    gpu.memory().set_budget(Budget::device(24 << 20)).unwrap();
    let step = |gpu: &Gpu, batch| net.step(gpu, batch, TOKENS);
    let fit = gpu.fit_batch(1..=256, step).unwrap();
    assert!((2..256).contains(&fit.batch), "{fit:?}");
    // In the state in which the search began; later steps meet other holes.
    let evictions = |batch: usize| -> Result<u64> {
        let gpu = &super::gpu();
        let net = Transformer::new(gpu, 2, 64)?;
        gpu.finish()?;
        gpu.memory().set_budget(Budget::device(24 << 20))?;
        net.step(gpu, batch, TOKENS)?;
        gpu.finish()?;
        Ok(gpu.memory().stats().evictions)
    };
    assert_eq!(evictions(fit.batch).unwrap(), 0, "{}", fit.report);
    assert!(evictions(fit.batch + 1).unwrap() > 0, "{}", fit.report);
    assert!(fit.report.peak_device_bytes <= 24 << 20);
    let slower = gpu.fit_batch_within(1..=256, 1.5, step).unwrap();
    assert!(slower.batch >= fit.batch, "{slower:?}");
    assert!(slower.report.slowdown() <= 1.5, "{}", slower.report);
}

#[test]
fn a_range_that_fits_or_that_never_does_ends_at_once() {
    let gpu = gpu();
    gpu.memory().set_budget(Budget::device(64 << 20)).unwrap();
    let mut runs = 0;
    let mut fit = |range, mib: usize| -> Result<Fit> {
        gpu.fit_batch(range, |gpu, batch| {
            runs += 1;
            gpu.zeros(&[batch, mib << 18], DType::F32)
        })
    };
    assert_eq!(fit(1..=16, 1).unwrap().batch, 16);
    assert_eq!(fit(7..=7, 1).unwrap().batch, 7);
    match fit(2..=16, 100) {
        Err(Error::NeverFits {
            requested_bytes,
            limit_bytes,
            ..
        }) => assert!(requested_bytes >= 200 << 20 && limit_bytes <= 64 << 20),
        other => panic!("{other:?}"),
    }
    assert!(runs < 12, "{runs}");
    // Any end of the range is fine: sizes beyond all numbers do not fit either.
    for square in [false, true] {
        let fit = gpu.fit_batch(1..=usize::MAX, |gpu, batch| {
            let x = gpu.zeros(&[1, 1024], DType::F32)?;
            match square {
                true => x.broadcast_to(&[batch, 1024])?.exp(),
                false => gpu.zeros(&[batch, 1024], DType::F32),
            }
        });
        let batch = fit.unwrap().batch;
        assert!((8000..16_384).contains(&batch), "{batch}");
    }
}

#[test]
fn what_is_too_slow_is_told_from_what_does_not_fit() {
    let gpu = gpu();
    gpu.memory().set_budget(Budget::device(32 << 20)).unwrap();
    let around = |gpu: &Gpu, _| {
        let all = (0..10).map(|_| gpu.ones(&[1 << 20], DType::F32));
        let all = all.collect::<Result<Vec<_>>>()?;
        gpu.flush()?;
        all.iter().try_for_each(|one| one.exp().map(drop))
    };
    let error = gpu.fit_batch_within(1..=2, 1.0, around).unwrap_err();
    assert!(matches!(error, Error::NeverFits { .. }), "{error}");
    assert!(error.to_string().contains("slowdown"), "{error}");
}

#[test]
fn a_search_that_makes_no_sense_is_refused() {
    let gpu = gpu();
    let none = |gpu: &Gpu, _| gpu.zeros(&[1], DType::F32);
    #[allow(clippy::reversed_empty_ranges, reason = "that is what is tried")]
    let empty = gpu.fit_batch(3..=2, none);
    assert!(matches!(empty, Err(Error::Option { .. })));
    for slowdown in [0.5, f64::NAN, f64::INFINITY] {
        let found = gpu.fit_batch_within(1..=2, slowdown, none);
        assert!(matches!(found, Err(Error::Option { .. })), "{slowdown}");
    }
    let read = gpu.fit_batch(1..=8, |gpu, _| gpu.zeros(&[1], DType::F32)?.item::<f32>());
    assert!(matches!(read, Err(Error::DryRunRead { .. })));
}

#[test]
fn the_search_takes_a_run_for_each_halving_of_the_range() {
    let gpu = gpu();
    gpu.memory().set_budget(Budget::device(64 << 20)).unwrap();
    let mut runs = 0;
    let fit = gpu.fit_batch(1..=256, |gpu, batch| {
        runs += 1;
        Transformer::new(gpu, 12, 64)?.step(gpu, batch, TOKENS)
    });
    let batch = fit.unwrap().batch;
    assert!((2..256).contains(&batch), "{batch}");
    // The largest batch does not fit, and 256 has eight halvings.
    assert_eq!(runs, 9, "for {batch}");
}

/// The budget of the device is not the one that the work exceeds.
#[test]
fn a_program_with_a_budget_of_its_own_is_told_of_that() {
    let gpu = gpu();
    let own = Budget::device(16 << 20);
    let refused = gpu.fit_batch(1..=8, |gpu, _| {
        gpu.memory().set_budget(own)?;
        let x = gpu.zeros(&[3 << 20], DType::F32)?;
        let y = gpu.zeros(&[3 << 20], DType::F32)?;
        Ok((x, y))
    });
    let Err(Error::NeverFits {
        requested_bytes,
        limit_bytes,
        ..
    }) = refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!(limit_bytes, 16 << 20);
    assert!(
        (24 << 20..=40 << 20).contains(&requested_bytes),
        "{requested_bytes}"
    );
}
