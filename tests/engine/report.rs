//! The memory report is readable with any contents.

use lapidary::sim::SimOptions;
use lapidary::{
    Budget, DType, Error, Gpu, Source,
    stats::{MemoryStats, ReclaimStep, ReclaimStepUse},
};

use crate::engine::{ended, open_alone as open, options};

/// At most 40 lines of 100 columns, without control characters.
fn check_page(memory: &MemoryStats) {
    let page = memory.to_string();
    assert!(page.lines().count() <= 40, "{page}");
    for line in page.lines() {
        assert!(columns(line) <= 100, "{} columns: {line}", columns(line));
        let acts = |c: char| c != '…' && (c.is_control() || ('\u{200b}'..='\u{206f}').contains(&c));
        assert!(!line.contains(acts), "{line:?}");
    }
}

fn columns(line: &str) -> usize {
    line.chars()
        .map(|c| if c > '\u{2fff}' { 2 } else { 1 })
        .sum()
}

fn many_slabs(gpu: &Gpu, name: &str) -> Vec<lapidary::Tensor> {
    (0..300)
        .map(|i| {
            gpu.zeros(&[(64 << 10) - i], DType::U8)
                .unwrap()
                .named(&format!("{name}{i}"))
        })
        .collect()
}

#[test]
fn the_page_of_a_small_program() {
    let (gpu, sim) = open(options());
    let (a, line) = (gpu.zeros(&[1 << 20], DType::F32).unwrap(), line!());
    let a = a.named("weights");
    let b = [0; 3].map(|_| gpu.tensor(&[1.0_f32; 100], &[100]).unwrap());
    let tags = b.each_ref().map(|b| b.tag().to_string());
    gpu.finish().unwrap();
    let page = gpu.memory().stats().to_string();
    let file = file!();
    let expected = format!(
        "memory on simulated device (sim)\n\
         {}",
        include_str!("report.txt")
            .replace("{weights}", &format!("`weights` ({file}:{line})"))
            .replace("{small}", &tags[0])
    );
    assert_eq!(page.trim_end(), expected.trim_end(), "{page}");
    drop((a, b));
    ended(gpu, &sim);
}

#[test]
fn hostile_names_stay_on_their_lines() {
    for name in [
        "two\nlines\r\n",
        "\u{1b}[31mred\u{7}",
        &"long".repeat(10_000),
        "\u{202e}desrever\u{2066}",
        "שלום עולם",
        &"記憶装置".repeat(40),
        &"👩‍🔬".repeat(50),
        "\u{0}\u{85}\u{2028}",
        "",
    ] {
        let (gpu, sim) = open(SimOptions {
            max_buffer_bytes: 64 << 10,
            ..options()
        });
        let held = many_slabs(&gpu, name);
        gpu.finish().unwrap();
        let memory = gpu.memory().stats();
        assert_eq!(memory.slabs.len(), 300);
        assert_eq!(memory.holders.len(), 32);
        check_page(&memory);
        // Errors too.
        assert_eq!(held[0].tag().to_string().lines().count(), 1);
        assert!(held[0].to_string().chars().count() < 200);
        drop(held);
        ended(gpu, &sim);
    }
}

#[test]
fn numbers_that_contradict_each_other_are_printed_too() {
    let (gpu, sim) = open(options());
    let x = gpu.zeros(&[1000], DType::F32).unwrap();
    x.force().unwrap();
    let mut memory = gpu.memory().stats();
    for (live, size) in [(2, 1), (u64::MAX, 0), (u64::MAX, u64::MAX), (0, u64::MAX)] {
        memory.slabs[0].live_bytes = live;
        memory.slabs[0].size_bytes = size;
        memory.slabs = vec![memory.slabs[0].clone(); 30];
        memory.upload_bytes.now = live;
        memory.readback_bytes.now = size;
        memory.requested_bytes.now = live;
        for waits in [&mut memory.device_waits, &mut memory.disk_waits] {
            *waits = size;
        }
        for ns in [&mut memory.store_wait_ns, &mut memory.host_wait_ns] {
            *ns = live;
        }
        for one in &mut memory.reclaim_steps {
            (one.tries, one.gains, one.freed_bytes) = (size, live, size);
        }
        check_page(&memory);
    }
    drop(x);
    ended(gpu, &sim);
}

