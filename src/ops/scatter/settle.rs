//! How an element is computed from the old one and from the sources that name it.

/// How the sources that name one element are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) enum How {
    /// The last one wins.
    Write,
    Sum,
    Product,
    Max,
    Min,
    Mean,
}

/// How an element is computed from the old element and the sources that name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) struct Settle {
    pub(in crate::ops) how: How,
    /// Excludes the old element from the fold.
    pub(in crate::ops) is_alone: bool,
}

/// Bit of a variant's code, after those of the fold.
pub(super) const ALONE: u64 = 1 << 8;

impl Settle {
    pub(in crate::ops) const WRITE: Settle = Settle::with(How::Write);
    pub(in crate::ops) const ADD: Settle = Settle::with(How::Sum);

    /// Adds with `accumulate`, else writes.
    pub(in crate::ops) fn putting(accumulate: bool) -> Self {
        if accumulate { Self::ADD } else { Self::WRITE }
    }

    /// Folds with the old element.
    pub(super) const fn with(how: How) -> Self {
        Settle {
            how,
            is_alone: false,
        }
    }

    pub(in crate::ops) fn code(self) -> u64 {
        self.how as u64 | if self.is_alone { ALONE } else { 0 }
    }

    pub(in crate::ops) fn from_code(code: u64) -> Self {
        let how = match code & 7 {
            0 => How::Write,
            1 => How::Sum,
            2 => How::Product,
            3 => How::Max,
            4 => How::Min,
            _ => How::Mean,
        };
        Settle {
            how,
            is_alone: code & ALONE != 0,
        }
    }
}
