//! Rematerialization beside waiting work: work recorded before, and refused work.

use lapidary::sim::SimOptions;
use lapidary::{Budget, DType, Error, Gpu, Residency, Tensor};

use crate::engine::rematerialize::{doubled, expected, in_time, rematerialized};
use crate::engine::threads::watched;
use crate::engine::{ended, nothing_leaves, numbers, open, open_alone, options};

#[test]
fn what_was_recorded_before_an_input_is_written_reads_what_was_there() {
    let (gpu, sim) = open(options());
    type Write = fn(&Tensor) -> lapidary::Result<()>;
    let writes: [Write; 4] = [
        |x| x.write(&numbers(100, 64)),
        |x| x.fill_(7),
        |x| x.add_(1),
        |x| x.add_(&x.sum(&[0])?.broadcast_to(&[64])?),
    ];
    for write in writes {
        let x = gpu.tensor(&numbers(3, 64), &[64]).unwrap();
        let y = rematerialized(&x);
        y.evict().unwrap();
        let more = y.add(1).unwrap();
        write(&x).unwrap();
        // Fusion joins both into one kernel, at the second one's place in the queue.
        let most = more.add(1).unwrap();
        let sums: Vec<f32> = expected(3).iter().map(|n| n + 2.0).collect();
        assert_eq!(most.to_vec::<f32>().unwrap(), sums);
    }
    ended(gpu, &sim);
}

#[test]
fn what_found_no_room_before_an_input_is_written_reads_what_was_there() {
    let (gpu, sim) = open_alone(SimOptions {
        memory_bytes: 15 << 20,
        max_binding_bytes: 128 << 20,
        ..options()
    });
    nothing_leaves(&gpu);
    let [first, x] = [0, 3].map(|start| gpu.tensor(&numbers(start, 64), &[64]).unwrap());
    let y = rematerialized(&x);
    let z = rematerialized(&y);
    let holder = gpu.zeros(&[2 << 20], DType::F32).unwrap();
    holder.force().unwrap();
    for evicted in [&z, &y] {
        evicted.evict().unwrap();
    }
    let column = z.view_as(&[64, 1]).unwrap();
    let wide = column.broadcast_to(&[64, 1 << 15]).unwrap().copy().unwrap();
    drop(column);
    assert!(matches!(wide.force(), Err(Error::OutOfMemory(_))));
    x.write(&numbers(100, 64)).unwrap();
    // Unconcerned work does not wait.
    first.write(&numbers(9, 64)).unwrap();
    assert_eq!(first.to_vec::<f32>().unwrap(), numbers(9, 64));
    assert!(matches!(x.to_vec::<f32>(), Err(Error::OutOfMemory(_))));
    drop(holder);
    let column = wide.narrow(1, 5, 1).unwrap().to_vec::<f32>().unwrap();
    let twice: Vec<f32> = expected(3).iter().map(|n| 2.0 * n + 1.0).collect();
    assert_eq!(column, twice);
    assert_eq!(x.to_vec::<f32>().unwrap(), numbers(100, 64));
    drop((first, x, y, z, wide));
    ended(gpu, &sim);
}

/// The write finds no room until `z` is read. `y` is of an earlier time, and has to be computed.
/// `late`: `z` is recorded only after the calls `between`.
fn beside_a_write_that_waits(
    [maps_slabs, late]: [bool; 2],
    make: fn(&Tensor) -> Tensor,
    write: fn(&Tensor) -> lapidary::Result<()>,
    between: fn(&Gpu, &Tensor),
) -> Vec<i32> {
    let (gpu, sim) = open_alone(SimOptions {
        maps_slabs,
        ..options()
    });
    gpu.memory().set_budget(Budget::device(128 << 10)).unwrap();
    let x = gpu.full(&[8 << 10], 5, DType::I32).unwrap();
    x.force().unwrap();
    let y = make(&x);
    y.evict().unwrap();
    x.evict().unwrap();
    let hogs: Vec<Tensor> = (0..13)
        .map(|_| {
            let hog = gpu.ones(&[2 << 10], DType::I32).unwrap();
            hog.force().unwrap();
            hog
        })
        .collect();
    let pins: Vec<_> = hogs.iter().map(|hog| hog.pin().unwrap()).collect();
    write(&x).unwrap();
    gpu.flush().unwrap();
    let early = (!late).then(|| y.add(1).unwrap());
    between(&gpu, &y);
    let z = early.unwrap_or_else(|| y.add(1).unwrap());
    gpu.flush().unwrap();
    drop((pins, hogs));
    let value = z.to_vec::<i32>().unwrap();
    drop((x, y, z));
    ended(gpu, &sim);
    value
}

