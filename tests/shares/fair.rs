//! Shares that want more than there is.

use lapidary::shares::ShareOptions;

use super::{MIB, device, filled, on_device};

/// The bytes that each of these shares holds on average, while all go round over more buffers than
/// fit.
fn contend(guaranteed: &[u64], each: usize, rounds: usize) -> Vec<f64> {
    let gpu = device(48 * MIB);
    let shares = guaranteed.iter().enumerate();
    let shares = shares.map(|(index, &bytes)| {
        let name = format!("share {index}");
        gpu.share(&name, ShareOptions::guaranteed(bytes)).unwrap()
    });
    let shares: Vec<_> = shares.collect();
    let buffers = shares.iter();
    let buffers = buffers.map(|gpu| (0..each).map(|_| filled(gpu, MIB, 1)).collect());
    let buffers: Vec<Vec<_>> = buffers.collect();
    let mut held = vec![0; shares.len()];
    for round in 0..rounds {
        for at in 0..each {
            for buffers in &buffers {
                buffers[at].prefetch().unwrap();
            }
            gpu.flush().unwrap();
            for (held, buffers) in held.iter_mut().zip(&buffers) {
                *held += if round > 0 { on_device(buffers) } else { 0 };
            }
        }
    }
    let looks = (rounds - 1) * each;
    held.iter()
        .map(|held| *held as f64 / looks as f64)
        .collect()
}

#[test]
fn equal_demands_get_equal_parts() {
    let held = contend(&[0, 0], 40, 6);
    assert!((held[0] / held[1] - 1.0).abs() < 0.05, "{held:?}");
    assert!(held[0] + held[1] > 46.0, "{held:?}");
}

#[test]
fn borrowers_share_what_the_guarantees_leave() {
    let held = contend(&[16 * MIB, 0, 0], 40, 24);
    let borrowed = [held[0] - 16.0, held[1], held[2]];
    let mean = borrowed.iter().sum::<f64>() / 3.0;
    assert!(
        borrowed.iter().all(|one| (one / mean - 1.0).abs() < 0.1),
        "{held:?}"
    );
}

#[test]
fn one_operation_may_need_more_than_a_fair_part() {
    let gpu = device(48 * MIB);
    let [a, b] = ["a", "b"].map(|name| gpu.share(name, ShareOptions::guaranteed(0)).unwrap());
    let of_b: Vec<_> = (0..40).map(|_| filled(&b, MIB, 2)).collect();
    let large = filled(&a, 20 * MIB, 1);
    let copy = large.copy().unwrap();
    copy.force().unwrap();
    assert_eq!(copy.to_vec::<u32>().unwrap(), vec![1; 5 << 20]);
    super::assert_filled(&of_b, 2);
}
