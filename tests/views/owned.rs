//! A result that shares no memory with an operand can be written.

use lapidary::{Result, Tensor};

use crate::common::operations::{self, plain};
use crate::views::simulated;

type View = fn(&Tensor) -> Result<Tensor>;

/// The same shape with other strides.
const VIEWS: [(&str, View); 3] = [
    ("plain", |x| Ok(x.clone())),
    ("turned", |x| match x.rank() {
        0 => Ok(x.clone()),
        _ => x.transpose(0, -1)?.copy()?.transpose(0, -1),
    }),
    ("broadcast", |x| match x.shape().first() {
        None | Some(0) => Ok(x.clone()),
        _ => x.narrow(0, 0, 1)?.broadcast_to(x.shape()),
    }),
];

/// Along an axis of one element, the copies that an operation makes can be views of one another.
const SIZES: [(usize, usize); 4] = [(3, 4), (3, 1), (1, 4), (1, 1)];

#[test]
fn results_with_memory_of_their_own_can_be_written_whatever_the_operands() {
    let gpu = simulated();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for operation in operations::all() {
        for (sizes, (name, view)) in SIZES.iter().flat_map(|one| VIEWS.map(|view| (*one, view))) {
            let operands = (0..operation.operands.len()).map(|number| {
                let (operand, _) = plain(&gpu, operation, operation.dtypes[0], number, sizes)?;
                view(&operand)
            });
            let operands: Vec<Tensor> = operands.collect::<Result<_>>().unwrap();
            // A broadcast cannot be written in place.
            let Ok(results) = (operation.call)(&operands) else {
                continue;
            };
            for result in results {
                if operands.iter().any(|one| one.shares_storage_with(&result)) {
                    continue;
                }
                count += 1;
                if let Err(error) = result.copy_(&result.copy().unwrap()) {
                    wrong.push(format!("{} of {sizes:?}, {name}: {error}", operation.name));
                }
            }
        }
    }
    assert!(count > 3000, "only {count} results");
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}
