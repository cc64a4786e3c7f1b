//! Batches by what each device manages.

use std::time::Duration;

use lapidary_core::{Error, Result};

/// `rows` in parts that are proportional to the speeds of devices, in whole rows. Any unit of
/// speed will do. A device of speed 0 gets no rows.
///
/// What is left after rounding down goes to the largest remainders, and to the first of equal ones
/// (Hamilton's method). So the same numbers always give the same parts.
///
/// ```
/// use lapidary::devices::rows_by_speed;
///
/// assert_eq!(rows_by_speed(10, &[2.0, 1.0, 1.0])?, [5, 3, 2]);
/// # Ok::<(), lapidary::Error>(())
/// ```
///
/// # Errors
/// [`Error::Option`] for no speeds, for one that is negative or not finite, or if all are 0.
pub fn rows_by_speed(rows: usize, speeds: &[f64]) -> Result<Vec<usize>> {
    let refuse = |reason: String| {
        Err(Error::Option {
            option: "speeds",
            reason,
        })
    };
    if let Some(speed) = speeds
        .iter()
        .find(|speed| !speed.is_finite() || **speed < 0.0)
    {
        return refuse(format!(
            "{speed} is no speed: it must be finite and at least 0"
        ));
    }
    let fastest = speeds.iter().copied().fold(0.0, f64::max);
    if fastest == 0.0 {
        return refuse(format!("none of the {} is above 0", speeds.len()));
    }
    // Relative to the fastest, so that the sum is finite.
    let total: f64 = speeds.iter().map(|speed| speed / fastest).sum();
    let exact = |speed: &f64| rows as f64 * (speed / fastest / total);
    let mut parts: Vec<usize> = speeds.iter().map(|speed| exact(speed) as usize).collect();
    let mut by_remainder: Vec<usize> = (0..speeds.len()).filter(|&at| speeds[at] > 0.0).collect();
    let remainder = |at: usize| exact(&speeds[at]) - exact(&speeds[at]).floor();
    by_remainder.sort_by(|&a, &b| remainder(b).total_cmp(&remainder(a)));
    let mut left = rows as i128 - parts.iter().map(|part| *part as i128).sum::<i128>();
    for &at in by_remainder.iter().cycle() {
        // Rounding of huge numbers may have given too much.
        let more = left.signum().max(-(parts[at] as i128));
        parts[at] = (parts[at] as i128 + more) as usize;
        left -= more;
        if left == 0 {
            break;
        }
    }
    Ok(parts)
}

/// The part of a new measurement in the mean.
const NEWS: f64 = 0.25;

/// Parts change only if the step gets shorter by more than this part.
const LEAST_GAIN: f64 = 0.05;

/// Parts of batches for devices whose speed is measured while they train.
///
/// ```no_run
/// # use lapidary::Tensor;
/// # use lapidary::devices::{Balance, Replicas, split_sizes};
/// # fn demo(replicas: &mut Replicas, batch: &Tensor) -> lapidary::Result<()> {
/// let mut balance = Balance::new(replicas.group().len());
/// loop {
///     let rows = balance.rows(batch.shape()[0])?;
///     let parts = split_sizes(batch, 0, replicas.group().gpus(), &rows)?;
///     let backward = replicas.backward(|own| parts[own.index()].sum_all())?;
///     balance.note(&rows, &backward.times)?;
///     // …
/// #   return Ok(());
/// }
/// # }
/// ```
///
/// The speeds are means over the last measurements. New parts replace the old ones only if they
/// make the step 5 % shorter. So a steady loop keeps its shapes, and with them its kernels.
#[derive(Clone, Debug)]
pub struct Balance {
    /// The time of a row on each device, in seconds. `None` until one was measured.
    row_s: Vec<Option<f64>>,
    parts: Vec<usize>,
}

impl Balance {
    /// For this many devices, which get equal parts until times are noted.
    pub fn new(devices: usize) -> Balance {
        Balance {
            row_s: vec![None; devices],
            parts: Vec::new(),
        }
    }

    /// Notes how long each device took for how many rows. A device without rows is left out.
    ///
    /// # Errors
    /// [`Error::Shape`] unless both lists have an entry for each device.
    pub fn note(&mut self, rows: &[usize], times: &[Duration]) -> Result<()> {
        let count = self.row_s.len();
        if rows.len() != count || times.len() != count {
            return Err(Error::Shape {
                operation: "Balance::note",
                reason: format!(
                    "{} numbers of rows and {} times for {count} devices",
                    rows.len(),
                    times.len()
                ),
            });
        }
        for ((row_s, rows), time) in self.row_s.iter_mut().zip(rows).zip(times) {
            if *rows > 0 && !time.is_zero() {
                let news = time.as_secs_f64() / *rows as f64;
                *row_s = Some(row_s.map_or(news, |mean| mean + NEWS * (news - mean)));
            }
        }
        Ok(())
    }

