//! Sums of products in Einstein's notation. Every equation becomes views, sums, and one batched
//! matmul for each pair of operands.
//!
//! A *label* stands for a dimension. It is a letter, or one of the dimensions of an ellipsis, which
//! are numbered from the last.

mod equation;

use smallvec::SmallVec;

use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::{Dims, Layout, Strides};
use equation::{Equation, Label};
use lapidary_core::internal::MadeFor;
use lapidary_core::{Error, Result};

const OPERATION: &str = "einsum";

type Labels = SmallVec<[Label; 8]>;

impl Tensor {
    /// The sum of products of an equation, as in PyTorch. Each letter names a dimension of the
    /// operands. The letters after `->` are the result's dimensions, and all others are summed
    /// over. Without `->`, the result has the letters that occur once, in alphabetical order.
    ///
    /// `...` stands for all dimensions without a letter, which broadcast. A letter that occurs
    /// twice in one operand takes its diagonal. Dimensions of 1 broadcast. Operands are multiplied
    /// in pairs from the left: by [`matmul`](Tensor::matmul), or by `*` if nothing is summed over.
    /// Dimensions that only one operand has are summed first. An equation that only exchanges
    /// dimensions or takes a diagonal gives a view.
    ///
    /// ```no_run
    /// use lapidary::{Gpu, Options, Tensor};
    ///
    /// let gpu = Gpu::open(Options::default())?;
    /// let a = gpu.tensor(&[1.0_f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// assert_eq!(Tensor::einsum("ii->", &[&a])?.item::<f32>()?, 5.0);
    /// let scores = Tensor::einsum("bhqd,bhkd->bhqk", &[
    ///     &gpu.ones(&[2, 4, 8, 16], lapidary::DType::F32)?,
    ///     &gpu.ones(&[2, 4, 9, 16], lapidary::DType::F32)?,
    /// ])?;
    /// assert_eq!(scores.shape(), [2, 4, 8, 9]);
    /// # Ok::<(), lapidary::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] for an equation that is invalid or does not match the operands, with a
    /// caret below the position. [`Error::DType`] for operands of several types, or of a type that
    /// cannot be multiplied. [`Error::Foreign`] for operands of several `Gpu`s.
    #[track_caller]
    pub fn einsum(equation: &str, operands: &[&Tensor]) -> Result<Tensor> {
        let _method = MadeFor::method("einsum");
        let equation = Equation::parse(equation, operands.len()).located()?;
        let mut terms: Vec<Labelled> = Vec::with_capacity(operands.len());
        let mut sizes = vec![];
        for (which, operand) in operands.iter().enumerate() {
            operands[0].same_engine(OPERATION, operand)?;
            super::operation::same_dtype(OPERATION, operands[0].dtype, operand.dtype)?;
            terms.push(Labelled::new(&equation, which, operand, &mut sizes).located()?);
        }
        let output = equation.output(&terms_of(&terms)).located()?;
        let mut rest = terms.into_iter();
        let Some(mut made) = rest.next() else {
            return Err(equation.refuse(0, "there are no operands"));
        };
        while let Some(next) = rest.next() {
            let is_later = |label: &Label| {
                output.contains(label) || rest.as_slice().iter().any(|term| term.has(*label))
            };
            made = product(made, next, is_later)?;
        }
        made.summed(|label| output.contains(label))?
            .ordered(&output)
    }
}

fn terms_of(terms: &[Labelled]) -> Vec<&[Label]> {
    terms.iter().map(|term| &term.labels[..]).collect()
}

/// A tensor with a different label for each dimension.
struct Labelled {
    tensor: Tensor,
    labels: Labels,
}

impl Labelled {
    /// Labels an operand: takes diagonals, and compares the sizes with those of earlier operands.
    #[track_caller]
    fn new(
        equation: &Equation<'_>,
        which: usize,
        operand: &Tensor,
        sizes: &mut Vec<(Label, usize)>,
    ) -> Result<Self> {
        let named = equation.labels(which, operand.rank())?;
        let own = &operand.layout;
        let (mut shape, mut strides) = (Dims::new(), Strides::new());
        let mut labels = Labels::new();
        for (axis, &(label, at)) in named.iter().enumerate() {
            let (dim, stride) = (own.shape[axis], own.strides[axis]);
            match labels.iter().position(|&known| known == label) {
                None => {
                    labels.push(label);
                    shape.push(dim);
                    strides.push(stride);
                }
                Some(first) if shape[first] == dim => {
                    strides[first] = strides[first].wrapping_add(stride);
                }
                Some(first) => {
                    let why = format!(
                        "it names dimensions of {} and of {dim} of one operand",
                        shape[first]
                    );
                    return Err(equation.refuse(at, &why));
                }
            }
            match sizes.iter_mut().find(|(known, _)| *known == label) {
                None => sizes.push((label, dim)),
                Some((_, size)) if *size == 1 => *size = dim,
                Some((_, size)) if *size == dim || dim == 1 => {}
                Some((_, size)) => {
                    let why = format!("it is {size} in an operand before and {dim} in this one");
                    return Err(equation.refuse(at, &why));
                }
            }
        }
        let layout = Layout {
            shape,
            strides,
            offset: own.offset,
        };
        Ok(Labelled {
            tensor: operand.view(layout),
            labels,
        })
    }

