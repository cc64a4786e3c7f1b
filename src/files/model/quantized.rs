//! A model's matrix in eight bits, or in blocks. The host quantizes the floats whenever it reads
//! them from the file, so that the device never gets floats.

use std::io;

use super::{ModelFile, back_new, find};
use crate::file_formats::BlockFormat;
use crate::gpu::Gpu;
use crate::ops::quantizing::{checked_group, scale_of, value_of};
use crate::ops::{Quantized, Weight};
use lapidary_core::internal::printable;
use lapidary_core::{DType, Error, Result, Source};

/// Does what [`load_quantized_backed`](crate::files::Files::load_quantized_backed) says.
#[track_caller]
pub(super) fn load(
    gpu: &Gpu,
    file: &ModelFile,
    name: &str,
    group: Option<u64>,
) -> Result<Quantized> {
    let Floats {
        file,
        index,
        shape: [n, k],
    } = Floats::find("load_quantized_backed", file, name)?;
    let entry = &file.directory().entries()[index];
    let group_len = group.map(checked_group).transpose()?;
    let of_row = group_len.map(|len| k.div_ceil(len));
    let tensor = |shape: &[usize], dtype| {
        let mut entry = entry.clone();
        entry.shape = shape.into();
        file.tensor_of(gpu, &entry, dtype)
    };
    let quantized = Quantized {
        values: tensor(&[n, k], DType::I8)?,
        scales: match of_row {
            Some(groups) => tensor(&[n, groups], DType::F32)?,
            None => tensor(&[n], DType::F32)?,
        },
    };
    if n > 0 && k > 0 {
        let rows = Rows {
            source: file.source(index, DType::F32, 0),
            len: k,
        };
        let group_len = group_len.unwrap_or(k);
        back_new(&quantized.values, rows.clone().values(group_len));
        back_new(&quantized.scales, rows.scales(group_len));
    } else if n > 0 {
        // Each of the empty rows has a scale.
        quantized.scales.clear_storage()?;
    }
    Ok(quantized)
}

/// A matrix in blocks, as [`WeightForm::Blocks`](crate::files::WeightForm::Blocks) says.
#[track_caller]
pub(super) fn load_blocks(
    gpu: &Gpu,
    file: &ModelFile,
    name: &str,
    format: BlockFormat,
) -> Result<Weight> {
    const OPERATION: &str = "load_weight_backed";
    let Floats {
        file,
        index,
        shape: [n, k],
    } = Floats::find(OPERATION, file, name)?;
    if !k.is_multiple_of(format.block_len()) {
        return Err(Error::Shape {
            operation: OPERATION,
            reason: format!(
                "rows of {k} elements are no whole blocks of {}: leave {} as it is stored, or take \
                 eight bits",
                format.block_len(),
                printable(name, 100)
            ),
        });
    }
    let mut entry = file.directory().entries()[index].clone();
    let row_bytes = k / format.block_len() * format.block_bytes();
    entry.shape = [n, row_bytes].into();
    let bytes = file.tensor_of(gpu, &entry, DType::U8)?;
    let rows = Rows {
        source: file.source(index, DType::F32, 0),
        len: k,
    };
    if k > 0 {
        back_new(&bytes, rows.blocks(format, row_bytes as u64));
    }
    Weight::from_blocks(format, bytes)
}

/// A matrix of floats in a file, which is read as f32.
struct Floats {
    file: ModelFile,
    index: usize,
    shape: [usize; 2],
}

impl Floats {
    fn find(operation: &'static str, file: &ModelFile, name: &str) -> Result<Floats> {
        let file = file.floats_as(DType::F32)?;
        let index = find(file.directory(), name)?;
        let entry = &file.directory().entries()[index];
        let shape = file.matrix_shape(operation, entry)?;
        match file.dtype(entry) {
            Some(DType::F32) => Ok(Floats { file, index, shape }),
            Some(got) => Err(Error::DType {
                operation,
                expected: "a float".into(),
                got,
                hint: "Integers are loaded as they are",
                at: String::new(),
            }),
            None => Err(file.unsupported(entry)),
        }
    }
}

/// The rows of a matrix in a file, read as f32.
#[derive(Clone)]
struct Rows {
    source: Source,
    len: usize,
}

impl Rows {
    /// The source of the values' bytes.
    fn values(self, group_len: usize) -> Source {
        let row_bytes = self.len as u64;
        Source::reader(move |offset_bytes, bytes| {
            self.fill(offset_bytes, bytes, row_bytes, |row, made| {
                for group in row.chunks(group_len) {
                    let scale = scale_of(group);
                    made.extend(group.iter().map(|&v| value_of(v, scale) as u8));
                }
            })
        })
    }

    /// The source of the scales' bytes.
    fn scales(self, group_len: usize) -> Source {
        let row_bytes = self.len.div_ceil(group_len) as u64 * DType::F32.size_bytes();
        Source::reader(move |offset_bytes, bytes| {
            self.fill(offset_bytes, bytes, row_bytes, |row, made| {
                for group in row.chunks(group_len) {
                    made.extend(scale_of(group).to_ne_bytes());
                }
            })
        })
    }

    /// The source of blocks, `row_bytes` a row.
    fn blocks(self, format: BlockFormat, row_bytes: u64) -> Source {
        Source::reader(move |offset_bytes, bytes| {
            self.fill(offset_bytes, bytes, row_bytes, |row, made| {
                for block in row.chunks(format.block_len()) {
                    format.encode(block, made);
                }
            })
        })
    }

    /// Fills a slice with the bytes from an offset on. `make` makes `row_bytes` for each row.
    fn fill(
        &self,
        offset_bytes: u64,
        bytes: &mut [u8],
        row_bytes: u64,
        make: impl Fn(&[f32], &mut Vec<u8>),
    ) -> io::Result<()> {
        let (mut row, mut made) = (vec![0.0_f32; self.len], Vec::new());
        let mut number = offset_bytes / row_bytes;
        let mut skipped = (offset_bytes % row_bytes) as usize;
        let mut rest = bytes;
        while !rest.is_empty() {
            let start_bytes = number * self.len as u64 * DType::F32.size_bytes();
            let into = bytemuck::cast_slice_mut(&mut row);
            self.source.read(start_bytes, into)?;
            made.clear();
            make(&row, &mut made);
            let count = rest.len().min(made.len() - skipped);
            let (filled, after) = rest.split_at_mut(count);
            filled.copy_from_slice(&made[skipped..skipped + count]);
            (rest, skipped) = (after, 0);
            number += 1;
        }
        Ok(())
    }
}
