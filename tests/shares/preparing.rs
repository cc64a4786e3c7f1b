//! Work of a higher priority passes a command of a lower one for which the engine prepares much:
//! it evicts for it, moves blocks, or restores its operands. It does not pass what it depends on.
//! It also passes the drain of a lowered ceiling.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once, mpsc};
use std::task::{Context, Waker};
use std::thread;

use lapidary::shares::{Share, ShareOptions};
use lapidary::sim::SimOptions;
use lapidary::stores::{Key, Store, StoreFailure, StoreTier};
use lapidary::{Budget, DType, Gpu, Options, Residency, Source, Tensor};

use super::{Gate, MIB, PATIENT, assert_filled, filled, on_device};
use crate::stores::shaky::Shaky;

/// A store in memory that calls a function before each write, with the writes so far.
struct Told<F> {
    store: Shaky,
    writes: Arc<AtomicU64>,
    tell: F,
}

impl<F: Fn(u64) + Send + Sync> Store for Told<F> {
    fn write(&self, key: Key, bytes: &[u8]) -> Result<(), StoreFailure> {
        (self.tell)(self.writes.fetch_add(1, Ordering::Relaxed));
        self.store.write(key, bytes)
    }

    fn read(&self, key: Key, bytes: &mut [u8]) -> Result<(), StoreFailure> {
        self.store.read(key, bytes)
    }

    fn remove(&self, key: Key) -> Result<(), StoreFailure> {
        self.store.remove(key)
    }
}

/// A frame, and a job on a device with room for this many bytes, which evicts to a store. The
/// engine stops at the first gate before the write number `first`, counted from 0, and at the
/// second one before the write number `second`. Returns the number of writes, too.
pub(super) fn beside_a_store(
    bytes: u64,
    maps_slabs: bool,
    [first, second]: [u64; 2],
) -> (Share, Share, Gate, Gate, Arc<AtomicU64>) {
    let ((early, stops_early), (late, stops_late)) = (Gate::new(), Gate::new());
    let writes = Arc::<AtomicU64>::default();
    let store = Told {
        store: Shaky::default(),
        writes: writes.clone(),
        tell: move |writes| match writes {
            _ if writes == first => stops_early(),
            _ if writes == second => stops_late(),
            _ => {}
        },
    };
    let staging_bytes = 8 * MIB;
    let options = Options {
        budget: Some(Budget {
            staging_bytes: Some(staging_bytes),
            host_bytes: Some(0),
            disk_bytes: Some(0),
            ..Budget::device(bytes + staging_bytes)
        }),
        stores: vec![StoreTier::new("store", store, 2 * bytes).timeout(PATIENT * 2)],
        ..Options::from_env().unwrap()
    };
    let device = SimOptions {
        maps_slabs,
        ..SimOptions::default()
    };
    let (gpu, _) = Gpu::simulated_with(device, options).unwrap();
    let (frame, job) = frame_and_job(&gpu);
    (frame, job, early, late, writes)
}

pub(super) fn frame_and_job(gpu: &Gpu) -> (Share, Share) {
    let frame = gpu.share("frame", ShareOptions::guaranteed(MIB).with_priority(1));
    let job = gpu.share("job", ShareOptions::guaranteed(0).with_priority(-1));
    (frame.unwrap(), job.unwrap())
}

/// Runs work of the job. When it is at the first gate, the frame makes a buffer, and has to be done
/// before the second gate opens. Returns what the work does.
pub(super) fn the_frame_passes<T: Send>(
    frame: &Gpu,
    early: &Gate,
    late: &Gate,
    work: impl FnOnce() -> T + Send,
) -> T {
    thread::scope(|scope| {
        let job = scope.spawn(work);
        early.wait();
        let buffer = frame.buffer_from(&[5_u32]).unwrap();
        let (ends, is_over) = mpsc::channel();
        scope.spawn(move || {
            frame.flush().unwrap();
            ends.send(buffer).unwrap();
        });
        early.open();
        late.wait();
        let ended = is_over.recv_timeout(PATIENT);
        late.open();
        let buffer = ended.expect("the frame is done before the job goes on");
        let made = job.join().unwrap();
        assert_eq!(buffer.residency(), Residency::Device);
        assert_eq!(buffer.to_vec::<u32>().unwrap(), [5]);
        made
    })
}

/// Two tensors of the job whose sources have a gate each.
fn behind_gates(job: &Gpu) -> ([Tensor; 2], Gate, Gate) {
    let ((early, first), (late, second)) = (Gate::source(), Gate::source());
    let backed = [first, second].map(|source| job.backed(source, &[1024], DType::U32).unwrap());
    (backed, early, late)
}

