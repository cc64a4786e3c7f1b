//! Calls that do not fit each other, and ranks that fail.

use std::process::Command;
use std::thread;
use std::time::Duration;

use lapidary::devices::Reduce;
use lapidary::optim::{Sgd, SgdOptions};
use lapidary::shares::ShareOptions;
use lapidary::sim::SimOptions;
use lapidary::{DType, Gpu, Tensor};
use lapidary_mpi::{Error, Ranks, RanksOptions, Replica, Result};

use super::simulated;

/// Long enough for the test to end the job if nobody else does.
pub(super) const LONG: Duration = Duration::from_secs(600);

pub(super) fn ones(gpu: &Gpu, shape: &[usize]) -> Result<Tensor> {
    Ok(gpu.ones(shape, DType::F32)?)
}

/// All ranks still make calls together.
pub(super) fn check_works(ranks: &Ranks, gpu: &Gpu) -> Result<()> {
    let sum = ranks.all_reduce(&ones(gpu, &[5])?, Reduce::Sum)?;
    assert_eq!(sum.to_vec::<f32>()?, [ranks.count() as f32; 5]);
    Ok(())
}

/// The call is an error on each rank, and the work goes on. The error has these words on the ranks
/// other than `bad`, and on that one.
fn check_refused<T>(
    ranks: &Ranks,
    gpu: &Gpu,
    bad: usize,
    words: [&str; 2],
    call: impl FnOnce(bool) -> Result<T>,
) -> Result<()> {
    let is_bad = ranks.rank() == bad;
    let Err(error) = call(is_bad) else {
        panic!("rank {} got no error, but {words:?}", ranks.rank());
    };
    let text = error.to_string();
    let [of_others, own] = words;
    let expected = if is_bad { own } else { of_others };
    assert!(text.contains(expected), "rank {}: {text}", ranks.rank());
    let names_it = text.contains(&format!("rank {bad}"));
    assert!(is_bad || names_it, "rank {}: {text}", ranks.rank());
    check_works(ranks, gpu)
}

pub(crate) fn differs(ranks: &Ranks) -> Result<()> {
    let gpu = &simulated(ranks.rank());
    let x = &ones(gpu, &[6, 4])?;
    check_refused(ranks, gpu, 1, ["[6, 5]", "[6, 4]"], |is_bad| {
        let own = if is_bad {
            ones(gpu, &[6, 5])?
        } else {
            x.clone()
        };
        ranks.all_reduce(&own, Reduce::Sum)
    })?;
    check_refused(ranks, gpu, 2, ["f16", "f32"], |is_bad| {
        let own = if is_bad {
            x.cast(DType::F16)?
        } else {
            x.clone()
        };
        ranks.all_reduce(&own, Reduce::Sum)
    })?;
    check_refused(ranks, gpu, 0, ["Mean", "Sum"], |is_bad| {
        let reduce = if is_bad { Reduce::Mean } else { Reduce::Sum };
        ranks.all_reduce(x, reduce)
    })?;
    check_refused(
        ranks,
        gpu,
        1,
        ["reduce_scatter", "all_gather"],
        |is_bad| match is_bad {
            true => ranks.reduce_scatter(x, 0, Reduce::Sum),
            false => ranks.all_gather(x, 0),
        },
    )?;
    check_refused(ranks, gpu, 1, ["[6, any]", "[any, 4]"], |is_bad| {
        ranks.all_gather(x, if is_bad { 1 } else { 0 })
    })?;
    check_refused(ranks, gpu, 2, ["from rank 2", "from rank 0"], |is_bad| {
        ranks.broadcast(if is_bad { 2 } else { 0 }, x)
    })?;
    // Calls that one rank refuses by itself.
    check_refused(
        ranks,
        gpu,
        1,
        ["none of the 3 ranks", "none of the 3 ranks"],
        |is_bad| ranks.broadcast(if is_bad { 3 } else { 0 }, x),
    )?;
    check_refused(ranks, gpu, 0, ["detach", "detach"], |is_bad| {
        let own = if is_bad {
            x.copy()?.requires_grad()?
        } else {
            x.clone()
        };
        ranks.all_reduce(&own, Reduce::Sum)
    })?;
    check_refused(ranks, gpu, 2, ["bool where", "bool where"], |is_bad| {
        let own = if is_bad { x.gt(0.0)? } else { x.clone() };
        ranks.all_reduce(&own, Reduce::Sum)
    })?;
    for axis in [2, -3] {
        check_refused(ranks, gpu, 1, ["axis", "axis"], |is_bad| {
            ranks.reduce_scatter(x, if is_bad { axis } else { 0 }, Reduce::Sum)
        })?;
    }
    // Shapes for which a message has no room.
    check_refused(ranks, gpu, 1, ["Replica", "Replica"], |is_bad| {
        let len = |number: usize| if is_bad && number == 99 { 2 } else { 1 };
        let many: Vec<Tensor> = (0..100)
            .map(|number| ones(gpu, &[len(number)]))
            .collect::<Result<_>>()?;
        let many: Vec<&Tensor> = many.iter().collect();
        Replica::new(ranks, &many, Default::default()).map(|_| ())
    })?;
    dry_run(ranks, gpu)?;
    let replica = |shape: &[usize]| {
        let w = ones(gpu, shape)?;
        Replica::new(ranks, &[&w], Default::default()).map(|_| ())
    };
    check_refused(ranks, gpu, 1, ["[3]", "[2]"], |is_bad| {
        replica(if is_bad { &[3] } else { &[2] })
    })?;
    check_refused(
        ranks,
        gpu,
        1,
        ["is empty", "is empty"],
        |is_bad| match is_bad {
            true => Replica::new(ranks, &[], Default::default()).map(|_| ()),
            false => replica(&[2]),
        },
    )
}

