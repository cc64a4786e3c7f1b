//! The data: 1,797 handwritten digits of 8 × 8 pixels (see `examples/data/README.md`).

use std::error::Error;
use std::io::Read;

/// The file is embedded, so that the program runs from any folder.
const FILE: &[u8] = include_bytes!("../data/digits.csv.gz");

pub(crate) const SIDE: usize = 8;
pub(crate) const PIXELS: usize = SIDE * SIDE;
pub(crate) const CLASSES: usize = 10;
/// The brightest pixel.
pub(crate) const WHITE: u8 = 16;

/// Images and the digits that they show.
#[derive(Default)]
pub(crate) struct Digits {
    /// `PIXELS` for each image, 0 to [`WHITE`].
    pub(crate) pixels: Vec<u8>,
    pub(crate) labels: Vec<u32>,
}

impl Digits {
    pub(crate) fn load() -> Result<Digits, Box<dyn Error>> {
        let mut text = String::new();
        flate2::read::GzDecoder::new(FILE).read_to_string(&mut text)?;
        let mut digits = Digits::default();
        for line in text.lines() {
            let numbers: Vec<u8> = line.split(',').map(str::parse).collect::<Result<_, _>>()?;
            match numbers.split_last() {
                Some((&label, pixels)) if pixels.len() == PIXELS && label < CLASSES as u8 => {
                    digits.pixels.extend_from_slice(pixels);
                    digits.labels.push(label.into());
                }
                _ => return Err(format!("no image with its digit: {line}").into()),
            }
        }
        Ok(digits)
    }

    pub(crate) fn len(&self) -> usize {
        self.labels.len()
    }

    pub(crate) fn image(&self, index: usize) -> &[u8] {
        &self.pixels[index * PIXELS..][..PIXELS]
    }

    /// Shuffles them and splits off the first `held_out`: `(training, held out)`.
    pub(crate) fn split(&self, held_out: usize, random: &mut fastrand::Rng) -> (Digits, Digits) {
        let mut order: Vec<usize> = (0..self.len()).collect();
        random.shuffle(&mut order);
        let (test, train) = order.split_at(held_out);
        (self.pick(train), self.pick(test))
    }

    fn pick(&self, order: &[usize]) -> Digits {
        let mut picked = Digits::default();
        for &index in order {
            picked.pixels.extend_from_slice(self.image(index));
            picked.labels.push(self.labels[index]);
        }
        picked
    }
}
