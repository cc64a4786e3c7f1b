//! Random programs of several kinds, with random steps that are compared with an oracle.

use std::thread;

use fastrand::Rng;
use lapidary::Residency;
use lapidary::sim::{Fault, FaultKind, FileFault, FileFaultKind, FileSite, Repeat, Site};

use crate::pressure::steps::step;
use crate::pressure::world::{Rules, World};
use crate::pressure::{Seed, number};

/// Steps of one program.
const PROGRAM_STEPS: u64 = 500;

/// Steps of each kind, unless the environment sets them.
const STEPS: u64 = 2500;

const PLAIN: Rules = Rules {
    held: 40,
    leaves: true,
    pins: false,
    alone: true,
};

/// Runs programs of a kind until they have made 1/`part` of the steps.
fn run(part: u64, program: impl Fn(u64, u64)) {
    quiet();
    let first = number("LAPIDARY_SEED");
    let steps = match (number("LAPIDARY_STEPS"), first) {
        (None, Some(_)) => PROGRAM_STEPS,
        (steps, _) => steps.unwrap_or(STEPS) / part,
    };
    for program_number in 0..steps.div_ceil(PROGRAM_STEPS) {
        let seed = first.unwrap_or(0) + program_number;
        let _seed = Seed(seed);
        program(
            seed,
            PROGRAM_STEPS.min(steps - program_number * PROGRAM_STEPS),
        );
    }
}

/// Hides panics in callbacks, which are expected here.
pub(crate) fn quiet() {
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<crate::pressure::orders::Wanted>() {
            loud(info);
        }
    }));
}

fn check(part: u64, rules: Rules) {
    run(part, |seed, steps| {
        let mut world = World::new(seed, rules);
        for _ in 0..steps {
            step(&mut world);
        }
        world.end();
    });
}

#[test]
fn what_fits_alone_never_fails_when_nothing_is_pinned() {
    check(1, PLAIN);
}

#[test]
fn pinned_tensors_stay_and_others_make_way() {
    let pins = true;
    check(1, Rules { pins, ..PLAIN });
}

#[test]
fn where_nothing_can_leave_what_is_short_is_refused_and_nothing_is_lost() {
    let (leaves, held) = (false, 12);
    check(
        2,
        Rules {
            held,
            leaves,
            ..PLAIN
        },
    );
}

#[test]
fn threads_that_share_a_small_device_never_fail_for_each_other() {
    let alone = false;
    run(2, |seed, steps| {
        let rules = Rules {
            held: 12,
            alone,
            ..PLAIN
        };
        let world = World::new(seed, rules);
        thread::scope(|scope| {
            for number in 0..3 {
                let (gpu, sim) = (world.gpu.clone(), world.sim.clone());
                scope.spawn(move || {
                    let rng = Rng::with_seed(seed << 8 | number);
                    let mut world = World::on(gpu, sim, rng, rules);
                    for _ in 0..steps / 3 {
                        step(&mut world);
                    }
                    world.drop_all();
                });
            }
        });
        world.end();
    });
}

/// Steps without faults and some with faults. Afterwards every tensor that these did not concern is
/// right.
fn check_faults(part: u64, arm: fn(&mut World)) {
    run(part, |seed, steps| {
        let mut world = World::new(seed, PLAIN);
        let mut made = 0;
        while made < steps {
            let (calm, faulty) = (world.rng.u64(1..40), world.rng.u64(1..20));
            for _ in 0..calm {
                step(&mut world);
            }
            world.check_all();
            world.in_fault = true;
            arm(&mut world);
            for _ in 0..faulty {
                step(&mut world);
            }
            world.sim.disarm();
            world.sim.files().disarm();
            while !world.reads.is_empty() {
                world.await_one();
            }
            // Work recorded under the faults runs before the faults end.
            let _ = world.gpu.finish();
            world.in_fault = false;
            world.check_all();
            made += calm + faulty;
        }
        world.end();
    });
}

const REPEATS: [Repeat; 4] = [
    Repeat::Once,
    Repeat::EverySecond,
    Repeat::ForEver,
    Repeat::OneIn(3),
];

