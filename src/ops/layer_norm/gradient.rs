//! The gradients of layer, RMS and group normalization.

use smallvec::SmallVec;

use super::RMS;
use crate::ops::layer_norm_backward::{Problem, Slopes};
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, Save, grads};
use lapidary_core::internal::MaybeShared;
use lapidary_core::{DType, Result};

/// A normalization, as its gradients see it.
#[derive(Debug)]
pub(in crate::ops) struct Normalization {
    /// Is the mean subtracted?
    pub(in crate::ops) is_centred: bool,
    /// The axes of elements that are normalized together: the last ones.
    pub(in crate::ops) own: Vec<isize>,
    /// The axes along which the weight stays the same.
    pub(in crate::ops) repeated: Vec<isize>,
    pub(in crate::ops) eps: f32,
}

/// A tensor in f32 that was normalized again, before weight and bias.
#[derive(Debug)]
pub(in crate::ops) struct Normalized<'a> {
    by: &'a Normalization,
    how: How,
}

/// How it was normalized.
#[derive(Debug)]
enum How {
    /// By operations, which are recorded.
    Operations { normal: Tensor, scale: Tensor },
    /// By the launch that also computes the gradient of the input.
    Launch { x: Tensor, slopes: Box<Slopes> },
}

impl Normalization {
    /// Normalizes `x` again, which is in f32.
    #[track_caller]
    pub(in crate::ops) fn normalize(&self, x: &Tensor) -> Result<Normalized<'_>> {
        let away = match self.is_centred {
            true => x.centred(&self.own)?,
            false => x.clone(),
        };
        let variance = away.square()?.mean_keepdim(&self.own)?;
        let scale = (variance + self.eps)?.rsqrt()?;
        let normal = (away * &scale)?;
        let how = How::Operations { normal, scale };
        Ok(Normalized { by: self, how })
    }

    /// As [`of`](Self::of), for a gradient of the input by `g`. Where that takes one launch, it
    /// hides what gradients of gradients depend on.
    #[track_caller]
    pub(in crate::ops) fn for_input(
        &self,
        x: &Tensor,
        g: &Tensor,
        weight: Option<&Tensor>,
    ) -> Result<Normalized<'_>> {
        let operands = [Some(x), Some(g), weight];
        if operands.into_iter().flatten().any(Tensor::is_tracked) {
            return self.normalize(x);
        }
        let problem = Problem {
            x,
            weight,
            length: self
                .own
                .iter()
                .map(|&axis| x.shape()[axis as usize])
                .product(),
            is_centred: self.is_centred,
            eps: self.eps,
        };
        let x = x.clone();
        match problem.slopes(g)? {
            Some(slopes) => Ok(Normalized {
                by: self,
                how: How::Launch {
                    x,
                    slopes: Box::new(slopes),
                },
            }),
            None => self.normalize(&x),
        }
    }
}

/// The gradients by `g`, that of the result. All are in f32.
impl Normalized<'_> {
    /// The gradient of the input.
    #[track_caller]
    pub(in crate::ops) fn by_input(&self, g: &Tensor, weight: Option<&Tensor>) -> Result<Tensor> {
        let (normal, scale) = match &self.how {
            How::Operations { normal, scale } => (normal, scale),
            How::Launch { slopes, .. } => return Ok(slopes.by_input.clone()),
        };
        let own = &self.by.own;
        let by_normal = match weight {
            None => g.clone(),
            Some(weight) => (g * weight)?,
        };
        let along = (&by_normal * normal)?.mean_keepdim(own)?;
        let centred = match self.by.is_centred {
            true => (&by_normal - by_normal.mean_keepdim(own)?)?,
            false => by_normal,
        };
        (centred - (normal * along)?)? * scale
    }

    /// The gradient of the weight, without the axes along which that is repeated.
    #[track_caller]
    pub(in crate::ops) fn by_weight(&self, g: &Tensor) -> Result<Tensor> {
        let normal = match &self.how {
            How::Operations { normal, .. } => normal.clone(),
            How::Launch { x, slopes } => {
                let mut of_rows = x.shape().to_vec();
                for &axis in &self.by.own {
                    of_rows[axis as usize] = 1;
                }
                let away = match self.by.is_centred {
                    true => {
                        (x.relative_to_first(&self.by.own)? - slopes.mean.reshape(&of_rows)?)?
                    }
                    false => x.clone(),
                };
                (away * slopes.scale.reshape(&of_rows)?)?
            }
        };
        (g * normal)?.sum(&self.by.repeated)
    }

    /// The gradient of the bias, likewise.
    #[track_caller]
    pub(in crate::ops) fn by_bias(&self, g: &Tensor) -> Result<Tensor> {
        g.sum(&self.by.repeated)
    }
}

/// Computes a normalization of an input, with a weight and a bias.
trait ComputeFn: Fn(&Tensor, [Option<&Tensor>; 2]) -> Result<Tensor> + MaybeShared {}
impl<F: Fn(&Tensor, [Option<&Tensor>; 2]) -> Result<Tensor> + MaybeShared> ComputeFn for F {}

