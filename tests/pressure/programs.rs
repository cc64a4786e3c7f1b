//! Random programs of several kinds, with random steps that are compared with an oracle.

use std::thread;

use fastrand::Rng;
use lapidary::sim::{
    Fault, FaultKind, FileFault, FileFaultKind, FileSite, Repeat, SimHandle, SimOptions, Site,
};
use lapidary::{Gpu, Options, Residency};

use crate::programs::{self, Program, attempt};
use crate::random::orders::{budget, folder};
use crate::random::world::{Rules, Trouble, World};

/// Steps of one program.
const STEPS: u64 = 500;

const PLAIN: Rules = Rules {
    column: 1,
    values_of_24: 1,
    held: 40,
    // 4 KiB.
    elements: 1024,
    is_short: false,
    has_stores: false,
    leaves: true,
    pins: false,
    alone: true,
    trouble: None,
};

/// A strict device that lags behind and whose memory begins with garbage.
fn open(program: &Program, rules: Rules) -> (Gpu, SimHandle) {
    let (mut rng, seed) = (program.dice(0), program.seed);
    let device = SimOptions {
        memory_bytes: 8 << 20,
        max_buffer_bytes: 64 << 10 << rng.u32(..4),
        max_binding_bytes: 16 << 10,
        offset_alignment_bytes: *rng.choice(&[32, 256]).expect("two"),
        max_immediate_bytes: *rng.choice(&[0, 128]).expect("two"),
        maps_slabs: rng.u32(..3) == 0,
        host_heap: seed % 2 == 1,
        lag_submissions: rng.u32(..5),
        jitter: rng.bool(),
        pauses: rng.u32(..2),
        dirty: true,
        // All programs compile the same few kernels.
        checks_shaders: false,
        seed,
        ..SimOptions::default()
    };
    let options = Options {
        budget: Some(budget(&mut rng, rules, device.maps_slabs)),
        spill_folder: Some(folder()),
        spill_compress: cfg!(feature = "lz4") && rng.bool(),
        ..Options::from_env().unwrap()
    };
    Gpu::simulated_with(device, options).expect("a device")
}

fn check(programs: u64, rules: Rules) {
    programs::check(programs, STEPS, |program| {
        let (gpu, sim) = open(program, rules);
        let mut world = World::on(program, gpu, sim, rules);
        program.steps.iter().for_each(|&step| world.step(step));
        world.end();
    });
}

#[test]
fn what_fits_alone_never_fails_when_nothing_is_pinned() {
    check(5, PLAIN);
}

#[test]
fn pinned_tensors_stay_and_others_make_way() {
    let pins = true;
    check(5, Rules { pins, ..PLAIN });
}

#[test]
fn where_nothing_can_leave_what_is_short_is_refused_and_nothing_is_lost() {
    let (leaves, held) = (false, 12);
    let rules = Rules {
        held,
        leaves,
        ..PLAIN
    };
    check(3, rules);
}

/// Steps go to the threads by their numbers.
#[test]
fn threads_that_share_a_small_device_never_fail_for_each_other() {
    let rules = Rules {
        held: 12,
        alone: false,
        ..PLAIN
    };
    programs::check(3, STEPS, |program| {
        let (gpu, sim) = open(program, rules);
        thread::scope(|scope| {
            let threads = [0, 1, 2].map(|thread| {
                let (gpu, sim) = (gpu.clone(), sim.clone());
                let run = move || {
                    let mut world = World::on(program, gpu, sim, rules);
                    let steps = program.steps.iter().filter(|&step| step % 3 == thread);
                    steps.for_each(|&step| world.step(step));
                    world.drop_all();
                };
                scope.spawn(move || attempt(run))
            });
            for thread in threads {
                let ended = thread.join().expect("a panic is caught");
                ended.unwrap_or_else(|failure| failure.go_on());
            }
        });
        World::on(program, gpu, sim, rules).end();
    });
}

/// Faults, and afterwards every tensor that these did not concern is right.
fn check_faults(programs: u64, trouble: Trouble) {
    let trouble = Some(trouble);
    check(programs, Rules { trouble, ..PLAIN });
}

fn begin(w: &mut World) {
    // What waits for room may run while the faults are there.
    w.check_all().iter().for_each(|waiting| waiting.doubt());
    w.in_fault = true;
}

fn end(w: &mut World) {
    w.sim.disarm();
    w.sim.files().disarm();
    while w.await_one() {}
    // Work recorded under the faults runs before the faults end.
    let _ = w.gpu.finish();
    w.in_fault = false;
    w.check_all();
}

const REPEATS: [Repeat; 4] = [
    Repeat::Once,
    Repeat::EverySecond,
    Repeat::ForEver,
    Repeat::OneIn(3),
];

fn one<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())]
}

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
    check_faults(3, |w| {
        begin(w);
        for _ in 0..w.rng.u32(1..3) {
            let fault = Fault {
                site: one(&mut w.rng, &SITES),
                nth: w.rng.u64(1..8),
                repeat: one(&mut w.rng, &REPEATS),
                kind: one(&mut w.rng, &[FaultKind::OutOfMemory, FaultKind::Invalid]),
            };
            w.say(format_args!(" {fault:?}"));
            w.sim.arm(fault);
        }
        end
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
            site: one(&mut w.rng, &FILE_SITES),
            nth: w.rng.u64(1..8),
            repeat: one(&mut w.rng, &REPEATS),
            kind: one(&mut w.rng, kinds),
        };
        w.say(format_args!(" {fault:?}"));
        w.sim.files().arm(fault);
    }
}

#[test]
fn a_disk_that_fails_loses_nothing() {
    use FileFaultKind::{DiskFull, Interrupted, Io, Short};
    check_faults(3, |w| {
        begin(w);
        arm_file(w, &[DiskFull, Io, Interrupted, Short]);
        end
    });
}

#[test]
fn a_disk_that_lies_is_found_out() {
    use FileFaultKind::{Flip, Torn};
    check_faults(2, |w| {
        begin(w);
        // Bytes on disk may be lost, even if they are on the device too.
        w.disk_lies = true;
        w.held.iter().for_each(|held| held.model.data.doubt());
        w.cache.lock().expect("callbacks let go of it").clear();
        arm_file(w, &[Flip, Torn]);
        end
    });
}

/// The device is lost, at once or later, and reopened in the end.
#[test]
fn what_is_elsewhere_outlives_the_device() {
    check_faults(2, |w| {
        begin(w);
        w.cache.lock().expect("callbacks let go of it").clear();
        w.held.iter_mut().for_each(|held| held.pin = None);
        let is_at_once = w.rng.bool();
        let host_is_lost = w.gpu.caps().host_heap;
        let is_kept = |residency| match residency {
            Residency::Host => !host_is_lost,
            Residency::Disk | Residency::Backed => true,
            _ => false,
        };
        for held in &w.held {
            let data = &held.model.data;
            let is_safe = is_at_once && is_kept(held.tensor.residency());
            if !is_safe || data.has_rematerializer.get() {
                data.doubt();
            }
        }
        match is_at_once {
            true => w.sim.lose("pulled out"),
            false => w.sim.arm(Fault::lose_at_call(w.rng.u64(1..60))),
        }
        w.say(format_args!(" the device is lost"));
        |w| {
            w.sim.lose("at the latest");
            while w.await_one() {}
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
    });
}
