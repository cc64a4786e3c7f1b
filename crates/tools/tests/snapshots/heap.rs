//! The heap in the host's memory is shown as the device's slabs are, and histories of it add up.

use std::collections::BTreeMap;

use lapidary::sim::SimOptions;
use lapidary::stats::{BlockState, Event, SlabMap, Snapshot};
use lapidary::{Budget, DType, Gpu, Tensor};
use lapidary_tools::page;

use super::adding_up::add_up;
use super::formats::{golden_snapshot, is_golden};
use super::open_as;

const MIB: u64 = 1 << 20;

fn open(host_bytes: Option<u64>) -> Gpu {
    let budget = Budget {
        host_bytes,
        ..Budget::device(2 * MIB)
    };
    let device = SimOptions {
        max_buffer_bytes: 2 * MIB,
        ..SimOptions::default()
    };
    open_as(true, device, budget).0
}

/// Tensors leave for the heap and come back; one is written after that.
fn program() -> Snapshot {
    let gpu = open(None);
    gpu.memory().keep_history(1000);
    let make = |name: &str, kib: usize| {
        let tensor = gpu.zeros(&[kib << 10], DType::U8).unwrap().named(name);
        tensor.force().unwrap();
        tensor
    };
    let layers: Vec<Tensor> = (0..4).map(|_| make("layers", 100)).collect();
    let state = make("state", 300);
    let moment = make("moment", 10);
    for one in layers.iter().chain([&state, &moment]) {
        one.evict().unwrap();
    }
    layers[1].prefetch().unwrap();
    state.prefetch().unwrap();
    gpu.flush().unwrap();
    state.fill_(1).unwrap();
    gpu.flush().unwrap();
    gpu.memory().snapshot()
}

#[test]
fn a_snapshot_has_the_slabs_of_the_host_block_by_block() {
    let snapshot = golden_snapshot(&program(), &["heap.json"]);
    add_up(&snapshot);
    is_golden("heap.map.txt", snapshot.map().to_string().as_bytes());
    heap_adds_up(&snapshot);
    let blocks = snapshot.host_slabs.iter().flat_map(|slab| &slab.blocks);
    let mut found: Vec<_> = blocks
        .map(|block| {
            let tag = snapshot.tags[block.tag as usize].as_ref().unwrap();
            (tag.name().unwrap(), block.size_bytes >> 10, block.state)
        })
        .collect();
    found.sort_by_key(|block| (block.0, block.2 == BlockState::Live));
    // `state` was written, so its block is free. A copy of a restored tensor may be dropped.
    let live = ("layers", 100, BlockState::Live);
    let clean = ("layers", 100, BlockState::Clean);
    let moment = ("moment", 10, BlockState::Live);
    assert_eq!(found, [clean, live, live, live, moment]);
    let report = snapshot.stats.to_string();
    let line = report.lines().find(|line| line.starts_with("  heap"));
    assert!(line.unwrap().contains("in the host's memory"), "{report}");
}

/// Random programs in too little memory, some of them with a lost device.
#[test]
fn random_histories_of_the_heap_add_up() {
    let mut happened = [0; 5];
    for seed in 0..6 {
        let mut random = fastrand::Rng::with_seed(seed);
        let device = SimOptions {
            max_buffer_bytes: 2 * MIB,
            compact_always: Some(seed % 3 == 0),
            ..SimOptions::default()
        };
        let budget = Budget {
            host_bytes: Some(random.u64(1..4) * MIB),
            ..Budget::device(MIB)
        };
        let (gpu, sim) = open_as(true, device, budget);
        gpu.memory().keep_history(1 << 20);
        let mut kept: Vec<Tensor> = Vec::new();
        for step in 0..150 {
            if step == 100 && seed % 2 == 0 {
                kept.clear();
                sim.lose("pulled out");
                gpu.flush().unwrap_err();
                gpu.reopen().unwrap();
            }
            match (random.u8(..6), random.choice(&kept).cloned()) {
                (0, Some(one)) => one.fill_(2).unwrap(),
                (1, Some(one)) => drop(one.evict()),
                (2, Some(_)) => drop(kept.swap_remove(random.usize(..kept.len()))),
                (3, Some(one)) => drop(one.prefetch()),
                (4, _) => drop(gpu.memory().trim(0)),
                _ => kept.push(
                    gpu.full(&[random.usize(1..60_000)], 1.5, DType::F32)
                        .unwrap(),
                ),
            }
            if kept.len() > 20 {
                kept.remove(0);
            }
            gpu.flush().unwrap();
        }
        let snapshot = gpu.memory().snapshot();
        add_up(&snapshot);
        let events = heap_adds_up(&snapshot);
        happened
            .iter_mut()
            .zip(events)
            .for_each(|(sum, n)| *sum += n);
    }
    assert!(happened.iter().all(|&count| count > 0), "{happened:?}");
}

