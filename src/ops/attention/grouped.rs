//! One query a head, as when a decoder generates one token. Heads that share keys become rows.

use super::call::Call;
use super::problem::Shapes;
use crate::tensor::Tensor;
use lapidary_core::Result;

impl Call<'_> {
    /// A call of one query. Keys after its position are left out. The heads of a group become its
    /// rows, so their keys are read once.
    #[track_caller]
    pub(super) fn one_query(&self, shapes: &Shapes) -> Result<Tensor> {
        let seen = match self.is_causal {
            true => shapes.keys.min(self.first + 1),
            false => shapes.keys,
        };
        let [k, v] = [self.k, self.v].map(|operand| operand.narrow(-2, 0, seen));
        let last = |mask: &Tensor| match mask.rank() {
            0 => Ok(mask.clone()),
            rank if mask.shape()[rank - 1] == 1 => Ok(mask.clone()),
            _ => mask.narrow(-1, 0, seen),
        };
        let mask = self.mask.map(last).transpose()?;
        let mut call = Call {
            k: &k?,
            v: &v?,
            mask: mask.as_ref(),
            is_causal: false,
            ..*self
        };
        if shapes.group == 1 {
            return call.run(None);
        }
        let heads = shapes.heads * shapes.group;
        let as_rows = |x: &Tensor| match x.rank().checked_sub(3).map(|axis| x.shape()[axis]) {
            Some(own) if own == heads => x
                .unflatten(-3, &[shapes.heads, shapes.group])?
                .squeeze_axis(-2),
            _ => Ok(x.clone()),
        };
        let (q, mask) = (as_rows(self.q)?, mask.as_ref().map(as_rows).transpose()?);
        call.q = &q;
        call.mask = mask.as_ref();
        call.run(None)?.reshape(&shapes.result)
    }
}
