//! Calls whose operands need more bindings than a dispatch has. They become several launches. Each
//! computes a part of the output and binds only the bytes that it needs.
//!
//! A part is a box of the output's indices. It is halved along the axis that makes the widest
//! operand narrower, until everything fits. A box that is not a row-major part of the output is
//! computed in its own tensor, and scattered.

use smallvec::SmallVec;

use super::call::{Call, Input};
use crate::tensor::Tensor;
use lapidary_core::Result;
use lapidary_core::internal::{Engine, Handle, Ranges};

/// The bindings that whole storages need, one for every window. Operands of one storage share its
/// bindings.
fn windows_of_whole<'a>(engine: &Handle<Engine>, tensors: impl Iterator<Item = &'a Tensor>) -> u64 {
    let window_bytes = engine.caps().max_binding_bytes;
    let mut seen = SmallVec::<[&Tensor; 4]>::new();
    let mut windows = 0;
    for tensor in tensors {
        if !seen.iter().any(|other| other.shares_storage_with(tensor)) {
            windows += tensor.storage.size_bytes().div_ceil(window_bytes);
            seen.push(tensor);
        }
    }
    windows
}

/// Whether these tensors and a new one of `new_bytes` need more bindings than a dispatch has.
pub(in crate::ops) fn is_wide<'a>(
    engine: &Handle<Engine>,
    tensors: impl Iterator<Item = &'a Tensor> + Clone,
    new_bytes: u64,
) -> bool {
    let window_bytes = engine.caps().max_binding_bytes;
    let is_one = |tensor: &Tensor| tensor.storage.size_bytes() <= window_bytes;
    if new_bytes <= window_bytes && tensors.clone().all(is_one) {
        // The usual case.
        return false;
    }
    let new = new_bytes.next_multiple_of(16).div_ceil(window_bytes);
    windows_of_whole(engine, tensors) + new > engine.here().most_windows()
}

/// The bytes of its storage that each operand needs, as (start, length). Operands whose bytes
/// overlap get one shared range: two bindings must not read and write the same bytes.
pub(in crate::ops) fn ranges(engine: &Handle<Engine>, tensors: &[&Tensor]) -> Ranges {
    // Keeps elements and vec4s whole.
    let step = engine.caps().offset_alignment_bytes.max(16);
    let shown = tensors.iter().map(|tensor| {
        let width = tensor.dtype.size_bytes();
        let (low, high) = tensor.layout.span().unwrap_or((0, 0));
        let end = (high as u64 + 1) * width;
        let end = end.next_multiple_of(16).min(tensor.storage.size_bytes());
        (low as u64 * width / step * step, end)
    });
    let mut shown: SmallVec<[(u64, u64); 4]> = shown.collect();
    let mut has_grown = true;
    while has_grown {
        has_grown = false;
        for a in 0..shown.len() {
            for b in 0..a {
                let ((start, end), (other_start, other_end)) = (shown[a], shown[b]);
                let overlap = tensors[a].shares_storage_with(tensors[b])
                    && start < other_end
                    && other_start < end;
                if overlap && shown[a] != shown[b] {
                    shown[a] = (start.min(other_start), end.max(other_end));
                    shown[b] = shown[a];
                    has_grown = true;
                }
            }
        }
    }
    let ranges = shown.into_iter().map(|(start, end)| (start, end - start));
    ranges.collect()
}

/// Whether the bindings of one dispatch can hold these ranges.
pub(in crate::ops) fn do_fit(
    engine: &Handle<Engine>,
    tensors: &[&Tensor],
    ranges: &Ranges,
) -> bool {
    let window_bytes = engine.caps().max_binding_bytes;
    let firsts = (0..tensors.len()).filter(|&index| {
        let is_known = |other: usize| {
            tensors[other].shares_storage_with(tensors[index]) && ranges[other] == ranges[index]
        };
        !(0..index).any(is_known)
    });
    let windows = firsts.map(|index| ranges[index].1.div_ceil(window_bytes));
    windows.sum::<u64>() <= engine.here().most_windows()
}

/// The tensor relative to a range of its storage.
pub(in crate::ops) fn within(tensor: &Tensor, range: (u64, u64)) -> Tensor {
    let mut layout = tensor.layout.clone();
    layout.offset -= (range.0 / tensor.dtype.size_bytes()) as usize;
    tensor.view(layout)
}

