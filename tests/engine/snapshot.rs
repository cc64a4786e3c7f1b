//! Snapshots describe the current state and survive their files, and invalid files are refused.

use lapidary::shares::ShareOptions;
use lapidary::sim::SimOptions;
use lapidary::{
    Budget, DType, Error, Gpu, Residency, Source,
    stats::{BlockState, Event, ReclaimStep, Snapshot},
};
use lapidary_core::internal::SNAPSHOT_VERSION;
use serde_json::{Value, json};

use super::{ended, open_alone};

fn json(snapshot: &Snapshot) -> String {
    let mut json = Vec::new();
    snapshot.write_json(&mut json).unwrap();
    String::from_utf8(json).unwrap()
}

/// A tensor on the device, a pinned one, a restored one, and an evicted one.
fn sample() -> (Gpu, Snapshot) {
    let (gpu, _) = open_alone(SimOptions::default());
    gpu.memory().keep_history(100);
    let scope = gpu.scope("step");
    let make = |name: &str, len| {
        let x = gpu.zeros(&[len], DType::F32).unwrap().named(name);
        x.force().unwrap();
        x
    };
    let [there, pinned] = [make("there", 1000), make("pinned", 2000)];
    let [clean, evicted] = [make("clean", 3000), make("away", 4000)];
    drop(scope);
    clean.evict().unwrap();
    evicted.evict().unwrap();
    clean.prefetch().unwrap();
    gpu.flush().unwrap();
    let pin = pinned.pin().unwrap();
    let snapshot = gpu.memory().snapshot();
    drop((there, pin));
    (gpu, snapshot)
}

#[test]
fn a_snapshot_says_where_everything_is_and_whose() {
    let (_gpu, snapshot) = sample();
    let named = |tag: u32| {
        let tag = snapshot.tags[tag as usize].as_ref().unwrap();
        assert_eq!(tag.scope(), Some("step"));
        assert!(tag.file().ends_with("snapshot.rs") && tag.line() > 0 && tag.column() > 0);
        tag.name().unwrap().to_owned()
    };
    let mut blocks: Vec<(String, u64, BlockState)> = Vec::new();
    for slab in &snapshot.slabs {
        for block in &slab.blocks {
            blocks.push((named(block.tag), block.size_bytes, block.state));
            assert_eq!(block.offset_bytes % snapshot.granule_bytes, 0);
            assert_eq!(block.granted_bytes, block.size_bytes.next_multiple_of(256));
        }
    }
    blocks.sort_by_key(|block| block.1);
    let expected = [
        ("there", 4000, BlockState::Live),
        ("pinned", 8000, BlockState::Pinned),
        ("clean", 12_000, BlockState::Clean),
    ];
    let expected = expected.map(|(name, bytes, state)| (name.to_owned(), bytes, state));
    assert_eq!(blocks, expected);
    let [evicted] = snapshot.evicted[..] else {
        panic!("{:?}", snapshot.evicted);
    };
    let found = (named(evicted.tag), evicted.bytes, evicted.residency);
    assert_eq!(found, ("away".into(), 16_000, Residency::Host));
    assert_eq!(snapshot.stats.evictions, 2);
    let last = snapshot.moments.last().unwrap();
    assert!(last.at_ns <= snapshot.taken_at_ns && snapshot.taken_unix_ms > 0);
}

#[test]
fn what_is_off_the_device_counts_for_its_maker_too() {
    let (gpu, _) = open_alone(SimOptions::default());
    let before = gpu.zeros(&[1000], DType::F32).unwrap().named("before");
    before.force().unwrap();
    drop(before);
    // It takes the place of the first in the engine's table.
    let source = Source::bytes(vec![7; 2000].into());
    let backed = gpu.backed(source, &[2000], DType::U8).unwrap();
    let backed = backed.named("backed");
    let away = gpu.zeros(&[3000], DType::U8).unwrap().named("there");
    away.evict().unwrap();
    let away = away.named("away");
    let snapshot = gpu.memory().snapshot();
    let name = |tag: u32| snapshot.tags[tag as usize].as_ref().unwrap().name();
    let evicted = snapshot.evicted.iter();
    let mut evicted: Vec<_> = evicted.map(|one| (one.bytes, name(one.tag))).collect();
    evicted.sort_unstable();
    assert_eq!(evicted, [(2000, Some("backed")), (3008, Some("away"))]);
    drop((backed, away));
}

