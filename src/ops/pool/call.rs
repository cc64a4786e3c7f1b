//! A pooling of planes, forward and backward.

use super::kernel::{POOL, POOL_BACKWARD, POOL_CHOSEN, PoolFold, code};
use super::options::Pool;
use super::windows::Windows;
use crate::ops::conv::{padded, windows};
use crate::ops::launch::{by_vec4s, by_vec4s_with_work};
use crate::ops::long::{MOST_TESTS, assemble, finishes, loop_tests, part};
use crate::ops::normalize::check_float;
use crate::ops::operation::same_dtype;
use crate::ops::reduce::{Op, fold};
use crate::ops::rows::Axes;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::Layout;
use lapidary_core::{DType, Error, Result};

/// Elements that an invocation computes, each in one loop.
const ELEMENTS: u64 = 4;

/// Planes to be pooled.
pub(super) struct Planes {
    operation: &'static str,
    /// `[samples, channels, height, width]`.
    x: Tensor,
    /// The number of pooled dimensions. With one, the planes have one row.
    dims: usize,
    /// Whether the input has an axis of samples.
    is_batch: bool,
}

/// Planes and their windows.
pub(super) struct Call {
    planes: Planes,
    windows: Windows,
}

impl Planes {
    #[track_caller]
    pub(super) fn new(operation: &'static str, x: &Tensor, dims: usize) -> Result<Self> {
        check_float(operation, x)?;
        let is_batch = x.rank() == dims + 2;
        if !is_batch && x.rank() != dims + 1 {
            return Err(Error::Shape {
                operation,
                reason: format!(
                    "shape {:?} is not channels and {dims} more dimensions, or samples and these",
                    x.shape()
                ),
            })
            .located();
        }
        let x = match is_batch {
            true => x.clone(),
            false => x.unsqueeze(0)?,
        };
        let x = match dims {
            1 => x.unsqueeze(2)?,
            _ => x,
        };
        Ok(Planes {
            operation,
            x,
            dims,
            is_batch,
        })
    }

    #[track_caller]
    pub(super) fn by_pool(self, pool: &Pool<2>, fold: PoolFold) -> Result<Call> {
        let windows = Windows::of_pool(self.operation, self.size(), pool, fold).located()?;
        Ok(Call {
            planes: self,
            windows,
        })
    }

    /// The same planes with a given number of windows.
    #[track_caller]
    pub(super) fn adaptive(self, output: &[usize]) -> Result<Call> {
        let output = match *output {
            [across] => [1, across],
            [.., down, across] => [down, across],
            [] => [1, 1],
        };
        let windows = Windows::adaptive(self.operation, self.size(), output).located()?;
        Ok(Call {
            planes: self,
            windows,
        })
    }

    fn size(&self) -> [usize; 2] {
        [self.x.shape()[2], self.x.shape()[3]]
    }

    /// The result with the input's dimensions.
    #[track_caller]
    fn restore(&self, y: Tensor) -> Result<Tensor> {
        let y = match self.dims {
            1 => y.squeeze_axis(2)?,
            _ => y,
        };
        match self.is_batch {
            true => Ok(y),
            false => y.squeeze_axis(0),
        }
    }
}

impl Call {
    /// The maxima, and their places in the planes.
    #[track_caller]
    pub(super) fn places(&self) -> Result<(Tensor, Tensor)> {
        let values = self.forward(PoolFold::Max)?;
        Ok((values, self.forward(PoolFold::Place)?))
    }

    #[track_caller]
    pub(super) fn forward(&self, fold: PoolFold) -> Result<Tensor> {
        self.planes.restore(self.folding(fold).run(&self.planes.x)?)
    }

    #[track_caller]
    pub(super) fn backward(&self, fold: PoolFold, grad: &Tensor) -> Result<Tensor> {
        let (planes, windows) = (&self.planes, &self.windows);
        let (operation, x) = (planes.operation, &planes.x);
        x.same_engine(operation, grad)?;
        same_dtype(operation, x.dtype, grad.dtype)?;
        let shape = [
            x.shape()[0],
            x.shape()[1],
            windows.output[0],
            windows.output[1],
        ];
        let given = Planes::new(operation, grad, planes.dims)?;
        if given.x.shape() != shape || given.is_batch != planes.is_batch {
            return Err(Error::Shape {
                operation,
                reason: format!(
                    "the gradient has shape {:?}, and {:?} has {:?} windows",
                    grad.shape(),
                    x.shape(),
                    windows.output
                ),
            })
            .located();
        }
        planes.restore(self.folding(fold).through(&given.x, Some(x))?)
    }

    fn folding(&self, fold: PoolFold) -> Folding {
        Folding {
            operation: self.planes.operation,
            windows: self.windows,
            fold,
        }
    }
}

/// What is computed of the windows of planes `[samples, channels, height, width]`.
#[derive(Clone, Copy)]
pub(super) struct Folding {
    pub(super) operation: &'static str,
    pub(super) windows: Windows,
    pub(super) fold: PoolFold,
}

