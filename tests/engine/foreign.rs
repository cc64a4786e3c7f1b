//! Operands of another device: every operation of several tensors refuses them and changes nothing.

use lapidary::{Error, Gpu, Tensor};

use crate::common::operands::numbers;
use crate::common::operations::{self, plain};
use crate::engine::{ended, open, options};

/// Rows and columns.
const SIZES: (usize, usize) = (4, 6);

#[test]
fn every_operation_refuses_operands_of_another_device_and_leaves_what_there_is() {
    let [(home, of_home), (away, of_away)] = [(); 2].map(|()| open(options()));
    let several = operations::all().filter(|operation| operation.operands.len() > 1);
    for operation in several {
        let name = operation.name;
        let make = |gpu: &Gpu, number: usize| -> (Tensor, Vec<f64>) {
            plain(gpu, operation, operation.dtypes[0], number, SIZES).expect("room")
        };
        let operands = operation.operands.len();
        for foreign in 0..operands {
            let made = (0..operands).map(|number| match number == foreign {
                true => make(&away, number),
                false => make(&home, number),
            });
            let (tensors, values): (Vec<Tensor>, Vec<Vec<f64>>) = made.unzip();
            let refused = (operation.call)(&tensors).map(drop);
            assert!(
                matches!(refused, Err(Error::Foreign { .. })),
                "{name}, operand {foreign}: {refused:?}"
            );
            for (tensor, values) in tensors.iter().zip(&values) {
                let now = numbers(tensor).expect("a value");
                assert_eq!(&now, values, "{name}, operand {foreign}");
            }
        }
        // On one device the same operands are accepted, so only the device is refused.
        let tensors: Vec<Tensor> = (0..operands).map(|number| make(&home, number).0).collect();
        (operation.call)(&tensors).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    ended(home, &of_home);
    ended(away, &of_away);
}
