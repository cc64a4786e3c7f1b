//! Statistics agree with the events: levels, tags, scopes, measurements, history.

use std::collections::HashMap;

use lapidary::sim::SimOptions;
use lapidary::{
    Budget, DType, Gpu, Options, Tensor,
    stats::{Event, MemoryStats, ReclaimStep, Snapshot},
};

use super::open_alone;

const MIB: u64 = 1 << 20;

/// Random numbers.
fn noise(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 11
    }
}

/// The current and past state, computed only from the events of a history.
#[derive(Default)]
struct Told {
    /// Bytes, tag, slab and offset of each storage.
    live: HashMap<u64, (u64, u32, u32, u64)>,
    up_bytes: u64,
    down_bytes: u64,
    allocations: u64,
    evictions: u64,
    restores: u64,
    moved_bytes: u64,
    donated_bytes: u64,
    slabs: HashMap<u32, u64>,
    submissions: u64,
    refusals: u64,
    /// For each reclaim step, how often it freed memory, and the bytes.
    reclaim_steps: HashMap<ReclaimStep, (u64, u64)>,
}

impl Told {
    fn by(gpu: &Gpu) -> (Told, MemoryStats) {
        let snapshot = gpu.memory().snapshot();
        let stats = snapshot.stats.clone();
        assert_eq!(snapshot.dropped, 0);
        let mut told = Told::default();
        let mut before = 0;
        for moment in &snapshot.moments {
            assert!(moment.at_ns >= before, "time goes backwards");
            before = moment.at_ns;
            told.take(moment.event);
        }
        told.is_where(&snapshot);
        for tag in &stats.tags {
            let place = snapshot.tags.iter().position(|other| *other == tag.tag);
            let place = place.expect("a tag that the history knows") as u32;
            let own = told.live.values().filter(|one| one.1 == place);
            let (bytes, count) = own.fold((0, 0), |(bytes, count), one| (bytes + one.0, count + 1));
            let level = (tag.bytes.now, tag.storages.now);
            assert_eq!((bytes, count), level, "{tag:?}");
        }
        (told, stats)
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Alloc {
                storage,
                tag,
                bytes,
                slab,
                offset_bytes,
            }
            | Event::Restore {
                storage,
                tag,
                bytes,
                slab,
                offset_bytes,
            } => {
                assert!(self.slabs.contains_key(&slab), "a block in no slab");
                let place = (bytes, tag, slab, offset_bytes);
                assert!(self.live.insert(storage, place).is_none());
                self.up_bytes += bytes;
                self.allocations += 1;
                self.restores += u64::from(matches!(event, Event::Restore { .. }));
            }
            Event::Free { storage, bytes } | Event::Evict { storage, bytes, .. } => {
                let had = self.live.remove(&storage).expect("it was there");
                assert_eq!(had.0, bytes);
                self.down_bytes += bytes;
                self.evictions += u64::from(matches!(event, Event::Evict { .. }));
            }
            Event::Donate {
                storage,
                heir,
                tag,
                bytes,
            } => {
                let (had_bytes, _, slab, offset_bytes) =
                    self.live.remove(&storage).expect("it was there");
                assert_eq!(had_bytes, bytes);
                self.live.insert(heir, (bytes, tag, slab, offset_bytes));
                self.donated_bytes += bytes;
            }
            Event::Move {
                storage,
                bytes,
                slab,
                offset_bytes,
            } => {
                assert!(self.slabs.contains_key(&slab));
                let place = self.live.get_mut(&storage).expect("it was there");
                (place.2, place.3) = (slab, offset_bytes);
                self.moved_bytes += bytes;
            }
            Event::SlabCreated { slab, bytes, .. } => {
                assert!(self.slabs.insert(slab, bytes).is_none());
            }
            Event::SlabReleased { slab, bytes } => {
                assert_eq!(self.slabs.remove(&slab), Some(bytes));
            }
            Event::Submission { .. } => self.submissions += 1,
            Event::Refusal { .. } => self.refusals += 1,
            Event::ReclaimStep { step, freed_bytes } => {
                let of = self.reclaim_steps.entry(step).or_default();
                *of = (of.0 + 1, of.1 + freed_bytes);
            }
            _ => {}
        }
    }

    /// The places in the events equal those of the blocks.
    fn is_where(&self, snapshot: &Snapshot) {
        let mut blocks = 0;
        for slab in &snapshot.slabs {
            assert_eq!(self.slabs.get(&slab.slab), Some(&slab.size_bytes));
            for block in &slab.blocks {
                let place = (block.size_bytes, block.tag, slab.slab, block.offset_bytes);
                assert_eq!(self.live.get(&block.storage), Some(&place));
                blocks += 1;
            }
        }
        assert_eq!(blocks, self.live.len());
        for evicted in &snapshot.evicted {
            assert!(!self.live.contains_key(&evicted.storage), "{evicted:?}");
        }
    }

    fn agrees_with(&self, stats: &MemoryStats) {
        let live_bytes: u64 = self.live.values().map(|one| one.0).sum();
        assert_eq!(live_bytes, stats.requested_bytes.now);
        assert_eq!(self.up_bytes, stats.requested_bytes.up);
        assert_eq!(self.down_bytes, stats.requested_bytes.down);
        assert_eq!(self.live.len() as u64, stats.live_storages.now);
        assert_eq!(self.allocations, stats.live_storages.up);
        assert_eq!(
            (self.evictions, self.restores),
            (stats.evictions, stats.restores)
        );
        assert_eq!(self.slabs.values().sum::<u64>(), stats.reserved_bytes.now);
        assert_eq!(self.slabs.len(), stats.slabs.len());
        assert_eq!(
            (self.submissions, self.refusals),
            (stats.submissions, stats.refusals)
        );
        for one in &stats.reclaim_steps {
            let told = self
                .reclaim_steps
                .get(&one.step)
                .copied()
                .unwrap_or_default();
            assert_eq!(told, (one.gains, one.freed_bytes), "{}", one.step.name());
            assert!(one.gains <= one.tries, "{}", one.step.name());
        }
        let pending = stats.pending_bytes;
        assert_eq!(pending.up - pending.down, pending.now);
        let of_classes =
            |of: fn(&lapidary::stats::ClassUse) -> u64| stats.classes.iter().map(of).sum::<u64>();
        assert_eq!(
            of_classes(|class| class.live_bytes.now),
            stats.live_bytes.now
        );
        assert_eq!(
            of_classes(|class| class.reserved_bytes.now),
            stats.reserved_bytes.now
        );
        assert_eq!(
            of_classes(|class| class.slabs.now),
            stats.slabs.len() as u64
        );
        assert_eq!(
            stats.cached_bytes.now,
            stats.reserved_bytes.now - stats.live_bytes.now
        );
        for level in [
            stats.requested_bytes,
            stats.live_bytes,
            stats.cached_bytes,
            stats.reserved_bytes,
        ] {
            assert_eq!(level.now, level.up - level.down);
            assert!(level.peak >= level.now);
        }
    }
}

