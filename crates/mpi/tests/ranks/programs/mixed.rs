//! Ranks that mix up two replicas, or make a value that depends on none of their parameters.

use lapidary::devices::{Reduce, ReplicasOptions};
use lapidary::optim::{Sgd, SgdOptions};
use lapidary::{DType, Gpu, Tensor};
use lapidary_mpi::{Backward, Error, Ranks, Replica, Result};

use super::bad::{check_works, ones};
use super::simulated;

/// Each bucket has one gradient, and each sum is one of three ranks.
const OPTIONS: ReplicasOptions = ReplicasOptions {
    bucket_bytes: 1,
    reduce: Reduce::Sum,
};

/// The lengths of the parameters of two replicas: the same; others in the same number of pieces and
/// in another; another number of buckets.
const LENS: &[[&[usize]; 2]] = &[
    [&[64], &[64]],
    [&[64], &[128]],
    [&[64], &[3_000_000]],
    [&[64, 64], &[64]],
];

fn replica<'a>(ranks: &'a Ranks, gpu: &Gpu, lens: &[usize]) -> Result<Replica<'a>> {
    let all = lens.iter().map(|len| ones(gpu, &[*len]));
    let all = all.collect::<Result<Vec<Tensor>>>()?;
    Replica::new(ranks, &all.iter().collect::<Vec<_>>(), OPTIONS)
}

/// The gradients are `times` for each element.
fn backward(replica: &mut Replica<'_>, times: f32) -> Result<Backward> {
    replica.backward(|own| {
        let mut sum = (own[0].sum_all()? * times)?;
        for one in &own[1..] {
            sum = (sum + (one.sum_all()? * times)?)?;
        }
        Ok(sum)
    })
}

/// The error names this rank's replica as the own one, and the other one as that of another rank.
fn check_differs<T>(ranks: &Ranks, result: Result<T>, [own, others]: [&str; 2]) {
    let Err(Error::Differs { here, there, .. }) = result else {
        panic!("rank {} got no error, or another one", ranks.rank());
    };
    assert!(here.contains(own), "rank {}: {here}", ranks.rank());
    assert!(there.contains(others), "rank {}: {there}", ranks.rank());
}

pub(crate) fn replicas(ranks: &Ranks) -> Result<()> {
    let gpu = &simulated(ranks.rank());
    for (number, lens) in LENS.iter().enumerate() {
        let (mut a, mut b) = (replica(ranks, gpu, lens[0])?, replica(ranks, gpu, lens[1])?);
        let names = [1, 2].map(|one| format!("replica {}", 2 * number + one));
        let [of_a, of_b] = [&*names[0], &*names[1]];
        let is_first = ranks.rank() == 0;
        let words = if is_first { [of_a, of_b] } else { [of_b, of_a] };
        let mixed = match is_first {
            true => backward(&mut a, 1.0),
            false => backward(&mut b, 5.0),
        };
        check_differs(ranks, mixed, words);
        check_works(ranks, gpu)?;
        let mixed = match is_first {
            true => a.copy_from(0),
            false => b.copy_from(0),
        };
        check_differs(ranks, mixed, words);
        // Both go on as if nothing had been.
        for replica in [&mut a, &mut b] {
            let gradients = backward(replica, 2.0)?.gradients;
            for parameter in replica.parameters() {
                let gradient = gradients.get(parameter).expect("the value depends on it");
                let right = vec![6.0; parameter.len()];
                assert!(gradient.to_vec::<f32>()? == right, "{lens:?}");
            }
        }
    }
    Ok(())
}

/// The thread of the backward must not be named.
pub(crate) fn constant(ranks: &Ranks) -> Result<()> {
    let gpu = &simulated(ranks.rank());
    let mut replica = replica(ranks, gpu, &[64])?;
    let own: Vec<Tensor> = replica.parameters().to_vec();
    let mut sgd = Sgd::new(&own.iter().collect::<Vec<_>>(), SgdOptions::default())?;
    let loss = |_: &[Tensor]| gpu.ones(&[], DType::F32);
    let (error, line) = (replica.backward(loss).err(), line!());
    check_line(line, error);
    let (error, line) = (replica.step(&mut sgd, loss).err(), line!());
    check_line(line, error);
    check_works(ranks, gpu)
}

fn check_line(line: u32, error: Option<Error>) {
    let Some(Error::Lapidary(error)) = error else {
        panic!("{error:?}");
    };
    let at = format!("depends on no parameter at {}:{line}", file!());
    assert!(error.to_string().contains(&at), "{error}");
}
