//! The monitor, drawn into cells instead of a terminal.

use std::time::Duration;

use lapidary::shares::ShareOptions;
use lapidary::sim::SimOptions;
use lapidary::units::Bytes;
use lapidary::{Budget, DType, Gpu, Options, Tensor, stats::MemoryStats};
use lapidary_tools::monitor::{Control, Monitor};
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::widgets::Widget;

fn tensor(gpu: &Gpu, kib: usize, name: &str) -> Tensor {
    let tensor = gpu.zeros(&[kib << 10], DType::U8).unwrap().named(name);
    tensor.force().unwrap();
    tensor
}

/// A program that grows, runs short of memory, and shrinks. Its last sample is 12 s after the
/// first.
fn seen() -> (Monitor, Gpu) {
    let (gpu, _) = Gpu::simulated(SimOptions::default()).unwrap();
    gpu.memory().set_budget(Budget::device(24 << 20)).unwrap();
    let mut monitor = Monitor::new();
    let mut held = Vec::new();
    for second in 0..13_u64 {
        match second {
            1..=6 => held.push(tensor(&gpu, 2048, "weights")),
            7 => held.extend((0..12).map(|_| tensor(&gpu, 100, "batch"))),
            8 => {
                // Pinned buffers cannot be evicted.
                let pins = held.iter().map(|held| held.pin().unwrap());
                let _pins: Vec<_> = pins.collect();
                let large = gpu.zeros(&[16 << 20], DType::U8).unwrap();
                large.force().unwrap_err();
            }
            10 => held.truncate(4),
            11 => held[0].evict().unwrap(),
            _ => {}
        }
        monitor.push_at(Duration::from_secs(second), gpu.memory().stats());
    }
    (monitor, gpu)
}

fn drawn(monitor: &Monitor, columns: u16, rows: u16) -> String {
    let mut cells = Buffer::empty(Rect::new(0, 0, columns, rows));
    monitor.render(cells.area, &mut cells);
    let line = |y| {
        (0..columns)
            .map(|x| cells[(x, y)].symbol())
            .collect::<String>()
    };
    (0..rows)
        .map(|y| line(y).trim_end().to_owned() + "\n")
        .collect()
}

fn press(monitor: &mut Monitor, keys: &str) {
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            key => KeyCode::Char(key),
        };
        assert_eq!(
            monitor.key(KeyEvent::new(code, KeyModifiers::NONE)),
            Control::Continue
        );
    }
}

#[test]
fn the_picture_is_the_one_we_like() {
    let (mut monitor, _gpu) = seen();
    press(&mut monitor, "+");
    let found = drawn(&monitor, 120, 32);
    let golden = include_str!("monitor.txt");
    if found != golden {
        let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/monitor.txt");
        std::fs::write(path, &found).unwrap();
        panic!("what is drawn is now in {path}:\n{found}");
    }
}

#[test]
fn bytes_that_wait_for_a_backward_have_a_column() {
    let (gpu, _) = Gpu::simulated(SimOptions::default()).unwrap();
    let mut monitor = Monitor::new();
    let mut header = |gpu: &Gpu| {
        monitor.push_at(Duration::ZERO, gpu.memory().stats());
        let drawn = drawn(&monitor, 120, 32);
        let found = drawn.lines().find(|line| line.contains("storages"));
        (found.unwrap().contains("saved"), drawn)
    };
    let x = gpu.ones(&[96 << 10], DType::F32).unwrap();
    let x = x.requires_grad().unwrap();
    x.force().unwrap();
    assert!(!header(&gpu).0);
    let y = x.exp().unwrap().named("activation");
    y.force().unwrap();
    let (has_column, drawn) = header(&gpu);
    let row = drawn.lines().find(|line| line.contains("`activation`"));
    assert!(
        has_column && row.unwrap().matches("384 KiB").count() == 3,
        "{drawn}"
    );
}

#[test]
fn waits_for_memory_are_events() {
    let (mut monitor, gpu) = seen();
    let mut stats = gpu.memory().stats();
    (stats.disk_wait_ns, stats.host_wait_ns) = (900_000_000, 300_000_000);
    monitor.push_at(Duration::from_secs(14), stats);
    let drawn = drawn(&monitor, 120, 32);
    assert!(
        drawn.contains("14.0 s  waited 1.20 s, disk 900 ms"),
        "{drawn}"
    );
}

#[test]
fn it_answers_keys() {
    let (mut monitor, gpu) = seen();
    let first_holder = |monitor: &Monitor| {
        let drawn = drawn(monitor, 120, 32);
        let mut lines = drawn
            .lines()
            .skip_while(|line| !line.contains("storages"))
            .skip(1);
        lines.next().unwrap().to_owned()
    };
    assert!(first_holder(&monitor).contains("`weights`"));
    press(&mut monitor, "ss");
    assert!(drawn(&monitor, 120, 32).contains("saved▼"));
    press(&mut monitor, "ss");
    assert!(first_holder(&monitor).contains("`batch`"), "sorted by name");
    press(&mut monitor, "S/weig\n");
    assert!(drawn(&monitor, 120, 32).contains("holders with `weig`: 1"));
    monitor.key(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE));
    assert!(!drawn(&monitor, 120, 32).contains("holders with"));

    press(&mut monitor, "p");
    let paused = drawn(&monitor, 120, 32);
    assert!(paused.contains("paused"));
    let _more = tensor(&gpu, 512, "afterwards");
    monitor.push_at(Duration::from_secs(20), gpu.memory().stats());
    assert_eq!(drawn(&monitor, 120, 32), paused);
    press(&mut monitor, "p");
    assert!(drawn(&monitor, 120, 32).contains("afterwards"));

    let key = KeyEvent::new(KeyCode::Char('w'), KeyModifiers::NONE);
    assert_eq!(monitor.key(key), Control::Snapshot);
    monitor.say("wrote it\x1b[2J");
    assert!(drawn(&monitor, 120, 32).contains("wrote it?[2J"));
    press(&mut monitor, "x");
    assert!(!drawn(&monitor, 120, 32).contains("wrote it"));
    let (mut of, stats) = (Monitor::new().of_program("train (7)"), gpu.memory().stats());
    of.push_at(Duration::ZERO, stats);
    assert!(
        drawn(&of, 120, 32)
            .lines()
            .next()
            .unwrap()
            .contains("train (7)")
    );

    press(&mut monitor, "?");
    assert!(drawn(&monitor, 120, 32).contains("any key closes it"));
    press(&mut monitor, "x");
    monitor.end("the program has ended");
    assert!(drawn(&monitor, 120, 32).contains("the program has ended"));
    let quit = |code, modifiers| Monitor::new().key(KeyEvent::new(code, modifiers));
    assert_eq!(quit(KeyCode::Char('q'), KeyModifiers::NONE), Control::Quit);
    assert_eq!(
        quit(KeyCode::Char('c'), KeyModifiers::CONTROL),
        Control::Quit
    );
}