fn survives_its_file(snapshot: &Snapshot) {
    let mut json = Vec::new();
    snapshot.write_json(&mut json).unwrap();
    assert!(&Snapshot::from_json(&json).unwrap() == snapshot);
}

/// Random programs whose tensors are created, dropped, evicted, restored, donated and moved.
#[test]
fn a_history_adds_up_to_the_statistics() {
    let seed = std::env::var("LAPIDARY_SEED").ok();
    let seed: u64 = seed.and_then(|seed| seed.parse().ok()).unwrap_or(11);
    // Counts of evictions and restores, and bytes moved and donated.
    let mut happened = [0; 4];
    for round in 0..12 {
        let mut random = noise(seed + round);
        let budget = [None, Some(Budget::device(3 * MIB))][round as usize % 2];
        let options = Options {
            budget,
            ..Options::from_env().unwrap()
        };
        let (gpu, sim) = Gpu::simulated_with(SimOptions::default(), options).unwrap();
        gpu.memory().keep_history(1 << 20);
        let mut kept: Vec<Tensor> = Vec::new();
        for _ in 0..200 {
            let len = 1 + random() as usize % 60_000;
            let pick = |random: &mut dyn FnMut() -> u64, kept: &[Tensor]| {
                kept[random() as usize % kept.len()].clone()
            };
            match random() % 9 {
                0..=2 => kept.push(
                    gpu.full(&[len], 1.5, DType::F32)
                        .unwrap()
                        .named(&format!("w{}", len % 5)),
                ),
                3 if !kept.is_empty() => {
                    let at = random() as usize % kept.len();
                    kept.swap_remove(at);
                }
                4 if !kept.is_empty() => kept.push((pick(&mut random, &kept) + 1.0).unwrap()),
                5 if !kept.is_empty() => {
                    let _scope = gpu.scope("inner");
                    let one = kept.swap_remove(random() as usize % kept.len());
                    let other = (&one * 2.0).unwrap();
                    drop(one);
                    kept.push(other);
                }
                6 if !kept.is_empty() => {
                    let _ = pick(&mut random, &kept).evict();
                }
                7 => {
                    let _ = gpu.memory().compact(random() % (1 << 20));
                }
                8 if kept.len() > 20 => kept.truncate(8),
                _ => gpu.flush().unwrap(),
            }
        }
        gpu.flush().unwrap();
        let (told, stats) = Told::by(&gpu);
        told.agrees_with(&stats);
        survives_its_file(&gpu.memory().snapshot());
        assert_eq!(stats.pending_bytes.now, 0);
        let all = [
            told.evictions,
            told.restores,
            told.moved_bytes,
            told.donated_bytes,
        ];
        happened
            .iter_mut()
            .zip(all)
            .for_each(|(sum, one)| *sum += one);
        drop(kept);
        gpu.memory().trim(0).unwrap();
        let (told, stats) = Told::by(&gpu);
        told.agrees_with(&stats);
        assert_eq!(stats.live_bytes.now, 0);
        assert_eq!(sim.complaints(), [""; 0], "seed {}", seed + round);
    }
    assert!(happened.iter().all(|&sum| sum > 0), "{happened:?}");
}

