//! Results in the place of operands: an element-wise kernel may write where it reads.

use std::sync::Arc;

use super::{Arg, Launch};
use crate::memory::Storage;

impl Launch {
    /// The operands whose storage this output may take over if nothing else holds it, each with the
    /// number of operands that show it.
    pub(in crate::engine) fn donors(
        &self,
        output: &Arg,
    ) -> impl Iterator<Item = (&Arc<Storage>, usize)> {
        let may_reuse = |index: usize| self.may_reuse >> index & 1 == 1;
        let args = || self.args.iter().enumerate();
        let reusable = args().filter(move |(index, _)| may_reuse(*index));
        reusable.filter_map(move |(_, arg)| {
            let donor = &arg.storage;
            let fits = arg.dtype.size_bytes() == output.dtype.size_bytes()
                && donor.size_bytes() == output.storage.size_bytes()
                && donor.share() == output.storage.share()
                && donor.pins() == 0;
            let uses = args().filter(|(_, other)| Arc::ptr_eq(&other.storage, donor));
            // Another operand may show the same bytes in another layout.
            let is_whole = uses.clone().all(|(index, _)| may_reuse(index));
            (fits && is_whole).then(|| (donor, uses.count()))
        })
    }
}
