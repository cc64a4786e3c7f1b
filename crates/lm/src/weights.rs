//! Loading: each matrix in the form that its file is opened with, each norm and bias in f32.

use std::collections::HashSet;

use lapidary::files::ModelFile;
use lapidary::operations::{Epilogue, Weight};
use lapidary::{DType, Gpu, Tensor};

use crate::config::{Config, FACTORS, Family, LONG_FACTORS, Scaling};
use crate::error::Result;
use crate::names::{Names, Part};

/// Reads the tensors of a model, and checks their shapes.
#[derive(Debug)]
pub(crate) struct Loader<'a> {
    gpu: &'a Gpu,
    file: &'a ModelFile,
    config: &'a Config,
    names: Names,
    /// The names of all tensors: each layer asks for some that few models have.
    known: HashSet<&'a str>,
}

impl<'a> Loader<'a> {
    /// The file says in which form its matrices are loaded.
    pub(crate) fn new(gpu: &'a Gpu, file: &'a ModelFile, config: &'a Config) -> Loader<'a> {
        let names = Names::of(file, config.family.is_gemma());
        Loader {
            gpu,
            file,
            config,
            names,
            known: file.names().collect(),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.known.contains(name)
    }

    /// The rows of the tokens, whose number is the vocabulary's.
    pub(crate) fn embedding(&self) -> Result<Weight> {
        let name = self.names.embedding();
        let rows = self
            .file
            .describe(&name)?
            .shape
            .first()
            .copied()
            .unwrap_or_default();
        self.matrix(&name, [rows, self.config.hidden])
    }

    /// What makes logits, if the file has it or must.
    pub(crate) fn output(&self, vocabulary: usize) -> Result<Option<Weight>> {
        let mut names = self.names.output().into_iter();
        let required = names.clone().next().filter(|_| self.config.has_output);
        let name = names.find(|name| self.has(name)).or(required);
        let shape = [vocabulary, self.config.hidden];
        name.map(|name| self.matrix(&name, shape)).transpose()
    }

    pub(crate) fn last_norm(&self) -> Result<Norm> {
        self.norm(&self.names.last_norm(), self.config.hidden)
    }

    pub(crate) fn layer_norm(&self, layer: usize, part: Part, len: usize) -> Result<Norm> {
        self.norm(&format!("{}.weight", self.names.layer(layer, part)), len)
    }

    fn matrix(&self, name: &str, shape: [usize; 2]) -> Result<Weight> {
        self.file.expect(name, &shape)?;
        Ok(self.gpu.files().load_weight_backed(self.file, name)?)
    }

    fn norm(&self, name: &str, len: usize) -> Result<Norm> {
        Ok(Norm {
            weight: self.vector(name, len)?,
            eps: self.config.norm_eps,
            is_one_less: self.config.family.is_gemma() && !matches!(self.names, Names::Gguf),
        })
    }

    fn vector(&self, name: &str, len: usize) -> Result<Tensor> {
        self.file.expect(name, &[len])?;
        let file = self.file.floats_as(DType::F32)?;
        Ok(self.gpu.files().load_tensor_backed(&file, name)?)
    }

    /// Divisors of the frequencies that are a tensor of the file.
    pub(crate) async fn factors(&self) -> Result<Option<Vec<f32>>> {
        let is_long = matches!(
            self.config.rope.scaling,
            Scaling::Each { original, .. } if self.config.context > original
        );
        let long = is_long.then_some(LONG_FACTORS);
        let mut names = long.into_iter().chain(FACTORS);
        let Some(name) = names.find(|name| self.has(name)) else {
            return Ok(None);
        };
        self.file.expect(name, &[self.config.rope.rotated / 2])?;
        let file = self.file.floats_as(DType::F32)?;
        let factors = self.gpu.files().load_tensor_async(&file, name).await?;
        Ok(Some(factors.to_vec_async().await?))
    }

    /// Several matrices as one: `whole` if the file has them so, else `parts` with so many rows
    /// each, if they are stored in one form and have no bias.
    pub(crate) fn joined(
        &self,
        layer: usize,
        whole: Part,
        parts: &[(Part, usize)],
    ) -> Result<Option<Linear>> {
        let rows: usize = parts.iter().map(|(_, rows)| rows).sum();
        if self.config.family == Family::Phi3 {
            return Ok(Some(self.linear(
                layer,
                whole,
                [rows, self.config.hidden],
            )?));
        }
        let (mut names, mut forms) = (Vec::new(), Vec::new());
        for (part, rows) in parts {
            let name = self.names.layer(layer, *part);
            if self.has(&format!("{name}.bias")) {
                return Ok(None);
            }
            names.push(format!("{name}.weight"));
            let shape = [*rows, self.config.hidden];
            let described = self.file.expect(&names[names.len() - 1], &shape)?;
            forms.push(described.stored);
        }
        if forms.windows(2).any(|two| two[0] != two[1]) {
            return Ok(None);
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let weight = self
            .gpu
            .files()
            .load_joined_weight_backed(self.file, &names)?;
        Ok(Some(Linear { weight, bias: None }))
    }

    pub(crate) fn linear(&self, layer: usize, part: Part, shape: [usize; 2]) -> Result<Linear> {
        let name = format!("{}.weight", self.names.layer(layer, part));
        Ok(Linear {
            weight: self.matrix(&name, shape)?,
            bias: self.bias(layer, part, shape[0])?,
        })
    }

    fn bias(&self, layer: usize, part: Part, len: usize) -> Result<Option<Tensor>> {
        let name = format!("{}.bias", self.names.layer(layer, part));
        self.has(&name).then(|| self.vector(&name, len)).transpose()
    }
}

/// A norm of a model, by the mean square.
#[derive(Debug)]
pub(crate) struct Norm {
    weight: Tensor,
    eps: f32,
    /// Gemma's norms multiply by one more than the file says. llama.cpp adds it to the file.
    is_one_less: bool,
}

impl Norm {
    /// Norms of the rows of `x`.
    pub(crate) fn of(&self, x: &Tensor) -> Result<Tensor> {
        let shape = self.weight.shape();
        if self.is_one_less {
            return Ok(x
                .rms_norm(shape, None, self.eps)?
                .mul(&self.weight.add(1.0)?)?);
        }
        Ok(x.rms_norm(shape, Some(&self.weight), self.eps)?)
    }
}

/// A linear layer of a model.
#[derive(Debug)]
pub(crate) struct Linear {
    weight: Weight,
    bias: Option<Tensor>,
}

impl Linear {
    pub(crate) fn of(&self, x: &Tensor) -> Result<Tensor> {
        Ok(self.weight.linear(x, self.bias.as_ref())?)
    }

    pub(crate) fn with(&self, x: &Tensor, end: Epilogue) -> Result<Tensor> {
        let end = match &self.bias {
            Some(bias) => end.bias(bias),
            None => end,
        };
        Ok(self.weight.linear_with(x, &end)?)
    }
}
