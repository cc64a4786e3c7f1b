//! Tensors that one share lends and others read.

use fastrand::Rng;
use lapidary::jobs::Job;
use lapidary::shares::ShareOptions;
use lapidary::{Buffer, DType, Error, Gpu, Residency, Source, Tensor};

use super::{MIB, device, device_of, filled};
use crate::programs::number;

/// A matrix of `rows` rows of 256 numbers, all `value`.
fn rows(gpu: &Gpu, rows: usize, value: f32) -> Tensor {
    gpu.full(&[rows, 256], value, DType::F32).unwrap()
}

#[test]
fn what_is_made_of_a_loan_is_the_borrowers() {
    let gpu = device(64 * MIB);
    let [owner, user] = ["owner", "user"].map(|name| {
        let share = ShareOptions::guaranteed(0).with_ceiling(8 * MIB);
        gpu.share(name, share).unwrap()
    });
    // Together with what the user makes of it, the weight would exceed the user's ceiling.
    let weight = rows(&owner, 6 << 10, 2.0).named("weight");
    let lent = weight.lend_to(&user).unwrap();
    let sum = (rows(&user, 6 << 10, 1.0) + &lent).unwrap();
    assert_eq!(sum.max_all().unwrap().item::<f32>().unwrap(), 3.0);
    assert_eq!(lent.t().unwrap().tag().share(), Some("owner"));
    assert_eq!(
        (sum.tag().share(), sum.shape()),
        (Some("user"), &[6 << 10, 256][..])
    );
    assert!(lent.shares_storage_with(&weight));
    let [of_owner, of_user] =
        [&owner, &user].map(|gpu| gpu.memory().share_use().unwrap().own_bytes);
    assert_eq!(of_owner, 6 * MIB);
    assert!((6 * MIB..7 * MIB).contains(&of_user), "{of_user}");
    // The loan keeps the memory and its share.
    drop((weight, owner));
    assert_eq!(gpu.memory().stats().shares.len(), 2);
    assert_eq!(lent.min_all().unwrap().item::<f32>().unwrap(), 2.0);
    drop(lent);
    gpu.flush().unwrap();
    assert_eq!(gpu.memory().stats().shares.len(), 1);
    // In the share that it is from, a loan is the tensor itself.
    let own = sum.lend_to(&user).unwrap();
    own.add_(1.0).unwrap();
    assert_eq!(sum.max_all().unwrap().item::<f32>().unwrap(), 4.0);
}

#[test]
fn only_the_lender_writes() {
    let gpu = device(64 * MIB);
    let user = gpu.share("user", ShareOptions::guaranteed(0)).unwrap();
    let weight = rows(&gpu, 1, 2.0).named("weight");
    let lent = weight.lend_to(&user).unwrap();
    let ones = rows(&user, 1, 1.0);
    let words = gpu.buffer_from(&[1_u32]).unwrap().named("weight");
    let words = words.lend_to(&user).unwrap();
    let refused = [
        lent.add_(&ones).err(),
        lent.fill_(0.0).err(),
        lent.copy_(&ones).err(),
        lent.write(&[0.0_f32; 256]).err(),
        lent.narrow(0, 0, 1).and_then(|row| row.mul_(&ones)).err(),
        lent.backed_by(Source::bytes(vec![0; 1024].into())).err(),
        lent.recompute_with(&[], move |_| Ok(ones.clone())).err(),
        words.write(&[0_u32]).err(),
        words.backed_by(Source::bytes(vec![0; 4].into())).err(),
    ];
    for (index, error) in refused.into_iter().enumerate() {
        let error = error.unwrap_or_else(|| panic!("write {index} is done"));
        assert!(
            matches!(error, Error::Lent { .. }),
            "write {index}: {error}"
        );
        let text = error.to_string();
        assert!(text.contains("weight") && text.contains("`copy`"), "{text}");
    }
    assert_eq!(lent.to_vec::<f32>().unwrap(), [2.0; 256]);
    // The lender does, and each command of the borrower sees what was written before it.
    let before = (&lent * 10.0).unwrap();
    weight.fill_(3.0).unwrap();
    let after = (&lent * 10.0).unwrap();
    assert_eq!(before.to_vec::<f32>().unwrap(), [20.0; 256]);
    assert_eq!(after.to_vec::<f32>().unwrap(), [30.0; 256]);
    // Nor does the borrower name it.
    assert_eq!(lent.clone().named("mine").tag().name(), Some("weight"));
    // A copy is the borrower's own.
    let copy = lent.copy().unwrap();
    copy.fill_(4.0).unwrap();
    assert_eq!(lent.to_vec::<f32>().unwrap(), [3.0; 256]);
    let other = device(64 * MIB);
    let words = gpu.buffer_from(&[1_u32]).unwrap();
    let errors = [
        weight.lend_to(&other).unwrap_err(),
        words.lend_to(&other).unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, Error::Foreign { .. }), "{error}");
        // The advice is not the call that was refused.
        let text = error.to_string();
        assert!(text.ends_with("Copy to that device with `to`"), "{text}");
        assert_eq!(text.matches("lend_to").count(), 1, "{text}");
    }
    assert_eq!(words.to(&other).unwrap().to_vec::<u32>().unwrap(), [1]);
}