#[test]
fn an_empty_device_has_a_page_too() {
    let (gpu, sim) = open(options());
    check_page(&gpu.memory().stats());
    assert!(gpu.memory().stats().slabs.is_empty());
    ended(gpu, &sim);
}

#[test]
fn what_was_dropped_is_no_longer_held() {
    let (gpu, sim) = open(options());
    let x = gpu.zeros(&[1000], DType::F32).unwrap();
    x.force().unwrap();
    assert_eq!(gpu.memory().stats().live_storages.now, 1);
    drop(x);
    let memory = gpu.memory().stats();
    assert_eq!(
        (memory.live_bytes.now, memory.live_storages.now),
        (0, 0),
        "{memory}"
    );
    ended(gpu, &sim);
}

#[test]
fn what_has_no_place_yet_is_a_level_too() {
    let (gpu, sim) = open(options());
    let levels = |gpu: &Gpu| {
        let level = gpu.memory().stats().pending_bytes;
        assert_eq!(level.up - level.down, level.now);
        [level.now, level.peak, level.up]
    };
    let make = || gpu.zeros(&[1000], DType::F32).unwrap();
    let [a, b] = [make(), make()];
    assert_eq!(levels(&gpu), [8000, 8000, 8000]);
    gpu.finish().unwrap();
    assert_eq!(levels(&gpu), [0, 8000, 8000]);
    let sum = (&a + &b).unwrap();
    assert_eq!(levels(&gpu), [4000, 8000, 12_000]);
    // `a` and `b` have no other holder, so the sum takes over a block.
    drop((a, b));
    sum.force().unwrap();
    assert_eq!(levels(&gpu), [0, 8000, 12_000]);
    gpu.memory().reset_peaks();
    assert_eq!(levels(&gpu), [0, 0, 12_000]);
    drop(sum);
    assert_eq!(levels(&gpu), [0, 0, 12_000]);
    // Shapes that do not match create no request.
    let [a, b] = [7, 9].map(|len| gpu.zeros(&[len], DType::U8).unwrap());
    (&a + &b).unwrap_err();
    drop((a, b));
    gpu.finish().unwrap();
    assert_eq!(levels(&gpu)[0], 0);
    // A refused request stays pending until its last holder is dropped.
    gpu.memory().set_budget(Budget::device(1 << 20)).unwrap();
    let large = gpu.zeros(&[2 << 20], DType::U8).unwrap();
    large.force().unwrap_err();
    assert_eq!(levels(&gpu)[0], 2 << 20);
    drop(large);
    gpu.flush().unwrap();
    assert_eq!(levels(&gpu)[0], 0);
    ended(gpu, &sim);
}

#[test]
fn reclaim_steps_that_were_tried_are_counted_with_what_came_of_them() {
    let (gpu, sim) = open(options());
    gpu.memory().set_budget(Budget::device(4 << 20)).unwrap();
    assert!(
        gpu.memory()
            .stats()
            .reclaim_steps
            .iter()
            .all(|one| one.tries == 0)
    );
    let held = [0; 4].map(|_| gpu.zeros(&[1_200_000], DType::U8).unwrap());
    gpu.flush().unwrap();
    let of = |step: ReclaimStep, reclaim_steps: &[ReclaimStepUse]| {
        *reclaim_steps.iter().find(|one| one.step == step).unwrap()
    };
    let memory = gpu.memory().stats();
    let host = of(ReclaimStep::Host, &memory.reclaim_steps);
    assert!(host.gains > 0 && host.tries >= host.gains && host.freed_bytes >= 1_200_000);
    // An earlier step freed enough.
    assert_eq!(of(ReclaimStep::Repack, &memory.reclaim_steps).tries, 0);
    assert!(
        memory
            .to_string()
            .contains("reclaim steps that freed something")
    );

    // With everything pinned, no step frees anything.
    let last = &held[3];
    let pin = last.pin().unwrap();
    let refused = gpu.zeros(&[3_500_000], DType::U8).unwrap();
    let Error::OutOfMemory(told) = refused.force().unwrap_err() else {
        panic!("it is too large beside what is pinned");
    };
    let tried: Vec<ReclaimStep> = told.reclaim_steps.iter().map(|one| one.step).collect();
    // Staging is not in the way, there is no released memory to wait for, and no store. Without
    // the empty slabs, too, no slab of that size would have room.
    let is_of_use = |step: &ReclaimStep| {
        !matches!(
            step,
            ReclaimStep::Caches | ReclaimStep::Trim | ReclaimStep::Wait | ReclaimStep::Store
        )
    };
    let all: Vec<ReclaimStep> = ReclaimStep::ALL.into_iter().filter(is_of_use).collect();
    assert_eq!(tried, all, "all that are of use, in their order");
    let after = gpu.memory().stats();
    for one in &told.reclaim_steps {
        let [before, all] = [&memory, &after].map(|stats| of(one.step, &stats.reclaim_steps));
        assert!(all.tries >= before.tries + one.tries, "{all:?} {one:?}");
        assert!(one.gains < one.tries, "it ended without room: {one:?}");
        assert_eq!(one.gains > 0, one.freed_bytes > 0, "{one:?}");
    }
    assert_eq!(told.holders[0], after.holders[0]);
    drop((held, pin, refused));
    ended(gpu, &sim);
}

