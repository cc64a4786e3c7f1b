//! Elements that several index tensors name together, and elements that a mask selects.
//!
//! This module has no kernel. It joins the indexed axes and calls `index_select` or `scatter`. The
//! operations that take indices have shaders of their own, because the shaders do different work:
//!
//! - `index_select` picks slices. One index names a whole slice, which is often read by vec4s. The
//!   engine knows the rows that a launch names, so a table need not be on the device as a whole.
//! - `gather` picks elements. Each has an index and thus an address of its own.
//! - `scatter` writes. Several indices may name one element, and no two invocations may write one
//!   word. So the indices are sorted, and each element of the result searches for those that name
//!   it. They are folded in a fixed order.
//! - `scatter_into` writes in place, and only to words in which an index names an element.

use smallvec::SmallVec;

use super::index_select::check_index_type;
use super::operation::same_dtype;
use super::scatter::{self, Settle};
use super::scatter_into::InPlace;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::{Dims, MAX_RANK, broadcast_shapes};
use lapidary_core::internal::MadeFor;
use lapidary_core::{DType, Error, Result};

impl Tensor {
    /// The elements that index tensors name together, as PyTorch's `x[i, j]`. Entry `d` of
    /// `indices` indexes axis `d`; `None`, or a missing entry, takes the whole axis. The index
    /// tensors, `u32` or `i32`, broadcast to one shape. This shape replaces the indexed axes, or
    /// comes first if these are not adjacent.
    ///
    /// A bool tensor is a mask. It has the shape of as many axes as it has itself, and names their
    /// elements where it is true, as its [`nonzero`](Tensor::nonzero) would, which waits for the
    /// device. A mask of one axis thus picks rows. A 0-d mask stands for a new axis of one element
    /// at its place, and picks this or none.
    ///
    /// The device cannot report an index outside of an axis. Its element is 0. So is that of every
    /// negative index, which does not count from the end.
    ///
    /// ```no_run
    /// # use lapidary::Tensor;
    /// # fn demo(x: &Tensor, i: &Tensor, j: &Tensor, mask: &Tensor) -> lapidary::Result<()> {
    /// let picked = x.index(&[Some(i), Some(j)])?; // x[i, j]
    /// let columns = x.index(&[None, Some(j)])?; // x[:, j]
    /// let rows = x.index(&[Some(mask)])?; // x[mask]
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] for more entries than axes, without any index tensor, or if their shapes do
    /// not broadcast. Also for a mask of another shape than its axes, and if the result has more
    /// than eight dimensions. [`Error::DType`] unless they hold `u32`, `i32` or bools; in a browser
    /// also for bools. [`Error::Foreign`] if one belongs to another `Gpu`. [`Error::NeverFits`] if
    /// the result is too large.
    #[track_caller]
    pub fn index(&self, indices: &[Option<&Tensor>]) -> Result<Tensor> {
        let _method = MadeFor::method("index");
        if let Some((x, lined)) = self.with_axes_of_masks(indices).called("index")? {
            return x.index(&options(&lined)).called("index");
        }
        let named = Named::new("index", self, indices).located()?;
        let joined = named.join(self)?;
        let picked = joined.index_select(named.first as isize, &named.places()?.flatten()?)?;
        picked.reshape(&named.shape(&joined.layout.shape))
    }

    /// A copy in which `values` replace the elements that index tensors name, as in
    /// [`index`](Tensor::index). With `accumulate` they are added instead. `values` broadcasts to
    /// the shape that `index` gives.
    ///
    /// If several values name one element, the last one wins, in row-major order of the index
    /// tensors. With `accumulate` all are added in that order, as in
    /// [`scatter_add`](Tensor::scatter_add); for bools it is `or`. Indices outside of an axis are
    /// skipped, and so are all negative ones.
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(x: &Tensor, i: &Tensor, j: &Tensor, v: &Tensor) -> lapidary::Result<()> {
    /// let changed = x.index_put(&[Some(i), Some(j)], v, false)?; // x[i, j] = v
    /// # Ok(()) }
    /// ```
    ///
    /// By a mask, [`masked_scatter`](Tensor::masked_scatter) does not wait.
    ///
    /// # Errors
    ///
    /// Those of [`index`](Tensor::index); [`Error::DType`] unless `values` has the type of `self`.
    #[track_caller]
    pub fn index_put(
        &self,
        indices: &[Option<&Tensor>],
        values: &Tensor,
        accumulate: bool,
    ) -> Result<Tensor> {
        let _method = MadeFor::method("index_put");
        if let Some((x, lined)) = self.with_axes_of_masks(indices).called("index_put")? {
            let made = x.index_put(&options(&lined), values, accumulate);
            return made.called("index_put")?.reshape(self.shape());
        }
        let put = self.check_index_put(indices, values)?;
        let made = scatter::put(&put.with(Settle::putting(accumulate)))?;
        put.named.part(self, &made)
    }

    #[track_caller]
    fn check_index_put(&self, indices: &[Option<&Tensor>], values: &Tensor) -> Result<Put> {
        const OPERATION: &str = "index_put";
        self.same_engine(OPERATION, values)?;
        same_dtype(OPERATION, self.dtype, values.dtype)?;
        let named = Named::new(OPERATION, self, indices).located()?;
        let joined = named.join(self)?;
        let wanted = named.shape(&joined.layout.shape);
        let values = values.broadcast_to(&wanted).called(OPERATION)?;
        let mut sliced = joined.layout.shape.clone();
        sliced[named.first] = named.broadcast.iter().product();
        Ok(Put {
            values: values.reshape(&sliced)?,
            places: named.places()?.flatten()?,
            joined,
            named,
        })
    }

    /// [`index_put`](Tensor::index_put) in place. Elements that no index names take no time or
    /// memory under these conditions; otherwise all of `self` is copied twice.
    ///
    /// - `self` is contiguous, and none of the other operands is a view of the same memory.
    /// - The index tensors index adjacent axes.
    /// - For elements of fewer than 4 bytes: the number of elements after these axes and the offset
    ///   of `self` are multiples of 4.
    ///
    /// # Errors
    ///
    /// Those of [`index_put`](Tensor::index_put) and of [`add_`](Tensor::add_).
    #[track_caller]
    pub fn index_put_(
        &self,
        indices: &[Option<&Tensor>],
        values: &Tensor,
        accumulate: bool,
    ) -> Result<()> {
        let _method = MadeFor::method("index_put_");
        self.check_writable("index_put_")?;
        if self.records_write(&[values]) {
            let old = &self.elements_before("index_put_")?;
            let made = (old.index_put(indices, values, accumulate)).called("index_put_")?;
            return self.assign("index_put_", &made);
        }
        if let Some((x, lined)) = self.with_axes_of_masks(indices).called("index_put_")? {
            let written = x.index_put_(&options(&lined), values, accumulate);
            return written.called("index_put_");
        }
        let put = (self.check_index_put(indices, values)).called("index_put_")?;
        let into = put.with(Settle::putting(accumulate));
        if put.joined.shares_storage_with(self) && into.suits() {
            return into.run();
        }
        self.copy_(&put.named.part(self, &scatter::put(&into)?)?)
    }
}

