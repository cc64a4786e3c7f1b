//! Matrices of a model as weights, in the form that the file has for them. The host quantizes the
//! floats whenever it reads them from the file, so that the device never gets floats.

use super::{Made, ModelFile, WeightForm, back_new, find};
use crate::file_formats::BlockFormat;
use crate::gpu::Gpu;
use crate::ops::quantizing::{checked_group, scale_of, value_of};
use crate::ops::{Quantized, Weight};
use crate::tensor::Tensor;
use lapidary_core::internal::printable;
use lapidary_core::{DType, Error, Result};

/// Does what [`load_quantized_backed`](crate::files::Files::load_quantized_backed) says.
#[track_caller]
pub(super) fn load_quantized(
    gpu: &Gpu,
    file: &ModelFile,
    name: &str,
    group: Option<u64>,
) -> Result<Quantized> {
    let operation = "load_quantized_backed";
    let part = Part::scaled(operation, file, name, group)?;
    quantized(&Part::load(operation, gpu, &[name], &[part])?)
}

/// Does what [`load_joined_weight_backed`](crate::files::Files::load_joined_weight_backed) says.
#[track_caller]
pub(super) fn load(
    operation: &'static str,
    gpu: &Gpu,
    file: &ModelFile,
    names: &[&str],
) -> Result<Weight> {
    let part = |name: &&str| Part::of(operation, file, name);
    let parts = names.iter().map(part).collect::<Result<Vec<_>>>()?;
    let Some(first) = parts.first() else {
        let reason = "no names of matrices".into();
        return Err(Error::Shape { operation, reason });
    };
    for (name, part) in names.iter().zip(&parts) {
        if (part.kind, part.k) != (first.kind, first.k) {
            return Err(Error::Shape {
                operation,
                reason: format!(
                    "{} has rows of {} elements, stored as {:?}, and {} rows of {}, stored as \
                     {:?}: load them apart",
                    printable(names[0], 100),
                    first.k,
                    first.kind,
                    printable(name, 100),
                    part.k,
                    part.kind
                ),
            });
        }
    }
    let tensors = Part::load(operation, gpu, names, &parts)?;
    match first.kind {
        Kind::Plain(_) => Weight::new(tensors[0].clone()),
        Kind::Blocks(format) => Weight::from_blocks(format, tensors[0].clone()),
        Kind::Scaled => Ok(quantized(&tensors)?.into()),
    }
}

fn quantized(tensors: &[Tensor]) -> Result<Quantized> {
    let (values, scales) = (tensors[0].clone(), tensors[1].clone());
    if values.is_empty() && !scales.is_empty() {
        // Each of the empty rows has a scale.
        scales.clear_storage()?;
    }
    Ok(Quantized { values, scales })
}

/// How a weight is stored on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain(DType),
    Blocks(BlockFormat),
    Scaled,
}

/// A matrix of a file, as a part of a weight.
struct Part {
    n: usize,
    k: usize,
    kind: Kind,
    tensors: Vec<PartOfTensor>,
}

/// Some rows of a tensor of a weight, and where their bytes come from.
struct PartOfTensor {
    dtype: DType,
    /// Elements of a row, if the tensor has an axis for them.
    row: Option<usize>,
    bytes: Made,
}

impl PartOfTensor {
    fn row_bytes(&self) -> u64 {
        self.row.unwrap_or(1) as u64 * self.dtype.size_bytes()
    }
}

impl Part {
    /// A matrix in the form that the file has for weights.
    fn of(operation: &'static str, file: &ModelFile, name: &str) -> Result<Part> {
        match file.weights {
            WeightForm::Stored => Part::stored(operation, file, name),
            WeightForm::Float(dtype) => Part::stored(operation, &file.floats_as(dtype)?, name),
            WeightForm::Int8 { group } => Part::scaled(operation, file, name, group),
            WeightForm::Blocks(format) => Part::blocks(operation, file, name, format),
        }
    }

    fn stored(operation: &'static str, file: &ModelFile, name: &str) -> Result<Part> {
        let index = find(file.directory(), name)?;
        let entry = &file.directory().entries()[index];
        let [n, k] = file.matrix_shape(operation, entry)?;
        let (kind, tensor) = match file.blocks_of(entry) {
            // The header's check has found whole blocks.
            Some(format) => (
                Kind::Blocks(format),
                PartOfTensor {
                    dtype: DType::U8,
                    row: Some(row_of(format, k)),
                    bytes: file.stored_bytes(index),
                },
            ),
            None => {
                let dtype = file.dtype(entry).ok_or_else(|| file.unsupported(entry))?;
                (
                    Kind::Plain(dtype),
                    PartOfTensor {
                        dtype,
                        row: Some(k),
                        bytes: file.elements(index, dtype),
                    },
                )
            }
        };
        let tensors = vec![tensor];
        Ok(Part {
            n,
            k,
            kind,
            tensors,
        })
    }

    fn scaled(
        operation: &'static str,
        file: &ModelFile,
        name: &str,
        group: Option<u64>,
    ) -> Result<Part> {
        let (rows, [n, k]) = Rows::find(operation, file, name)?;
        let group_len = group.map(checked_group).transpose()?;
        let len = group_len.unwrap_or(k).max(1);
        let values = PartOfTensor {
            dtype: DType::I8,
            row: Some(k),
            bytes: rows.values(len),
        };
        let scales = PartOfTensor {
            dtype: DType::F32,
            row: group_len.map(|len| k.div_ceil(len)),
            bytes: rows.scales(len),
        };
        let tensors = vec![values, scales];
        Ok(Part {
            n,
            k,
            kind: Kind::Scaled,
            tensors,
        })
    }