fn total(x: &Tensor) -> Tensor {
    let y = x.sum_all().unwrap();
    y.recompute_with(&[x], |inputs| inputs[0].sum_all())
        .unwrap();
    y
}

/// Two rematerializers, of which one needs the other.
fn twice_the_total(x: &Tensor) -> Tensor {
    let y = total(x);
    let twice = y.mul(2).unwrap();
    twice
        .recompute_with(&[&y], |inputs| inputs[0].mul(2))
        .unwrap();
    y.evict().unwrap();
    twice
}

/// A rematerializer that records several commands, of which one works in place.
fn total_of_more(x: &Tensor) -> Tensor {
    let more = |x: &Tensor| {
        let copy = x.copy()?;
        copy.add_(2)?;
        copy.flip(&[0])?.sum_all()
    };
    let y = more(x).unwrap();
    y.recompute_with(&[x], move |inputs| more(&inputs[0]))
        .unwrap();
    y
}

#[test]
fn what_is_computed_again_beside_a_write_that_waits_reads_what_was_there() {
    type Write = fn(&Tensor) -> lapidary::Result<()>;
    let writes: [Write; 4] = [
        |x| x.add_(96),
        |x| x.narrow(0, 7, 9)?.fill_(3),
        |x| x.narrow(0, 4, 8)?.write(&[2; 8]),
        |x| x.add_(&x.sum_all()?.broadcast_to(&[8 << 10])?),
    ];
    let between: [fn(&Gpu, &Tensor); 3] = [
        |_, _| {},
        // A call of its own wants the value, and finds no room either.
        |_, y| drop(y.pin()),
        |gpu, y| {
            drop(y.to_vec::<i32>());
            gpu.flush().unwrap();
            y.prefetch().unwrap();
            gpu.flush().unwrap();
        },
    ];
    type Make = fn(&Tensor) -> Tensor;
    let makes: [(Make, i32); 3] = [
        (total, 40_961),
        (twice_the_total, 81_921),
        (total_of_more, 57_345),
    ];
    let mut number = 0;
    for write in writes {
        for between in between {
            for (make, expected) in makes {
                let how = [number & 1, number & 2].map(|bit| bit > 0);
                let got = beside_a_write_that_waits(how, make, write, between);
                assert_eq!(got, [expected], "{number}");
                number += 1;
            }
        }
    }
}

