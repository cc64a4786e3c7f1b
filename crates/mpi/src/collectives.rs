//! The collective operations: each rank has one tensor, of a device of its own. Here are those that
//! compute; `moves` has those that only move bytes.

use std::rc::Rc;

use lapidary::Tensor;
use lapidary::devices::Reduce;
use lapidary::devices::internal::{self, Accumulator, even_sizes};
use lapidary_core::internal::{Filling, Pieces};

use crate::checked::{axis_at, check, check_sum, kind, room};
use crate::cut::{cut, cut_bytes, piece_bytes, rounds};
use crate::error::Result;
use crate::exchange::{Column, in_rounds, read, sum};
use crate::flight::{Flight, in_a_row};
use crate::ranks::Ranks;

impl Ranks {
    /// Reduces one tensor of each rank to a value that all ranks get. It returns when the result is
    /// on its way to the device.
    ///
    /// The tensors have one shape and type. All ranks get the same bits, in every run with the same
    /// number of ranks. Floats are added in f32, in the order of the ranks, and rounded once. They
    /// are the bits of [`Group::all_reduce`](lapidary::devices::Group::all_reduce) over as many
    /// devices.
    ///
    /// ```no_run
    /// # use lapidary::{Tensor, devices::Reduce};
    /// # fn demo(ranks: &lapidary_mpi::Ranks, gradient: &Tensor) -> lapidary_mpi::Result<()> {
    /// let mean = ranks.all_reduce(gradient, Reduce::Mean)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Differs`](crate::Error::Differs) for another call, shape or type on another rank.
    /// [`Error::Failed`](crate::Error::Failed) if another rank refuses its tensor or has failed.
    /// [`Error::TimedOut`](crate::Error::TimedOut). [`Error::Lapidary`](crate::Error::Lapidary) for
    /// a type that has no sum, a tensor that is tracked for gradients, a lost device, no memory.
    /// The tensors are as they were.
    #[track_caller]
    pub fn all_reduce(&self, tensor: &Tensor, reduce: Reduce) -> Result<Tensor> {
        const OPERATION: &str = "all_reduce";
        let checked = summand(OPERATION, tensor, reduce).and_then(|tensor| {
            let to = room(&tensor, tensor.size_bytes())?;
            Ok((tensor, to))
        });
        let call = |(tensor, _): &(Tensor, Filling)| (named(OPERATION, tensor, reduce), 0);
        let ((tensor, to), _) = self.agree_if(OPERATION, checked, call)?;
        self.unbroken(self.summed(&tensor, to, reduce))
    }

    fn summed(&self, tensor: &Tensor, to: Filling, reduce: Reduce) -> Result<Tensor> {
        let column = Column {
            dtype: tensor.dtype(),
            size_bytes: tensor.size_bytes(),
            from: Some(Pieces::new(tensor.buffer())?),
            summands: Rc::from(vec![true; self.count()]),
            to,
        };
        let divisor = self.divisor(reduce);
        let sums = sum(self, "all_reduce", vec![column], divisor)?;
        let made = |filled| internal::tensor(filled, tensor.shape(), tensor.dtype());
        let mut sums = sums.into_iter().map(made);
        Ok(sums.next().expect("one column has one sum"))
    }

    /// Reduces one tensor of each rank, and gives each rank its part of the result along `axis`.
    /// The parts are those of [`split`](lapidary::devices::split): their sizes differ by at most
    /// one, and the first are the larger ones.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce). An axis that is not there is an
    /// [`Error::Lapidary`](crate::Error::Lapidary).
    #[track_caller]
    pub fn reduce_scatter(&self, tensor: &Tensor, axis: isize, reduce: Reduce) -> Result<Tensor> {
        const OPERATION: &str = "reduce_scatter";
        let checked = summand(OPERATION, tensor, reduce).and_then(|tensor| {
            let axis = axis_at(OPERATION, &tensor, axis)?;
            let parts = self.parts(&tensor, axis)?;
            let own = &parts[self.rank()];
            let to = room(own, own.size_bytes())?;
            Ok((tensor, axis, parts, to))
        });
        let call = |(tensor, axis, ..): &(Tensor, usize, Vec<Tensor>, Filling)| {
            let call = named(OPERATION, tensor, reduce);
            (format!("{call} along axis {axis}"), 0)
        };
        let ((_, _, parts, to), _) = self.agree_if(OPERATION, checked, call)?;
        self.unbroken(self.scattered(&parts, to, reduce))
    }

    /// The part of each rank.
    #[track_caller]
    fn parts(&self, tensor: &Tensor, axis: usize) -> Result<Vec<Tensor>> {
        let sizes = even_sizes(tensor.shape()[axis], self.count());
        let parts = tensor.split_sizes(&sizes, axis as isize)?;
        let parts = parts.iter().map(|part| Ok(part.contiguous()?));
        parts.collect()
    }

    fn scattered(&self, parts: &[Tensor], to: Filling, reduce: Reduce) -> Result<Tensor> {
        let own = &parts[self.rank()];
        let (dtype, divisor) = (own.dtype(), self.divisor(reduce));
        let cut_bytes = cut_bytes(self.count());
        let mut leaving = Vec::with_capacity(parts.len());
        for part in parts {
            let mut pieces = Pieces::new(cut(part, cut_bytes)?)?;
            pieces.start()?;
            leaving.push(pieces);
        }
        let mut state = (leaving, Accumulator::default(), to);
        in_rounds(
            self,
            "reduce_scatter",
            rounds(parts.iter().map(Tensor::size_bytes), cut_bytes),
            &mut state,
            |(leaving, ..), round| self.spread(parts, leaving, round, cut_bytes),
            |(_, sum, to), _, received| {
                let share_bytes = received.len() / self.count();
                if share_bytes > 0 {
                    for (number, share) in received.chunks_exact(share_bytes).enumerate() {
                        sum.add(dtype, share, number == 0);
                    }
                    to.write_now(sum.end(dtype, divisor))?;
                }
                Ok(())
            },
        )?;
        Ok(internal::tensor(state.2, own.shape(), dtype))
    }

    /// Sends each rank the next piece of its part.
    fn spread(
        &self,
        parts: &[Tensor],
        leaving: &mut [Pieces],
        round: u64,
        cut_bytes: u64,
    ) -> Result<Flight> {
        let mut bytes = self.spare();
        bytes.clear();
        let mut sent = Vec::with_capacity(parts.len());
        for (part, pieces) in parts.iter().zip(leaving) {
            let len_bytes = piece_bytes(part.size_bytes(), round, cut_bytes);
            if len_bytes > 0 {
                read(pieces, &mut bytes)?;
            }
            sent.push(len_bytes as usize);
        }
        let received = vec![sent[self.rank()]; self.count()];
        let sent = in_a_row(sent);
        Flight::all_to_all(self.comm(), (bytes, &sent), (self.spare(), &received))
    }

    /// By what a sum over all ranks is divided.
    pub(crate) fn divisor(&self, reduce: Reduce) -> f32 {
        match reduce {
            Reduce::Sum => 1.0,
            Reduce::Mean => self.count() as f32,
        }
    }
}

/// The tensor, row-major and without gaps, if it can be summed.
#[track_caller]
fn summand(operation: &'static str, tensor: &Tensor, reduce: Reduce) -> Result<Tensor> {
    check_sum(operation, tensor.dtype(), reduce)?;
    check(operation, tensor)
}

fn named(operation: &str, tensor: &Tensor, reduce: Reduce) -> String {
    format!("{operation} ({reduce:?}) of {}", kind(tensor))
}
