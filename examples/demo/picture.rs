//! The terminal output: digits and the confusion matrix. At most 100 columns.

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