/// Weights of a file are dropped by the steps that evict. No tier got their bytes, so no report
/// names one.
#[test]
fn what_a_source_gives_again_is_dropped_and_no_tier_is_named() {
    for maps_slabs in [false, true] {
        let (gpu, sim) = open(SimOptions {
            maps_slabs,
            ..SimOptions::default()
        });
        gpu.memory().set_budget(Budget::device(4 << 20)).unwrap();
        let bytes: std::sync::Arc<[u8]> = vec![3; 1 << 20].into();
        let weights = [0; 8].map(|_| {
            let source = Source::bytes(bytes.clone());
            gpu.backed(source, &[256 << 10], DType::U32).unwrap()
        });
        let measured = gpu.memory().measure("weights").unwrap();
        for _ in 0..3 {
            for weight in &weights {
                weight.sum_all().unwrap().force().unwrap();
            }
        }
        let measured = measured.end().unwrap();
        let memory = gpu.memory().stats();
        assert_eq!(memory.evicted_bytes, 0, "{memory}");
        assert!(memory.dropped_bytes >= 16 << 20, "{memory}");
        assert_eq!(memory.dropped_to_source_bytes, memory.dropped_bytes);
        assert_eq!(measured.dropped_bytes, memory.dropped_bytes);
        for one in &memory.reclaim_steps {
            match one.step {
                ReclaimStep::Drop => assert_eq!(one.freed_bytes, memory.dropped_bytes),
                ReclaimStep::Host | ReclaimStep::Store | ReclaimStep::Disk => {
                    assert_eq!((one.gains, one.freed_bytes), (0, 0), "{memory}");
                    assert_eq!(one.tries, 0, "a run that drops is one of `drop`: {memory}");
                }
                _ => {}
            }
        }
        let page = memory.to_string();
        assert!(page.contains("the source has them"), "{page}");
        assert!(
            page.contains("drop ") && !page.contains("disk 0/"),
            "{page}"
        );
        check_page(&memory);

        // A copy that lapidary wrote is no source.
        let own = gpu.zeros(&[1 << 20], DType::U8).unwrap();
        own.force().unwrap();
        own.evict().unwrap();
        own.prefetch().unwrap();
        gpu.flush().unwrap();
        let before = gpu.memory().stats();
        own.evict().unwrap();
        let after = gpu.memory().stats();
        assert_eq!(after.dropped_bytes, before.dropped_bytes + (1 << 20));
        assert_eq!(
            after.dropped_to_source_bytes,
            before.dropped_to_source_bytes
        );
        assert!(after.to_string().contains("the source has"), "{after}");
        drop((weights, own));
        ended(gpu, &sim);
    }
}

#[test]
fn a_device_without_a_clock_says_so_and_goes_on() {
    let (gpu, sim) = open(options());
    let refused = gpu.kernels().time(true).unwrap_err();
    assert!(
        matches!(
            refused,
            Error::Option {
                option: "GpuKernels::time",
                ..
            }
        ),
        "{refused}"
    );
    gpu.kernels().time(false).unwrap();
    assert_eq!(gpu.kernels().times().unwrap(), []);
    ended(gpu, &sim);
}