#[test]
fn a_driver_that_fails_costs_what_it_was_asked_for_and_nothing_else() {
    const SITES: [Site; 8] = [
        Site::CreateBuffer,
        Site::CreateBindGroup,
        Site::Submit,
        Site::Wait,
        Site::Map,
        Site::MapDone,
        Site::WriteMapped,
        Site::ReadMapped,
    ];
    check_faults(2, |w| {
        for _ in 0..w.rng.u32(1..3) {
            let fault = Fault {
                site: *w.rng.choice(&SITES).expect("some"),
                nth: w.rng.u64(1..8),
                repeat: *w.rng.choice(&REPEATS).expect("some"),
                kind: *(w.rng.choice(&[FaultKind::OutOfMemory, FaultKind::Invalid])).expect("two"),
            };
            w.sim.arm(fault);
        }
    });
}

const FILE_SITES: [FileSite; 5] = [
    FileSite::AnyCall,
    FileSite::Create,
    FileSite::Write,
    FileSite::Read,
    FileSite::SetLen,
];

fn arm_file(w: &mut World, kinds: &[FileFaultKind]) {
    for _ in 0..w.rng.u32(1..3) {
        let fault = FileFault {
            site: *w.rng.choice(&FILE_SITES).expect("some"),
            nth: w.rng.u64(1..8),
            repeat: *w.rng.choice(&REPEATS).expect("some"),
            kind: *w.rng.choice(kinds).expect("some"),
        };
        w.sim.files().arm(fault);
    }
}

#[test]
fn a_disk_that_fails_loses_nothing() {
    use FileFaultKind::{DiskFull, Interrupted, Io, Short};
    check_faults(2, |w| arm_file(w, &[DiskFull, Io, Interrupted, Short]));
}

#[test]
fn a_disk_that_lies_is_found_out() {
    use FileFaultKind::{Flip, Torn};
    check_faults(4, |w| {
        // Bytes on disk may be lost, even if they are on the device too.
        w.disk_lies = true;
        w.held.iter().for_each(|held| held.data.doubt());
        w.cache.lock().expect("callbacks let go of it").clear();
        arm_file(w, &[Flip, Torn]);
    });
}

/// The device is lost and reopened.
fn lose(w: &mut World) {
    w.check_all();
    w.cache.lock().expect("callbacks let go of it").clear();
    w.held.iter_mut().for_each(|held| held.pin = None);
    w.in_fault = true;
    match w.rng.bool() {
        true => {
            let elsewhere = [Residency::Host, Residency::Disk, Residency::Backed];
            let host_is_lost = w.gpu.caps().host_heap;
            for held in &w.held {
                let residency = held.tensor.residency();
                let is_lost = host_is_lost && residency == Residency::Host;
                let is_kept = elsewhere.contains(&residency) && !is_lost;
                if !is_kept || held.data.has_rematerializer.get() {
                    held.data.doubt();
                }
            }
            w.sim.lose("pulled out");
        }
        false => {
            w.held.iter().for_each(|held| held.data.doubt());
            w.sim.arm(Fault::lose_at_call(w.rng.u64(1..60)));
        }
    }
    for _ in 0..w.rng.u32(0..12) {
        step(w);
    }
    w.sim.lose("at the latest");
    while !w.reads.is_empty() {
        w.await_one();
    }
    w.sim.disarm();
    if w.rng.bool() {
        let fault = Fault::once(Site::Reopen, 1, FaultKind::OutOfMemory);
        w.sim.arm(fault);
        assert!(w.gpu.reopen().is_err(), "the first one fails");
    }
    w.gpu.reopen().expect("there is another one");
    w.in_fault = false;
    w.check_all();
}

#[test]
fn what_is_elsewhere_outlives_the_device() {
    run(4, |seed, steps| {
        let mut world = World::new(seed, PLAIN);
        let mut made = 0;
        while made < steps {
            let calm = world.rng.u64(1..60);
            for _ in 0..calm {
                step(&mut world);
            }
            lose(&mut world);
            made += calm + 6;
        }
        world.end();
    });
}
