//! Losses on a terminal.

/// The loss of every step from left to right, on a logarithmic scale. At most 100 columns.
pub fn curve(losses: &[f32]) -> String {
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
