//! The picture of slabs keeps its size and is printable, for any snapshot and any names.

use lapidary::sim::SimOptions;
use lapidary::{DType, stats::Snapshot};

#[test]
fn a_picture_stays_in_its_frame() {
    for name in [
        "two\nlines\r\n",
        "\u{1b}[31mred",
        &"long".repeat(1000),
        "記憶装置",
        "\u{202e}x",
    ] {
        let (gpu, _) = super::open_alone(SimOptions {
            max_buffer_bytes: 64 << 10,
            ..super::options()
        });
        let held: Vec<_> = (0..300)
            .map(|i| {
                let x = gpu.zeros(&[(64 << 10) - 16 * i], DType::U8).unwrap();
                x.named(&format!("{name}{}", i % 40))
            })
            .collect();
        gpu.finish().unwrap();
        let mut snapshot = gpu.memory().snapshot();
        drop(held);
        fits(&snapshot);
        snapshot.slabs.truncate(3);
        fits(&snapshot);
        // The fields are public and may hold any values.
        for size_bytes in [0, 1, u64::MAX] {
            snapshot.granule_bytes = size_bytes;
            snapshot.slabs[0].size_bytes = size_bytes;
            snapshot.slabs[1].blocks[0].offset_bytes = size_bytes;
            snapshot.slabs[2].blocks[0].granted_bytes = size_bytes;
            snapshot.slabs[2].blocks[0].size_bytes = size_bytes;
            snapshot.slabs[2].blocks[0].tag = u32::MAX;
            fits(&snapshot);
        }
        snapshot.slabs.clear();
        fits(&snapshot);
    }
}

fn fits(snapshot: &Snapshot) {
    for (columns, lines) in [(100, 40), (60, 16), (250, 100)] {
        let picture = snapshot.map().columns(columns).lines(lines).to_string();
        assert!(picture.lines().count() <= lines, "{picture}");
        for line in picture.lines() {
            let wide = line.chars().filter(|&c| c > '\u{2fff}').count();
            assert!(line.chars().count() + wide <= columns, "{picture}");
            assert!(
                !line.contains(|c: char| c.is_control() || c == '\u{202e}'),
                "{line:?}"
            );
        }
    }
    let narrow = snapshot.map().columns(0).lines(0).to_string();
    assert!(narrow.lines().count() <= 16, "{narrow}");
}