/// The entries for axes, as operands.
fn options(entries: &[Option<Tensor>]) -> Vec<Option<&Tensor>> {
    entries.iter().map(Option::as_ref).collect()
}

impl Tensor {
    /// A view with a new axis for each 0-d mask, and the entries for it. `None` without such masks.
    #[track_caller]
    fn with_axes_of_masks(&self, given: &[Option<&Tensor>]) -> Result<Option<Lined>> {
        let is_number = |index: &Tensor| index.dtype == DType::Bool && index.rank() == 0;
        if !given.iter().flatten().any(|index| is_number(index)) {
            return Ok(None);
        }
        let (mut x, mut axis) = (self.clone(), 0);
        let mut entries = Vec::with_capacity(given.len());
        for index in given {
            let mut entry = index.cloned();
            if let Some(mask) = entry.as_mut().filter(|index| is_number(index)) {
                *mask = mask.unsqueeze(0)?;
                x = x.unsqueeze(axis)?;
            }
            axis += match &entry {
                Some(mask) if mask.dtype == DType::Bool => mask.rank() as isize,
                _ => 1,
            };
            entries.push(entry);
        }
        Ok(Some((x, entries)))
    }
}

/// A tensor, and entries that name its elements.
type Lined = (Tensor, Vec<Option<Tensor>>);