#[test]
fn only_the_last_events_are_kept_and_none_when_nobody_asked() {
    let (gpu, _) = open_alone(SimOptions::default());
    let make = || gpu.zeros(&[4], DType::F32).unwrap().force().unwrap();
    make();
    assert!(gpu.memory().history().moments.is_empty());
    gpu.memory().keep_history(5);
    (0..20).for_each(|_| make());
    let history = gpu.memory().history();
    assert_eq!(history.moments.len(), 5);
    assert!(history.dropped > 0);
    gpu.memory().keep_history(0);
    make();
    assert!(gpu.memory().history().moments.is_empty());
}

#[test]
fn tensors_are_tagged_with_the_scopes_that_they_were_made_in() {
    let (gpu, _) = open_alone(SimOptions::default());
    let step = gpu.scope("step");
    let x = {
        let _forward = gpu.scope("forward");
        gpu.zeros(&[1000], DType::F32).unwrap().named("x")
    };
    let y = gpu.zeros(&[10], DType::F32).unwrap();
    drop(step);
    let z = gpu.zeros(&[10], DType::F32).unwrap();
    gpu.flush().unwrap();
    let scopes = [&x, &y, &z].map(|tensor| tensor.tag().scope().map(str::to_owned));
    let named = |scope: &str| Some(scope.to_string());
    assert_eq!(scopes, [named("step/forward"), named("step"), None]);
    let report = gpu.memory().stats().to_string();
    assert!(report.contains("step/forward: `x` ("), "{report}");
}

