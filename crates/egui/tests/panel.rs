//! The panel drawn by egui without a window, for ordinary and for hostile samples.

use egui::epaint::Shape;
use egui::{Context, Pos2, RawInput, Rect, vec2};
use lapidary_core::sim::SimOptions;
use lapidary_core::units::Level;
use lapidary_core::{Budget, Buffer, Gpu, Options, stats::MemoryStats};
use lapidary_egui::MemoryPanel;

const MIB: u64 = 1 << 20;

/// The output of a frame.
struct Drawn {
    texts: Vec<String>,
    rects: Vec<Rect>,
    lines: usize,
}

impl Drawn {
    fn has(&self, text: &str) -> bool {
        self.texts.iter().any(|found| found.contains(text))
    }
}

/// Draws frames of this size at these seconds, with a sample each. Returns the last one.
fn frames<'a>(
    panel: &mut MemoryPanel,
    [width, height]: [f32; 2],
    samples: impl IntoIterator<Item = (f64, &'a MemoryStats)>,
) -> Drawn {
    let context = Context::default();
    let mut shapes = Vec::new();
    for (time_s, stats) in samples {
        let input = RawInput {
            screen_rect: Some(Rect::from_min_size(Pos2::ZERO, vec2(width, height))),
            time: Some(time_s),
            ..RawInput::default()
        };
        let mut output = context.run_ui(input, |ui| {
            panel.show(ui, stats);
        });
        // egui panics if the fonts' texture is dropped and was not taken.
        output.textures_delta.clear();
        // The shapes can be tessellated for a GPU.
        let shown = output.shapes.clone();
        for primitive in context.tessellate(output.shapes, output.pixels_per_point) {
            if let egui::epaint::Primitive::Mesh(mesh) = primitive.primitive {
                assert!(mesh.is_valid());
                for vertex in &mesh.vertices {
                    assert!(vertex.pos.x.is_finite() && vertex.pos.y.is_finite());
                }
            }
        }
        shapes = shown;
    }
    let mut drawn = Drawn {
        texts: Vec::new(),
        rects: Vec::new(),
        lines: 0,
    };
    for shape in shapes {
        take(&shape.shape, &mut drawn);
    }
    drawn
}

fn take(shape: &Shape, drawn: &mut Drawn) {
    match shape {
        Shape::Vec(shapes) => shapes.iter().for_each(|shape| take(shape, drawn)),
        Shape::Text(text) => drawn.texts.push(text.galley.text().to_owned()),
        Shape::Rect(rect) => drawn.rects.push(rect.rect),
        Shape::Path(_) => drawn.lines += 1,
        _ => {}
    }
}

fn open(budget_bytes: u64) -> Gpu {
    let options = SimOptions {
        compact_always: Some(false),
        ..SimOptions::default()
    };
    let (gpu, _) = Gpu::simulated(options).unwrap();
    gpu.memory()
        .set_budget(Budget::device(budget_bytes))
        .unwrap();
    gpu
}

fn held(gpu: &Gpu, bytes: u64, name: &str) -> Buffer {
    let buffer = gpu.buffer_zeroed(bytes).unwrap().named(name);
    buffer.force().unwrap();
    buffer
}

#[test]
fn a_panel_says_what_is_held_by_whom_and_how_it_went() {
    let gpu = open(24 * MIB);
    let before = gpu.memory().stats();
    let _weights = held(&gpu, 6 * MIB, "weights");
    let away = held(&gpu, 2 * MIB, "cache");
    away.evict().unwrap();
    let stats = gpu.memory().stats();
    let mut panel = MemoryPanel::new();
    let drawn = frames(&mut panel, [400.0, 600.0], [(1.0, &before), (3.0, &stats)]);
    for text in [
        stats.adapter.as_str(),
        "of a budget of 24.0 MiB",
        "live 6.00 MiB in 1 tensors",
        "elsewhere: 2.00 MiB in the host's memory",
        "holders: 1",
        "`weights`",
        "evicted 2.00 MiB",
        "last 60 s",
    ] {
        assert!(drawn.has(text), "{text}: {:?}", drawn.texts);
    }
    assert!(!drawn.has("without a budget") && !drawn.has("were refused"));
    // Three curves of two points each.
    assert_eq!(drawn.lines, 3);
}

#[test]
fn slabs_in_the_hosts_memory_have_bars_of_their_own() {
    let options = Options {
        budget: Some(Budget::device(24 * MIB)),
        host_heap: Some(true),
        ..Options::from_env().unwrap()
    };
    let (gpu, _) = Gpu::simulated_with(SimOptions::default(), options).unwrap();
    let away = held(&gpu, 2 * MIB, "cache");
    let bars = |stats: &MemoryStats| {
        let drawn = frames(&mut MemoryPanel::new(), [400.0, 600.0], [(0.0, stats)]);
        let rows = drawn.rects.iter().filter(|rect| rect.height() == 3.0);
        (drawn.has("in 1 slabs of the host's memory"), rows.count())
    };
    assert_eq!(bars(&gpu.memory().stats()), (false, 2));
    away.evict().unwrap();
    assert_eq!(bars(&gpu.memory().stats()), (true, 4));
}

#[test]
fn bars_are_as_long_as_their_share() {
    let gpu = open(32 * MIB);
    let _weights = held(&gpu, 8 * MIB, "weights");
    let mut stats = gpu.memory().stats();
    stats.device_bytes.now = 16 * MIB;
    stats.reserved_bytes.now = 12 * MIB;
    let drawn = frames(&mut MemoryPanel::new(), [400.0, 600.0], [(0.0, &stats)]);
    let at = drawn.rects.iter().position(|rect| rect.height() == 14.0);
    let parts = &drawn.rects[at.expect("the budget's bar")..][..4];
    let whole = parts[0];
    for (part, expected) in parts[1..].iter().zip([0.25, 0.125, 0.125]) {
        let share = part.width() / whole.width();
        assert!((share - expected).abs() < 1e-3, "{share}, not {expected}");
        assert!(whole.expand(0.1).contains_rect(*part));
    }
}

