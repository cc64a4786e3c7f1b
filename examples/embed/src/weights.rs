//! The tensors of a model by their names, each checked before it is used.

use std::collections::HashMap;

use lapidary::{DType, Gpu, Tensor};

use crate::error::{Error, Result};

const NAME: &str = "model.safetensors";

/// Tensors by name, of which an encoder takes what it needs.
#[derive(Debug, Default)]
pub struct Weights {
    tensors: HashMap<String, Tensor>,
}

impl FromIterator<(String, Tensor)> for Weights {
    fn from_iter<I: IntoIterator<Item = (String, Tensor)>>(tensors: I) -> Self {
        Weights {
            tensors: tensors.into_iter().collect(),
        }
    }
}

impl Weights {
    /// Takes a tensor, which must be of this shape and of f32.
    pub(crate) fn take(&mut self, name: &str, shape: &[usize]) -> Result<Tensor> {
        let Some(tensor) = self.tensors.remove(name) else {
            return Err(Error::file(
                NAME,
                format!(
                    "there is no tensor {name:?}, of {shape:?}. config.json and the weights are of two models, or the file is not whole: get the model again"
                ),
            ));
        };
        check(name, tensor.shape(), tensor.dtype(), shape)?;
        Ok(tensor)
    }

    /// Takes the table of words.
    pub(crate) fn take_table(&mut self, name: &str, shape: [usize; 2]) -> Result<Table> {
        Ok(Table::new(vec![(0, self.take(name, &shape)?)]))
    }
}

fn check(name: &str, got: &[usize], dtype: DType, expected: &[usize]) -> Result<()> {
    if got != expected {
        return Err(Error::file(
            NAME,
            format!(
                "{name:?} is of shape {got:?}, where config.json wants {expected:?}. They are of two models: take both from one folder"
            ),
        ));
    }
    if dtype != DType::F32 {
        return Err(Error::file(
            NAME,
            format!(
                "{name:?} holds {dtype}, and this encoder computes with f32: take the file with f32"
            ),
        ));
    }
    Ok(())
}

/// The table of words: by far the largest tensor, of which a batch reads a few rows. Where it is too large
/// for the budget it is several tensors, each with some of the rows.
#[derive(Debug)]
pub(crate) struct Table {
    /// With the number of the first row.
    parts: Vec<(u32, Tensor)>,
}

impl Table {
    pub(crate) fn new(parts: Vec<(u32, Tensor)>) -> Table {
        Table { parts }
    }

    /// The rows that `ids` name: `[ids, width]`.
    pub(crate) fn rows(&self, gpu: &Gpu, ids: &[u32]) -> Result<Tensor> {
        let mut sum: Option<Tensor> = None;
        for (first, part) in &self.parts {
            // What is not in this part is beyond its end, and gives zeros.
            let local: Vec<u32> = ids.iter().map(|id| id.wrapping_sub(*first)).collect();
            let rows = part.shape()[0];
            if !local.iter().any(|&row| (row as usize) < rows) {
                continue;
            }
            let found = part.embedding(&gpu.tensor(&local, &[ids.len()])?)?;
            sum = Some(match sum {
                Some(sum) => sum.add(&found)?,
                None => found,
            });
        }
        sum.ok_or_else(|| Error::Input("there are no tokens to look up".into()))
    }
}
