//! The command line arguments.

use std::path::PathBuf;
use std::time::Duration;

use lapidary::Budget;

pub(crate) const HELP: &str = "\
Usage: fluid [OPTIONS]

  --size WxH       cells of the fluid (384x240)
  --keep N         frames that are kept to look back at (96)
  --budget BYTES   what the fluid may take on the device, to begin with (256MiB)
  --png FILE       no window: move the budget while frames are drawn, check the result, save the last frame
  --frames N       end after N frames (without a window 240, else never)
  --seconds N      end after N seconds
  --lose FRAME     lose the device at that frame, and go on with another one
  --help           this page

The adapter is the one that the environment variable WGPU_ADAPTER_NAME names, or the best.
";

/// The smallest and the largest number of cells along a side.
const SIDES: std::ops::RangeInclusive<usize> = 16..=4096;

#[derive(Clone, Debug)]
pub(crate) struct Args {
    pub(crate) size: [usize; 2],
    pub(crate) keep: usize,
    pub(crate) budget_bytes: u64,
    pub(crate) png: Option<PathBuf>,
    pub(crate) frames: Option<u64>,
    pub(crate) time: Option<Duration>,
    pub(crate) lose: Option<u64>,
}

/// Reads the arguments; `None` when the user asks for help.
pub(crate) fn read(mut words: impl Iterator<Item = String>) -> Result<Option<Args>, String> {
    let mut args = Args {
        size: [384, 240],
        keep: 96,
        budget_bytes: 256 << 20,
        png: None,
        frames: None,
        time: None,
        lose: None,
    };
    while let Some(word) = words.next() {
        if matches!(word.as_str(), "-h" | "--help") {
            return Ok(None);
        }
        let Some(value) = words.next() else {
            return Err(format!("`{word}` is not an option, or needs a value"));
        };
        match word.as_str() {
            "--size" => args.size = size(&value)?,
            "--keep" => args.keep = number(&word, &value)?,
            "--budget" => args.budget_bytes = bytes(&value)?,
            "--png" => args.png = Some(value.into()),
            "--frames" => args.frames = Some(number(&word, &value)?),
            "--seconds" => args.time = Some(Duration::from_secs(number(&word, &value)?)),
            "--lose" => args.lose = Some(number(&word, &value)?),
            _ => return Err(format!("there is no option `{word}`")),
        }
    }
    Ok(Some(args))
}

fn number<T: std::str::FromStr>(option: &str, value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|_| format!("`{option}` takes a number, not `{value}`"))
}

fn size(value: &str) -> Result<[usize; 2], String> {
    let sides = value.split_once('x');
    let sides = sides.and_then(|(w, h)| Some([w.parse().ok()?, h.parse().ok()?]));
    match sides {
        Some(sides) if sides.iter().all(|side| SIDES.contains(side)) => Ok(sides),
        _ => Err(format!(
            "`--size` takes cells across and down, such as 384x240, of {} to {} each, not `{value}`",
            SIDES.start(),
            SIDES.end()
        )),
    }
}

fn bytes(value: &str) -> Result<u64, String> {
    let budget: Result<Budget, _> = value.parse();
    match budget.map(|budget| budget.device_bytes) {
        Ok(Some(bytes)) if bytes > 0 => Ok(bytes),
        _ => Err(format!(
            "`--budget` takes bytes, such as 64MiB, not `{value}`"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &str) -> Result<Option<Args>, String> {
        read(words.split_whitespace().map(String::from))
    }

    #[test]
    fn what_is_said_is_heard() {
        let args = said("--size 64x32 --budget 8MiB --frames 9").expect("good words");
        let args = args.expect("nobody asked for help");
        assert_eq!(args.size, [64, 32]);
        assert_eq!((args.budget_bytes, args.frames), (8 << 20, Some(9)));
        assert!(said("--help").expect("good words").is_none());
    }

    #[test]
    fn what_cannot_be_is_a_sentence() {
        for words in [
            "--size",
            "--size 64",
            "--size 0x9",
            "--size 64x100000",
            "--budget much",
            "--budget 0",
            "--budget host=9",
            "--frames -1",
            "--colour red",
        ] {
            assert!(said(words).is_err(), "{words}");
        }
    }
}