/// The shapes in which a normalization is computed.
struct Shapes {
    of_input: Vec<usize>,
    /// It broadcasts to that of the input.
    of_weight: Vec<usize>,
}

impl Tensor {
    /// Layer or RMS normalization, with its gradients.
    #[cold]
    #[track_caller]
    pub(super) fn normalized_recorded(
        &self,
        operation: &'static str,
        normalized_shape: &[usize],
        affine: [Option<&Tensor>; 2],
        eps: f32,
        (kind, dtype): (u64, DType),
    ) -> Result<Tensor> {
        let detached = affine.map(|given| given.map(Tensor::untracked));
        let plain = detached.each_ref().map(Option::as_ref);
        let own_shape = normalized_shape.to_vec();
        let again = move |x: &Tensor, affine: [Option<&Tensor>; 2]| {
            x.normalized(operation, &own_shape, affine, eps, (kind, dtype))
        };
        let y = again(&self.untracked(), plain)?;
        let first = (self.rank() - normalized_shape.len()) as isize;
        let by = Normalization {
            is_centred: kind != RMS,
            own: (first..self.rank() as isize).collect(),
            repeated: (0..first).collect(),
            eps,
        };
        let shapes = Shapes {
            of_input: self.shape().to_vec(),
            of_weight: normalized_shape.to_vec(),
        };
        Ok(self.recorded_normalized((y, again), operation, affine, by, shapes))
    }

    /// Group normalization, with its gradients.
    #[cold]
    #[track_caller]
    pub(super) fn group_norm_recorded(
        &self,
        operation: &'static str,
        groups: usize,
        affine: [Option<&Tensor>; 2],
        eps: f32,
    ) -> Result<Tensor> {
        let detached = affine.map(|given| given.map(Tensor::untracked));
        let plain = detached.each_ref().map(Option::as_ref);
        let again = move |x: &Tensor, [weight, bias]: [Option<&Tensor>; 2]| {
            x.group_norm(groups, weight, bias, eps)
        };
        let y = again(&self.untracked(), plain)?;
        let shape = self.shape();
        let channels = shape[1] / groups;
        let by = Normalization {
            is_centred: true,
            own: vec![2, 3],
            repeated: vec![0, 3],
            eps,
        };
        let shapes = Shapes {
            of_input: vec![shape[0], groups, channels, shape[2..].iter().product()],
            of_weight: vec![groups, channels, 1],
        };
        Ok(self.recorded_normalized((y, again), operation, affine, by, shapes))
    }

    /// Attaches the gradients to a result, which `again` computes once more.
    #[track_caller]
    fn recorded_normalized(
        &self,
        (y, again): (Tensor, impl ComputeFn + 'static),
        operation: &'static str,
        [weight, bias]: [Option<&Tensor>; 2],
        by: Normalization,
        shapes: Shapes,
    ) -> Tensor {
        let has = [weight.is_some(), bias.is_some()];
        // It takes the place of an operand that is missing, and gets no gradient.
        let none = self.untracked();
        let operands = [self, weight.unwrap_or(&none), bias.unwrap_or(&none)];
        let own = operands.map(|operand| (operand.layout.shape.clone(), operand.dtype));
        let as_operand = move |gradient: Tensor, index: usize| {
            let (shape, dtype) = &own[index];
            gradient.reshape(shape)?.cast(*dtype)
        };
        let rule = move |b: &Backward| {
            let wide = |tensor: &Tensor| tensor.reshape(&shapes.of_input)?.cast(DType::F32);
            let (g, x) = (wide(&b.grad)?, wide(&b.saved[0])?);
            let [weight, _] = affine_of(&b.saved, has);
            let weight = match weight {
                Some(weight) => Some(weight.reshape(&shapes.of_weight)?.cast(DType::F32)?),
                None => None,
            };
            let normalized = match b.needs(0) {
                true => by.for_input(&x, &g, weight.as_ref())?,
                false => by.normalize(&x)?,
            };
            grads![b;
                as_operand(normalized.by_input(&g, weight.as_ref())?, 0)?,
                as_operand(normalized.by_weight(&g)?, 1)?,
                as_operand(normalized.by_bias(&g)?, 2)?,
            ]
        };
        // The bias is for computing the result again.
        let saves = [true, has[0], has[1]].into_iter().enumerate();
        let saves = saves.filter_map(|(index, is_there)| is_there.then_some(Save::Operand(index)));
        let saves: SmallVec<[Save<'_>; 3]> = saves.collect();
        let again = move |saved: &[Tensor]| again(&saved[0], affine_of(saved, has));
        y.recorded_cheap_as(operation, &operands, &saves, again, rule)
    }
}

/// Weight and bias among the saved tensors, which begin with the input.
fn affine_of(saved: &[Tensor], [has_weight, has_bias]: [bool; 2]) -> [Option<&Tensor>; 2] {
    let mut rest = saved[1..].iter();
    let weight = has_weight.then(|| rest.next()).flatten();
    let bias = has_bias.then(|| rest.next()).flatten();
    [weight, bias]
}
