//! The terminal output: digits, the loss curve, the confusion matrix. At most 100 columns.

use crate::digits::{CLASSES, Digits, SIDE, WHITE};

/// Images side by side, each under a caption of at most 16 characters.
pub(crate) fn images(
    digits: &Digits,
    indices: &[usize],
    caption: impl Fn(usize) -> String,
) -> String {
    const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];
    let mut text = String::new();
    for &index in indices {
        text += &format!("  {:<16}", caption(index));
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    for y in 0..SIDE {
        let mut line = String::new();
        for &index in indices {
            line += "  ";
            for &pixel in &digits.image(index)[y * SIDE..][..SIDE] {
                let shade = usize::from(pixel) * (SHADES.len() - 1);
                let shade = SHADES[shade.div_ceil(WHITE.into())];
                // A character is about twice as high as wide.
                line.extend([shade, shade]);
            }
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// A bar of `count` marks, shortened to fit.
pub(crate) fn marks(count: usize) -> String {
    const COLUMNS: usize = 48;
    match count {
        0..=COLUMNS => "■".repeat(count),
        _ => "■".repeat(COLUMNS) + " …",
    }
}

/// The loss of every step, on a logarithmic scale from left to right.
pub(crate) fn curve(losses: &[f32]) -> String {
    const COLUMNS: usize = 88;
    const ROWS: usize = 12;
    const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let columns = COLUMNS.min(losses.len());
    // Each column is the mean of its steps.
    let mean = |column: usize| {
        let steps = column * losses.len() / columns..(column + 1) * losses.len() / columns;
        let count = steps.len() as f32;
        (losses[steps].iter().sum::<f32>() / count)
            .max(1e-9)
            .log10()
    };
    let heights: Vec<f32> = (0..columns).map(mean).collect();
    let top = heights.iter().copied().fold(f32::MIN, f32::max);
    let bottom = heights.iter().copied().fold(f32::MAX, f32::min) - 0.1;
    let rows_a_decade = ROWS as f32 / (top - bottom);

    let mut text = String::new();
    for row in (0..ROWS).rev() {
        let label = 10_f32.powf(bottom + (row as f32 + 1.0) / rows_a_decade);
        let mut line = format!("  {label:>7.4} ┤");
        for height in &heights {
            let eighths = 8.0 * ((height - bottom) * rows_a_decade - row as f32);
            line.push(EIGHTHS[eighths.round().clamp(0.0, 8.0) as usize]);
        }
        text += line.trim_end();
        text.push('\n');
    }
    text + &format!("{:>10}└{}\n", "", "─".repeat(columns))
}

/// How often each digit (row) was read as each (column).
pub(crate) fn confusion(truth: &[u32], read: &[u32]) -> String {
    let mut counts = [[0; CLASSES]; CLASSES];
    for (&truth, &read) in truth.iter().zip(read) {
        counts[truth as usize][read as usize] += 1;
    }
    let mut text = "     read as".to_string();
    for class in 0..CLASSES {
        text += &format!("{class:>5}");
    }
    text.push('\n');
    for (class, row) in counts.iter().enumerate() {
        text += &format!("  digit {class}   ");
        for &count in row {
            match count {
                0 => text += "    ·",
                count => text += &format!("{count:>5}"),
            }
        }
        text.push('\n');
    }
    text
}