    /// The rows of each device for a batch of `rows`. Each gets at least one, if there are enough:
    /// a device without rows would never be measured again, though it was slow only once.
    ///
    /// # Errors
    /// [`Error::Option`] for no devices.
    pub fn rows(&mut self, rows: usize) -> Result<Vec<usize>> {
        let mut best = rows_by_speed(rows, &self.speeds())?;
        give_each_a_row(&mut best);
        let is_for_rows = self.parts.iter().sum::<usize>() == rows && !self.parts.is_empty();
        if !is_for_rows || self.step_s(&best) < (1.0 - LEAST_GAIN) * self.step_s(&self.parts) {
            self.parts = best;
        }
        Ok(self.parts.clone())
    }

    /// Rows a second. A device that was never measured is as fast as the mean of the others.
    fn speeds(&self) -> Vec<f64> {
        let known: Vec<f64> = self
            .row_s
            .iter()
            .flatten()
            .map(|row_s| 1.0 / row_s)
            .collect();
        let mean = match known.len() {
            0 => 1.0,
            count => known.iter().sum::<f64>() / count as f64,
        };
        let speed = |row_s: &Option<f64>| row_s.map_or(mean, |row_s| 1.0 / row_s);
        self.row_s.iter().map(speed).collect()
    }

    /// The predicted time of a step: that of the slowest device.
    fn step_s(&self, parts: &[usize]) -> f64 {
        let times = self.speeds().into_iter().zip(parts);
        times
            .map(|(speed, rows)| *rows as f64 / speed)
            .fold(0.0, f64::max)
    }
}

/// Gives each device without rows one of those of the device that has most, if there are enough.
fn give_each_a_row(parts: &mut [usize]) {
    if parts.iter().sum::<usize>() < parts.len() {
        return;
    }
    while let Some(without) = parts.iter().position(|rows| *rows == 0) {
        let most = (0..parts.len()).max_by_key(|&at| parts[at]);
        let most = most.expect("there is a device without rows");
        parts[most] -= 1;
        parts[without] = 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_follow_the_speeds_and_do_not_depend_on_the_unit() {
        for (rows, speeds, expected) in [
            (0, &[1.0, 2.0][..], &[0, 0][..]),
            (7, &[1.0], &[7]),
            (10, &[1.0, 1.0, 1.0], &[4, 3, 3]),
            (10, &[3e300, 1e300, 1e300], &[6, 2, 2]),
            (5, &[0.0, 1.0], &[0, 5]),
            (1, &[1.0, 1.0], &[1, 0]),
        ] {
            assert_eq!(rows_by_speed(rows, speeds).unwrap(), expected, "{speeds:?}");
        }
        let huge = rows_by_speed(usize::MAX, &[1.0, 1e-9, 0.3]).unwrap();
        assert_eq!(huge.iter().sum::<usize>(), usize::MAX);
        for speeds in [&[][..], &[0.0, 0.0], &[-1.0], &[f64::NAN], &[f64::INFINITY]] {
            assert!(matches!(
                rows_by_speed(8, speeds),
                Err(Error::Option { .. })
            ));
        }
    }

    #[test]
    fn a_slow_device_gets_fewer_rows_and_noise_changes_nothing() {
        let mut balance = Balance::new(2);
        let mut rows = balance.rows(64).unwrap();
        assert_eq!(rows, [32, 32]);
        let ms = |rows: usize, row_ms: u64| Duration::from_millis(rows as u64 * row_ms);
        balance.note(&rows, &[ms(32, 1), ms(32, 3)]).unwrap();
        rows = balance.rows(64).unwrap();
        assert_eq!(rows, [48, 16]);
        balance
            .note(&rows, &[Duration::from_millis(50), ms(16, 3)])
            .unwrap();
        assert_eq!(balance.rows(64).unwrap(), [48, 16]);
        // Another batch has other parts.
        assert_eq!(balance.rows(32).unwrap(), [24, 8]);
        assert!(balance.note(&[1], &[Duration::ZERO]).is_err());
        assert!(Balance::new(0).rows(8).is_err());
    }

    #[test]
    fn a_device_that_was_slow_once_is_measured_again() {
        let mut balance = Balance::new(2);
        let mut rows = balance.rows(8).unwrap();
        // The second device compiles its kernels.
        let times = [40, 2000].map(Duration::from_millis);
        balance.note(&rows, &times).unwrap();
        rows = balance.rows(8).unwrap();
        assert_eq!(rows, [7, 1]);
        for _ in 0..100 {
            let times = rows
                .iter()
                .map(|rows| Duration::from_millis(10 * *rows as u64));
            let times: Vec<Duration> = times.collect();
            balance.note(&rows, &times).unwrap();
            rows = balance.rows(8).unwrap();
        }
        assert_eq!(rows, [4, 4]);
        // A batch with fewer rows than devices leaves some out.
        assert_eq!(balance.rows(1).unwrap().iter().sum::<usize>(), 1);
        assert_eq!(balance.rows(2).unwrap(), [1, 1]);
    }
}
