//! Numbers of bytes. Bytes are plain `u64`: [`Bytes`] prints them, [`parse_bytes`] reads them, and
//! [`Level`] follows them over time. [`Nanoseconds`] prints times.

use std::fmt;

pub use lapidary_alloc::units::{Granules, Unit};

/// One kibibyte, in bytes.
pub const KIB: u64 = 1 << 10;
/// One mebibyte, in bytes.
pub const MIB: u64 = 1 << 20;
/// One gibibyte, in bytes.
pub const GIB: u64 = 1 << 30;

/// A quantity over time. The name of the variable says the unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Level {
    /// The present amount.
    pub now: u64,
    /// The largest amount since the last reset.
    pub peak: u64,
    /// The sum of all increases.
    pub up: u64,
    /// The sum of all decreases: `up - now`.
    pub down: u64,
}

impl Level {
    #[inline]
    pub(crate) fn raise(&mut self, by: u64) {
        self.up = self.up.wrapping_add(by);
        self.now = self.now.wrapping_add(by);
        self.peak = self.peak.max(self.now);
    }

    #[inline]
    pub(crate) fn lower(&mut self, by: u64) {
        debug_assert!(by <= self.now, "{by} of {} are gone", self.now);
        self.now = self.now.saturating_sub(by);
        self.down = self.down.wrapping_add(by);
    }

    /// Sets the present amount.
    pub(crate) fn set(&mut self, now: u64) {
        match now.checked_sub(self.now) {
            Some(more) => self.raise(more),
            None => self.lower(self.now - now),
        }
    }

    /// Sets the peak to the present amount.
    pub(crate) fn reset_peak(&mut self) {
        self.peak = self.now;
    }
}

/// Prints a number of bytes with a unit that people can read: `317 B`, `4.00 KiB`, `1.53 GiB`.
///
/// ```
/// use lapidary_core::units::Bytes;
/// assert_eq!(Bytes(4 << 20).to_string(), "4.00 MiB");
/// assert_eq!(Bytes(999).to_string(), "999 B");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < KIB {
            return f.pad(&format!("{} B", self.0));
        }
        let mut value = self.0 as f64 / KIB as f64;
        let mut unit = 0;
        while value >= 999.5 && unit + 1 < UNITS.len() {
            value /= KIB as f64;
            unit += 1;
        }
        f.pad(&format!("{value:.*} {}", decimals(value), UNITS[unit]))
    }
}

/// Prints a number of nanoseconds with a unit that people can read: `317 ns`, `4.00 ms`, `15.3 s`.
///
/// ```
/// use lapidary_core::units::Nanoseconds;
/// assert_eq!(Nanoseconds(1_234_000_000).to_string(), "1.23 s");
/// assert_eq!(Nanoseconds(999).to_string(), "999 ns");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanoseconds(pub u64);

impl fmt::Display for Nanoseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The names of units, their sizes, and how many of each are too many to print.
        const UNITS: [(&str, f64, f64); 4] = [
            ("µs", 1e3, 999.5),
            ("ms", 1e6, 999.5),
            ("s", 1e9, 9999.5),
            ("h", 3.6e12, f64::INFINITY),
        ];
        let ns = self.0 as f64;
        let fits = UNITS.iter().find(|(_, size, most)| ns / size < *most);
        let Some((unit, size, _)) = fits.filter(|_| self.0 >= 1000) else {
            return f.pad(&format!("{} ns", self.0));
        };
        let value = ns / size;
        f.pad(&format!("{value:.*} {unit}", decimals(value)))
    }
}

/// The decimals of a number of which three digits are printed.
fn decimals(value: f64) -> usize {
    match value {
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    }
}

/// Reads a number of bytes: `4096`, `512MiB`, `1.5 GiB` (powers of 1024, up to `EiB`), `2GB`,
/// `100k` (powers of 1000, up to `EB`). `None` if the text is no such number, or exceeds `u64`.
///
/// ```
/// use lapidary_core::units::{MIB, parse_bytes};
/// assert_eq!(parse_bytes("512MiB"), Some(512 * MIB));
/// assert_eq!(parse_bytes("1.5 kB"), Some(1500));
/// assert_eq!(parse_bytes("2 TiB"), Some(2 << 40));
/// assert_eq!(parse_bytes("many"), None);
/// ```
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let unit_bytes = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "t" | "tb" => 1_000_000_000_000,
        "p" | "pb" => 1_000_000_000_000_000,
        "e" | "eb" => 1_000_000_000_000_000_000,
        "kib" => KIB,
        "mib" => MIB,
        "gib" => GIB,
        "tib" => 1 << 40,
        "pib" => 1 << 50,
        "eib" => 1 << 60,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit_bytes);
    }
    let bytes = number.parse::<f64>().ok()? * unit_bytes as f64;
    (bytes < u64::MAX as f64).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well_at_every_magnitude() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (1536 * MIB, "1.50 GiB"),
            (1023 * MIB, "1.00 GiB"),
            (998 * MIB, "998 MiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn times_read_well_at_every_magnitude() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1000, "1.00 µs"),
            (999_499, "999 µs"),
            (999_500, "1.00 ms"),
            (61_300_000_000, "61.3 s"),
            (10_800_000_000_000, "3.00 h"),
            (u64::MAX, "5124096 h"),
        ] {
            assert_eq!(Nanoseconds(ns).to_string(), text);
        }
    }

    #[test]
    fn sizes_are_read_in_every_unit_in_which_they_are_printed() {
        for exponent in 0..64 {
            let bytes = 1 << exponent;
            assert_eq!(parse_bytes(&Bytes(bytes).to_string()), Some(bytes));
        }
        for (text, bytes) in [
            ("3tb", Some(3_000_000_000_000)),
            ("1.5PB", Some(1_500_000_000_000_000)),
            ("18EB", Some(18_000_000_000_000_000_000)),
            ("15EiB", Some(15 << 60)),
            ("16EiB", None),
            ("19EB", None),
            ("1e5", None),
        ] {
            assert_eq!(parse_bytes(text), bytes, "{text}");
        }
    }
}