    fn has(&self, label: Label) -> bool {
        self.labels.contains(&label)
    }

    /// The size of a label; 1 if the tensor lacks it.
    fn size(&self, label: Label) -> usize {
        let at = self.labels.iter().position(|&known| known == label);
        at.map_or(1, |axis| self.tensor.layout.shape[axis])
    }

    /// Sums over the dimensions that do not stay.
    #[track_caller]
    fn summed(self, stays: impl Fn(&Label) -> bool) -> Result<Self> {
        let axes: SmallVec<[isize; 8]> = (self.labels.iter().enumerate())
            .filter(|(_, label)| !stays(label))
            .map(|(axis, _)| axis as isize)
            .collect();
        if axes.is_empty() {
            return Ok(self);
        }
        Ok(Labelled {
            tensor: self.tensor.sum(&axes)?,
            labels: self.labels.into_iter().filter(stays).collect(),
        })
    }

    /// The dimensions in another order. A missing label becomes a dimension of 1.
    #[track_caller]
    fn ordered(&self, labels: &[Label]) -> Result<Tensor> {
        let own = &self.tensor.layout;
        let mut layout = Layout {
            offset: own.offset,
            ..Layout::contiguous(&[])
        };
        for label in labels {
            let at = self.labels.iter().position(|known| known == label);
            layout.shape.push(at.map_or(1, |axis| own.shape[axis]));
            layout.strides.push(at.map_or(0, |axis| own.strides[axis]));
        }
        match labels.len() > crate::tensor::layout::MAX_RANK {
            true => Err(Error::Shape {
                operation: OPERATION,
                reason: format!("a step has {} dimensions, at most 8", labels.len()),
            })
            .located(),
            false => Ok(self.tensor.view(layout)),
        }
    }
}

/// The product of two operands, summed over labels that are not needed later.
#[track_caller]
fn product(a: Labelled, b: Labelled, is_later: impl Fn(&Label) -> bool) -> Result<Labelled> {
    let a = a.summed(|label| is_later(label) || b.has(*label))?;
    let b = b.summed(|label| is_later(label) || a.has(*label))?;
    let meets = |label: &Label| a.has(*label) && b.has(*label);
    let of = |labels: &[Label], wanted: &dyn Fn(&Label) -> bool| -> Labels {
        labels
            .iter()
            .copied()
            .filter(|label| wanted(label))
            .collect()
    };
    let batch = of(&a.labels, &|label| meets(label) && is_later(label));
    let inner = of(&a.labels, &|label| meets(label) && !is_later(label));
    let left = of(&a.labels, &|label| !b.has(*label));
    let right = of(&b.labels, &|label| !a.has(*label));
    let labels: Labels = [&batch[..], &left, &right].concat().into();
    if inner.is_empty() {
        let tensor = a.ordered(&labels)?.mul(&b.ordered(&labels)?)?;
        return Ok(Labelled { tensor, labels });
    }
    let sizes = |of: &[Label]| -> Dims {
        let size = |label: &Label| match a.size(*label) {
            1 => b.size(*label),
            size => size,
        };
        of.iter().map(size).collect()
    };
    // An operand with all its dimensions, and its shape as matrices.
    let matrix = |x: &Labelled, rows: &[Label], columns: &[Label]| -> Result<(Tensor, Dims)> {
        let order = [&batch[..], rows, columns].concat();
        let own = x.ordered(&order)?;
        let mut shape: Dims = own.layout.shape[..batch.len()].into();
        shape.extend(sizes(rows).into_iter().chain(sizes(columns)));
        let whole = own.broadcast_to(&shape)?;
        shape.truncate(batch.len());
        shape.push(sizes(rows).iter().product());
        shape.push(sizes(columns).iter().product());
        Ok((whole, shape))
    };
    let (first, second) = (matrix(&a, &left, &inner)?, matrix(&b, &inner, &right)?);
    // Outside of the closure, so that copies get the caller's location.
    let (first, second) = (first.0.reshape(&first.1)?, second.0.reshape(&second.1)?);
    let made = first.matmul(&second)?;
    let mut shape = sizes(&batch);
    shape.extend(sizes(&left).into_iter().chain(sizes(&right)));
    Ok(Labelled {
        tensor: made.reshape(&shape)?,
        labels,
    })
}