/// Devices whose memory the host sees, and others.
fn devices(bytes: u64) -> [Gpu; 2] {
    [false, true].map(|maps_slabs| device_of(bytes, maps_slabs))
}

#[test]
fn urgent_work_reads_weights_that_lower_work_reads_too() {
    devices(64 * MIB)
        .into_iter()
        .for_each(|gpu| read_urgently(&gpu));
}

fn read_urgently(gpu: &Gpu) {
    let share = |name, priority| {
        let share = ShareOptions::guaranteed(0).with_priority(priority);
        gpu.share(name, share).unwrap()
    };
    let (owner, frame, job) = (share("owner", -2), share("frame", 1), share("job", -1));
    let weight = rows(&owner, 4, 2.0);
    weight.force().unwrap();
    let lent = [&frame, &job].map(|gpu| weight.lend_to(gpu).unwrap());
    let slow: Vec<_> = (0..20).map(|_| lent[1].exp().unwrap()).collect();
    let fast = (&lent[0] + 1.0).unwrap();
    frame.flush().unwrap();
    let is_made = |one: &Tensor| one.residency() == Residency::Device;
    assert!(is_made(&fast) && !slow.iter().any(is_made));
    // So do calls that only read.
    lent[0].force().unwrap();
    drop(lent[0].pin().unwrap());
    assert_eq!(lent[0].to_vec::<f32>().unwrap(), [2.0; 1024]);
    assert!(!slow.iter().any(is_made));
    // It waits for what the owner wrote before, though nothing is lower than the owner.
    weight.fill_(5.0).unwrap();
    let fast = (&lent[0] + 1.0).unwrap();
    frame.flush().unwrap();
    assert!(is_made(&fast));
    assert_eq!(fast.to_vec::<f32>().unwrap(), [6.0; 1024]);
    // The job recorded its work before that write, so it has the number from before.
    weight.fill_(7.0).unwrap();
    assert_eq!(lent[0].to_vec::<f32>().unwrap(), [7.0; 1024]);
    assert_eq!(slow[19].to_vec::<f32>().unwrap(), [2.0_f32.exp(); 1024]);
    // Calls for what the owner has yet to make run that first.
    for call in [
        |lent: &Tensor| lent.force(),
        |lent: &Tensor| lent.pin().map(drop),
        |lent: &Tensor| lent.to_vec::<f32>().map(drop),
    ] {
        let made = rows(&owner, 4, 8.0).lend_to(&frame).unwrap();
        call(&made).unwrap();
        assert!(is_made(&made));
        assert_eq!(made.to_vec::<f32>().unwrap(), [8.0; 1024]);
    }
}

