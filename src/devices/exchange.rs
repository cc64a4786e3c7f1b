//! Values that are computed on the host from tensors of several devices, and go to several.

use lapidary_core::internal::{Filling, Next, PIECE_BYTES, Pieces, Seen, block_on};
use lapidary_core::{DType, Result};

use super::accumulator::Accumulator;
use super::group::Group;
use crate::tensor::Tensor;
use crate::tensor::layout::Layout;

/// A tensor of a device on its way to the host.
#[derive(Debug)]
pub(super) struct Outgoing {
    device: usize,
    dtype: DType,
    layout: Layout,
    size_bytes: u64,
    pieces: Pieces,
}

impl Outgoing {
    /// The tensor is contiguous.
    pub(super) fn new(device: usize, tensor: &Tensor) -> Result<Self> {
        Ok(Outgoing {
            device,
            dtype: tensor.dtype(),
            layout: Layout::contiguous(tensor.shape()),
            size_bytes: tensor.size_bytes(),
            pieces: Pieces::new([tensor.bytes()])?,
        })
    }

    /// Queues its reads before all commands that are recorded later, where that is possible without
    /// a wait.
    pub(super) fn queued(mut self) -> Result<Self> {
        self.pieces.queue_all()?;
        Ok(self)
    }
}

/// The sum of tensors of one shape and type, each of another device. The sum of one tensor has its
/// bytes, whatever its type.
#[derive(Debug)]
pub(super) struct Column {
    /// In the order of the sum.
    from: Vec<Outgoing>,
    /// The devices that get the result, and where they get it.
    to: Vec<(usize, Filling)>,
}

impl Column {
    /// The results get memory of their devices later. Their tags name the caller.
    #[track_caller]
    pub(super) fn new(group: &Group, from: Vec<Outgoing>, to: &[usize]) -> Result<Self> {
        let mut fillings = Vec::with_capacity(to.len());
        if let Some(first) = from.first() {
            for &device in to {
                fillings.push((device, group.new_filling(device, first.size_bytes)?));
            }
        }
        Ok(Column { from, to: fillings })
    }

    /// As [`new`](Self::new), with results for which there is room already.
    pub(super) fn with(from: Vec<Outgoing>, to: Vec<(usize, Filling)>) -> Self {
        Column { from, to }
    }
}

/// Computes the columns, in their order. Returns the results of each, in the order of its `to`.
///
/// All devices read at once, and the first pieces are written while others are read.
pub(super) fn exchange(
    group: &Group,
    mut columns: Vec<Column>,
    divisor: f32,
) -> Result<Vec<Vec<Tensor>>> {
    for one in columns.iter_mut().flat_map(|column| &mut column.from) {
        let started = one.pieces.start();
        started.map_err(|error| group.named(one.device, error))?;
    }
    let mut work = Work {
        group,
        sum: Accumulator::default(),
        divisor,
    };
    let columns = columns.into_iter();
    columns.map(|column| work.finish(column)).collect()
}

struct Work<'a> {
    group: &'a Group,
    sum: Accumulator,
    divisor: f32,
}

impl Work<'_> {
    fn finish(&mut self, column: Column) -> Result<Vec<Tensor>> {
        let Column { mut from, mut to } = column;
        let Some(first) = from.first() else {
            return Ok(Vec::new());
        };
        let (dtype, layout) = (first.dtype, first.layout.clone());
        for _ in 0..first.size_bytes.div_ceil(PIECE_BYTES) {
            match &mut from[..] {
                [one] if self.divisor == 1.0 => self.copy(one, &mut to)?,
                _ => self.add(dtype, &mut from, &mut to)?,
            }
        }
        let made = |(_, filling): (usize, Filling)| {
            Tensor::of_buffer(&filling.end(), layout.clone(), dtype)
        };
        Ok(to.into_iter().map(made).collect())
    }

    /// Adds the next pieces of all devices, and writes the sum to all that get it.
    fn add(
        &mut self,
        dtype: DType,
        from: &mut [Outgoing],
        to: &mut [(usize, Filling)],
    ) -> Result<()> {
        let (group, sum) = (self.group, &mut self.sum);
        for (number, one) in from.iter_mut().enumerate() {
            let mut look = |piece: &[u8], _: Seen| {
                sum.add(dtype, piece, number == 0);
                true
            };
            let next = block_on("a sum", one.pieces.next(&mut look));
            next.map_err(|error| group.named(one.device, error))?;
        }
        write(group, sum.end(dtype, self.divisor), to)
    }

    /// Copies the next piece of one device to all that get it.
    fn copy(&mut self, from: &mut Outgoing, to: &mut [(usize, Filling)]) -> Result<()> {
        let group = self.group;
        // Those who got the piece in place stand before the others.
        let (mut written, mut failed) = (0, None);
        let mut look = |piece: &[u8], seen| {
            for (device, filling) in &mut *to {
                match filling.write_seen(piece, seen) {
                    Ok(true) => written += 1,
                    Ok(false) => return false,
                    Err(error) => {
                        failed = Some(group.named(*device, error));
                        return true;
                    }
                }
            }
            true
        };
        let next = block_on("a copy", from.pieces.next(&mut look));
        let next = next.map_err(|error| group.named(from.device, error))?;
        if let Some(error) = failed {
            return Err(error);
        }
        if let Next::Kept(piece) = next {
            write(group, &piece, &mut to[written..])?;
            from.pieces.take_back(piece);
        }
        Ok(())
    }
}

fn write(group: &Group, piece: &[u8], to: &mut [(usize, Filling)]) -> Result<()> {
    for (device, filling) in to {
        let written = filling.write_now(piece);
        written.map_err(|error| group.named(*device, error))?;
    }
    Ok(())
}