#[test]
fn it_fits_into_any_terminal_and_takes_any_numbers() {
    let (mut monitor, gpu) = seen();
    for columns in (0..40).chain([79, 80, 89, 90, 300]) {
        for rows in (0..24).chain([50, 200]) {
            drawn(&monitor, columns, rows);
            drawn(&Monitor::new(), columns, rows);
        }
    }
    press(&mut monitor, "?");
    drawn(&monitor, 20, 3);
    press(&mut monitor, "x");
    for bytes in [0, 1, u64::MAX] {
        let mut stats = gpu.memory().stats();
        stats.budget_bytes = Some(bytes);
        for level in [
            &mut stats.live_bytes,
            &mut stats.reserved_bytes,
            &mut stats.device_bytes,
            &mut stats.cached_bytes,
            &mut stats.upload_bytes,
            &mut stats.restore_staging_bytes,
            &mut stats.host_bytes,
            &mut stats.spilled_bytes,
        ] {
            (level.now, level.peak) = (bytes, bytes);
        }
        for slab in &mut stats.slabs {
            (slab.size_bytes, slab.live_bytes) = (bytes, u64::MAX);
        }
        for tag in &mut stats.tags {
            (tag.bytes.now, tag.bytes.peak) = (bytes, bytes);
        }
        let mut text = serde_json::to_string(&stats).unwrap();
        text = text.replace("tests/cli/monitor.rs", "\\u001b[2J\\n\\u202e");
        let mut stats: MemoryStats = serde_json::from_str(&text).unwrap();
        stats.adapter = "\x1b[2J\n\u{202e}".repeat(100);
        stats.evictions = u64::MAX - bytes;
        stats.evicted_bytes = bytes;
        stats.fragmentation = f64::NAN;
        // A time that stands still and a time that goes back.
        monitor.push_at(Duration::ZERO, stats.clone());
        monitor.push_at(Duration::MAX / 2, stats);
        let drawn = drawn(&monitor, 120, 40);
        assert!(
            drawn.contains("weights") && !drawn.contains('\x1b') && !drawn.contains('\u{202e}')
        );
    }
}

#[test]
fn shares_are_drawn_with_what_they_hold_and_may_hold() {
    let (gpu, _) = Gpu::simulated(SimOptions::default()).unwrap();
    gpu.memory().set_budget(Budget::device(24 << 20)).unwrap();
    let frame = gpu
        .share("frame", ShareOptions::guaranteed(4 << 20))
        .unwrap();
    let share = ShareOptions::guaranteed(1 << 20).with_ceiling(8 << 20);
    let job = gpu.share("job", share).unwrap();
    let inner = job.share("inner", ShareOptions::guaranteed(0)).unwrap();
    let _held = [tensor(&frame, 1024, "pixels"), tensor(&inner, 2048, "sums")];
    let mut monitor = Monitor::new();
    monitor.push_at(Duration::ZERO, gpu.memory().stats());
    let drawn = drawn(&monitor, 120, 32);
    for expected in [
        " shares: 3 ",
        "1.00 MiB of   4.00 MiB frame",
        "2.00 MiB of   8.00 MiB job ",
        "2.00 MiB of        0 B job/inner",
    ] {
        assert!(drawn.contains(expected), "{expected}\n{drawn}");
    }
}

#[test]
fn slabs_in_the_hosts_memory_are_drawn_below_those_of_the_device() {
    let options = Options {
        budget: Some(Budget::device(24 << 20)),
        host_heap: Some(true),
        ..Options::from_env().unwrap()
    };
    let (gpu, _) = Gpu::simulated_with(SimOptions::default(), options).unwrap();
    let held = tensor(&gpu, 2048, "weights");
    held.evict().unwrap();
    let mut monitor = Monitor::new();
    let stats = gpu.memory().stats();
    let [slab] = &stats.host_slabs[..] else {
        panic!("{stats}");
    };
    let expected = [
        format!(
            " host's slabs: 1, largest hole {} ",
            Bytes(slab.largest_hole_bytes)
        ),
        format!("{:>10} █", Bytes(slab.size_bytes).to_string()),
    ];
    monitor.push_at(Duration::ZERO, stats);
    for (columns, rows) in [(120, 32), (90, 20), (300, 200)] {
        let drawn = drawn(&monitor, columns, rows);
        let mut lines = drawn.lines().skip_while(|line| !line.contains(" slabs: 1"));
        for expected in &expected {
            assert!(
                lines.any(|line| line.contains(expected)),
                "{expected}\n{drawn}"
            );
        }
    }
}