#[test]
fn a_cancelled_share_takes_nothing_of_others_along() {
    let gpu = device(64 * MIB);
    let share = |name| gpu.share(name, ShareOptions::guaranteed(0)).unwrap();
    let (owner, user) = (share("owner"), share("user"));
    // The borrower is cancelled, while one kernel could compute what both want.
    let weight = (rows(&owner, 1, 2.0) * 2.0).unwrap();
    let of_user = (weight.lend_to(&user).unwrap() + 1.0).unwrap();
    let other = (&weight + 3.0).unwrap();
    user.cancel().unwrap();
    assert_eq!(weight.to_vec::<f32>().unwrap(), [4.0; 256]);
    assert_eq!(other.to_vec::<f32>().unwrap(), [7.0; 256]);
    assert!(matches!(of_user.force(), Err(Error::Poisoned { .. })));
    // The lender is cancelled. What it had made can be read; what it had not is lost.
    let user = share("next");
    let lent = weight.lend_to(&user).unwrap();
    let late = rows(&owner, 1, 5.0).lend_to(&user).unwrap();
    let of_made = (&lent + 1.0).unwrap();
    let of_late = (&late + 1.0).unwrap();
    owner.cancel().unwrap();
    assert_eq!(of_made.to_vec::<f32>().unwrap(), [5.0; 256]);
    assert_eq!(lent.to_vec::<f32>().unwrap(), [4.0; 256]);
    let error = of_late.to_vec::<f32>().unwrap_err();
    assert!(error.to_string().contains("cancelled"), "{error}");
}

#[test]
fn a_write_waits_for_what_is_computed_again_from_the_old_value() {
    let gpu = device(64 * MIB);
    let frame = gpu.share("frame", ShareOptions::guaranteed(0).with_priority(1));
    let (frame, job) = (
        frame.unwrap(),
        gpu.share("job", ShareOptions::guaranteed(0)).unwrap(),
    );
    let weight = rows(&frame, 4, 2.0);
    let lent = weight.lend_to(&job).unwrap();
    let double = (&lent * 2.0).unwrap();
    double
        .recompute_with(&[&lent], |inputs| &inputs[0] * 2.0)
        .unwrap();
    double.evict().unwrap();
    assert_eq!(double.residency(), Residency::Backed);
    let read = (&double + 1.0).unwrap();
    weight.fill_(9.0).unwrap();
    frame.flush().unwrap();
    assert_eq!(read.to_vec::<f32>().unwrap(), [5.0; 1024]);
    assert_eq!(weight.to_vec::<f32>().unwrap(), [9.0; 1024]);
}

#[test]
fn weights_that_only_others_use_stay_on_the_device() {
    let gpu = device(16 * MIB);
    let [owner, user, other] = ["owner", "user", "other"]
        .map(|name| gpu.share(name, ShareOptions::guaranteed(0)).unwrap());
    let weight = rows(&owner, 2 << 10, 2.0);
    weight.force().unwrap();
    let lent = weight.lend_to(&user).unwrap();
    let mut evictions = 0;
    for round in 0..16 {
        assert_eq!(lent.max_all().unwrap().item::<f32>().unwrap(), 2.0);
        // Two shares in turn want more than there is.
        let wanted = [&user, &other].map(|gpu| filled(gpu, MIB, round));
        std::mem::forget(wanted);
        evictions = owner.memory().share_use().unwrap().evictions;
    }
    assert_eq!((evictions, weight.residency()), (0, Residency::Device));
    // Where it was evicted, the next command of the borrower brings it back.
    weight.evict().unwrap();
    assert_eq!(lent.max_all().unwrap().item::<f32>().unwrap(), 2.0);
}

#[test]
fn a_job_is_admitted_without_the_weights_that_it_borrows() {
    let gpu = device(64 * MIB);
    let weight = rows(&gpu, 32 << 10, 2.0);
    let work = |gpu: &Gpu| {
        let lent = weight.lend_to(gpu)?;
        (rows(gpu, 1, 1.0) + lent.narrow(0, 0, 1)?)?.sum_all()
    };
    let dry = gpu.dry_run(|gpu| work(gpu).map(drop)).unwrap();
    assert!(dry.peak_added_bytes < MIB, "{}", dry.peak_added_bytes);
    let running = gpu.jobs().admit(Job::new("sum", MIB)).unwrap();
    assert_eq!(work(&running).unwrap().item::<f32>().unwrap(), 768.0);
    let dry = running.dry_run(|gpu| work(gpu).map(drop)).unwrap();
    assert!(dry.peak_added_bytes < MIB, "{}", dry.peak_added_bytes);
    // A dry run of any share takes what others have yet to compute as computed.
    let pending = rows(&running, 4, 1.0);
    for gpu in [&gpu, &running] {
        gpu.dry_run(|gpu| work(gpu).map(drop)).unwrap();
    }
    assert_eq!(pending.residency(), Residency::Pending);
    let error = running.dry_run(|gpu| weight.lend_to(gpu)?.fill_(0.0));
    assert!(matches!(error, Err(Error::Lent { .. })), "{error:?}");
}

