//! Sums of tensors over all ranks, piece by piece.
//!
//! A piece goes through three stages. It is read from the device. `MPI_Ialltoallv` gives each rank
//! one part of it from all ranks, and the rank adds the parts in the order of the ranks.
//! `MPI_Iallgatherv` gives the sums to all. While a piece is on its way in one stage, others are in
//! the stages before and after it.
//!
//! MPI's own reduction chooses the order of a sum by the number of ranks and bytes, and has no type
//! for half floats. So only the additions are ours.

use std::ops::Range;
use std::rc::Rc;

use lapidary::DType;
use lapidary::devices::internal::{Accumulator, even_sizes};
use lapidary_core::internal::{Filling, Next, PIECE_BYTES, Pieces, Seen, block_on};

use crate::error::Result;
use crate::flight::{Flight, in_a_row};
use crate::ranks::Ranks;

/// One sum.
pub(crate) struct Column {
    pub(crate) dtype: DType,
    pub(crate) size_bytes: u64,
    /// This rank's summand, unless it has none.
    pub(crate) from: Option<Pieces>,
    /// The ranks that have one, at least one. All ranks know the same.
    pub(crate) summands: Rc<[bool]>,
    /// Where the sum goes.
    pub(crate) to: Filling,
}

/// Neighbouring parts of columns that travel together.
struct Piece {
    dtype: DType,
    summands: Rc<[bool]>,
    /// The column and the length of each part.
    parts: Vec<(usize, usize)>,
    len_bytes: usize,
}

/// Sums all columns. `call` is the name for people, `divisor` what the sums are divided by. All
/// ranks give equal columns, but for the summands. Returns where the sums went.
pub(crate) fn sum(
    ranks: &Ranks,
    call: &str,
    mut columns: Vec<Column>,
    divisor: f32,
) -> Result<Vec<Filling>> {
    for pieces in columns.iter_mut().filter_map(|column| column.from.as_mut()) {
        pieces.start()?;
    }
    let pieces = plan(&columns);
    let mut work = Work {
        ranks,
        call,
        divisor,
        sum: Accumulator::default(),
    };
    let (mut spread, mut gathered) = (None, None);
    // Three pieces are in work at a time. All ranks make MPI's calls in this one order.
    for number in 0..pieces.len() + 2 {
        let next_spread = match pieces.get(number) {
            Some(piece) => Some(work.spread(piece, &mut columns)?),
            None => None,
        };
        let arrived = std::mem::replace(&mut spread, next_spread);
        let next_gathered = match arrived {
            Some(flight) => Some(work.add_up(&pieces[number - 1], flight)?),
            None => None,
        };
        if let Some(flight) = std::mem::replace(&mut gathered, next_gathered) {
            work.write(&pieces[number - 2], flight, &mut columns)?;
        }
    }
    Ok(columns.into_iter().map(|column| column.to).collect())
}

/// Small columns share a piece, and large ones have several.
fn plan(columns: &[Column]) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for (number, column) in columns.iter().enumerate() {
        let mut left_bytes = column.size_bytes;
        while left_bytes > 0 {
            let len_bytes = left_bytes.min(PIECE_BYTES);
            left_bytes -= len_bytes;
            let len_bytes = len_bytes as usize;
            let fits = |piece: &&mut Piece| {
                piece.dtype == column.dtype
                    && piece.summands == column.summands
                    && piece.len_bytes + len_bytes <= PIECE_BYTES as usize
            };
            match pieces.last_mut().filter(fits) {
                Some(piece) => {
                    piece.parts.push((number, len_bytes));
                    piece.len_bytes += len_bytes;
                }
                None => pieces.push(Piece {
                    dtype: column.dtype,
                    summands: column.summands.clone(),
                    parts: vec![(number, len_bytes)],
                    len_bytes,
                }),
            }
        }
    }
    pieces
}

impl Piece {
    /// The bytes that each rank sums.
    fn parts(&self, count: usize) -> Vec<Range<usize>> {
        let width = self.dtype.size_bytes() as usize;
        let elements = even_sizes(self.len_bytes / width, count);
        let lens_bytes = elements.into_iter().map(|part| part * width);
        in_a_row(lens_bytes)
    }
}