/// Index tensors, and the axes that they index.
struct Named {
    operation: &'static str,
    indices: SmallVec<[(usize, usize, Tensor); 4]>,
    /// The first of these axes; axis 0 if they are not adjacent.
    first: usize,
    are_together: bool,
    /// The broadcast shape of the index tensors.
    broadcast: Dims,
}

/// Values for the elements that index tensors name.
struct Put {
    named: Named,
    /// The tensor with the indexed axes joined.
    joined: Tensor,
    /// Positions along the joined axis.
    places: Tensor,
    /// Slices along the joined axis.
    values: Tensor,
}

impl Put {
    fn with(&self, settle: Settle) -> InPlace<'_> {
        InPlace {
            x: &self.joined,
            at: self.named.first,
            indices: &self.places,
            src: &self.values,
            settle,
        }
    }
}

impl Named {
    #[track_caller]
    fn new(operation: &'static str, x: &Tensor, given: &[Option<&Tensor>]) -> Result<Named> {
        let refuse = |reason| Err(Error::Shape { operation, reason });
        let mut broadcast = Dims::new();
        let mut indices = SmallVec::<[_; 4]>::new();
        let mut axis = 0;
        for index in given {
            let Some(index) = *index else {
                axis += 1;
                continue;
            };
            for index in places_named(operation, x, axis, index)? {
                broadcast = broadcast_shapes(operation, &broadcast, index.shape())?;
                let size = x.shape().get(axis).copied().unwrap_or(0);
                indices.push((axis, size, index));
                axis += 1;
            }
        }
        if axis > x.rank() {
            let shape = x.shape();
            return refuse(format!(
                "entries for {axis} axes; {shape:?} has {}",
                x.rank()
            ));
        }
        let [(first, ..), .., (last, ..)] = indices[..] else {
            return match indices[..] {
                [(first, ..)] => Named::checked(operation, x, indices, first, true, broadcast),
                _ => refuse("no index tensor".into()),
            };
        };
        let are_together = last - first + 1 == indices.len();
        let first = if are_together { first } else { 0 };
        Named::checked(operation, x, indices, first, are_together, broadcast)
    }

    fn checked(
        operation: &'static str,
        x: &Tensor,
        indices: SmallVec<[(usize, usize, Tensor); 4]>,
        first: usize,
        are_together: bool,
        broadcast: Dims,
    ) -> Result<Named> {
        let rank = x.rank() - indices.len() + broadcast.len();
        if rank > MAX_RANK {
            return Err(Error::Shape {
                operation,
                reason: format!("a tensor has at most {MAX_RANK} dimensions, not {rank}"),
            });
        }
        Ok(Named {
            operation,
            indices,
            first,
            are_together,
            broadcast,
        })
    }

    /// The order of axes that puts the indexed ones first.
    fn order(&self, rank: usize) -> Vec<isize> {
        let is_named = |axis: &usize| self.indices.iter().any(|(named, ..)| named == axis);
        let named = self.indices.iter().map(|&(axis, ..)| axis as isize);
        let others = (0..rank).filter(|axis| !is_named(axis));
        named.chain(others.map(|axis| axis as isize)).collect()
    }