/// A tensor of the job that is computed again from two such tensors.
fn computed_behind_gates(job: &Gpu) -> (Tensor, Gate, Gate) {
    let (backed, early, late) = behind_gates(job);
    // Another value than before tells that it was computed again.
    let made = job.full(&[1024], 1, DType::U32).unwrap();
    made.recompute_with(&[], move |_| {
        let first = backed[0].copy()?;
        &first + &backed[1]
    })
    .unwrap();
    (made, early, late)
}

#[test]
fn higher_work_passes_the_evictions_for_a_lower_command() {
    for maps_slabs in [false, true] {
        let (frame, job, early, late, _) = beside_a_store(64 * MIB, maps_slabs, [3, 30]);
        let held: Vec<_> = (0..60).map(|_| filled(&job, MIB, 7)).collect();
        the_frame_passes(&frame, &early, &late, || {
            job.buffer_zeroed(48 * MIB).unwrap().force().unwrap();
        });
        assert_filled(&held, 7);
    }
}

#[test]
fn higher_work_passes_a_command_that_has_some_of_its_places() {
    // One kernel makes both results. The engine evicts for the second one when the first one has
    // its place.
    let (frame, job, early, late, _) = beside_a_store(200 * MIB, false, [17, 30]);
    let x = job.zeros(&[4 << 20], DType::F32).unwrap();
    x.force().unwrap();
    let held: Vec<_> = (0..45).map(|_| filled(&job, 4 * MIB, 7)).collect();
    the_frame_passes(&frame, &early, &late, || {
        let more = (&x + 1.0).unwrap();
        (&more * 2.0).unwrap().force().unwrap();
    });
    assert_filled(&held, 7);
}

#[test]
fn higher_work_passes_a_command_whose_operands_are_restored() {
    let gpu = super::device(64 * MIB);
    let (frame, job) = frame_and_job(&gpu);
    let (backed, early, late) = behind_gates(&job);
    let sum = the_frame_passes(&frame, &early, &late, || {
        let made = (&backed[0] + &backed[1]).unwrap();
        made.force().map(|()| made).unwrap()
    });
    assert_eq!(sum.to_vec::<u32>().unwrap(), [0x0202_0202; 1024]);
}

#[test]
fn higher_work_passes_the_launches_that_compute_an_operand_again() {
    let gpu = super::device(64 * MIB);
    let (frame, job) = frame_and_job(&gpu);
    let (made, early, late) = computed_behind_gates(&job);
    made.evict().unwrap();
    assert_eq!(made.residency(), Residency::Backed);
    let sum = the_frame_passes(&frame, &early, &late, || {
        let twice = (&made + &made).unwrap();
        twice.force().map(|()| twice).unwrap()
    });
    assert_eq!(sum.to_vec::<u32>().unwrap(), [0x0404_0404; 1024]);
}

#[test]
fn higher_work_passes_the_words_that_name_rows() {
    let gpu = super::device(64 * MIB);
    let (frame, job) = frame_and_job(&gpu);
    // The engine reads each row for itself.
    let stops_once = |byte| {
        let ((gate, stop), once) = (Gate::new(), Once::new());
        let source = Source::reader(move |_, bytes| {
            once.call_once(&stop);
            bytes.fill(byte);
            Ok(())
        });
        (gate, source)
    };
    let ((early, words), (late, rows)) = (stops_once(0), stops_once(1));
    let named = job.backed(words, &[8], DType::U32).unwrap();
    let table = job.backed(rows, &[1024, 1], DType::U32).unwrap();
    let rows = the_frame_passes(&frame, &early, &late, || {
        let rows = table.index_select(0, &named).unwrap();
        rows.force().map(|()| rows).unwrap()
    });
    assert_eq!(rows.to_vec::<u32>().unwrap(), [0x0101_0101; 8]);
    assert_ne!(table.residency(), Residency::Device);
}

#[test]
fn higher_work_waits_for_what_computes_a_value_again_that_it_needs() {
    let gpu = super::device(64 * MIB);
    let (frame, job) = frame_and_job(&gpu);
    let (made, early, late) = computed_behind_gates(&job);
    let from_made = (&made + &made).unwrap();
    from_made
        .recompute_with(&[&made], |inputs| &inputs[0] + &inputs[0])
        .unwrap();
    let lent = from_made.lend_to(&frame).unwrap();
    for one in [&from_made, &made] {
        one.evict().unwrap();
    }
    let residencies = [&from_made, &made].map(|one| one.residency());
    assert_eq!(residencies, [Residency::Backed; 2]);
    thread::scope(|scope| {
        let of_job = scope.spawn(|| made.to_vec::<u32>());
        early.wait();
        // What the job computes now is an input of what the frame needs.
        let sum = (&lent + 1).unwrap();
        let of_frame = scope.spawn(move || sum.to_vec::<u32>());
        early.open();
        late.wait();
        // The gates are passed once more if the frame computes it for itself.
        drop((early, late));
        assert_eq!(of_job.join().unwrap().unwrap(), [0x0202_0202; 1024]);
        assert_eq!(of_frame.join().unwrap().unwrap(), [0x0404_0405; 1024]);
    });
}

