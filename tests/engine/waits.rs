//! Waits of execution passes for memory are counted, by what they wait for and by maker.

use lapidary::sim::{SimHandle, SimMode, SimOptions};
use lapidary::stats::Waits;
use lapidary::{Budget, DType, Gpu, Options, Source, Tensor};

use crate::engine::{ended, open_alone};
use crate::stores;

const MIB: u64 = 1 << 20;

/// Elements of a tensor of 1 MiB.
const LEN: usize = 256 << 10;

/// A device that only works while a thread waits for it, with room for 4 tensors of 1 MiB.
fn open_small(maps_slabs: bool, host_bytes: u64) -> (Gpu, SimHandle) {
    let device = SimOptions {
        maps_slabs,
        lag_submissions: u32::MAX,
        compact_always: Some(false),
        ..SimOptions::default()
    };
    let budget = Budget {
        staging_bytes: Some(4 * MIB),
        host_bytes: Some(host_bytes),
        ..Budget::device(8 * MIB)
    };
    let options = Options {
        budget: Some(budget),
        host_heap: Some(false),
        ..Options::from_env().unwrap()
    };
    Gpu::simulated_with(device, options).expect("the options go together")
}

fn full(gpu: &Gpu, value: i32, name: &str) -> Tensor {
    let x = gpu.full(&[LEN], value, DType::I32).unwrap().named(name);
    x.force().unwrap();
    x
}

fn waits(gpu: &Gpu) -> Waits {
    gpu.memory().stats().waits()
}

/// The waits for the device, the host, stores and the disk.
fn times(waits: &Waits) -> [u64; 4] {
    assert_eq!(waits.total().ns, 0, "a simulated device has no clock");
    [waits.device, waits.host, waits.store, waits.disk].map(|waited| waited.times)
}

#[test]
fn where_nothing_is_short_nothing_is_waited_for() {
    for maps_slabs in [false, true] {
        let (gpu, sim) = open_alone(SimOptions {
            maps_slabs,
            ..SimOptions::default()
        });
        let weights = gpu.full(&[8, 8], 0.01, DType::F32).unwrap();
        let mut x = gpu.tensor(&[1.0_f32; 64], &[8, 8]).unwrap();
        for _ in 0..300 {
            x = x.matmul(&weights).unwrap().tanh().unwrap();
            x.narrow(0, 0, 1).unwrap().to_vec::<f32>().unwrap();
        }
        gpu.finish().unwrap();
        assert_eq!(times(&waits(&gpu)), [0; 4]);
        assert_eq!(gpu.memory().stats().memory_waits, []);
        drop((x, weights));
        ended(gpu, &sim);
    }
}

#[test]
fn an_eviction_by_a_read_back_is_one_wait_for_the_host() {
    let (gpu, sim) = open_small(false, 64 * MIB);
    let kept: Vec<Tensor> = (0..4).map(|value| full(&gpu, value, "kept")).collect();
    assert_eq!(times(&waits(&gpu)), [0; 4]);
    let new = full(&gpu, 4, "new");
    assert_eq!(times(&waits(&gpu)), [0, 1, 0, 0]);
    let makers = gpu.memory().stats().memory_waits;
    assert_eq!(makers.len(), 1);
    assert!(makers[0].tag.starts_with("`new` ("), "{}", makers[0].tag);
    assert_eq!(makers[0].waits, waits(&gpu));
    // The app asked for this read: the bytes come from the host's copy, and for the others the
    // thread waits outside a need for memory.
    for (value, x) in (0..4).zip(&kept) {
        assert_eq!(x.to_vec::<i32>().unwrap(), vec![value; LEN]);
    }
    assert_eq!(times(&waits(&gpu)), [0, 1, 0, 0]);
    drop((kept, new));
    ended(gpu, &sim);
}

#[test]
fn the_report_and_a_measurement_say_how_often() {
    let (gpu, sim) = open_small(false, 64 * MIB);
    let kept: Vec<Tensor> = (0..4).map(|value| full(&gpu, value, "kept")).collect();
    assert!(!gpu.memory().stats().to_string().contains("waited"));
    let one = full(&gpu, 4, "one");
    let measure = gpu.memory().measure("more").unwrap();
    let more: Vec<Tensor> = (0..2).map(|value| full(&gpu, value, "more")).collect();
    let measured = measure.end().unwrap();
    assert_eq!(times(&measured.waits), [0, 2, 0, 0]);
    assert!(
        measured
            .to_string()
            .ends_with("; waited for memory 2 times: host 2"),
        "{measured}"
    );
    let report = gpu.memory().stats().to_string();
    assert!(
        report.contains("\n  waited for memory 3 times: host 3\n"),
        "{report}"
    );
    drop((kept, one, more));
    ended(gpu, &sim);
}

