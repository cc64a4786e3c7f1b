//! The gradients of writes and folds at indices.
//!
//! What was written or added gets the gradient of the place where it went. The old elements get
//! that of their place, unless they took no part in it.

use super::place;
use super::settle::{How, Settle};
use crate::ops::fill::{counting, full, zero_of};
use crate::ops::scalar::Scalar;
use crate::ops::scatter_into::InPlace;
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, Grads, Save, grads};
use crate::tensor::layout::Dims;
use lapidary_core::{DType, Result};

impl Tensor {
    /// Zeros of this shape, to which the slices of `self` are added at the indices. If `self` is
    /// the gradient of picked elements, this is that of what they were picked from. The indices
    /// have the shape of `self`, or are one line for all.
    #[track_caller]
    pub(in crate::ops) fn added_to_zeros(
        &self,
        shape: &[usize],
        at: usize,
        indices: &Tensor,
    ) -> Result<Tensor> {
        let zeros = full(&self.engine, shape, zero_of(self.dtype), self.dtype)?;
        if indices.layout.len() == 0 {
            return zeros.scatter_add(at as isize, indices, self);
        }
        let into = InPlace {
            x: &zeros,
            at,
            indices,
            src: self,
            settle: Settle::ADD,
        };
        let is_line = indices.rank() == 1;
        let is_same = |axis: usize| axis == at || indices.shape()[axis] == shape[axis];
        let covers = is_line || (0..shape.len()).all(is_same);
        if covers && !self.is_tracked() && into.suits() {
            into.run()?;
            return Ok(zeros);
        }
        match is_line {
            true => zeros.index_add(at as isize, indices, self),
            false => zeros.scatter_add(at as isize, indices, self),
        }
    }
}

/// [`place`], with its gradients.
#[cold]
#[track_caller]
pub(super) fn place_recorded(
    x: &Tensor,
    at: usize,
    indices: &Tensor,
    src: &Tensor,
    settle: Settle,
) -> Result<Tensor> {
    let y = place(&x.untracked(), at, indices, &src.untracked(), settle)?;
    let saves = [
        Save::Other(indices),
        Save::Operand(0),
        Save::Operand(1),
        Save::Result,
    ];
    let (name, saves) = match settle.how {
        How::Write => ("scatter", &saves[..1]),
        How::Sum => ("scatter_add", &saves[..1]),
        How::Mean => ("scatter_reduce", &saves[..1]),
        How::Product => ("scatter_reduce", &saves[..3]),
        How::Max | How::Min => ("scatter_reduce", &saves[..]),
    };
    let rule = move |b: &Backward| {
        let places = Places {
            at,
            indices: &b.saved[0],
            shape: b.grad.layout.shape.clone(),
        };
        match settle.how {
            How::Write => grads![b;
                places.others(&b.grad)?,
                places.taken(&b.grad)?.masked_fill(&places.are_last()?.logical_not()?, 0.0)?,
            ],
            How::Sum => grads![b; places.of_old(&b.grad, settle)?, places.taken(&b.grad)?],
            How::Mean => places.through_mean(b, settle),
            How::Product => places.through_product(b, settle),
            How::Max | How::Min => places.through_extreme(b, settle),
        }
    };
    Ok(y.recorded_as(name, &[x, src], saves, rule))
}

/// A copy of `x`, to which nothing of `src` went, with the gradients of both.
#[cold]
#[track_caller]
pub(super) fn place_nothing(x: &Tensor, src: &Tensor) -> Result<Tensor> {
    let (shape, dtype) = (src.layout.shape.clone(), src.dtype);
    let rule = move |b: &Backward| grads![b; b.grad.clone(), full(&b.grad.engine, &shape, zero_of(dtype), dtype)?];
    let y = x.untracked().copy()?;
    Ok(y.recorded_as("scatter", &[x, src], &[], rule))
}

/// The places of a tensor that indices name along an axis.
struct Places<'a> {
    at: usize,
    /// As large as the sources; or one dimension, the same for every line.
    indices: &'a Tensor,
    /// The shape of the tensor.
    shape: Dims,
}