#[test]
fn higher_work_passes_the_moves_for_a_lower_command() {
    let staging_bytes = 8 * MIB;
    let options = Options {
        budget: Some(Budget {
            staging_bytes: Some(staging_bytes),
            ..Budget::device(128 * MIB + staging_bytes)
        }),
        ..Options::from_env().unwrap()
    };
    // Each wait is pending once. So the test can go on between two parts of the moves.
    let device = SimOptions {
        pauses: 1,
        compact_always: Some(false),
        ..SimOptions::default()
    };
    let (gpu, sim) = Gpu::simulated_with(device, options).unwrap();
    let (frame, job) = frame_and_job(&gpu);
    let all: Vec<_> = (0..128).map(|_| filled(&job, MIB, 7)).collect();
    let held: Vec<_> = all.into_iter().step_by(2).collect();
    gpu.finish().unwrap();
    let large = job.buffer_zeroed(60 * MIB).unwrap();
    let moved = || gpu.memory().stats().moved_bytes;
    let before = (moved(), sim.counters().submissions);
    let mut context = Context::from_waker(Waker::noop());
    let mut of_job = pin!(job.flush_async());
    while moved() == before.0 {
        assert!(of_job.as_mut().poll(&mut context).is_pending());
    }
    let first_bytes = moved() - before.0;
    assert!(first_bytes <= 8 * MIB, "a part has {first_bytes} bytes");
    let buffer = frame.buffer_from(&[5_u32]).unwrap();
    pollster::block_on(frame.flush_async()).unwrap();
    assert_eq!(buffer.residency(), Residency::Device);
    assert_eq!(
        moved() - before.0,
        first_bytes,
        "the frame waits for the part that has begun"
    );
    assert_eq!(large.residency(), Residency::Pending);
    pollster::block_on(of_job).unwrap();
    assert_eq!(large.residency(), Residency::Device);
    let moved_bytes = moved() - before.0;
    assert!(moved_bytes >= 24 * MIB, "{moved_bytes} bytes were moved");
    assert!(
        moved_bytes <= 64 * MIB,
        "no block moves twice: {moved_bytes} bytes"
    );
    let parts = sim.counters().submissions - before.1;
    assert!(parts >= moved_bytes / (8 * MIB), "{parts} submissions");
    assert_filled(&held, 7);
    assert_filled(&[buffer], 5);
}

#[test]
fn higher_work_passes_the_drain_of_a_lowered_ceiling() {
    for maps_slabs in [false, true] {
        let (frame, job, early, late, _) = beside_a_store(64 * MIB, maps_slabs, [3, 30]);
        let held: Vec<_> = (0..60).map(|_| filled(&job, MIB, 7)).collect();
        let pins: Vec<_> = held[..12].iter().map(|one| one.pin().unwrap()).collect();
        the_frame_passes(&frame, &early, &late, || {
            let lower = ShareOptions::guaranteed(0).with_ceiling(8 * MIB);
            let shortfall_bytes = job.resize(lower).unwrap();
            assert_eq!(shortfall_bytes, 4 * MIB, "what is pinned stays");
        });
        assert_eq!(on_device(&held), 12);
        drop(pins);
        assert_filled(&held, 7);
    }
}

#[test]
fn a_flush_of_a_higher_priority_leaves_what_is_above_the_ceiling_of_a_lower_one() {
    let gpu = super::device(64 * MIB);
    let (frame, job) = frame_and_job(&gpu);
    let held: Vec<_> = (0..20).map(|_| filled(&job, MIB, 7)).collect();
    let pins: Vec<_> = held.iter().map(|one| one.pin().unwrap()).collect();
    let lower = ShareOptions::guaranteed(0).with_ceiling(8 * MIB);
    assert_eq!(job.resize(lower).unwrap(), 12 * MIB);
    drop(pins);
    assert_filled(&[filled(&frame, 4096, 5)], 5);
    assert_eq!(on_device(&held), 20);
    job.flush().unwrap();
    assert_eq!(on_device(&held), 8);
    assert_filled(&held, 7);
}
