//! Elements that several index tensors name together, and those that a mask lets through.

use std::sync::Arc;

use smallvec::SmallVec;

use super::index_select::check_index_type;
use super::operation::{Takes, same_dtype};
use super::scatter::{self, Settle};
use super::scatter_into::InPlace;
use crate::tensor::Tensor;
use crate::tensor::layout::{Dims, MAX_RANK, broadcast_shapes};
use lapidary_core::{DType, Error, Result};

impl Tensor {
    /// The elements that index tensors name together, as PyTorch's `x[i, j]`: entry `d` of
    /// `indices` goes along axis `d`, and `None`, or no entry, takes all of it. The index tensors,
    /// `u32` or `i32`, broadcast to one shape. It takes the place of the axes that they go along,
    /// or comes first if these do not lie together.
    ///
    /// The device cannot report an index that an axis does not have. Its element is 0, and that of
    /// every negative index, which does not count from the end.
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(x: &Tensor, i: &Tensor, j: &Tensor) -> lapidary::Result<()> {
    /// let picked = x.index(&[Some(i), Some(j)])?; // x[i, j]
    /// let columns = x.index(&[None, Some(j)])?; // x[:, j]
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] for more entries than axes, without any index tensor, if their shapes do
    /// not broadcast, or if the result has more than eight dimensions; [`Error::DType`] unless they
    /// hold `u32` or `i32`; [`Error::Foreign`] if one belongs to another `Gpu`; and
    /// [`Error::NeverFits`] if the result is too large.
    #[track_caller]
    pub fn index(&self, indices: &[Option<&Tensor>]) -> Result<Tensor> {
        let named = Named::of("index", self, indices)?;
        let joined = named.join(self)?;
        let picked = joined.index_select(named.first as isize, &named.places()?.flatten()?)?;
        picked.reshape(&named.shape(&joined.layout.shape))
    }

    /// A copy in which the elements that index tensors name, as in [`index`](Tensor::index), are
    /// those of `values`, or with `accumulate` are added to. `values` broadcasts to the shape that
    /// `index` gives.
    ///
    /// Of several that name one element, the last stays, in row-major order of the index tensors;
    /// with `accumulate` all are added in that order, as in [`scatter_add`](Tensor::scatter_add);
    /// of bools it is `or`.
    /// An index that an axis does not have is skipped, and so is every negative one.
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(x: &Tensor, i: &Tensor, j: &Tensor, v: &Tensor) -> lapidary::Result<()> {
    /// let changed = x.index_put(&[Some(i), Some(j)], v, false)?; // x[i, j] = v
    /// # Ok(()) }
    /// ```
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
        let put = self.check_index_put(indices, values)?;
        let made = scatter::put(&put.with(Settle::putting(accumulate)))?;
        put.named.part(self, &made)
    }

    #[track_caller]
    fn check_index_put<'a>(
        &self,
        indices: &[Option<&'a Tensor>],
        values: &Tensor,
    ) -> Result<Put<'a>> {
        const OPERATION: &str = "index_put";
        self.same_engine(OPERATION, values)?;
        same_dtype(OPERATION, self.dtype, values.dtype)?;
        let named = Named::of(OPERATION, self, indices)?;
        let joined = named.join(self)?;
        let values = values.broadcast_to(&named.shape(&joined.layout.shape))?;
        let mut sliced = joined.layout.shape.clone();
        sliced[named.first] = named.broadcast.iter().product();
        Ok(Put {
            values: values.reshape(&sliced)?,
            places: named.places()?.flatten()?,
            joined,
            named,
        })
    }

    /// [`index_put`](Tensor::index_put) in place. It takes no time or memory for what no index
    /// names, if `self` is contiguous, the index tensors go along axes that lie together, and none
    /// of the operands is a view of the same memory. For elements of fewer than 4 bytes, what comes
    /// after those axes must be a multiple of 4 elements besides, and so must where `self` starts.
    /// Else all of `self` is copied twice.
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
        self.check_writable("index_put_")?;
        let put = self.check_index_put(indices, values)?;
        let into = put.with(Settle::putting(accumulate));
        if Arc::ptr_eq(&put.joined.storage, &self.storage) && into.suits() {
            return into.run();
        }
        self.copy_(&put.named.part(self, &scatter::put(&into)?)?)
    }

    /// The elements where `mask`, a bool tensor, is true, in row-major order along one axis. The
    /// two shapes broadcast.
    ///
    /// How many there are decides the shape, so this reads the count, and waits for the device. In
    /// a browser, and wherever that is too slow, count ahead and take
    /// [`masked_select_first`](Tensor::masked_select_first).
    ///
    /// ```no_run
    /// # fn demo(x: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let positive = x.masked_select(&x.gt_scalar(0)?)?; // x[x > 0]
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`] if the mask holds no bools, [`Error::Shape`] if the shapes do not
    /// broadcast, [`Error::Foreign`], [`Error::NeverFits`] if the operands are too large; and what
    /// became of the work that the mask needs.
    #[cfg(not(target_arch = "wasm32"))]
    #[track_caller]
    pub fn masked_select(&self, mask: &Tensor) -> Result<Tensor> {
        let (x, ends) = counted(self, mask)?;
        let count = match ends.len() {
            0 => 0,
            len => ends.narrow(0, len - 1, 1)?.item::<u32>()? as usize,
        };
        let places = places(&ends, count)?;
        x.index_select(0, &places)
    }

    /// The first `count` elements where `mask`, a bool tensor, is true, in row-major order along
    /// one axis, and zeros where there are fewer. The two shapes broadcast. Nothing is read, so
    /// nobody waits.
    ///
    /// ```
    /// # fn demo(x: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let positive = x.masked_select_first(&x.gt_scalar(0)?, 16)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`] if the mask holds no bools, [`Error::Shape`] if the shapes do not
    /// broadcast, [`Error::Foreign`], and [`Error::NeverFits`] if the operands are too large.
    #[track_caller]
    pub fn masked_select_first(&self, mask: &Tensor, count: usize) -> Result<Tensor> {
        let (x, ends) = counted(self, mask)?;
        x.index_select(0, &places(&ends, count)?)
    }
}