#[test]
fn a_snapshot_survives_its_file() {
    let (_gpu, snapshot) = sample();
    assert_eq!(
        Snapshot::from_json(json(&snapshot).as_bytes()).unwrap(),
        snapshot
    );
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_refused() {
    let text = json(&sample().1);
    for end in (0..text.len()).step_by(7) {
        let error = Snapshot::from_json(&text.as_bytes()[..end]).unwrap_err();
        assert!(error.to_string().contains("column"), "{end}: {error}");
    }
}

#[test]
fn a_file_at_odds_with_itself_is_refused_with_the_place() {
    let text = json(&sample().1);
    let check = |from: &str, to: &str, says: &str| {
        assert!(text.contains(from), "{from} is not in {text}");
        let broken = text.replacen(from, to, 1);
        let error = Snapshot::from_json(broken.as_bytes()).unwrap_err();
        assert!(error.to_string().contains(says), "{from}: {error}");
    };
    let version = format!("\"version\":{SNAPSHOT_VERSION}");
    check(&version, "\"version\":1", "it is of version 1, and only");
    check("lapidary-snapshot", "car", "it is a `car`, not a");
    check("\"format\":", "\"former\":", "missing field `format`");
    check(
        "\"live_storages\":{\"now\":3",
        "\"live_storages\":{\"now\":4",
        "`stats.live_storages` says 4, but `slabs` has 3",
    );
    check(
        "\"live_bytes\":{\"now\":24320",
        "\"live_bytes\":{\"now\":24321",
        "`stats.live_bytes` says 24321, but `slabs` has 24320",
    );
    check(
        "\"granule_bytes\":256",
        "\"granule_bytes\":0",
        "`granule_bytes` is 0, not a power of two",
    );
    check(
        "\"taken_at_ns\":",
        "\"taken_at_ns\":0,\"x\":",
        "before the last of `moments`",
    );
    check(
        "[[0,4096,4000",
        "[[4096,4096,4000",
        "block 1: it begins at 4096, before the end of another at 8192",
    );
    check(
        "[[0,4096,4000",
        "[[0,4096,4097",
        "block 0: 4097 bytes of 4096 at 0",
    );
    check(
        "[[0,4096,4000,1,1,",
        "[[0,4096,4000,1,77,",
        "block 0: tag 77 of 5",
    );
    check("\"Alloc\"", "\"Allot\"", "unknown variant `Allot`");
    check(
        "\"Alloc\",1,1,4000,",
        "\"Alloc\",1,99,4000,",
        "row 1: tag 99 of 5",
    );
    check("\"Pinned\"", "7", "at line 1 column");
    check("\"Small\"", "-1", "at line 1 column");
    let nested = "[".repeat(1_000_000);
    check("[[0,4096", &nested, "at line 1 column");
    check(
        "{\"format\"",
        &format!("{{\"a\":{nested}"),
        "at line 1 column",
    );
    let long = text.replacen("lapidary-snapshot", &"x".repeat(10 << 20), 1);
    let error = Snapshot::from_json(long.as_bytes()).unwrap_err();
    assert!(error.to_string().len() < 200);
}

#[test]
fn a_snapshot_tells_the_types_of_elements() {
    let (gpu, _) = open_alone(SimOptions::default());
    let make = |dtype| {
        let x = gpu.zeros(&[100], dtype).unwrap();
        x.force().unwrap();
        x
    };
    let [a, b, half] = [DType::F32, DType::F32, DType::F16].map(make);
    b.evict().unwrap();
    let snapshot = gpu.memory().snapshot();
    let counts = snapshot
        .types
        .iter()
        .map(|(dtype, all)| (*dtype, all.len()));
    let counts: Vec<_> = counts.collect();
    assert_eq!(counts, [(DType::F32, 2), (DType::F16, 1)]);
    assert!(snapshot.types[0].1.contains(&snapshot.evicted[0].storage));
    // A file from before has none.
    let types = serde_json::to_string(&snapshot.types).unwrap();
    let older = json(&snapshot).replacen(&format!("\"types\":{types},"), "", 1);
    assert!(
        Snapshot::from_json(older.as_bytes())
            .unwrap()
            .types
            .is_empty()
    );
    drop((a, b, half));
}

/// The JSON has every number, under the name of its field.
#[test]
fn a_file_has_every_number_of_the_statistics() {
    let (_gpu, snapshot) = sample();
    let value: Value = serde_json::from_str(&json(&snapshot)).unwrap();
    let stats = value["stats"].as_object().unwrap();
    let mut names = Vec::new();
    for number in snapshot.stats.numbers() {
        let told = serde_json::to_value(number.value).unwrap();
        assert_eq!(stats[number.name], told, "{number:?}");
        assert!(
            number.help.ends_with('.') && !number.help.contains('['),
            "{number:?}"
        );
        names.push(number.name);
    }
    // No number stands beside the table.
    let is_number = |value: &Value| value.is_number() || value.get("now").is_some();
    let told = stats.iter().filter(|(_, value)| is_number(value));
    let mut told: Vec<&str> = told.map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    told.sort_unstable();
    assert_eq!(names, told);
}

/// Reads a snapshot's JSON after a change.
fn read_changed(snapshot: &Snapshot, change: impl FnOnce(&mut Value)) -> Result<Snapshot, Error> {
    let mut value: Value = serde_json::from_str(&json(snapshot)).unwrap();
    change(&mut value);
    Snapshot::from_json(value.to_string().as_bytes())
}

/// A name that was added later is 0, or missing, in a file from before.
#[test]
fn a_file_without_a_later_name_is_read() {
    let (gpu, _) = sample();
    let share = gpu.share("job", ShareOptions::guaranteed(4096)).unwrap();
    let held = share.zeros(&[9], DType::F32).unwrap();
    held.force().unwrap();
    let snapshot = gpu.memory().snapshot();
    drop(held);
    let whole: Value = serde_json::from_str(&json(&snapshot)).unwrap();
    let mut removed = 0;
    for place in ["", "/shares/0", "/tags/0", "/holders/0", "/reclaim_steps/0"] {
        let place = format!("/stats{place}");
        let fields = whole.pointer(&place).unwrap().as_object().unwrap();
        for name in fields.keys().filter(|name| *name != "step") {
            let read = read_changed(&snapshot, |value| {
                let fields = value.pointer_mut(&place).unwrap().as_object_mut();
                fields.unwrap().remove(name).unwrap();
            });
            // These are compared with the slabs, so their absence cannot stay unnoticed.
            match (read, name.as_str()) {
                (Err(error), "live_bytes" | "live_storages" | "reserved_bytes" | "slabs") => {
                    assert!(
                        error.to_string().contains("says 0, but `slabs` has"),
                        "{error}"
                    );
                }
                (read, _) => {
                    let read = read.unwrap_or_else(|error| panic!("{place}/{name}: {error}"));
                    assert_eq!(read.moments, snapshot.moments);
                }
            }
            removed += 1;
        }
    }
    assert!(removed > 70, "{removed}");
    // A reclaim step that was added later has no row.
    let read = read_changed(&snapshot, |value| {
        let steps = &mut value["stats"]["reclaim_steps"];
        steps.as_array_mut().unwrap().remove(3);
    });
    let steps = read.unwrap().stats.reclaim_steps;
    assert!(steps.iter().all(|one| one.step != ReclaimStep::ALL[3]));
    assert_eq!(steps.len() + 1, ReclaimStep::ALL.len());
}

/// A reader leaves counters out that it does not know, and counts reclaim steps as others.
#[test]
fn a_file_with_names_of_a_newer_version_is_read() {
    let (_gpu, snapshot) = sample();
    let read = read_changed(&snapshot, |value| {
        let stats = &mut value["stats"];
        stats["melted_bytes"] = 7.into();
        stats["melting_bytes"] = json!({"now": 1, "peak": 2, "up": 3, "down": 2});
        stats["tags"][0]["melted_bytes"] = 7.into();
        let steps = stats["reclaim_steps"].as_array_mut().unwrap();
        let step = |name: &str| json!({"step": name, "tries": 3, "gains": 2, "freed_bytes": 512});
        steps.insert(0, step("melt"));
        steps.push(step("a step\u{1b}"));
        let moments = value["moments"].as_array_mut().unwrap();
        let at_ns = moments.last().unwrap()[0].clone();
        moments.push(json!([at_ns, "ReclaimStep", "melt", 512]));
    });
    let mut read = read.unwrap();
    // It is read as the same again, and shown.
    assert_eq!(Snapshot::from_json(json(&read).as_bytes()).unwrap(), read);
    assert!(
        read.stats.to_string().contains("other 4/6"),
        "{}",
        read.stats
    );
    let event = read.moments.pop().unwrap().event;
    let (step, freed_bytes) = (ReclaimStep::Other, 512);
    assert_eq!(event, Event::ReclaimStep { step, freed_bytes });
    let others = read.stats.reclaim_steps.pop().unwrap();
    let counts = (others.tries, others.gains, others.freed_bytes);
    assert_eq!((others.step, counts), (ReclaimStep::Other, (6, 4, 1024)));
    assert_eq!(read, snapshot);
}

#[test]
fn the_next_error_for_lack_of_memory_leaves_a_snapshot() {
    let folder = std::env::temp_dir().join(format!("lapidary-oom-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("oom.json");
    let (gpu, sim) = open_alone(SimOptions::default());
    gpu.memory().set_budget(Budget::device(2 << 20)).unwrap();
    let refuse = || {
        gpu.zeros(&[1 << 20], DType::U8)
            .unwrap()
            .force()
            .unwrap_err()
    };
    let weights = gpu
        .zeros(&[1500 << 10], DType::U8)
        .unwrap()
        .named("weights");
    weights.force().unwrap();
    let pin = weights.pin().unwrap();
    refuse();
    assert!(!path.exists());
    gpu.memory().snapshot_at_out_of_memory(&path);
    assert!(!path.exists());
    refuse();
    let read = || Snapshot::read_json(std::fs::File::open(&path).unwrap()).unwrap();
    let first = read();
    assert_eq!(first.stats.refusals, gpu.memory().stats().refusals);
    assert!(first.stats.holders[0].tag.contains("weights"));
    // Only one is saved, unless the app asks again.
    refuse();
    assert_eq!(read(), first);
    // What never fits counts too.
    gpu.memory().snapshot_at_out_of_memory(&path);
    let never = gpu.zeros(&[3 << 20], DType::U8).unwrap();
    assert!(matches!(never.force(), Err(Error::NeverFits { .. })));
    assert!(read().stats.refusals > first.stats.refusals);
    // Where no file can be, the error of the tensor stays the same.
    gpu.memory().snapshot_at_out_of_memory(path.join("below"));
    assert!(matches!(refuse(), Error::OutOfMemory(_)));
    std::fs::remove_dir_all(&folder).unwrap();
    drop((weights, pin, never));
    ended(gpu, &sim);
}