impl Places<'_> {
    /// The elements of `x` at the indices.
    #[track_caller]
    fn taken(&self, x: &Tensor) -> Result<Tensor> {
        match self.is_line() {
            true => x.index_select(self.at as isize, self.indices),
            false => x.gather(self.at as isize, self.indices),
        }
    }

    /// Elements at the places, combined with sources.
    #[track_caller]
    fn placed(&self, x: &Tensor, src: &Tensor, settle: Settle) -> Result<Tensor> {
        place(x, self.at, self.indices, src, settle)
    }

    /// The gradient with zeros at the places.
    #[track_caller]
    fn others(&self, g: &Tensor) -> Result<Tensor> {
        let is_named = self.counted(DType::Bool, [false.into(), true.into()], Settle::WRITE)?;
        g.masked_fill(&is_named, 0.0)
    }

    /// The gradient of the old elements.
    #[track_caller]
    fn of_old(&self, g: &Tensor, settle: Settle) -> Result<Tensor> {
        match settle.is_alone {
            true => self.others(g),
            false => Ok(g.clone()),
        }
    }

    fn is_line(&self) -> bool {
        self.indices.rank() == 1
    }

    /// The shape of numbers that depend only on the indices, and the axis along which they count.
    fn line(&self) -> (&[usize], usize) {
        match self.is_line() {
            true => (&self.shape[self.at..=self.at], 0),
            false => (&self.shape, self.at),
        }
    }

    /// Such numbers in a shape that broadcasts to that of the tensor, or of the sources.
    #[track_caller]
    fn widened(&self, numbers: &Tensor) -> Result<Tensor> {
        let mut shape = Dims::from_slice(numbers.shape());
        if self.is_line() {
            shape.extend(self.shape[self.at + 1..].iter().map(|_| 1));
        }
        numbers.reshape(&shape)
    }

    /// One number at all places, combined with another for each index.
    #[track_caller]
    fn counted(&self, dtype: DType, [old, each]: [Scalar; 2], settle: Settle) -> Result<Tensor> {
        let engine = &self.indices.engine;
        let (shape, at) = self.line();
        let old = full(engine, shape, old, dtype)?;
        let each = full(engine, &[], each, dtype)?.broadcast_to(self.indices.shape())?;
        self.widened(&place(&old, at, self.indices, &each, settle)?)
    }

    /// Which sources are the last ones for their place: they are what is written.
    #[track_caller]
    fn are_last(&self) -> Result<Tensor> {
        let engine = &self.indices.engine;
        let (shape, at) = self.line();
        let mut numbers = counting(engine, self.indices.shape()[at])?;
        for _ in at + 1..shape.len() {
            numbers = numbers.unsqueeze(-1)?;
        }
        let numbers = numbers.broadcast_to(self.indices.shape())?;
        let none = full(engine, shape, 0.into(), DType::U32)?;
        let last = place(&none, at, self.indices, &numbers, Settle::WRITE)?;
        self.widened(&last.gather(at as isize, self.indices)?.eq(&numbers)?)
    }

    #[track_caller]
    fn through_mean(&self, b: &Backward, settle: Settle) -> Result<Grads> {
        let own = if settle.is_alone { 0.0 } else { 1.0 };
        let count = self.counted(DType::F32, [own.into(), 1.0.into()], Settle::ADD)?;
        // A place without any is no mean.
        let count = count.maximum(1.0)?;
        let share = (b.grad.cast(DType::F32)? / count)?.cast(b.grad.dtype)?;
        grads![b; self.of_old(&share, settle)?, self.taken(&share)?]
    }

    /// Each factor gets the product of the others, also where some are 0. The product leaves out
    /// all zeros, which are counted instead.
    #[track_caller]
    fn through_product(&self, b: &Backward, settle: Settle) -> Result<Grads> {
        let dtype = b.grad.dtype;
        let split = |factors: &Tensor| {
            let is_zero = factors.eq(0.0)?;
            let filled = factors.cast(DType::F32)?.masked_fill(&is_zero, 1.0)?;
            Ok((filled, is_zero.cast(DType::F32)?))
        };
        let (x, x_zeros) = split(&b.saved[1])?;
        let (src, src_zeros) = split(&b.saved[2])?;
        let add = Settle {
            how: How::Sum,
            ..settle
        };
        let zeros = self.placed(&x_zeros, &src_zeros, add)?;
        let g = (b.grad.cast(DType::F32)? * self.placed(&x, &src, settle)?)?;
        grads![b;
            match settle.is_alone {
                true => self.others(&b.grad)?,
                false => (&g / x)?.masked_fill(&zeros.ne(&x_zeros)?, 0.0)?.cast(dtype)?,
            },
            (self.taken(&g)? / src)?
                .masked_fill(&self.taken(&zeros)?.ne(&src_zeros)?, 0.0)?
                .cast(dtype)?,
        ]
    }

    /// Equal extremes share the gradient evenly.
    #[track_caller]
    fn through_extreme(&self, b: &Backward, settle: Settle) -> Result<Grads> {
        let (x, src, y) = (&b.saved[1], &b.saved[2], &b.saved[3]);
        let dtype = b.grad.dtype;
        let is_old = x.eq(y)?;
        let is_src = src.eq(&self.taken(y)?)?;
        let own = match settle.is_alone {
            true => full(&x.engine, x.shape(), 0.0.into(), DType::F32)?,
            false => is_old.cast(DType::F32)?,
        };
        let count = self.placed(&own, &is_src.cast(DType::F32)?, Settle::ADD)?;
        let share = (b.grad.cast(DType::F32)? / count.maximum(1.0)?)?.cast(dtype)?;
        grads![b;
            match settle.is_alone {
                true => self.others(&b.grad)?,
                false => share.masked_fill(&is_old.logical_not()?, 0.0)?,
            },
            self.taken(&share)?.masked_fill(&is_src.logical_not()?, 0.0)?,
        ]
    }
}