#[test]
fn no_gradient_flows_through_a_loan() {
    let gpu = device(64 * MIB);
    let user = gpu.share("user", ShareOptions::guaranteed(0)).unwrap();
    let weight = rows(&gpu, 1, 2.0).requires_grad().unwrap();
    let lent = weight.lend_to(&user).unwrap();
    let own = rows(&user, 1, 3.0).requires_grad().unwrap();
    let gradients = (&own * &lent)
        .unwrap()
        .sum_all()
        .unwrap()
        .backward()
        .unwrap();
    let of_own = gradients.get(&own).unwrap();
    assert_eq!(of_own.to_vec::<f32>().unwrap(), [2.0; 256]);
    assert!(gradients.get(&lent).is_none() && gradients.get(&weight).is_none());
}

/// A buffer, what it should hold, and whether its share may write to it.
type Known = (Buffer, u32, bool);

/// Random commands of shares of three priorities, which lend to each other. Each buffer must hold
/// what the order of the calls says.
fn program(gpu: &Gpu, seed: u64, steps: u64) {
    let mut random = Rng::with_seed(seed);
    let shares = [-1, 0, 1].map(|priority| {
        let share = ShareOptions::guaranteed(0).with_priority(priority);
        gpu.share(&format!("of {priority}"), share).unwrap()
    });
    let mut known: [Vec<Known>; 3] = Default::default();
    for step in 0..steps {
        let at = random.usize(0..3);
        let gpu = &shares[at];
        if known[at].len() < 4 {
            let word = random.u32(..);
            let words = vec![word; 16 << 10];
            known[at].push((gpu.buffer_from(&words).unwrap(), word, true));
            continue;
        }
        let index = random.usize(0..known[at].len());
        let (buffer, word, is_own) = known[at][index].clone();
        match random.u32(0..13) {
            0..3 => known[at].push((buffer.copy().unwrap(), word, true)),
            3..6 if is_own => {
                let next = random.u32(..);
                buffer.write(&vec![next; 16 << 10]).unwrap();
                let all = known.iter_mut().flatten();
                all.filter(|one| one.0.shares_memory_with(&buffer))
                    .for_each(|one| one.1 = next);
            }
            6 | 7 => {
                let to = random.usize(0..3);
                let lent = buffer.lend_to(&shares[to]).unwrap();
                known[to].push((lent, word, is_own && to == at));
            }
            8 => {
                let to = random.usize(0..3);
                known[to].push((buffer.to(&shares[to]).unwrap(), word, is_own || to != at));
            }
            9 => gpu.flush().unwrap(),
            10 => drop(buffer.pin().unwrap()),
            11 => super::assert_filled(&[buffer], word),
            _ => drop(known[at].swap_remove(index)),
        }
        if known[at].len() > 12 {
            for (buffer, word, _) in known[at].drain(..6) {
                super::assert_filled(&[buffer], word);
            }
        }
        if step % 100 == 0 {
            gpu.flush().unwrap();
        }
    }
    for (buffer, word, _) in known.into_iter().flatten() {
        super::assert_filled(&[buffer], word);
    }
}

#[test]
fn loans_between_priorities_keep_the_order_of_the_calls() {
    let seed = number("LAPIDARY_SEED").unwrap_or_else(|| fastrand::u64(..));
    let steps = number("LAPIDARY_STEPS").unwrap_or(1500);
    eprintln!("LAPIDARY_SEED={seed} LAPIDARY_STEPS={steps}");
    for gpu in devices(2 * MIB) {
        program(&gpu, seed, steps);
    }
}