struct Work<'a> {
    ranks: &'a Ranks,
    call: &'a str,
    divisor: f32,
    sum: Accumulator,
}

impl Work<'_> {
    /// Reads a piece, and gives each rank its part of it.
    fn spread(&mut self, piece: &Piece, columns: &mut [Column]) -> Result<Flight> {
        let mut bytes = self.ranks.spare();
        bytes.clear();
        for (column, _) in &piece.parts {
            if let Some(pieces) = &mut columns[*column].from {
                read(pieces, &mut bytes)?;
            }
        }
        let (parts, rank) = (piece.parts(self.ranks.count()), self.ranks.rank());
        // This rank's part of its own piece stays where it is.
        let sends = piece.summands[rank];
        let sent = parts.iter().enumerate();
        let sent = sent.map(|(to, part)| match sends && to != rank {
            true => part.clone(),
            false => 0..0,
        });
        let received = piece.summands.iter().enumerate();
        let received = received.map(|(from, sends)| match *sends && from != rank {
            true => parts[rank].len(),
            false => 0,
        });
        let (sent, received): (Vec<_>, Vec<_>) = (sent.collect(), received.collect());
        let memory = self.ranks.spare();
        Flight::all_to_all(self.ranks.comm(), (bytes, &sent), (memory, &received))
    }

    /// Adds the parts of all ranks, and gives the sum to all.
    fn add_up(&mut self, piece: &Piece, mut flight: Flight) -> Result<Flight> {
        self.ranks.wait(self.call, &mut flight)?;
        let (mut sent, received) = flight.end();
        let (parts, rank) = (piece.parts(self.ranks.count()), self.ranks.rank());
        let own = &parts[rank];
        let (mut is_first, mut rest) = (true, &received[..]);
        for (from, has_one) in piece.summands.iter().enumerate() {
            let part = match *has_one && !own.is_empty() {
                false => continue,
                true if from == rank => &sent[own.clone()],
                true => {
                    let (part, after) = rest.split_at(own.len());
                    rest = after;
                    part
                }
            };
            self.sum.add(piece.dtype, part, is_first);
            is_first = false;
        }
        sent.clear();
        if !own.is_empty() {
            sent.extend_from_slice(self.sum.end(piece.dtype, self.divisor));
        }
        let lens_bytes: Vec<usize> = parts.iter().map(Range::len).collect();
        Flight::all_gather_parts(self.ranks.comm(), sent, received, &lens_bytes)
    }

    fn write(&mut self, piece: &Piece, mut flight: Flight, columns: &mut [Column]) -> Result<()> {
        self.ranks.wait(self.call, &mut flight)?;
        let (sent, received) = flight.end();
        let mut rest = &received[..];
        for (column, len_bytes) in &piece.parts {
            let (part, after) = rest.split_at(*len_bytes);
            columns[*column].to.write_now(part)?;
            rest = after;
        }
        self.ranks.take_back([sent, received]);
        Ok(())
    }
}

/// Makes one of MPI's calls a round: each begins before the one before it ends. `end` gets what
/// arrived.
pub(crate) fn in_rounds<S>(
    ranks: &Ranks,
    call: &str,
    rounds: u64,
    state: &mut S,
    begin: impl Fn(&mut S, u64) -> Result<Flight>,
    end: impl Fn(&mut S, u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut before: Option<Flight> = None;
    for round in 0..=rounds {
        let next = match round < rounds {
            true => Some(begin(state, round)?),
            false => None,
        };
        if let Some(mut flight) = std::mem::replace(&mut before, next) {
            ranks.wait(call, &mut flight)?;
            let (sent, received) = flight.end();
            end(state, round - 1, &received)?;
            ranks.take_back([sent, received]);
        }
    }
    Ok(())
}

/// Appends the next piece of a tensor.
pub(crate) fn read(pieces: &mut Pieces, bytes: &mut Vec<u8>) -> Result<()> {
    let mut look = |piece: &[u8], _: Seen| {
        bytes.extend_from_slice(piece);
        true
    };
    let next = block_on("a collective operation", pieces.next(&mut look))?;
    debug_assert!(!matches!(next, Next::End), "a tensor has all of its pieces");
    Ok(())
}