/// The elements in one dimension, and how many up to each of them the mask lets through.
#[track_caller]
fn counted(x: &Tensor, mask: &Tensor) -> Result<(Tensor, Tensor)> {
    const OPERATION: &str = "masked_select";
    x.same_engine(OPERATION, mask)?;
    Takes::Bools.check(OPERATION, mask.dtype)?;
    let shape = broadcast_shapes(OPERATION, x.shape(), mask.shape())?;
    let x = x.broadcast_to(&shape)?.flatten()?;
    let ends = mask.broadcast_to(&shape)?.flatten()?.cumsum(0)?;
    Ok((x, ends))
}

/// Where the first `count` are that a mask lets through. Where there are fewer, beyond the end.
#[track_caller]
fn places(ends: &Tensor, count: usize) -> Result<Tensor> {
    let numbers = super::fill::counting(&ends.engine, count)?;
    ends.search_sorted(&numbers, true)
}

/// Axes with the index tensors that go along them.
struct Named<'a> {
    operation: &'static str,
    indices: SmallVec<[(usize, usize, &'a Tensor); 4]>,
    /// The first of them; axis 0 if they do not lie together.
    first: usize,
    are_together: bool,
    /// What the shapes of the index tensors broadcast to.
    broadcast: Dims,
}

/// Values for the elements that index tensors name.
struct Put<'a> {
    named: Named<'a>,
    /// The tensor with the named axes as one.
    joined: Tensor,
    /// Where along that axis.
    places: Tensor,
    /// Slices along it.
    values: Tensor,
}

impl Put<'_> {
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

impl<'a> Named<'a> {
    fn of(operation: &'static str, x: &Tensor, given: &[Option<&'a Tensor>]) -> Result<Named<'a>> {
        let refuse = |reason| Err(Error::Shape { operation, reason });
        if given.len() > x.rank() {
            let shape = x.shape();
            return refuse(format!("{} entries for the axes of {shape:?}", given.len()));
        }
        let mut broadcast = Dims::new();
        let mut indices = SmallVec::<[_; 4]>::new();
        for (axis, (index, &size)) in given.iter().zip(x.shape()).enumerate() {
            let Some(index) = *index else { continue };
            if index.dtype == DType::Bool {
                return Err(Error::DType {
                    operation,
                    expected: "u32 or i32".into(),
                    got: DType::Bool,
                    hint: "Use masked_select for a mask",
                });
            }
            check_index_type(operation, x, index)?;
            broadcast = broadcast_shapes(operation, &broadcast, index.shape())?;
            indices.push((axis, size, index));
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
        indices: SmallVec<[(usize, usize, &'a Tensor); 4]>,
        first: usize,
        are_together: bool,
        broadcast: Dims,
    ) -> Result<Named<'a>> {
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

    /// The named axes in front of the others, unless they lie together already.
    fn order(&self, rank: usize) -> Vec<isize> {
        let is_named = |axis: &usize| self.indices.iter().any(|(named, ..)| named == axis);
        let named = self.indices.iter().map(|&(axis, ..)| axis as isize);
        let others = (0..rank).filter(|axis| !is_named(axis));
        named.chain(others.map(|axis| axis as isize)).collect()
    }

    /// The tensor with the named axes as one, which is axis `first`.
    #[track_caller]
    fn join(&self, x: &Tensor) -> Result<Tensor> {
        let last = (self.first + self.indices.len() - 1) as isize;
        match self.are_together {
            true => x.flatten_axes(self.first as isize, last),
            false => x.permute(&self.order(x.rank()))?.flatten_axes(0, last),
        }
    }

    /// The reverse of [`join`](Self::join), for a tensor in the shape that it gave.
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

    /// The shape of what the index tensors name in a tensor that [`join`](Self::join) gave.
    fn shape(&self, joined: &Dims) -> Dims {
        let mut shape = Dims::from_slice(&joined[..self.first]);
        shape.extend_from_slice(&self.broadcast);
        shape.extend_from_slice(&joined[self.first + 1..]);
        shape
    }

    /// Where along the joined axis the index tensors point; beyond any axis where one of them
    /// names no element of its own.
    #[track_caller]
    fn places(&self) -> Result<Tensor> {
        let mut sum: Option<(Tensor, Tensor)> = None;
        let mut step = 1_usize;
        for &(_, size, index) in self.indices.iter().rev() {
            // A negative index is far beyond the axis.
            let index = index.cast(DType::U32)?;
            let exists = index.lt_scalar(of_size(self.operation, size)?)?;
            let place = index.mul_scalar(of_size(self.operation, step)?)?;
            sum = Some(match sum {
                None => (place, exists),
                Some((place_after, exists_after)) => {
                    (place.add(&place_after)?, exists.logical_and(&exists_after)?)
                }
            });
            step = step.saturating_mul(size);
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

/// A size as what indices are compared with.
fn of_size(operation: &'static str, size: usize) -> Result<u32> {
    u32::try_from(size).map_err(|_| Error::Shape {
        operation,
        reason: format!("{size} elements are more than 32 bits count"),
    })
}
