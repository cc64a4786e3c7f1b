//! The memory report: a page that one can read, whatever is in it.

use lapidary::sim::SimOptions;
use lapidary::{DType, Error, Gpu, MemoryStats};

use crate::{ended, open_alone as open, options};

/// At most 40 lines of 100 columns, and nothing that a terminal would act upon.
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
    let page = gpu.memory().to_string();
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
        let memory = gpu.memory();
        assert_eq!(memory.slabs.len(), 300);
        assert_eq!(memory.holders.len(), 32);
        check_page(&memory);
        // And so do errors.
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
    let mut memory = gpu.memory();
    for (live, size) in [(2, 1), (u64::MAX, 0), (u64::MAX, u64::MAX), (0, u64::MAX)] {
        memory.slabs[0].live_bytes = live;
        memory.slabs[0].size_bytes = size;
        memory.slabs = vec![memory.slabs[0].clone(); 30];
        memory.upload_bytes.now = live;
        memory.readback_bytes.now = size;
        memory.requested_bytes.now = live;
        check_page(&memory);
    }
    drop(x);
    ended(gpu, &sim);
}

#[test]
fn an_empty_device_has_a_page_too() {
    let (gpu, sim) = open(options());
    check_page(&gpu.memory());
    assert!(gpu.memory().slabs.is_empty());
    ended(gpu, &sim);
}

#[test]
fn what_was_dropped_is_no_longer_held() {
    let (gpu, sim) = open(options());
    let x = gpu.zeros(&[1000], DType::F32).unwrap();
    x.force().unwrap();
    assert_eq!(gpu.memory().live_storages.now, 1);
    drop(x);
    let memory = gpu.memory();
    assert_eq!(
        (memory.live_bytes.now, memory.live_storages.now),
        (0, 0),
        "{memory}"
    );
    ended(gpu, &sim);
}

#[test]
fn a_device_without_a_clock_says_so_and_goes_on() {
    let (gpu, sim) = open(options());
    let refused = gpu.time_kernels(true).unwrap_err();
    assert!(
        matches!(
            refused,
            Error::Option {
                option: "time_kernels",
                ..
            }
        ),
        "{refused}"
    );
    gpu.time_kernels(false).unwrap();
    assert_eq!(gpu.kernel_times().unwrap(), []);
    ended(gpu, &sim);
}