impl Folding {
    #[track_caller]
    pub(super) fn run(&self, x: &Tensor) -> Result<Tensor> {
        if x.is_tracked() {
            return self.recorded(x);
        }
        let Folding { windows, fold, .. } = self;
        let differ = match fold {
            PoolFold::Mean => windows.divisor.is_none(),
            PoolFold::Max => windows.are_adaptive,
            PoolFold::Place | PoolFold::Position => true,
        };
        match differ {
            false => uniform(x, windows, *fold),
            true => self.by_kernel(x),
        }
    }

    /// Pools by the kernel: some windows at the edge have fewer elements, or the places are needed.
    #[track_caller]
    fn by_kernel(&self, x: &Tensor) -> Result<Tensor> {
        let (windows, fold) = (&self.windows, self.fold);
        let is_short = |windows: &Windows| is_short(x, windows.area());
        if is_short(windows) {
            return in_planes(x, windows, fold);
        }
        // Pooling one axis and then the other takes fewer steps.
        let [down, across] = [
            windows.only_along(0, windows.input[1]),
            windows.only_along(1, windows.output[0]),
        ];
        if matches!(fold, PoolFold::Place | PoolFold::Position)
            || !is_short(&down)
            || !is_short(&across)
        {
            return Err(self.too_long("the result", windows.area())).located();
        }
        let rows = in_planes(&x.cast(DType::F32)?, &down, fold)?;
        in_planes(&rows, &across, fold)?.cast(x.dtype)
    }

    /// Can the adapter find the positions of the maxima?
    pub(super) fn has_positions(&self, x: &Tensor) -> bool {
        is_short(x, self.windows.area())
    }

    /// The elements of planes at these positions in the windows.
    #[track_caller]
    pub(super) fn chosen(&self, x: &Tensor, positions: &Tensor) -> Result<Tensor> {
        if x.is_tracked() {
            return self.chosen_recorded(x, positions);
        }
        let y = Tensor::output(&x.engine, positions.shape(), x.dtype)?;
        if y.is_empty() {
            return Ok(y);
        }
        let (x, positions) = (x.contiguous()?, positions.contiguous()?);
        let planes = x.shape()[0] * x.shape()[1];
        let params = (self.windows).params(planes, [x.layout.offset, positions.layout.offset]);
        let code = code(PoolFold::Position, &self.windows);
        by_vec4s(&POOL_CHOSEN, code, [&x, &positions], &y, &params)?;
        Ok(y)
    }

    /// The gradient with respect to planes. `g` is that with respect to the result. A mean needs no
    /// planes `x`, and a maximum finds its positions in them. For positions, `x` are these.
    #[track_caller]
    pub(super) fn through(&self, g: &Tensor, x: Option<&Tensor>) -> Result<Tensor> {
        if let (PoolFold::Max | PoolFold::Place, Some(x)) = (self.fold, x) {
            let by_position = self.with(PoolFold::Position);
            return by_position.through(g, Some(&by_position.run(&x.untracked())?));
        }
        if g.is_tracked() {
            return self.through_recorded(g, x);
        }
        let windows = &self.windows;
        let rounds = windows.holders();
        if !is_short(g, rounds) {
            return Err(self.too_long("the gradient", rounds)).located();
        }
        let x = match (self.fold, x) {
            (PoolFold::Mean, _) | (_, None) => None,
            (_, Some(x)) => Some(merged(&x.untracked())?),
        };
        let whole = merged(g)?;
        let (planes, [height, width]) = (whole.shape()[0], windows.input);
        let y = match step(g, planes, windows.input, rounds) {
            None => gradient(x.as_ref(), &whole, windows, self.fold, rounds)?,
            Some(step) => {
                let shape = [planes, height, width];
                assemble(g, &shape, g.dtype, (0, step), |start, len| {
                    let x = x.as_ref().map(|x| x.narrow(0, start, len)).transpose()?;
                    let g = whole.narrow(0, start, len)?;
                    gradient(x.as_ref(), &g, windows, self.fold, rounds)
                })?
            }
        };
        y.reshape(&[g.shape()[0], g.shape()[1], height, width])
    }

    /// The error for what a software adapter would not finish.
    fn too_long(&self, what: &str, rounds: u64) -> Error {
        Error::Shape {
            operation: self.operation,
            reason: format!(
                "an element of {what} takes {rounds} steps with windows of {:?}, and a software \
                 adapter runs at most {}. Use smaller windows, or several poolings in sequence",
                self.windows.kernel,
                MOST_TESTS / ELEMENTS - 1
            ),
        }
    }
}

/// Whether the adapter finishes this many steps for each element.
fn is_short(x: &Tensor, rounds: u64) -> bool {
    let tests = ELEMENTS.saturating_mul(loop_tests(&[rounds]));
    finishes(x.engine.caps(), tests)
}

/// `[samples, channels, height, width]` with samples and channels as one axis.
#[track_caller]
fn merged(x: &Tensor) -> Result<Tensor> {
    let [samples, channels, height, width] = [0, 1, 2, 3].map(|axis| x.shape()[axis]);
    x.reshape(&[samples * channels, height, width])
}

