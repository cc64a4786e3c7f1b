//! The collective operations that move bytes and compute nothing.

use lapidary::Tensor;
use lapidary::devices::internal;
use lapidary_core::internal::{Filling, PIECE_BYTES, Pieces};

use crate::checked::{axis_at, check, kind, room};
use crate::cut::{cut, cut_bytes, piece_bytes, rounds};
use crate::error::{Error, Result};
use crate::exchange::{in_rounds, read};
use crate::flight::Flight;
use crate::ranks::Ranks;

impl Ranks {
    /// The tensor of the rank `root`, on all ranks. The others give a tensor of the same shape and
    /// type, whose elements do not matter. `root` gets a handle of its own tensor.
    ///
    /// # Errors
    /// [`Error::Argument`] for a `root` that is no rank; else as [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn broadcast(&self, root: usize, tensor: &Tensor) -> Result<Tensor> {
        self.broadcast_as("", root, tensor)
    }

    /// `what` names the tensor, equally on all ranks.
    #[track_caller]
    pub(crate) fn broadcast_as(&self, what: &str, root: usize, tensor: &Tensor) -> Result<Tensor> {
        const OPERATION: &str = "broadcast";
        let checked = self.check_rank(OPERATION, root).and_then(|()| {
            let tensor = check(OPERATION, tensor)?;
            let to = room(&tensor, tensor.size_bytes())?;
            Ok((tensor, to))
        });
        let call = |(tensor, _): &(Tensor, Filling)| {
            let kind = kind(tensor);
            (format!("broadcast from rank {root} of {kind}{what}"), 0)
        };
        let ((tensor, to), _) = self.agree_if(OPERATION, checked, call)?;
        self.unbroken(match root == self.rank() {
            true => self.send_from_root(&tensor).map(|()| tensor),
            false => self.receive_from(root, &tensor, to),
        })
    }

    fn send_from_root(&self, tensor: &Tensor) -> Result<()> {
        let mut pieces = Pieces::new(tensor.buffer())?;
        pieces.start()?;
        in_rounds(
            self,
            "broadcast",
            tensor.size_bytes().div_ceil(PIECE_BYTES),
            &mut pieces,
            |pieces, _| {
                let mut bytes = self.spare();
                bytes.clear();
                read(pieces, &mut bytes)?;
                Flight::broadcast(self.comm(), self.rank(), bytes)
            },
            |_, _, _| Ok(()),
        )
    }

    fn receive_from(&self, root: usize, like: &Tensor, mut to: Filling) -> Result<Tensor> {
        in_rounds(
            self,
            "broadcast",
            like.size_bytes().div_ceil(PIECE_BYTES),
            &mut to,
            |_, round| {
                let mut bytes = self.spare();
                let len_bytes = piece_bytes(like.size_bytes(), round, PIECE_BYTES);
                bytes.resize(len_bytes as usize, 0);
                Flight::broadcast(self.comm(), root, bytes)
            },
            |to, _, received| Ok(to.write_now(received)?),
        )?;
        Ok(internal::tensor(to, like.shape(), like.dtype()))
    }

    /// One tensor of each rank, put together along `axis` in the order of the ranks, on all ranks.
    /// Other dimensions and the types are equal.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce). An axis that is not there is an [`Error::Lapidary`].
    #[track_caller]
    pub fn all_gather(&self, tensor: &Tensor, axis: isize) -> Result<Tensor> {
        const OPERATION: &str = "all_gather";
        let checked = check(OPERATION, tensor).and_then(|tensor| {
            let axis = axis_at(OPERATION, &tensor, axis)?;
            Ok((tensor, axis))
        });
        let call = |(tensor, axis): &(Tensor, usize)| {
            let mut shape: Vec<String> = tensor.shape().iter().map(usize::to_string).collect();
            shape[*axis] = "any".into();
            let (shape, dtype) = (shape.join(", "), tensor.dtype());
            let call = format!("all_gather along axis {axis} of {dtype} [{shape}]");
            (call, tensor.shape()[*axis] as u64)
        };
        let ((tensor, axis), lens) = self.agree_if(OPERATION, checked, call)?;
        // Only now a rank knows how much room it needs, and whether it has that.
        let arriving = parts(&tensor, axis, &lens);
        let call = |_: &Vec<Part>| ("the parts of an all_gather".into(), 0);
        let (arriving, _) = self.agree_if(OPERATION, arriving, call)?;
        let parts = self.unbroken(self.gathered(&tensor, arriving))?;
        let parts: Vec<&Tensor> = parts.iter().collect();
        Ok(Tensor::concat(&parts, axis as isize)?)
    }

    /// The tensor of each rank.
    fn gathered(&self, tensor: &Tensor, arriving: Vec<Part>) -> Result<Vec<Tensor>> {
        let cut_bytes = cut_bytes(self.count());
        let mut pieces = Pieces::new(cut(tensor, cut_bytes)?)?;
        pieces.start()?;
        let sizes_bytes: Vec<u64> = arriving.iter().map(|part| part.size_bytes).collect();
        let of_round = |round: u64| -> Vec<usize> {
            let lens_bytes = sizes_bytes.iter();
            lens_bytes
                .map(|size_bytes| piece_bytes(*size_bytes, round, cut_bytes) as usize)
                .collect()
        };
        let mut state = (pieces, arriving);
        in_rounds(
            self,
            "all_gather",
            rounds(sizes_bytes.iter().copied(), cut_bytes),
            &mut state,
            |(pieces, _), round| {
                let lens_bytes = of_round(round);
                let mut bytes = self.spare();
                bytes.clear();
                if lens_bytes[self.rank()] > 0 {
                    read(pieces, &mut bytes)?;
                }
                Flight::all_gather_parts(self.comm(), bytes, self.spare(), &lens_bytes)
            },
            |(_, arriving), round, mut received| {
                for (part, len_bytes) in arriving.iter_mut().zip(of_round(round)) {
                    let (piece, after) = received.split_at(len_bytes);
                    if !piece.is_empty() {
                        part.to.write_now(piece)?;
                    }
                    received = after;
                }
                Ok(())
            },
        )?;
        let parts = state.1.into_iter();
        Ok(parts.map(|part| part.end(tensor)).collect())
    }

    pub(crate) fn check_rank(&self, operation: &'static str, rank: usize) -> Result<()> {
        if rank < self.count() {
            return Ok(());
        }
        Err(Error::Argument {
            operation,
            reason: format!("{rank} is none of the {} ranks", self.count()),
        })
    }
}

/// Memory for the tensor of each rank, by their lengths along the axis.
#[track_caller]
fn parts(like: &Tensor, axis: usize, lens: &[u64]) -> Result<Vec<Part>> {
    let mut parts = Vec::with_capacity(lens.len());
    for len in lens {
        parts.push(Part::new(like, axis, *len)?);
    }
    Ok(parts)
}

/// The tensor of one rank, on its way to this one.
struct Part {
    shape: Vec<usize>,
    size_bytes: u64,
    to: Filling,
}

impl Part {
    /// As `like`, with this length along an axis.
    #[track_caller]
    fn new(like: &Tensor, axis: usize, len: u64) -> Result<Part> {
        let mut shape = like.shape().to_vec();
        shape[axis] = len as usize;
        let elements = shape.iter().map(|len| *len as u64);
        let elements = elements.fold(1, u64::saturating_mul);
        let size_bytes = elements.saturating_mul(like.dtype().size_bytes());
        Ok(Part {
            to: room(like, size_bytes)?,
            shape,
            size_bytes,
        })
    }

    fn end(self, like: &Tensor) -> Tensor {
        internal::tensor(self.to, &self.shape, like.dtype())
    }
}