/// One of many threads: writes to the inputs of its rematerializers, in memory for a few tensors.
/// Returns how many of its values it got; the others found no room, or were lost to the write.
fn writes_and_reads(gpu: &Gpu, seed: u64) -> usize {
    let (mut random, mut got) = (fastrand::Rng::with_seed(seed), 0);
    for round in 0..20 {
        let mut write_and_read = || -> lapidary::Result<()> {
            let len = random.choice([100, 2_000, 12_000]).unwrap();
            let x = gpu.full(&[len], round, DType::I32)?;
            let y = x.mul(3)?;
            y.recompute_with(&[&x], |inputs| inputs[0].mul(3))?;
            y.evict()?;
            if random.bool() {
                x.evict()?;
            }
            let hog = gpu.ones(&[random.usize(1..10_000)], DType::I32)?;
            let pin = random.bool().then(|| hog.pin());
            x.add_(96)?;
            let z = y.add(1)?;
            drop((pin, hog));
            let z = z.to_vec::<i32>().inspect(|_| got += 1);
            let wanted = |values: &[i32], wanted| values.iter().all(|value| *value == wanted);
            assert!(z.is_err() || wanted(&z.as_ref().unwrap()[..], 3 * round + 1));
            assert!(wanted(&x.to_vec::<i32>()?, round + 96));
            z.map(drop)
        };
        match write_and_read() {
            Ok(())
            | Err(
                Error::OutOfMemory(_)
                | Error::Poisoned { .. }
                | Error::Recompute { .. }
                | Error::Pinned { .. }
                | Error::Spill(_),
            ) => {}
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    got
}

#[test]
fn threads_that_write_to_inputs_get_no_later_value() {
    watched(|| {
        for maps_slabs in [false, true] {
            let (gpu, sim) = open_alone(SimOptions {
                maps_slabs,
                jitter: true,
                ..options()
            });
            gpu.memory().set_budget(Budget::device(200 << 10)).unwrap();
            let got: usize = std::thread::scope(|scope| {
                let threads = (0..8).map(|seed| (seed, gpu.clone()));
                let threads: Vec<_> = threads
                    .map(|(seed, gpu)| scope.spawn(move || writes_and_reads(&gpu, seed)))
                    .collect();
                threads.into_iter().map(|one| one.join().unwrap()).sum()
            });
            assert!(got > 0, "none of the values was there");
            ended(gpu, &sim);
        }
    });
}

#[test]
fn what_nobody_wants_any_more_is_not_computed_again() {
    let (gpu, sim) = open_alone(options());
    let budget = Budget {
        host_bytes: Some(0),
        disk_bytes: Some(0),
        ..Budget::device(160 << 10)
    };
    gpu.memory().set_budget(budget).unwrap();
    let len = 8_000;
    let x = gpu.tensor(&numbers(3, len), &[len]).unwrap();
    let y = rematerialized(&x);
    let z = rematerialized(&y);
    for evicted in [&z, &y] {
        evicted.evict().unwrap();
    }
    let holder = gpu.zeros(&[26_000], DType::F32).unwrap();
    holder.force().unwrap();
    let sum = z.add(&x).unwrap();
    assert!(matches!(sum.force(), Err(Error::OutOfMemory(_))));
    drop((x, y, z, sum));
    gpu.finish().unwrap();
    let memory = gpu.memory().stats();
    assert_eq!(
        (memory.queued, memory.live_storages.now),
        (0, 1),
        "{memory}"
    );
    drop(holder);
    ended(gpu, &sim);
}

#[test]
fn what_was_given_up_and_is_written_anew_waits_for_room_like_any_other() {
    in_time(|| {
        let (gpu, sim) = open_alone(options());
        let budget = Budget {
            host_bytes: Some(0),
            disk_bytes: Some(0),
            ..Budget::device(160 << 10)
        };
        gpu.memory().set_budget(budget).unwrap();
        let len = 10_000;
        let x = gpu.tensor(&numbers(3, len), &[len]).unwrap();
        let y = rematerialized(&x);
        y.evict().unwrap();
        let holder = gpu.zeros(&[25_000], DType::F32).unwrap();
        holder.force().unwrap();
        // The first part of the new value is refused.
        let written = y.write(&numbers(7, len)).and_then(|()| y.force());
        assert!(matches!(written, Err(Error::OutOfMemory(_))), "{written:?}");
        drop(holder);
        y.write(&numbers(7, len)).unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap(), numbers(7, len));
        assert_eq!(x.to_vec::<f32>().unwrap(), numbers(3, len));
        drop((x, y));
        ended(gpu, &sim);
    });
}

/// Chains of rematerializers in memory for a few of the tensors, beside clears that wait for
/// memory. Pinning succeeds or is refused for lack of memory.
#[test]
fn what_rematerializers_of_rematerializers_make_is_pinned_or_finds_no_room() {
    let seed = std::env::var("LAPIDARY_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut pinned, mut refused) = (0, 0);
    for round in 0..150 {
        let (gpu, _sim) = open_alone(SimOptions {
            maps_slabs: random.bool(),
            lag_submissions: random.u32(..4),
            ..options()
        });
        let budget = Budget {
            host_bytes: Some(random.choice([0, 16 << 10, 1 << 20]).unwrap()),
            disk_bytes: Some(0),
            ..Budget::device(random.u64(40 << 10..160 << 10))
        };
        gpu.memory().set_budget(budget).unwrap();
        let len = random.choice([1000, 4000, 8000]).unwrap();
        let Ok(chain) = chain(&gpu, len, &mut random) else {
            continue;
        };
        let waiting = (0..4).map(|_| gpu.zeros(&[random.usize(1..20_000)], DType::F32));
        let waiting: Vec<Tensor> = waiting.flatten().collect();
        for one in &chain {
            // It may already be evicted.
            drop(one.evict());
        }
        for one in [random.choice(&chain).unwrap(), chain.last().unwrap()] {
            match one.pin() {
                Ok(pin) => {
                    assert_eq!(
                        one.residency(),
                        Residency::Device,
                        "round {round} of {seed}"
                    );
                    drop(pin);
                    pinned += 1;
                }
                Err(Error::OutOfMemory(_) | Error::NeverFits { .. }) => refused += 1,
                Err(other) => panic!("round {round} of seed {seed}: {other}"),
            }
        }
        drop(waiting);
    }
    assert!(
        pinned > 20 && refused > 2,
        "{pinned} pinned, {refused} refused"
    );
}

/// Tensors that are each computed from two earlier ones.
fn chain(gpu: &Gpu, len: usize, random: &mut fastrand::Rng) -> lapidary::Result<Vec<Tensor>> {
    let mut chain = vec![gpu.tensor(&numbers(3, len), &[len])?];
    for last in 0..random.usize(2..6) {
        let (x, other) = (chain[last].clone(), chain[random.usize(..=last)].clone());
        let y = doubled(&x)?;
        y.recompute_with(&[&x, &other], |inputs| {
            doubled(&inputs[0])?.add(&inputs[1])?.sub(&inputs[1])
        })?;
        chain.push(y);
    }
    Ok(chain)
}