/// A dry run has no values to send.
fn dry_run(ranks: &Ranks, gpu: &Gpu) -> Result<()> {
    let mut error = None;
    let _ = gpu.dry_run(|gpu| {
        error = ranks
            .all_reduce(&gpu.ones(&[4], DType::F32)?, Reduce::Sum)
            .err();
        Ok(())
    })?;
    check_is_dry(error.as_ref());
    check_works(ranks, gpu)
}

fn check_is_dry(error: Option<&Error>) {
    let is_dry = matches!(
        error,
        Some(Error::Lapidary(lapidary::Error::DryRunRead { .. }))
    );
    assert!(is_dry, "{error:?}");
}

pub(crate) fn backward_fails(ranks: &Ranks) -> Result<()> {
    let gpu = &simulated(ranks.rank());
    let (first, last) = (ones(gpu, &[3, 4])?, ones(gpu, &[4, 1])?);
    let options = lapidary::devices::ReplicasOptions {
        bucket_bytes: 1,
        ..Default::default()
    };
    let mut replica = Replica::new(ranks, &[&first, &last], options)?;
    let x = &ones(gpu, &[2, 3])?;
    let index = ranks.rank();
    // In the forward; in the hook of the gradient that is made last.
    for fault in 0..2 {
        let failing = move |own: &[Tensor]| {
            let bad = index == 1;
            let hidden = x.matmul(&own[0])?;
            if bad && fault == 0 {
                hidden.matmul(x)?;
            }
            if bad && fault == 1 {
                hidden.on_gradient(|gradient| gradient.reshape(&[1000]))?;
            }
            hidden.matmul(&own[1])?.mean_all()
        };
        let error = replica.backward(failing).expect_err("rank 1 fails");
        match (&error, index) {
            (Error::Lapidary(_), 1) => {}
            (Error::Failed { rank: 1, .. }, 0 | 2) => {}
            _ => panic!("rank {index}: {error:?}"),
        }
        check_works(ranks, gpu)?;
    }
    let mut error = None;
    let _ = gpu.dry_run(|_| {
        let loss = |own: &[Tensor]| x.matmul(&own[0])?.matmul(&own[1])?.mean_all();
        error = replica.backward(loss).err();
        Ok(())
    })?;
    check_is_dry(error.as_ref());
    let own: Vec<Tensor> = replica.parameters().to_vec();
    let mut sgd = Sgd::new(&own.iter().collect::<Vec<_>>(), SgdOptions::default())?;
    replica.step(&mut sgd, |own| {
        x.matmul(&own[0])?.matmul(&own[1])?.mean_all()
    })?;
    check_works(ranks, gpu)
}

/// A share that is closed gets no memory for results.
pub(crate) fn no_room(ranks: &Ranks) -> Result<()> {
    let gpu = &simulated(ranks.rank());
    let share = gpu.share("app", ShareOptions::guaranteed(0))?;
    let (x, w) = (ones(&share, &[4, 3])?, ones(&share, &[3, 1])?);
    let mut replica = Replica::new(ranks, &[&w], Default::default())?;
    if ranks.rank() == 1 {
        share.close()?;
    }
    let words = ["closed", "closed"];
    check_refused(ranks, gpu, 1, words, |_| ranks.all_reduce(&x, Reduce::Sum))?;
    check_refused(ranks, gpu, 1, words, |_| ranks.all_gather(&x, 0))?;
    check_refused(ranks, gpu, 1, words, |_| {
        replica.backward(|own| x.matmul(&own[0])?.mean_all())
    })
}