#[test]
fn a_name_that_is_given_late_takes_the_bytes_along() {
    let (gpu, _) = open_alone(SimOptions::default());
    let x = gpu.zeros(&[1000], DType::F32).unwrap();
    x.force().unwrap();
    let x = x.named("late");
    let stats = gpu.memory().stats();
    let of = |name: Option<&str>| {
        let mut tags = stats.tags.iter();
        let tag = tags.find(|one| one.tag.as_ref().is_some_and(|tag| tag.name() == name));
        tag.map(|one| one.bytes.now)
    };
    assert_eq!((of(Some("late")), of(None)), (Some(4000), Some(0)));
    drop(x);
}

#[test]
fn a_measurement_tells_what_a_piece_of_a_program_takes() {
    let (gpu, _) = open_alone(SimOptions::default());
    let x = gpu.zeros(&[256], DType::F32).unwrap();
    let outer = gpu.memory().measure("outer").unwrap();
    let inner = gpu.memory().measure("inner").unwrap();
    let kept = {
        let y = gpu.zeros(&[1024], DType::F32).unwrap();
        y.force().unwrap();
        drop(y);
        gpu.zeros(&[512], DType::F32).unwrap()
    };
    let inner = inner.end().unwrap();
    assert_eq!(inner.live_before_bytes, 1024);
    assert_eq!(inner.live_after_bytes, 1024 + 2048);
    assert_eq!(inner.peak_live_bytes, 1024 + 4096);
    assert_eq!(
        (inner.allocated_bytes, inner.freed_bytes),
        (4096 + 2048, 4096)
    );
    assert_eq!((inner.allocations, inner.refusals), (2, 0));
    drop(kept);
    let text = inner.to_string();
    assert!(
        text.starts_with("inner: 5.00 KiB at most, 6.00 KiB allocated in 2 blocks"),
        "{text}"
    );
    let outer = outer.end().unwrap();
    assert_eq!(outer.peak_live_bytes, inner.peak_live_bytes);
    assert_eq!(outer.live_after_bytes, outer.live_before_bytes);
    assert_eq!(kept_scope(&x), None);
    // A cancelled measurement leaves nothing behind.
    drop(gpu.memory().measure("given up").unwrap());
    assert_eq!(gpu.zeros(&[1], DType::F32).unwrap().tag().scope(), None);
}

fn kept_scope(x: &Tensor) -> Option<String> {
    x.tag().scope().map(str::to_owned)
}

#[test]
fn peaks_begin_anew_and_sums_go_on() {
    let (gpu, _) = open_alone(SimOptions::default());
    gpu.zeros(&[1 << 16], DType::F32).unwrap().force().unwrap();
    let before = gpu.memory().stats();
    gpu.memory().reset_peaks();
    let after = gpu.memory().stats();
    assert_eq!((after.live_bytes.now, after.live_bytes.peak), (0, 0));
    assert_eq!(after.live_bytes.up, before.live_bytes.up);
    assert!(before.live_bytes.peak >= 1 << 18);
}

#[test]
fn transfers_are_in_the_history() {
    let (gpu, _) = open_alone(SimOptions::default());
    gpu.memory().keep_history(100);
    let x = gpu.tensor(&[1.0f32; 64], &[64]).unwrap();
    (&x + 1.0).unwrap().to_vec::<f32>().unwrap();
    let moments = gpu.memory().history().moments;
    let events: Vec<_> = moments.iter().map(|moment| moment.event).collect();
    let uploaded = Event::Upload {
        storage: 1,
        bytes: 256,
    };
    let read = Event::Read {
        storage: 2,
        bytes: 256,
    };
    assert!(
        events.contains(&uploaded) && events.contains(&read),
        "{events:?}"
    );
}