#[test]
fn a_device_that_holds_nothing_has_a_panel() {
    let (gpu, _) = Gpu::simulated(SimOptions::default()).unwrap();
    gpu.memory().set_budget(Budget::default()).unwrap();
    let mut stats = gpu.memory().stats();
    (stats.budget_bytes, stats.adapter) = (None, String::new());
    let drawn = frames(&mut MemoryPanel::new(), [400.0, 600.0], [(0.0, &stats)]);
    for text in ["0 B, without a budget", "in 0 slabs", "holders: 0"] {
        assert!(drawn.has(text), "{text}: {:?}", drawn.texts);
    }
}

#[test]
fn numbers_of_any_size_stay_in_the_panel() {
    let gpu = open(24 * MIB);
    let _kept = held(&gpu, MIB, "kept");
    let mut stats = gpu.memory().stats();
    let most = Level {
        now: u64::MAX,
        peak: u64::MAX,
        up: u64::MAX,
        down: 0,
    };
    for level in [
        &mut stats.live_bytes,
        &mut stats.reserved_bytes,
        &mut stats.device_bytes,
        &mut stats.host_bytes,
        &mut stats.spilled_bytes,
        &mut stats.live_storages,
    ] {
        *level = most;
    }
    for tag in &mut stats.tags {
        (tag.bytes, tag.storages) = (most, most);
    }
    for slab in &mut stats.slabs {
        (slab.size_bytes, slab.live_bytes) = (1, u64::MAX);
    }
    stats.refusals = u64::MAX;
    for budget_bytes in [None, Some(0), Some(1), Some(u64::MAX)] {
        stats.budget_bytes = budget_bytes;
        let times = [0.0, 1e300, -1.0].map(|time_s| (time_s, &stats));
        let drawn = frames(&mut MemoryPanel::new(), [300.0, 600.0], times);
        assert!(drawn.has("requests were refused"));
        for rect in &drawn.rects {
            assert!(
                rect.width() <= 301.0 && rect.right() <= 301.0,
                "{rect:?} is not in the panel"
            );
        }
    }
}

#[test]
fn names_of_any_kind_are_one_line_of_text() {
    let names = [
        "two\nlines\r\n",
        "\u{1b}[31mred",
        &"long".repeat(100_000),
        "記憶装置",
        "\u{202e}backwards",
        "",
        "<b>{}%s\0",
    ];
    let gpu = open(64 * MIB);
    let _kept: Vec<Buffer> = names.iter().map(|name| held(&gpu, MIB, name)).collect();
    let mut stats = gpu.memory().stats();
    stats.adapter = names.concat();
    let panel = MemoryPanel::new().with_holders(usize::MAX);
    let drawn = frames(&mut panel.clone(), [400.0, 600.0], [(0.0, &stats)]);
    assert!(drawn.has("two?lines") && drawn.has("記憶装置"));
    for text in &drawn.texts {
        assert!(text.len() < 600, "{} bytes of text", text.len());
        assert!(
            !text.contains(|c: char| c.is_control() || c == '\u{202e}'),
            "{text:?}"
        );
    }
}

#[test]
fn a_thousand_slabs_and_holders_are_drawn_in_part() {
    let gpu = open(24 * MIB);
    let _kept = held(&gpu, MIB, "kept");
    let mut stats = gpu.memory().stats();
    let (slab, tag) = (stats.slabs[0].clone(), stats.tags[0].clone());
    stats.slabs = vec![slab; 1000];
    stats.tags = vec![tag; 1000];
    let shown = |holders| {
        let mut panel = MemoryPanel::new().with_holders(holders);
        frames(&mut panel, [400.0, 2000.0], [(0.0, &stats)])
    };
    let few = shown(3);
    assert!(few.has("and 976 more") && few.has("holders: 1000"));
    let named = |drawn: &Drawn| {
        let texts = drawn.texts.iter();
        texts.filter(|text| text.contains("`kept`")).count()
    };
    assert_eq!(named(&few), 3);
    assert!(!shown(0).has("holders"));
}

#[test]
fn windows_of_any_size_do_no_harm() {
    let gpu = open(24 * MIB);
    let _kept = held(&gpu, MIB, "kept");
    let stats = gpu.memory().stats();
    for size in [[0.0, 0.0], [1.0, 1.0], [7.0, 4000.0], [10_000.0, 10.0]] {
        let times = [0.0, 1.0].map(|time_s| (time_s, &stats));
        frames(&mut MemoryPanel::new(), size, times);
    }
}

#[test]
fn what_was_recorded_while_it_was_hidden_is_in_the_curves() {
    let gpu = open(24 * MIB);
    let kept = held(&gpu, 9 * MIB, "kept");
    let high = gpu.memory().stats();
    drop(kept);
    gpu.memory().trim(0).unwrap();
    let low = gpu.memory().stats();
    assert!(low.reserved_bytes.now < high.reserved_bytes.now);
    let most = format!(
        "at most {}",
        lapidary_core::units::Bytes(high.reserved_bytes.now)
    );
    let mut panel = MemoryPanel::new().with_window_s(10.0);
    panel.record(1.0, &high);
    let drawn = frames(&mut panel.clone(), [400.0, 600.0], [(2.0, &low)]);
    assert!(
        drawn.has("last 10 s") && drawn.has(&most),
        "{:?}",
        drawn.texts
    );
    let later = frames(&mut panel, [400.0, 600.0], [(60.0, &low)]);
    assert!(!later.has(&most));
}