/// The events of the heap give its slabs and its blocks, and these the numbers. Returns how many
/// events there are of each kind.
fn heap_adds_up(snapshot: &Snapshot) -> [usize; 5] {
    let (mut slabs, mut blocks, mut counts) = (BTreeMap::new(), BTreeMap::new(), [0; 5]);
    for moment in &snapshot.moments {
        match moment.event {
            Event::HostSlabCreated { slab, bytes, .. } => {
                counts[0] += 1;
                assert!(slabs.insert(slab, bytes).is_none());
            }
            Event::HostSlabReleased { slab, bytes } => {
                counts[1] += 1;
                assert_eq!(slabs.remove(&slab), Some(bytes));
            }
            Event::HostAlloc {
                storage,
                bytes,
                slab,
                offset_bytes,
                ..
            } => {
                counts[2] += 1;
                let place = (slab, offset_bytes, bytes);
                assert!(slabs[&slab] >= offset_bytes + bytes);
                assert!(blocks.insert(storage, place).is_none(), "{storage}");
            }
            Event::HostFree { storage, bytes } => {
                counts[3] += 1;
                assert_eq!(blocks.remove(&storage).map(|block| block.2), Some(bytes));
            }
            Event::HostMove {
                storage,
                bytes,
                slab,
                offset_bytes,
            } => {
                counts[4] += 1;
                let place = (slab, offset_bytes, bytes);
                assert!(slabs[&slab] >= offset_bytes + bytes);
                assert!(blocks.insert(storage, place).is_some(), "{storage}");
            }
            Event::Reopened => {
                slabs.clear();
                blocks.clear();
            }
            _ => {}
        }
    }
    let shown = |slab: &SlabMap| {
        let number = slab.slab;
        let blocks = slab.blocks.iter();
        let block = blocks.map(|block| {
            (
                block.storage,
                (number, block.offset_bytes, block.size_bytes),
            )
        });
        block.collect::<Vec<_>>()
    };
    assert_eq!(blocks, snapshot.host_slabs.iter().flat_map(shown).collect());
    let (stats, all) = (&snapshot.stats, &snapshot.stats.host_slabs);
    let sizes = all.iter().map(|slab| (slab.slab, slab.size_bytes));
    assert_eq!(slabs, sizes.collect());
    let [size, live] = all.iter().fold([0; 2], |[size, live], slab| {
        [size + slab.size_bytes, live + slab.live_bytes]
    });
    assert_eq!(
        [stats.host_slab_bytes.now, stats.host_free_bytes],
        [size, size - live]
    );
    let hole = all.iter().map(|slab| slab.largest_hole_bytes).max();
    assert_eq!(stats.host_largest_hole_bytes, hole.unwrap_or(0));
    counts
}

/// The script draws the slabs of the host as those of the device, at any moment of the history.
#[test]
fn a_page_has_the_heap() {
    let snapshot = program();
    let mut page = Vec::new();
    page::write(&snapshot, &mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    assert!(page.contains("\"host_slabs\":[{"), "{page}");
    for part in [
        "slabsOf(doc.host_slabs)",
        "heapOf(snapshot)",
        "...heapFigure(stats),",
        "host_free_bytes",
        "host_largest_hole_bytes",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn wrong_slabs_of_the_host_are_told() {
    let json = serde_json::to_value(program()).unwrap();
    let mut file = json.clone();
    file["format"] = "lapidary-snapshot".into();
    file["version"] = lapidary_core::internal::SNAPSHOT_VERSION.into();
    let check = |change: &dyn Fn(&mut serde_json::Value), says: &str| {
        let mut file = file.clone();
        change(&mut file);
        let error = Snapshot::from_json(file.to_string().as_bytes()).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    };
    check(
        &|file| file["host_slabs"] = serde_json::json!([]),
        "but `host_slabs` has 0",
    );
    check(
        &|file| file["host_slabs"][0]["slab"] = file["slabs"][0]["slab"].clone(),
        "occurs twice",
    );
    check(
        &|file| file["host_slabs"][0]["blocks"][0][4] = 1000.into(),
        "`host_slabs`, number",
    );
    check(
        &|file| file["host_slabs"][0]["size_bytes"] = 256.into(),
        "in a slab of 256",
    );
}