/// Pools by a reduction over a view of windows of equal size.
#[track_caller]
fn uniform(x: &Tensor, windows: &Windows, by: PoolFold) -> Result<Tensor> {
    let after = [0, 1].map(|at| windows.padding[at] + windows.beyond[at]);
    let outside = match by {
        PoolFold::Mean => 0.0,
        _ => f64::NEG_INFINITY,
    };
    let x = padded(x, windows.padding, after, outside)?;
    let Windows {
        output,
        kernel,
        stride,
        dilation,
        ..
    } = *windows;
    let view = self::windows(&x, output, kernel, stride, dilation);
    let folded = Axes::from(4, 6);
    let mut y = fold(&view, None, reduction(windows, by), folded, x.dtype)?;
    y.layout = Layout::contiguous(&folded.fold_shape(view.shape(), false));
    Ok(y)
}

/// The reduction of a window. The divisor is passed as its difference from the number of elements.
fn reduction(windows: &Windows, by: PoolFold) -> Op {
    match (by, windows.divisor) {
        (PoolFold::Mean, Some(divisor)) => Op {
            number: windows.area() as f64 - divisor as f64,
            ..Op::MEAN
        },
        (PoolFold::Mean, None) => Op::MEAN,
        _ => Op::MAX,
    }
}

/// Runs the kernel, in as few parts as the device can take.
#[track_caller]
fn in_planes(x: &Tensor, windows: &Windows, fold: PoolFold) -> Result<Tensor> {
    let of = merged(x)?;
    let [down, across] = windows.output;
    let y = match step(x, of.shape()[0], windows.output, windows.area()) {
        None => fold_planes(&of, windows, fold)?,
        Some(step) => {
            let shape = [of.shape()[0], down, across];
            assemble(
                &of,
                &shape,
                fold.dtype(x.dtype, windows),
                (0, step),
                |start, len| fold_planes(&of.narrow(0, start, len)?, windows, fold),
            )?
        }
    };
    y.reshape(&[x.shape()[0], x.shape()[1], down, across])
}

/// Folds the windows of some planes.
#[track_caller]
fn fold_planes(x: &Tensor, windows: &Windows, fold: PoolFold) -> Result<Tensor> {
    let [down, across] = windows.output;
    let shape = [x.shape()[0], down, across];
    let y = Tensor::output(&x.engine, &shape, fold.dtype(x.dtype, windows))?;
    if y.is_empty() {
        return Ok(y);
    }
    let x = x.contiguous()?;
    let params = windows.params(x.shape()[0], [x.layout.offset, 0]);
    let work = windows.area().saturating_mul(y.len() as u64);
    by_vec4s_with_work(&POOL, code(fold, windows), [&x], &y, &params, work)?;
    Ok(y)
}

/// The gradient with respect to some planes `x`. `g` is the gradient with respect to their windows.
/// Without `x`, which a mean does not read, `g` is bound in its place.
#[track_caller]
fn gradient(
    x: Option<&Tensor>,
    g: &Tensor,
    windows: &Windows,
    by: PoolFold,
    rounds: u64,
) -> Result<Tensor> {
    let planes = g.shape()[0];
    let shape = [planes, windows.input[0], windows.input[1]];
    let y = Tensor::output(&g.engine, &shape, g.dtype)?;
    if y.is_empty() {
        return Ok(y);
    }
    if g.is_empty() {
        y.clear_storage()?;
        return Ok(y);
    }
    let g = g.contiguous()?;
    let x = match x {
        Some(x) => x.contiguous()?,
        None => g.clone(),
    };
    let params = windows.params(planes, [x.layout.offset, g.layout.offset]);
    let (code, work) = (code(by, windows), rounds.saturating_mul(y.len() as u64));
    by_vec4s_with_work(&POOL_BACKWARD, code, [&x, &g], &y, &params, work)?;
    Ok(y)
}

/// The number of planes of `size` at a time, if all would take too long for one submission.
fn step(of: &Tensor, planes: usize, size: [usize; 2], rounds: u64) -> Option<usize> {
    let elements = [planes, size[0], size[1]].map(|dim| dim as u64);
    let work = elements.into_iter().fold(rounds, u64::saturating_mul);
    part(work, of.engine.caps().most_work, planes, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_divisor_far_from_the_number_of_elements_is_exact() {
        for (kernel, divisor) in [
            ([1, 16_777_218], 1),
            ([5000, 5000], 1),
            ([5000, 5000], 3),
            ([1, 1 << 28], (1 << 24) - 1),
            ([2, 2], 16_777_215),
        ] {
            let pool = Pool {
                divisor_override: Some(divisor),
                ..Pool::new(kernel)
            };
            let windows = Windows::of_pool("avg_pool2d", kernel, &pool, PoolFold::Mean).unwrap();
            let op = reduction(&windows, PoolFold::Mean);
            let divides_by = op.scalar(windows.area() as u32);
            assert_eq!(divides_by, divisor as f32, "{kernel:?}");
        }
    }
}
