//! Functions of the app that fail or panic during a training: those that see gradients, and those
//! that checkpoints call.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use lapidary::grad::Gradients;
use lapidary::{Error, Tensor};

use super::{FAST_KERNELS, Network, end, open_tight};

/// No call fails.
const NEVER: u32 = u32::MAX;

/// The calls of the app's functions until one fails.
struct Calls {
    left: AtomicU32,
    panics: AtomicBool,
}

impl Calls {
    fn see(&self, tensor: &Tensor) -> lapidary::Result<Tensor> {
        if self.left.fetch_sub(1, Ordering::Relaxed) > 1 {
            return Ok(tensor.clone());
        }
        self.left.store(NEVER, Ordering::Relaxed);
        if self.panics.load(Ordering::Relaxed) {
            // A panic that prints nothing.
            resume_unwind(Box::new("the app's own affair"));
        }
        Err(Error::Option {
            option: "the app's own",
            reason: "not now".into(),
        })
    }
}

#[test]
fn functions_of_the_app_that_fail_or_panic_leave_all_as_it_was() {
    let (gpu, sim) = open_tight(FAST_KERNELS);
    let calls = Arc::new(Calls {
        left: AtomicU32::new(NEVER),
        panics: AtomicBool::new(false),
    });
    let its_calls = Arc::clone(&calls);
    let network = Network::new(&gpu, Arc::new(move |tensor| its_calls.see(tensor)));
    let network = network.expect("a network");
    for parameter in &network.parameters {
        network.watch(parameter).expect("it is a parameter");
    }
    let gradients = network.loss().and_then(|loss| loss.backward());
    let gradients = network
        .bits_of(&gradients.expect("nothing fails"))
        .into_iter();
    let expected: Vec<_> = gradients.map(|bits| bits.expect("a value")).collect();
    let made = NEVER - calls.left.load(Ordering::Relaxed);
    assert!(made >= 16, "{made} calls");
    for nth in 1..=made {
        for panics in [false, true] {
            let name = &format!("call {nth}, panics: {panics}");
            calls.left.store(nth, Ordering::Relaxed);
            calls.panics.store(panics, Ordering::Relaxed);
            let mut gradients = Gradients::default();
            let run = || network.loss()?.backprop().add_to(&mut gradients);
            let outcome = catch_unwind(AssertUnwindSafe(run));
            match outcome {
                Ok(Err(Error::Option { .. })) => assert!(!panics, "{name}"),
                Err(_) => assert!(panics, "{name}"),
                Ok(other) => panic!("{name}: {other:?}"),
            }
            assert!(gradients.is_empty(), "{name}: partial gradients");
            network.check_saved(name);
            network.check(name);
        }
        network.check_backward(&format!("call {nth}"), &expected, false);
    }
    drop(network);
    end("functions of the app", gpu, &sim);
}
