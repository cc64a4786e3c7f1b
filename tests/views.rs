//! For any views as operands, an operation gives the same as for plain tensors with the same
//! elements. It changes nothing outside the view that it writes through.
//!
//! All operations run on the simulation, with every operand as each kind of view. On an adapter
//! only one operation of each family of kernels runs. `LAPIDARY_VIEWS=all` runs all operations
//! everywhere, with all pairs of kinds. `LAPIDARY_SEED` sets the seed of random combinations.

mod errors;
mod hostile;
mod methods;
mod options;
mod owned;
mod run;

use lapidary::sim::SimOptions;
use lapidary::{Budget, Gpu, Options};
use run::{Devices, Extent};

/// Without fusion: a fused kernel has another text.
fn alone() -> Options {
    Options {
        fuse: Some(false),
        budget: Some(Budget::default()),
        ..Options::from_env().unwrap()
    }
}

fn simulated() -> Gpu {
    let device = SimOptions {
        dirty: true,
        ..SimOptions::default()
    };
    let (gpu, _) = Gpu::simulated_with(device, alone()).expect("these options can be");
    gpu
}

#[test]
fn on_the_simulation_every_view_of_every_operand_is_read_as_a_plain_tensor() {
    let devices = Devices {
        plain: simulated(),
        hostile: simulated(),
        lead_bytes: 0,
    };
    run::all(&devices, extent().max(Extent::Operations));
}

#[test]
fn on_an_adapter_every_view_of_every_operand_is_read_as_a_plain_tensor() {
    let devices = Devices {
        plain: simulated(),
        hostile: Gpu::open(alone()).expect("the tests need an adapter"),
        lead_bytes: 0,
    };
    run::all(&devices, extent());
}

#[test]
fn on_an_adapter_views_across_windows_are_read_as_plain_tensors() {
    let devices = Devices {
        plain: simulated(),
        hostile: crate::devices::adopt(WINDOW_BYTES),
        lead_bytes: LEAD_BYTES,
    };
    run::all(&devices, extent());
}

/// Bytes of a binding on devices where storages have several windows, and where views begin. Most
/// views end in the next window.
const WINDOW_BYTES: u64 = 16 << 10;
const LEAD_BYTES: usize = (16 << 10) - 40;

fn extent() -> Extent {
    match std::env::var("LAPIDARY_VIEWS") {
        Ok(all) if all == "all" => Extent::Everything,
        _ => Extent::Families,
    }
}
