//! What is refused, and that everything else goes on working.

use std::sync::Arc;

use lapidary::devices::{Group, Reduce, Replica, Replicas, ReplicasOptions, gather, split};
use lapidary::optim::{Sgd, SgdOptions};
use lapidary::shares::ShareOptions;
use lapidary::{DType, Error, Gpu, Result, Tensor};

use super::groups;
use crate::gpu;

/// The error of device `index`.
#[track_caller]
fn of_device<T: std::fmt::Debug>(index: usize, result: Result<T>) -> Arc<Error> {
    match result {
        Err(Error::Device {
            index: at, cause, ..
        }) if at == index => cause,
        other => panic!("{other:?}"),
    }
}

fn ones(gpus: &[Gpu]) -> Result<Vec<Tensor>> {
    gpus.iter().map(|gpu| gpu.ones(&[8], DType::F32)).collect()
}

#[test]
fn a_group_has_devices_and_each_once() {
    let gpu = gpu();
    assert!(matches!(Group::new(&[]), Err(Error::Option { .. })));
    let twice = Group::new(&[gpu.clone(), gpu.clone()]);
    let error = twice.expect_err("the same device twice").to_string();
    assert!(error.contains("0 and 1"), "{error}");
}

#[cfg(feature = "sim")]
#[test]
fn a_device_that_keeps_time_needs_a_speed() {
    let options = lapidary::sim::SimOptions {
        keeps_time: true,
        ..Default::default()
    };
    assert!(matches!(Gpu::simulated(options), Err(Error::Option { .. })));
}

#[test]
fn tensors_that_do_not_fit_are_refused() -> Result<()> {
    for (name, gpus) in groups(2) {
        let group = Group::new(&gpus)?;
        let good = ones(&gpus)?;
        let with = |second: Tensor| [good[0].clone(), second];
        let shape = with(gpus[1].ones(&[2, 4], DType::F32)?);
        let dtype = with(gpus[1].ones(&[8], DType::F16)?);
        let foreign = with(good[0].clone());
        let tracked = with(gpus[1].ones(&[8], DType::F32)?.requires_grad()?);
        let sum = |tensors: &[Tensor]| group.all_reduce(tensors, Reduce::Sum);
        assert!(matches!(sum(&shape), Err(Error::Shape { .. })), "{name}");
        assert!(matches!(sum(&dtype), Err(Error::DType { .. })), "{name}");
        assert!(
            matches!(sum(&good[..1]), Err(Error::Shape { .. })),
            "{name}"
        );
        assert!(matches!(sum(&[]), Err(Error::Shape { .. })), "{name}");
        assert!(matches!(
            *of_device(1, sum(&foreign)),
            Error::Foreign { .. }
        ));
        assert!(matches!(
            *of_device(1, sum(&tracked)),
            Error::Gradient { .. }
        ));
        let flags: Vec<Tensor> = (gpus.iter())
            .map(|gpu| gpu.zeros(&[8], DType::Bool))
            .collect::<Result<_>>()?;
        assert!(matches!(sum(&flags), Err(Error::DType { .. })), "{name}");
        let words: Vec<Tensor> = (gpus.iter())
            .map(|gpu| gpu.ones(&[8], DType::U32))
            .collect::<Result<_>>()?;
        let mean = group.all_reduce(&words, Reduce::Mean);
        assert!(matches!(mean, Err(Error::DType { .. })), "{name}");
        // Axes are counted from either end, and there is one.
        for axis in [1, -2, isize::MIN, isize::MAX] {
            let scattered = group.reduce_scatter(&good, axis, Reduce::Sum);
            assert!(matches!(scattered, Err(Error::Axis { .. })), "{name}");
            let gathered = group.all_gather(&good, axis);
            assert!(matches!(gathered, Err(Error::Axis { .. })), "{name}");
            let parts = split(&good[0], axis, &gpus);
            assert!(matches!(parts, Err(Error::Axis { .. })), "{name}");
            assert!(gather(&good, axis, &gpus[0]).is_err(), "{name}");
        }
        of_device(0, group.all_gather(&shape, 0));
        let elsewhere = gpu().ones(&[8], DType::F32)?;
        assert!(matches!(
            group.broadcast(&elsewhere),
            Err(Error::Foreign { .. })
        ));
        assert_eq!(sum(&good)?[1].to_vec::<f32>()?, [2.0; 8], "{name}");
    }
    Ok(())
}

#[test]
fn a_lost_device_is_named_and_the_others_go_on() -> Result<()> {
    for (name, gpus) in groups(3) {
        let group = Group::new(&gpus)?;
        let tensors = ones(&gpus)?;
        let w = gpus[0].ones(&[8], DType::F32)?;
        let mut replicas = Replicas::new(&group, &[&w], ReplicasOptions::default())?;
        gpus[1].notify_lost("it was unplugged");
        for cause in [
            of_device(1, group.all_reduce(&tensors, Reduce::Sum)),
            of_device(1, group.broadcast(&tensors[0])),
            of_device(1, group.all_gather(&tensors, 0)),
            of_device(1, group.reduce_scatter(&tensors, 0, Reduce::Sum)),
            of_device(1, replicas.backward(|own| own.parameters()[0].sum_all())),
        ] {
            assert!(
                matches!(*cause, Error::DeviceLost { .. }),
                "{name}: {cause}"
            );
        }
        let error = group
            .broadcast(&tensors[0])
            .expect_err("it is lost")
            .to_string();
        assert!(
            error.contains("device 1 of 3") && error.contains("unplugged"),
            "{error}"
        );
        let rest = [gpus[0].clone(), gpus[2].clone()];
        let tensors = [tensors[0].clone(), tensors[2].clone()];
        let sum = Group::new(&rest)?.all_reduce(&tensors, Reduce::Sum)?;
        assert_eq!(sum[1].to_vec::<f32>()?, [2.0; 8], "{name}");
    }
    Ok(())
}