    /// The tensor with the indexed axes joined to one, axis `first`.
    #[track_caller]
    fn join(&self, x: &Tensor) -> Result<Tensor> {
        let last = (self.first + self.indices.len() - 1) as isize;
        match self.are_together {
            true => x.flatten_axes(self.first as isize, last),
            false => x.permute(&self.order(x.rank()))?.flatten_axes(0, last),
        }
    }

    /// The reverse of [`join`](Self::join), for a tensor in the shape of its result.
    #[track_caller]
    fn part(&self, like: &Tensor, joined: &Tensor) -> Result<Tensor> {
        if self.are_together {
            return joined.reshape(like.shape());
        }
        let order = self.order(like.rank());
        let shape: Dims = order
            .iter()
            .map(|&axis| like.shape()[axis as usize])
            .collect();
        let mut back: Vec<isize> = (0..order.len() as isize).collect();
        back.sort_by_key(|&at| order[at as usize]);
        joined.reshape(&shape)?.permute(&back)?.contiguous()
    }

    /// The shape of the indexed elements in a tensor that [`join`](Self::join) returned.
    fn shape(&self, joined: &Dims) -> Dims {
        let mut shape = Dims::from_slice(&joined[..self.first]);
        shape.extend_from_slice(&self.broadcast);
        shape.extend_from_slice(&joined[self.first + 1..]);
        shape
    }

    /// The positions along the joined axis. They are past any axis if one of the indices is outside
    /// of its axis.
    #[track_caller]
    fn places(&self) -> Result<Tensor> {
        let mut sum: Option<(Tensor, Tensor)> = None;
        let mut step = 1_usize;
        for (_, size, index) in self.indices.iter().rev() {
            // Negative indices become large numbers past the axis.
            let index = index.cast(DType::U32)?;
            let exists = index.lt(of_size(self.operation, *size)?)?;
            let place = index.mul(of_size(self.operation, step)?)?;
            sum = Some(match sum {
                None => (place, exists),
                Some((place_after, exists_after)) => {
                    (place.add(&place_after)?, exists.logical_and(&exists_after)?)
                }
            });
            step = step.saturating_mul(*size);
        }
        let (place, exists) = sum.ok_or_else(|| Error::Shape {
            operation: self.operation,
            reason: "no index tensor".into(),
        })?;
        exists
            .where_(&place, u32::MAX)?
            .broadcast_to(&self.broadcast)
    }
}

/// The index tensors that an entry stands for: itself, or those of the elements of a mask.
#[track_caller]
fn places_named(
    operation: &'static str,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
) -> Result<Vec<Tensor>> {
    if index.dtype != DType::Bool {
        check_index_type(operation, x, index)?;
        return Ok(vec![index.clone()]);
    }
    x.same_engine(operation, index)?;
    let axes = x.shape().get(axis..axis + index.rank());
    if axes != Some(index.shape()) {
        return Err(Error::Shape {
            operation,
            reason: format!(
                "a mask of shape {:?} for the axes from {axis} on of {:?}",
                index.shape(),
                x.shape()
            ),
        })
        .located();
    }
    of_mask(operation, index)
}

#[cfg(not(target_arch = "wasm32"))]
#[track_caller]
fn of_mask(_operation: &'static str, mask: &Tensor) -> Result<Vec<Tensor>> {
    mask.nonzero()?.unbind(1)
}

/// Nothing can wait for a count here.
#[cfg(target_arch = "wasm32")]
fn of_mask(operation: &'static str, _mask: &Tensor) -> Result<Vec<Tensor>> {
    Err(Error::DType {
        operation,
        expected: "u32 or i32".into(),
        got: DType::Bool,
        hint: "Await nonzero_async, and index by its columns",
        at: String::new(),
    })
}

/// A size in the type of the indices.
fn of_size(operation: &'static str, size: usize) -> Result<u32> {
    u32::try_from(size).map_err(|_| Error::Shape {
        operation,
        reason: format!("{size} elements are more than 32 bits can count"),
    })
}