#[test]
fn the_device_is_waited_for_where_the_host_maps_slabs() {
    let (gpu, sim) = open_small(true, 0);
    let kept: Vec<Tensor> = (0..4).map(|value| full(&gpu, value, "kept")).collect();
    assert_eq!(times(&waits(&gpu)), [0; 4]);
    // Once until the slab is idle, and once until it is mapped.
    let new = full(&gpu, 4, "new");
    assert_eq!(times(&waits(&gpu)), [2, 0, 0, 1]);
    drop((kept, new));
    ended(gpu, &sim);
}

#[test]
fn the_disk_is_waited_for_both_ways() {
    let (gpu, sim) = open_small(false, 0);
    let kept: Vec<Tensor> = (0..4).map(|value| full(&gpu, value, "kept")).collect();
    let new = full(&gpu, 4, "new");
    // The bytes come to the host, and go to the file.
    assert_eq!(times(&waits(&gpu)), [0, 1, 0, 1]);
    assert_eq!(kept[0].sum_all().unwrap().item::<i32>().unwrap(), 0);
    // That evicted one for `kept` and one for the sum. The file was read for `kept`, and its bytes
    // went through two new chunks of staging.
    assert_eq!(times(&waits(&gpu)), [0, 5, 0, 4]);
    let makers = gpu.memory().stats().memory_waits;
    assert_eq!(makers.len(), 3);
    // Without a clock the number of waits counts.
    assert!(makers[0].tag.starts_with("`kept` ("), "{}", makers[0].tag);
    assert_eq!(times(&makers[0].waits), [0, 3, 0, 2]);
    drop((kept, new));
    ended(gpu, &sim);
}

#[test]
fn a_source_is_waited_for_when_its_tensor_comes_back() {
    let (gpu, sim) = open_small(false, 64 * MIB);
    let source = Source::reader(|_, bytes| {
        bytes.fill(1);
        Ok(())
    });
    let weights = gpu.backed(source, &[LEN], DType::I32).unwrap();
    let weights = weights.named("weights");
    weights.sum_all().unwrap().force().unwrap();
    // The first load is no lack of memory.
    assert_eq!(times(&waits(&gpu)), [0; 4]);
    let others: Vec<Tensor> = (0..4).map(|value| full(&gpu, value, "other")).collect();
    weights.sum_all().unwrap().force().unwrap();
    let makers = gpu.memory().stats().memory_waits;
    assert!(
        makers[0].tag.starts_with("`weights` ("),
        "{}",
        makers[0].tag
    );
    assert_eq!(times(&makers[0].waits), [0, 1, 0, 1]);
    drop((weights, others));
    ended(gpu, &sim);
}

#[test]
fn a_store_is_waited_for_both_ways() {
    let (_, tier) = stores::tier("memory", MIB, stores::PATIENT);
    let (gpu, sim) = stores::open(vec![tier], stores::budget());
    let kept: Vec<Tensor> = (0..8).map(|start| stores::tensor(&gpu, start)).collect();
    gpu.flush().unwrap();
    let evicted = times(&waits(&gpu));
    assert!(evicted[1] > 0 && evicted[2] > 0, "{evicted:?}");
    kept[0].add(&kept[1]).unwrap().force().unwrap();
    let restored = times(&waits(&gpu));
    assert!(restored[2] > evicted[2] && restored[3] == 0, "{restored:?}");
    drop(kept);
    ended(gpu, &sim);
}

#[test]
fn the_same_calls_wait_as_often() {
    let run = |pauses| {
        let (gpu, sim) = open_alone(SimOptions {
            mode: SimMode::SizesOnly,
            pauses,
            ..SimOptions::default()
        });
        let budget = Budget {
            staging_bytes: Some(4 * MIB),
            ..Budget::device(12 * MIB)
        };
        assert_eq!(gpu.memory().set_budget(budget).unwrap(), 0);
        let layers: Vec<Tensor> = (0..16).map(|value| full(&gpu, value, "layer")).collect();
        for layer in layers.iter().cycle().take(64) {
            layer.sum_all().unwrap().force().unwrap();
        }
        let waits = waits(&gpu);
        drop(layers);
        ended(gpu, &sim);
        waits
    };
    let waits = run(0);
    assert!(waits.host.times > 0);
    assert_eq!(run(0), waits);
    // Also if another task polls while the pass waits.
    assert_eq!(run(2), waits);
}

#[test]
fn a_dry_run_waits_for_nothing() {
    let (gpu, sim) = open_small(false, 64 * MIB);
    let kept: Vec<Tensor> = (0..4).map(|value| full(&gpu, value, "kept")).collect();
    let before = waits(&gpu);
    let dry = gpu.dry_run(|gpu| {
        let new: Vec<Tensor> = (0..4).map(|value| full(gpu, value, "new")).collect();
        assert_eq!(times(&waits(gpu)), [0; 4]);
        drop(new);
        Ok(())
    });
    dry.unwrap();
    assert_eq!(waits(&gpu), before);
    drop(kept);
    ended(gpu, &sim);
}
