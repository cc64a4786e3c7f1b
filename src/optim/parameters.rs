//! The parameters of a model, by name.

use super::state::{load, name_of};
use crate::tensor::Tensor;
use lapidary_core::{Error, Result, internal::printable};

/// Parameters by name, in the order in which they were added: for optimizers, files and counts.
///
/// ```no_run
/// # fn main() -> lapidary::Result<()> {
/// use lapidary::optim::{AdamW, AdamWOptions, Parameters};
/// use lapidary::{DType, Gpu};
///
/// let gpu = Gpu::open(Default::default())?;
/// let mut parameters = Parameters::default();
/// let w = parameters.add("layer.w", gpu.rand_normal(&[784, 10], 0.0, 0.05, 7, DType::F32)?)?;
/// let b = parameters.add("layer.b", gpu.zeros(&[10], DType::F32)?)?;
/// println!("{} elements, {} bytes", parameters.elements(), parameters.size_bytes());
/// let adam = AdamW::new(&parameters.tensors(), AdamWOptions::default())?;
/// # let _ = (w, b, adam);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    named: Vec<(String, Tensor)>,
}

impl Parameters {
    /// Adds a parameter and returns it, for the model to compute with. It is marked by
    /// [`requires_grad`](Tensor::requires_grad), and gets the name for reports and errors, too.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] if there is a parameter of this name. Those of
    /// [`requires_grad`](Tensor::requires_grad).
    #[track_caller]
    pub fn add(&mut self, name: &str, tensor: Tensor) -> Result<Tensor> {
        if self.get(name).is_some() {
            return Err(Error::Option {
                option: "name",
                reason: format!("there is a parameter {} already", printable(name, 60)),
            });
        }
        let parameter = tensor.requires_grad()?.named(name);
        self.named.push((name.to_owned(), parameter.clone()));
        Ok(parameter)
    }

    /// The parameter of this name, if there is one. It looks at one after the other.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        let found = self.named.iter().find(|(known, _)| known == name);
        found.map(|(_, parameter)| parameter)
    }

    /// The names with their parameters.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        (self.named.iter()).map(|(name, parameter)| (name.as_str(), parameter))
    }

    /// The parameters, for an optimizer or [`Replicas`](crate::devices::Replicas).
    pub fn tensors(&self) -> Vec<&Tensor> {
        self.named.iter().map(|(_, parameter)| parameter).collect()
    }

    /// Number of parameters.
    pub fn len(&self) -> usize {
        self.named.len()
    }

    /// Whether there are no parameters.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// Number of elements of all parameters.
    pub fn elements(&self) -> usize {
        self.named
            .iter()
            .map(|(_, parameter)| parameter.len())
            .sum()
    }

    /// Bytes of all parameters.
    pub fn size_bytes(&self) -> u64 {
        let sizes = self
            .named
            .iter()
            .map(|(_, parameter)| parameter.size_bytes());
        sizes.sum()
    }

    /// The parameters as named tensors, for files: the prefix, a dot, and the name. An empty prefix
    /// gives plain names. The tensors are the parameters themselves, without their history.
    pub fn state(&self, prefix: &str) -> Vec<(String, Tensor)> {
        let named = self.iter();
        named
            .map(|(name, parameter)| (name_of(prefix, name), parameter.detach()))
            .collect()
    }

    /// Writes the elements of a state that [`state`](Self::state) gave into the parameters. `get`
    /// returns the tensor of a name, which begins with the prefix.
    ///
    /// # Errors
    ///
    /// Those of `get`. [`Error::Shape`] and [`Error::DType`] for a tensor that does not fit, and
    /// [`Error::Foreign`] for one of another `Gpu`. The parameters have not changed then.
    #[track_caller]
    pub fn load_state(&self, prefix: &str, get: impl FnMut(&str) -> Result<Tensor>) -> Result<()> {
        load(&self.state(prefix), get)
    }
}