    fn blocks(
        operation: &'static str,
        file: &ModelFile,
        name: &str,
        format: BlockFormat,
    ) -> Result<Part> {
        let (rows, [n, k]) = Rows::find(operation, file, name)?;
        if !k.is_multiple_of(format.block_len()) {
            return Err(Error::Shape {
                operation,
                reason: format!(
                    "rows of {k} elements are no whole blocks of {}: leave {} as it is stored, or \
                     take eight bits",
                    format.block_len(),
                    printable(name, 100)
                ),
            });
        }
        let row = row_of(format, k);
        let tensor = PartOfTensor {
            dtype: DType::U8,
            row: Some(row),
            bytes: rows.blocks(format, row as u64),
        };
        Ok(Part {
            n,
            k,
            kind: Kind::Blocks(format),
            tensors: vec![tensor],
        })
    }

    /// Makes the tensors of a weight whose rows are those of all parts, which are of one kind.
    #[track_caller]
    fn load(
        operation: &'static str,
        gpu: &Gpu,
        names: &[&str],
        parts: &[Part],
    ) -> Result<Vec<Tensor>> {
        let mut rows = parts.iter().map(|part| part.n);
        // Rows without elements may be any number.
        let n = rows.try_fold(0, usize::checked_add);
        let n = n.ok_or_else(|| Error::Shape {
            operation,
            reason: format!("{} matrices have too many rows together", parts.len()),
        })?;
        let name = match names {
            [one] => (*one).to_owned(),
            _ => format!("{} and {} more", names[0], names.len() - 1),
        };
        let mut tensors = Vec::new();
        for (number, first) in parts[0].tensors.iter().enumerate() {
            let shape = [n, first.row.unwrap_or(1)];
            let shape = &shape[..1 + usize::from(first.row.is_some())];
            let tensor = Tensor::output(gpu.engine(), shape, first.dtype)?.named(&name);
            let of_part = |part: &Part| {
                let rows = &part.tensors[number];
                (part.n as u64 * rows.row_bytes(), rows.bytes.clone())
            };
            if parts[0].k > 0 {
                back_new(&tensor, parts.iter().map(of_part).collect());
            }
            tensors.push(tensor);
        }
        Ok(tensors)
    }
}

/// Bytes of a row of so many elements.
fn row_of(format: BlockFormat, k: usize) -> usize {
    k / format.block_len() * format.block_bytes()
}

/// The rows of a matrix in a file, read as f32.
struct Rows {
    floats: Made,
    /// Elements of a row.
    len: usize,
    /// Bytes of a row in the file.
    stored_bytes: u64,
}

/// Reads floats of a matrix from an offset on.
type Read<'a> = dyn Fn(u64, &mut [u8]) -> Result<()> + 'a;

impl Rows {
    /// The rows and the shape of a matrix of floats.
    fn find(operation: &'static str, file: &ModelFile, name: &str) -> Result<(Rows, [usize; 2])> {
        let file = file.floats_as(DType::F32)?;
        let index = find(file.directory(), name)?;
        let entry = &file.directory().entries()[index];
        let shape = file.matrix_shape(operation, entry)?;
        match file.dtype(entry) {
            Some(DType::F32) => {}
            Some(got) => {
                return Err(Error::DType {
                    operation,
                    expected: "a float".into(),
                    got,
                    hint: "Integers are loaded as they are",
                    at: String::new(),
                });
            }
            None => return Err(file.unsupported(entry)),
        }
        let rows = Rows {
            floats: file.elements(index, DType::F32),
            len: shape[1],
            stored_bytes: entry.len_bytes / (shape[0].max(1) as u64),
        };
        Ok((rows, shape))
    }

    /// The values' bytes.
    fn values(&self, group_len: usize) -> Made {
        self.made(self.len as u64, move |row, made| {
            for group in row.chunks(group_len) {
                let scale = scale_of(group);
                made.extend(group.iter().map(|&v| value_of(v, scale) as u8));
            }
        })
    }

    /// The scales' bytes.
    fn scales(&self, group_len: usize) -> Made {
        let row_bytes = self.len.div_ceil(group_len) as u64 * DType::F32.size_bytes();
        self.made(row_bytes, move |row, made| {
            for group in row.chunks(group_len) {
                made.extend(scale_of(group).to_ne_bytes());
            }
        })
    }

    /// The bytes of blocks, `row_bytes` a row.
    fn blocks(&self, format: BlockFormat, row_bytes: u64) -> Made {
        self.made(row_bytes, move |row, made| {
            for block in row.chunks(format.block_len()) {
                format.encode(block, made);
            }
        })
    }

    /// Bytes of which `make` makes `row_bytes` for each row.
    fn made(
        &self,
        row_bytes: u64,
        make: impl Fn(&[f32], &mut Vec<u8>) + Send + Sync + 'static,
    ) -> Made {
        let (len, unit_bytes) = (self.len, [self.stored_bytes, row_bytes]);
        (self.floats).then(unit_bytes, move |read, offset_bytes, bytes| {
            fill(read, [len as u64, row_bytes], offset_bytes, bytes, &make)
        })
    }
}

/// Fills a slice with the bytes from an offset on. For each row of `len` elements, `make` makes
/// `row_bytes`.
fn fill(
    read: &Read<'_>,
    [len, row_bytes]: [u64; 2],
    offset_bytes: u64,
    bytes: &mut [u8],
    make: impl Fn(&[f32], &mut Vec<u8>),
) -> Result<()> {
    let (mut row, mut made) = (vec![0.0_f32; len as usize], Vec::new());
    let mut number = offset_bytes / row_bytes;
    let mut skipped = (offset_bytes % row_bytes) as usize;
    let mut rest = bytes;
    while !rest.is_empty() {
        let start_bytes = number * len * DType::F32.size_bytes();
        read(start_bytes, bytemuck::cast_slice_mut(&mut row))?;
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
