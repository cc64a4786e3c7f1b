//! The results of the cases on the machine that computed them, in few numbers. Each line has the
//! case's name, the number of values, the largest value, the sum of absolute values, and some of
//! the values.

/// The output of the program `expected`.
pub const TEXT: &str = include_str!("expected.txt");

/// Number of values that are kept per case.
const KEPT: usize = 48;

/// The line of a case.
pub fn line(name: &str, values: &[f32]) -> String {
    let kept: Vec<_> = places(values.len())
        .map(|at| values[at].to_string())
        .collect();
    format!(
        "{name}\t{}\t{}\t{}\t{}",
        values.len(),
        largest(values),
        sum(values),
        kept.join(" ")
    )
}

/// Compares a case's values with its line. Returns the difference, as a share of the largest value.
///
/// # Errors
/// A sentence, if they differ by more than `tolerance`, or cannot be compared.
pub fn compare(name: &str, values: &[f32], tolerance: f32) -> Result<f32, String> {
    let mut lines = TEXT
        .lines()
        .map(|line| line.split('\t').collect::<Vec<_>>());
    let Some(line) = lines.find(|line| line[0] == name) else {
        return Err("nobody has computed what to expect: run `expected`".into());
    };
    let [_, count, most, total, kept] = line[..] else {
        return Err("the line of what to expect is broken".into());
    };
    if count != values.len().to_string() {
        return Err(format!("{} values, not {count}", values.len()));
    }
    let kept: Vec<_> = kept.split_ascii_whitespace().collect();
    if kept.len() != places(values.len()).count() {
        return Err(format!("the line of what to expect keeps {}", kept.len()));
    }
    let most = most.parse::<f32>().map_err(|error| error.to_string())?;
    let total = total.parse::<f64>().map_err(|error| error.to_string())?;
    let apart = (sum(values) - total).abs();
    if apart.is_nan() || apart > f64::from(tolerance) * values.len() as f64 * f64::from(most) {
        return Err(format!("they add up to {}, not {total}", sum(values)));
    }
    let mut worst = (largest(values) - most).abs();
    for (at, wanted) in places(values.len()).zip(kept) {
        let wanted = wanted.parse::<f32>().map_err(|error| error.to_string())?;
        let apart = (values[at] - wanted).abs();
        if apart.is_nan() || apart > tolerance * most {
            return Err(format!("value {at} is {}, not {wanted}", values[at]));
        }
        worst = worst.max(apart);
    }
    match values.iter().all(|value| value.is_finite()) && worst <= tolerance * most {
        true => Ok(if most > 0.0 { worst / most } else { 0.0 }),
        false => Err(format!("the largest is {}, not {most}", largest(values))),
    }
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |most, value| most.max(value.abs()))
}

/// The sum of absolute values covers all of them, and differences cannot cancel out.
fn sum(values: &[f32]) -> f64 {
    values.iter().map(|value| f64::from(value.abs())).sum()
}

/// Indices spread over all values, the first and the last included.
fn places(len: usize) -> impl Iterator<Item = usize> {
    let count = len.min(KEPT);
    (0..count).map(move |i| {
        if count < 2 {
            0
        } else {
            i * (len - 1) / (count - 1)
        }
    })
}
