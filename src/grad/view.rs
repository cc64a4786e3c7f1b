//! Gradients of views, put together to the gradient of what they view.

use smallvec::SmallVec;

use crate::ops::fill;
use crate::tensor::Tensor;
use crate::tensor::history::{Node, grads};
use crate::tensor::layout::{Layout, are_apart};
use lapidary_core::Result;
use lapidary_core::internal::{Engine, Handle};

/// The most parts that a new one is compared with.
const MOST_COMPARED: usize = 32;

/// The sum of the gradients that arrive at one node, each through a view of its result.
#[derive(Debug, Default)]
pub(super) struct Sum {
    /// The sum of those that cover the result, in its shape.
    whole: Option<Tensor>,
    /// The elements of its storage, with the gradients of parts.
    parts: Option<Tensor>,
    /// The layouts of the first of those parts.
    layouts: Vec<Layout>,
}

impl Sum {
    /// Adds a gradient of the view with this layout.
    pub(super) fn add(
        &mut self,
        node: &Node,
        layout: &Layout,
        grad: Tensor,
        is_recorded: bool,
    ) -> Result<()> {
        let (layout, grad) = &without_broadcasts(layout, grad)?;
        if let Some(whole) = in_shape_of(node, layout, grad)? {
            return self.add_whole(whole);
        }
        if is_recorded {
            return self.add_whole(recorded(node, layout, grad)?);
        }
        let parts = match &self.parts {
            Some(parts) => parts,
            None => self.parts.insert(zeros(node, &grad.engine)?),
        };
        // Slices of one tensor, such as queries, keys and values, overwrite nothing but zeros.
        let is_compared = self.layouts.len() < MOST_COMPARED;
        let is_apart = is_compared && self.layouts.iter().all(|part| are_apart(part, layout));
        let write = if is_apart { Tensor::copy_ } else { add };
        spread(parts, layout, grad, write)?;
        if is_compared {
            self.layouts.push(layout.clone());
        }
        Ok(())
    }

    fn add_whole(&mut self, grad: Tensor) -> Result<()> {
        self.whole = Some(match self.whole.take() {
            Some(sum) => (sum + grad)?,
            None => grad,
        });
        Ok(())
    }

    /// The gradient in the shape of the node's result.
    pub(super) fn finish(self, node: &Node, engine: &Handle<Engine>) -> Result<Tensor> {
        let parts = self.parts.map(|parts| parts.view(node.layout.clone()));
        match (self.whole, parts) {
            (Some(whole), Some(parts)) => whole + parts,
            (Some(grad), None) | (None, Some(grad)) => Ok(grad),
            (None, None) => zeros(node, engine).map(|zeros| zeros.view(node.layout.clone())),
        }
    }
}

/// Adds the gradient of a view to that of the whole in place. `false` if that cannot be done in
/// place.
#[track_caller]
pub(super) fn add_at_once(
    total: &Tensor,
    node: &Node,
    layout: &Layout,
    grad: &Tensor,
) -> Result<bool> {
    let (layout, grad) = &without_broadcasts(layout, grad.clone())?;
    if let Some(whole) = in_shape_of(node, layout, grad)? {
        total.add_(&whole)?;
        return Ok(true);
    }
    let is_whole = node.layout.is_contiguous() && node.layout.len() == node.elements;
    if !is_whole || !total.is_whole_storage() {
        return Ok(false);
    }
    spread(total, layout, grad, add)?;
    Ok(true)
}

fn zeros(node: &Node, engine: &Handle<Engine>) -> Result<Tensor> {
    let zero = fill::zero_of(node.dtype);
    fill::full(engine, &[node.elements], zero, node.dtype)
}

/// The view and its gradient without the axes along which all indices name one element.
fn without_broadcasts(layout: &Layout, grad: Tensor) -> Result<(Layout, Tensor)> {
    let is_broadcast = |axis: &usize| layout.strides[*axis] == 0 && layout.shape[*axis] > 1;
    let axes: Vec<usize> = (0..layout.rank()).filter(is_broadcast).collect();
    if axes.is_empty() {
        return Ok((layout.clone(), grad));
    }
    let mut narrow = layout.clone();
    for &axis in axes.iter().rev() {
        narrow = narrow.select(axis as isize, 0)?;
    }
    let axes: Vec<isize> = axes.into_iter().map(|axis| axis as isize).collect();
    Ok((narrow, grad.sum(&axes)?))
}

/// The gradient in the shape of the node's result, if the view is a permutation of all of it.
fn in_shape_of(node: &Node, layout: &Layout, grad: &Tensor) -> Result<Option<Tensor>> {
    if layout.same_map(&node.layout) {
        return Ok(Some(grad.clone()));
    }
    let is_whole = |layout: &Layout| layout.offset == 0 && layout.len() == node.elements;
    if !is_whole(layout) || !is_whole(&node.layout) || !node.layout.is_contiguous() {
        return Ok(None);
    }
    let mut axes: SmallVec<[isize; 8]> = (0..layout.rank() as isize).collect();
    axes.sort_by_key(|&axis| {
        let (stride, dim) = (layout.strides[axis as usize], layout.shape[axis as usize]);
        // An axis of one element may have any stride.
        std::cmp::Reverse(if dim == 1 { isize::MAX } else { stride })
    });
    if !layout.permute(&axes)?.is_contiguous() {
        return Ok(None);
    }
    grad.permute(&axes)?.reshape(&node.layout.shape).map(Some)
}

fn add(elements: &Tensor, grad: &Tensor) -> Result<()> {
    elements.add_(grad)
}

/// Puts a gradient at the elements that the layout names, by `write`, which copies or adds. The
/// layout has no broadcasts.
fn spread(
    elements: &Tensor,
    layout: &Layout,
    grad: &Tensor,
    write: fn(&Tensor, &Tensor) -> Result<()>,
) -> Result<()> {
    if layout.shape.contains(&0) {
        return Ok(());
    }
    if !layout.has_overlap() {
        return write(&elements.view(layout.clone()), grad);
    }
    // Windows that overlap: one position of them at a time.
    let stride = |axis: &usize| (layout.shape[*axis] > 1, -layout.strides[*axis].abs());
    let axis = (0..layout.rank()).max_by_key(stride).unwrap_or(0) as isize;
    for index in 0..layout.shape[axis as usize] as isize {
        let (part, grad) = (layout.select(axis, index)?, grad.select(axis, index)?);
        // The first position writes, the others add: none may overwrite another one.
        let write = if index == 0 { write } else { add };
        spread(elements, &part, &grad, write)?;
    }
    Ok(())
}

/// The gradient of the node's result by a view of it, as a recorded operation.
fn recorded(node: &Node, layout: &Layout, grad: &Tensor) -> Result<Tensor> {
    let elements = zeros(node, &grad.engine)?;
    spread(&elements, layout, &grad.untracked(), Tensor::copy_)?;
    let whole = elements.view(node.layout.clone());
    if !grad.is_tracked() {
        return Ok(whole);
    }
    let (layout, of_node) = (layout.clone(), node.layout.clone());
    let (count, dtype) = (node.elements, node.dtype);
    Ok(
        whole.recorded_as("a view's gradient", &[grad], &[], move |b| {
            grads![b; {
                let elements = fill::full(&b.grad.engine, &[count], fill::zero_of(dtype), dtype)?;
                elements.view(of_node.clone()).copy_(&b.grad)?;
                elements.view(layout.clone())
            }]
        }),
    )
}