pub(crate) fn lost_device(ranks: &Ranks) -> Result<()> {
    let (gpu, sim) = Gpu::simulated(SimOptions::default())?;
    let x = ones(&gpu, &[10])?;
    check_works(ranks, &gpu)?;
    if ranks.rank() == 1 {
        sim.lose("somebody pulled the cable");
    }
    let error = ranks
        .all_reduce(&x, Reduce::Sum)
        .expect_err("a device is lost");
    assert!(error.to_string().contains("pulled the cable"), "{error}");
    // The others go on, and the rank with a new device too.
    let gpu = simulated(ranks.rank());
    check_works(ranks, &gpu)
}

pub(crate) fn returns_error(ranks: &Ranks) -> Result<()> {
    let gpu = simulated(ranks.rank());
    check_works(ranks, &gpu)?;
    if ranks.rank() == 1 {
        return Err(Error::Argument {
            operation: "a checkpoint",
            reason: "the disk is full".into(),
        });
    }
    check_works(ranks, &gpu)
}

pub(crate) fn panics(ranks: &Ranks) -> Result<()> {
    let gpu = simulated(ranks.rank());
    check_works(ranks, &gpu)?;
    assert!(ranks.rank() != 1, "out of ideas");
    check_works(ranks, &gpu)
}

pub(crate) fn ends_early(ranks: &Ranks) -> Result<()> {
    let gpu = simulated(ranks.rank());
    match ranks.rank() {
        1 => Ok(()),
        _ => check_works(ranks, &gpu),
    }
}

/// Sends a signal to this process.
fn signal(name: &str) {
    let own = std::process::id().to_string();
    let sent = Command::new("kill").args([name, &own]).status();
    assert!(sent.is_ok_and(|sent| sent.success()), "kill {name}");
}

pub(crate) fn is_killed(ranks: &Ranks) -> Result<()> {
    let gpu = simulated(ranks.rank());
    check_works(ranks, &gpu)?;
    if ranks.rank() == 1 {
        signal("-KILL");
        thread::sleep(LONG);
    }
    check_works(ranks, &gpu)?;
    println!("went on");
    Ok(())
}

pub(crate) fn is_stopped(ranks: &Ranks) -> Result<()> {
    let gpu = simulated(ranks.rank());
    check_works(ranks, &gpu)?;
    if ranks.rank() == 1 {
        signal("-STOP");
    }
    check_works(ranks, &gpu)
}

/// The rank stops while pieces are on their way.
pub(crate) fn is_stopped_in_a_sum(ranks: &Ranks) -> Result<()> {
    gets_in_a_sum(ranks, "-STOP")
}

pub(crate) fn is_killed_in_a_sum(ranks: &Ranks) -> Result<()> {
    gets_in_a_sum(ranks, "-KILL")
}

fn gets_in_a_sum(ranks: &Ranks, signal: &'static str) -> Result<()> {
    let gpu = simulated(ranks.rank());
    let x = ones(&gpu, &[16 << 20])?;
    if ranks.rank() == 1 {
        let own = std::process::id().to_string();
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(300));
            let _ = Command::new("kill").args([signal, &own]).status();
        });
    }
    loop {
        ranks.all_reduce(&x, Reduce::Sum)?;
    }
}

pub(crate) fn all_reduces(ranks: &Ranks) -> Result<()> {
    check_works(ranks, &simulated(ranks.rank()))
}

pub(crate) fn broadcasts(ranks: &Ranks) -> Result<()> {
    let x = ones(&simulated(ranks.rank()), &[5])?;
    ranks.broadcast(0, &x).map(|_| ())
}

/// Longer than a wait is busy, and shorter than the time-out.
pub(crate) fn is_slow(ranks: &Ranks) -> Result<()> {
    let gpu = simulated(ranks.rank());
    if ranks.rank() == 1 {
        thread::sleep(Duration::from_secs(1));
    }
    check_works(ranks, &gpu)
}

pub(crate) fn starts_twice(_ranks: &Ranks) -> Result<()> {
    let again = lapidary_mpi::run(RanksOptions::default(), |_| -> Result<()> { Ok(()) });
    assert!(matches!(again, Err(Error::Start { .. })), "{again:?}");
    Ok(())
}