/// Splits tensors of one shape in half, along the axis that makes the widest of them narrower (the
/// last such axis). `None` if there is only one element.
pub(in crate::ops) fn halves(tensors: &[&Tensor]) -> Option<[SmallVec<[Tensor; 4]>; 2]> {
    let reach = |tensor: &Tensor, axis: usize| {
        let steps = tensor.layout.shape[axis].saturating_sub(1);
        tensor.layout.strides[axis].unsigned_abs() as u64 * steps as u64 * tensor.dtype.size_bytes()
    };
    let reaches = tensors.iter().flat_map(|&tensor| {
        let axes = 0..tensor.layout.rank();
        let whole: u64 = axes.clone().map(|axis| reach(tensor, axis)).sum();
        axes.map(move |axis| {
            (
                (whole, reach(tensor, axis)),
                tensor.layout.shape[axis],
                axis,
            )
        })
    });
    let (_, dim, axis) = reaches
        .filter(|&(_, dim, _)| dim > 1)
        .max_by_key(|&(reach, ..)| reach)?;
    // Halves that start at vec4s keep their vec4s aligned.
    let at = match dim / 2 {
        half if half >= 4 => half / 4 * 4,
        half => half,
    };
    let part = |start: usize, len: usize| {
        let parts = tensors.iter().map(|tensor| {
            let mut layout = tensor.layout.clone();
            let offset = layout.offset as isize + start as isize * layout.strides[axis];
            layout.offset = offset as usize;
            layout.shape[axis] = len;
            tensor.view(layout)
        });
        parts.collect()
    };
    Some([part(0, at), part(at, dim - at)])
}

impl Call<'_> {
    /// Whether the call needs too many bindings, and can be computed in parts. The output is `out`
    /// or a new tensor of `new_bytes`. Ranges and random numbers depend on the position and cannot
    /// be split.
    pub(super) fn is_in_parts(
        &self,
        engine: &Handle<Engine>,
        out: Option<&Tensor>,
        new_bytes: u64,
    ) -> bool {
        let has_parts = !std::ptr::eq(self.family.fresh, self.family.into);
        has_parts
            && is_wide(engine, self.tensors().chain(out), new_bytes)
            && (!self.inputs.is_empty() || self.op == 0)
    }

    /// Writes through `out`, in as few parts as possible.
    #[track_caller]
    pub(super) fn write_parts(&self, out: &Tensor) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let shape = &out.layout.shape;
        let views = self
            .tensors()
            .map(|tensor| Ok(tensor.view(tensor.layout.broadcast_to(shape)?)));
        let views = views.collect::<Result<SmallVec<[Tensor; 4]>>>()?;
        self.part(&views, out)
    }

    /// Computes one part, or splits it into halves. The views have the shape of `out`.
    #[track_caller]
    fn part(&self, views: &[Tensor], out: &Tensor) -> Result<()> {
        let engine = &out.engine;
        let operands: SmallVec<[&Tensor; 4]> = views.iter().chain([out]).collect();
        let fit = |operands: &[&Tensor]| do_fit(engine, operands, &ranges(engine, operands));
        if out.layout.is_vec4_aligned() {
            if fit(&operands) {
                return self.launch_part(views, out);
            }
        } else {
            let made = Tensor::output(engine, &out.layout.shape, out.dtype)?;
            let operands: SmallVec<[&Tensor; 4]> = views.iter().chain([&made]).collect();
            if fit(&operands) && fit(&[&made, out]) {
                self.launch_part(views, &made)?;
                return out.copy_(&made);
            }
        }
        let Some(halves) = halves(&operands) else {
            // Not even one element fits: the launch returns the error.
            return self.launch_part(views, out);
        };
        for half in halves {
            if let Some((out, views)) = half.split_last() {
                self.part(views, out)?;
            }
        }
        Ok(())
    }

    #[track_caller]
    fn launch_part(&self, views: &[Tensor], out: &Tensor) -> Result<()> {
        let engine = &out.engine;
        let operands: SmallVec<[&Tensor; 4]> = views.iter().chain([out]).collect();
        let ranges = ranges(engine, &operands);
        let shown = operands.iter().zip(&ranges);
        let shown: SmallVec<[Tensor; 4]> = shown
            .map(|(tensor, &range)| within(tensor, range))
            .collect();
        let (from, to) = shown.split_at(views.len());
        let (Some(inputs), Some(to)) = (self.inputs_of(from), to.first()) else {
            return Ok(());
        };
        let call = Call {
            inputs: &inputs,
            ..*self
        };
        let start = to.layout.offset as u32;
        match call.plan(engine.caps(), &to.layout.shape, start)? {
            Some(plan) => call.launch(plan, to, true, ranges),
            None => {
                let mut rows = SmallVec::<[Tensor; 4]>::new();
                for view in views {
                    rows.push(view.contiguous()?);
                }
                self.part(&rows, out)
            }
        }
    }

    /// The inputs, with these tensors in place of their own.
    fn inputs_of<'a>(&self, tensors: &'a [Tensor]) -> Option<SmallVec<[Input<'a>; 3]>> {
        let mut tensors = tensors.iter();
        let inputs = self.inputs.iter().map(|input| match input {
            Input::Tensor(_) => tensors.next().map(Input::Tensor),
            Input::Scalar => Some(Input::Scalar),
        });
        inputs.collect()
    }
}
