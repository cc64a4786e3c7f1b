//! A model's matrix in eight bits. The host quantizes the floats whenever it reads them from the
//! file, so that the device never gets floats.

use std::io;

use super::{ModelFile, back_new, find};
use crate::gpu::Gpu;
use crate::ops::Quantized;
use crate::ops::quantizing::{checked_group, scale_of, value_of};
use lapidary_core::{DType, Error, Result, Source};

/// Does what [`load_quantized_backed`](crate::files::Files::load_quantized_backed) says.
#[track_caller]
pub(super) fn load(
    gpu: &Gpu,
    file: &ModelFile,
    name: &str,
    group: Option<u64>,
) -> Result<Quantized> {
    const OPERATION: &str = "load_quantized_backed";
    let file = file.floats_as(DType::F32)?;
    let index = find(file.directory(), name)?;
    let entry = &file.directory().entries()[index];
    let [n, k] = file.matrix_shape(OPERATION, entry)?;
    match file.dtype(entry) {
        Some(DType::F32) => {}
        Some(got) => {
            return Err(Error::DType {
                operation: OPERATION,
                expected: "a float".into(),
                got,
                hint: "Integers are loaded as they are",
                at: String::new(),
            });
        }
        None => return Err(file.unsupported(entry)),
    }
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
            group_len: group_len.unwrap_or(k),
        };
        back_new(&quantized.values, rows.clone().values());
        back_new(&quantized.scales, rows.scales());
    } else if n > 0 {
        // Each of the empty rows has a scale.
        quantized.scales.clear_storage()?;
    }
    Ok(quantized)
}

/// The rows of a matrix in a file, read as f32.
#[derive(Clone)]
struct Rows {
    source: Source,
    len: usize,
    group_len: usize,
}

impl Rows {
    /// The source of the values' bytes.
    fn values(self) -> Source {
        let row_bytes = self.len as u64;
        Source::reader(move |offset_bytes, bytes| {
            self.fill(offset_bytes, bytes, row_bytes, |row, made| {
                for group in row.chunks(self.group_len) {
                    let scale = scale_of(group);
                    made.extend(group.iter().map(|&v| value_of(v, scale) as u8));
                }
            })
        })
    }

    /// The source of the scales' bytes.
    fn scales(self) -> Source {
        let row_bytes = self.len.div_ceil(self.group_len) as u64 * DType::F32.size_bytes();
        Source::reader(move |offset_bytes, bytes| {
            self.fill(offset_bytes, bytes, row_bytes, |row, made| {
                for group in row.chunks(self.group_len) {
                    made.extend(scale_of(group).to_ne_bytes());
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
