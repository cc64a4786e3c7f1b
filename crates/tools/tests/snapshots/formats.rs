//! Snapshots in other programs' formats: they equal golden files, and their sums are right.

use std::path::PathBuf;

use lapidary::sim::{SimMode, SimOptions};
use lapidary::{DType, Gpu, Tensor, stats::Snapshot};
use lapidary_tools::formats::{read_rmm, write_pickle};
use serde_json::Value;

use super::adding_up::{add_up, rmm, trace};

/// If set, the golden files are written again.
const WRITE_GOLDEN: &str = "LAPIDARY_WRITE_GOLDEN";

/// The same snapshot among the inputs with which fuzzing begins.
const IN_CORPUS: &str = "../../../../../fuzz/corpus/snapshot/golden.json";

fn golden(name: &str) -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/snapshots/golden"
    ))
    .join(name)
}

pub(super) fn is_golden(name: &str, found: &[u8]) {
    let path = golden(name);
    if std::env::var_os(WRITE_GOLDEN).is_some() {
        return std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read(&path).unwrap();
    let equal = expected.iter().zip(found).take_while(|(a, b)| a == b);
    let at = equal.count();
    let around = |bytes: &[u8]| {
        let part = &bytes[at.saturating_sub(60)..bytes.len().min(at + 60)];
        String::from_utf8_lossy(part).into_owned()
    };
    assert!(
        expected == found,
        "{name} differs from byte {at} on. The file has\n{}\nand the program gives\n{}\nIf that \
         is right, set {WRITE_GOLDEN}=1 to write the golden files again, and read the diff.",
        around(&expected),
        around(found)
    );
}

/// The snapshot of the golden files, which is [`program`]'s.
fn sample() -> Snapshot {
    golden_snapshot(&program(), &["snapshot.json", IN_CORPUS])
}

/// A snapshot whose JSON equals golden files of these names.
pub(super) fn golden_snapshot(snapshot: &Snapshot, names: &[&str]) -> Snapshot {
    let mut json = Vec::new();
    snapshot.write_json(&mut json).unwrap();
    let mut value: Value = serde_json::from_slice(&json).unwrap();
    settle(&mut value);
    let json = serde_json::to_string(&value).unwrap();
    let json = json.replace("],[", "],\n[") + "\n";
    for name in names {
        is_golden(name, json.as_bytes());
    }
    Snapshot::from_json(json.as_bytes()).unwrap()
}

/// Some steps in too little memory. Tensors are created, evicted, restored, donated and moved,
/// slabs are released, and one request is refused. Tensors older than the history are freed too.
fn program() -> Snapshot {
    let (gpu, _) = super::open_scarce();
    let make = |name: &str, len| {
        let x = gpu.full(&[len], 1.0, DType::F32).unwrap().named(name);
        x.force().unwrap();
        x
    };
    let (weights, input) = (make("weights", 70_000), make("input", 3000));
    gpu.memory().keep_history(1000);
    let step = gpu.scope("step");
    for _ in 0..2 {
        let hidden = {
            let _forward = gpu.scope("forward");
            (&weights * 2.0).unwrap().named("<b>hidden</b>")
        };
        let more = make("activations", 200_000);
        let hidden = (hidden + 1.0).unwrap();
        hidden.force().unwrap();
        drop(more);
    }
    drop((input, step));
    weights.evict().unwrap();
    let small: Vec<_> = (0..9).map(|_| make("small", 90_000)).collect();
    let mut small: Vec<_> = small.into_iter().step_by(3).collect();
    weights.prefetch().unwrap();
    gpu.memory().compact(0).unwrap();
    small.push(make("big", 450_000));
    let pins: Vec<_> = small.iter().map(|small| small.pin().unwrap()).collect();
    let refused = gpu.zeros(&[500_000], DType::F32).unwrap();
    assert!(refused.force().is_err());
    drop(refused);
    weights.evict().unwrap();
    let snapshot = gpu.memory().snapshot();
    drop((small, pins));
    snapshot
}

/// Sets everything that depends on the clock or on this file's line numbers to fixed values.
fn settle(snapshot: &mut Value) {
    snapshot["taken_unix_ms"] = 1_770_000_000_000_u64.into();
    let moments = snapshot["moments"].as_array_mut().unwrap();
    let count = moments.len();
    for (index, moment) in moments.iter_mut().enumerate() {
        moment[0] = (1_000_000_000 + 1_500 * index as u64).into();
    }
    snapshot["taken_at_ns"] = (1_000_000_000 + 1_500 * count as u64).into();
    for (index, tag) in snapshot["tags"]
        .as_array_mut()
        .unwrap()
        .iter_mut()
        .enumerate()
    {
        if tag.is_object() {
            tag["file"] = "src/net.rs".into();
            tag["line"] = (10 * index).into();
        }
    }
    let used = snapshot["stats"].as_object_mut().unwrap();
    used["tags"] = Value::Array(Vec::new());
    used["holders"] = Value::Array(Vec::new());
    let waits = used["memory_waits"].as_array_mut().unwrap().iter_mut();
    for (index, wait) in waits.enumerate() {
        wait["tag"] = format!("src/net.rs:{}", 10 * index).into();
    }
}

/// Some steps of a training loop with a complete history.
fn training() -> Snapshot {
    let (gpu, _) = super::open_alone(SimOptions {
        memory_bytes: 1 << 30,
        ..SimOptions::default()
    });
    gpu.memory().keep_history(1 << 20);
    let random = |shape: &[usize]| gpu.rand_normal(shape, 0.0, 0.1, 7, DType::F32).unwrap();
    let mut weights: Vec<_> = (0..3)
        .map(|layer| random(&[32, 32]).named(&format!("w{layer}")))
        .collect();
    for step in 0..12 {
        let _step = gpu.scope("step");
        let mut x = random(&[16 + step, 32]).named("batch");
        let mut kept = Vec::new();
        for w in &weights {
            let _forward = gpu.scope("forward");
            kept.push(x.clone());
            x = x.matmul(w).unwrap().relu().unwrap();
        }
        let mut gradient = (&x - 1.0).unwrap();
        for (w, x) in weights.iter_mut().zip(kept).rev() {
            let _backward = gpu.scope("backward");
            let of_w = x.t().unwrap().matmul(&gradient).unwrap();
            gradient = gradient.matmul(&w.t().unwrap()).unwrap();
            *w = (&*w - &(of_w * 0.001).unwrap()).unwrap();
        }
        gpu.flush().unwrap();
    }
    gpu.memory().snapshot()
}

/// Writes snapshots to a folder for other programs' tools: `cargo xtask ci --only formats` names
/// it.
#[test]
fn snapshots_are_written_for_other_tools() {
    let (early, late) = (program(), training());
    for (name, snapshot) in [
        ("pressure", early),
        ("training", late),
        ("sample", sample()),
    ] {
        add_up(&snapshot);
        let mut pickle = Vec::new();
        write_pickle(&snapshot, &mut pickle).unwrap();
        let mut json = Vec::new();
        snapshot.write_json(&mut json).unwrap();
        if let Some(folder) = std::env::var_os("LAPIDARY_FORMATS_FOLDER") {
            let file = PathBuf::from(folder).join(name);
            let (log, trace) = (rmm(&snapshot), trace(&snapshot));
            let files = [
                ("pickle", &pickle),
                ("json", &json),
                ("csv", &log),
                ("trace.json", &trace),
            ];
            for (extension, bytes) in files {
                std::fs::write(file.with_extension(extension), bytes).unwrap();
            }
        }
    }
}

#[test]
fn a_trace() {
    is_golden("snapshot.trace.json", &trace(&sample()));
}

#[test]
fn a_picture_of_the_slabs() {
    let snapshot = sample();
    is_golden("snapshot.map.txt", snapshot.map().to_string().as_bytes());
    let colored = snapshot.map().columns(60).lines(16).colored(true);
    is_golden("snapshot.colored.txt", colored.to_string().as_bytes());
}

/// A hundred thousand blocks of a thousand makers, and a million events.
#[test]
#[ignore = "prints how large each format is and how long it takes"]
fn large_snapshots_are_measured() {
    let (gpu, _) = Gpu::simulated(SimOptions {
        mode: SimMode::SizesOnly,
        memory_bytes: 64 << 30,
        ..SimOptions::default()
    })
    .unwrap();
    gpu.memory().keep_history(1_000_000);
    let make = |index: usize| {
        let x = gpu.zeros(&[64 + index % 5000], DType::F32).unwrap();
        x.named(&format!("layer{}", index % 1000))
    };
    let mut held: Vec<_> = (0..100_000).map(make).collect();
    for index in 0..520_000 {
        let at = index * 7919 % held.len();
        held[at] = make(index);
    }
    gpu.flush().unwrap();
    let measured = |name: &str, write: &dyn Fn(&mut Vec<u8>)| {
        let (begin, mut bytes) = (std::time::Instant::now(), Vec::new());
        write(&mut bytes);
        let ms = begin.elapsed().as_millis();
        println!("{name:<8} {ms:>6} ms {:>12} bytes", bytes.len());
        bytes
    };
    let begin = std::time::Instant::now();
    let snapshot = gpu.memory().snapshot();
    println!("taken in {} ms", begin.elapsed().as_millis());
    let blocks: usize = snapshot.slabs.iter().map(|slab| slab.blocks.len()).sum();
    assert_eq!((blocks, snapshot.moments.len()), (100_000, 1_000_000));
    measured("json", &|to| snapshot.write_json(to).unwrap());
    let log = measured("rmm", &|to| to.extend(rmm(&snapshot)));
    measured("pickle", &|to| write_pickle(&snapshot, to).unwrap());
    measured("trace", &|to| to.extend(trace(&snapshot)));
    measured("picture", &|to| {
        to.extend(snapshot.map().to_string().bytes())
    });
    let begin = std::time::Instant::now();
    let rows = read_rmm(&log[..]).unwrap().len();
    println!("{rows} rows read in {} ms", begin.elapsed().as_millis());
}

/// Files that earlier versions wrote. They are never written again.
#[test]
fn snapshots_of_earlier_versions_are_read() {
    for name in ["version4.json", "version5.json"] {
        let older = std::fs::read(golden(name)).unwrap();
        let older = Snapshot::from_json(&older).unwrap();
        add_up(&older);
        assert!(older.stats.shares.is_empty() && older.host_slabs.is_empty());
        assert_eq!(older.stats.kernels_ns == 0, name == "version4.json");
        let sums = [
            older.stats.evictions,
            older.stats.refusals,
            older.stats.moved_bytes,
        ];
        assert!(sums.iter().all(|sum| *sum > 0), "{}", older.stats);
    }
}

#[test]
fn the_sample_has_everything_that_happens() {
    let snapshot = sample();
    add_up(&snapshot);
    let stats = &snapshot.stats;
    assert!(
        stats.evictions > 0 && stats.restores > 0 && stats.refusals > 0,
        "{stats}"
    );
    assert!(
        stats.moved_bytes > 0 && stats.donated > 0 && stats.slabs_released > 0,
        "{stats}"
    );
}

/// Random programs whose tensors come and go, leave, come back and move.
#[test]
fn random_histories_add_up() {
    let mut happened = [0; 3];
    for seed in 0..8 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (gpu, _) = super::open_scarce();
        gpu.memory().keep_history(1 << 20);
        let mut kept: Vec<Tensor> = Vec::new();
        for _ in 0..200 {
            match (random.u8(..6), random.choice(&kept).cloned()) {
                (0, Some(one)) => kept.push((one + 1.0).unwrap()),
                (1, Some(one)) => one.evict().unwrap(),
                (2, Some(_)) => drop(kept.swap_remove(random.usize(..kept.len()))),
                (3, _) => drop(gpu.memory().compact(random.u64(..1 << 20)).unwrap()),
                (4, _) => gpu.flush().unwrap(),
                _ => kept.push(
                    gpu.full(&[random.usize(1..60_000)], 1.5, DType::F32)
                        .unwrap(),
                ),
            }
            kept.truncate(20);
        }
        gpu.flush().unwrap();
        let snapshot = gpu.memory().snapshot();
        add_up(&snapshot);
        let stats = &snapshot.stats;
        let counts = [stats.evictions, stats.restores, stats.moved_bytes];
        for (sum, count) in happened.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    assert!(happened.iter().all(|&sum| sum > 0), "{happened:?}");
}

#[test]
fn a_log_of_rmms() {
    is_golden("snapshot.rmm.csv", &rmm(&sample()));
}

#[test]
fn a_pickle() {
    let mut pickle = Vec::new();
    write_pickle(&sample(), &mut pickle).unwrap();
    is_golden("snapshot.pickle", &pickle);
}

#[test]
fn a_snapshot_without_a_history_is_what_there_is() {
    let (gpu, _) = super::open_alone(SimOptions::default());
    let x = gpu.zeros(&[1000], DType::F32).unwrap();
    let y = gpu.zeros(&[9], DType::F32).unwrap();
    gpu.flush().unwrap();
    let snapshot = gpu.memory().snapshot();
    add_up(&snapshot);
    assert_eq!(read_rmm(&rmm(&snapshot)[..]).unwrap().len(), 2);
    drop((x, y));
}

/// The sums are right even if the beginning of the history is cut off, at any event.
#[test]
fn a_history_that_begins_late_adds_up() {
    let mut snapshot = sample();
    while !snapshot.moments.is_empty() {
        snapshot.moments.remove(0);
        add_up(&snapshot);
    }
}

#[test]
fn bad_logs_are_told_with_their_line() {
    let check = |rows: &str, says: &str| {
        let log = format!("Thread,Time,Action,Pointer,Size,Stream\n1,0,allocate,0x10,8,0\n{rows}");
        let error = read_rmm(log.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(says), "{rows:?}: {error}");
    };
    check(
        "1,0,free,0x10,8,0\n1,0,free,0x10,8,0",
        "line 4: 0x10 is freed but not allocated",
    );
    check(
        "1,0,free,0x20,8,0",
        "line 3: 0x20 is freed but not allocated",
    );
    check("1,0,free,0x10,9,0", "line 3: 0x10 is freed as 9 bytes");
    check(
        "1,0,allocate,0x10,8,0",
        "line 3: 0x10 is allocated but was not freed",
    );
    check("1,0,free,0x1x,8,0", "line 3: `0x1x` is not a pointer");
    check("1,0,free,,8,0", "line 3: `` is not a pointer");
    check("1,0,allocate,0x20,-8,0", "line 3: `-8` is not a size");
    check("1,0,allocate,0x20,99999999999999999999,0", "is not a size");
    check("\n1,0,resize,0x10,8,0", "line 4: `resize` is not an action");
    check("1,0,\u{1b}[2J,0x10,8,0", "line 3: `?[2J` is not an action");
    check("1,0", "line 3: an action is missing");
    check("1,0,free,0x10", "line 3: a size is missing");
    check(&"x".repeat(1 << 20), "line 3: it is longer than");
    let whole = |log: &[u8], says: &str| {
        let error = read_rmm(log).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    whole(b"", "line 1: it is empty");
    whole(b"a,b,c\n", "line 1: it has no column `Action`");
    whole(b"Action,Pointer,Size\n\xff\xfe\n", "line 2: it is not text");
    let fine = "Size,Pointer,Action\n0,(nil),allocate\n5,0,allocate failure\n0,(nil),free\n\n";
    assert_eq!(read_rmm(fine.as_bytes()).unwrap(), []);
}