#[test]
fn a_closed_share_is_named_and_the_others_go_on() -> Result<()> {
    let gpu = gpu();
    let [a, b] = ["a", "b"].map(|name| gpu.share(name, ShareOptions::guaranteed(0)));
    let shares = [a?, b?];
    let gpus = [0, 1].map(|at| shares[at].gpu().clone());
    let group = Group::new(&gpus)?;
    let tensors = ones(&gpus)?;
    let sum = group.all_reduce(&tensors, Reduce::Sum)?;
    assert_eq!(sum[0].to_vec::<f32>()?, [2.0; 8]);
    shares[1].close()?;
    let cause = of_device(1, group.all_reduce(&tensors, Reduce::Sum));
    assert!(matches!(*cause, Error::Share { .. }), "{cause}");
    assert_eq!(tensors[1].to_vec::<f32>()?, [1.0; 8]);
    assert_eq!((&tensors[0] + 1.0)?.to_vec::<f32>()?, [2.0; 8]);
    Ok(())
}

#[test]
fn replicas_say_what_is_wrong_and_can_be_used_again() -> Result<()> {
    for (name, gpus) in groups(2) {
        let group = Group::new(&gpus)?;
        let w = gpus[0].ones(&[8], DType::F32)?;
        let none = Replicas::new(&group, &[], ReplicasOptions::default());
        assert!(matches!(none, Err(Error::Option { .. })), "{name}");
        let whole = gpus[0].ones(&[8], DType::U32)?;
        let cause = of_device(0, Replicas::new(&group, &[&whole], Default::default()));
        assert!(matches!(*cause, Error::DType { .. }), "{name}");
        let empty = ReplicasOptions {
            bucket_bytes: 0,
            ..Default::default()
        };
        let buckets = Replicas::new(&group, &[&w], empty);
        assert!(matches!(buckets, Err(Error::Option { .. })), "{name}");

        let mut replicas = Replicas::new(&group, &[&w], Default::default())?;
        let mut sgds = replicas.each(|own| Sgd::new(own, SgdOptions::default()))?;
        assert!(matches!(replicas.copy_from(2), Err(Error::Option { .. })));
        let few = replicas.step(&mut sgds[..1], |own| own.parameters()[0].sum_all());
        assert!(matches!(few, Err(Error::Option { .. })), "{name}");
        // One device fails, in its forward or in its backward; the other does not wait for it.
        let failed = replicas.step(&mut sgds, |own| match own.index() {
            0 => own.parameters()[0].sum_all(),
            _ => own.gpu().ones(&[3], DType::F32)?.reshape(&[2]),
        });
        assert!(
            matches!(*of_device(1, failed), Error::Shape { .. }),
            "{name}"
        );
        let failed = replicas.step(&mut sgds, |own| match own.index() {
            0 => own.parameters()[0].sum_all(),
            _ => own.gpu().ones(&[], DType::F32),
        });
        assert!(
            matches!(*of_device(1, failed), Error::Gradient { .. }),
            "{name}"
        );
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            replicas.backward(|own| match own.index() {
                0 => own.parameters()[0].sum_all(),
                _ => panic!("of the app"),
            })
        }));
        assert!(panicked.is_err(), "{name}");
        assert_eq!(w.to_vec::<f32>()?, [1.0; 8], "{name}");
        let backward = replicas.backward(|own| own.parameters()[0].sum_all())?;
        let gradient = backward.gradients[1].get(&replicas.parameters(1).expect("two")[0]);
        let gradient = gradient.expect("the sum depends on it").to_vec::<f32>()?;
        assert_eq!(gradient, [1.0; 8], "{name}");
    }
    Ok(())
}

/// Each device has a thread of its own, which the error must not name.
#[test]
fn a_value_without_a_parameter_names_the_callers_line() -> Result<()> {
    for (name, gpus) in groups(2) {
        for count in [1, 2] {
            let group = Group::new(&gpus[..count])?;
            let w = gpus[0].ones(&[8], DType::F32)?;
            let mut replicas = Replicas::new(&group, &[&w], Default::default())?;
            let mut sgds = replicas.each(|own| Sgd::new(own, SgdOptions::default()))?;
            let constant = |own: Replica<'_>| own.gpu().ones(&[], DType::F32);
            let (backward, line) = (replicas.backward(constant), line!());
            check_line(name, line, of_device(0, backward));
            let (step, line) = (replicas.step(&mut sgds, constant), line!());
            check_line(name, line, of_device(0, step));
        }
    }
    Ok(())
}

fn check_line(name: &str, line: u32, error: Arc<Error>) {
    let at = format!("depends on no parameter at {}:{line}", file!());
    assert!(error.to_string().contains(&at), "{name}: {error}");
}
