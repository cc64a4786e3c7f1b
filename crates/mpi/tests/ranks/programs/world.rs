//! MPI's calls of the app itself, on the communicator of the world.

use lapidary::DType;
use lapidary::devices::Reduce;
use lapidary_mpi::{Ranks, Result};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, Destination, Source};

use super::simulated;

/// A message that is longer than the memory for it. Open MPI tells the world of such a request,
/// whatever its communicator is, and by MPI's default that ends all processes.
pub(crate) fn fails(ranks: &Ranks) -> Result<()> {
    let world = SimpleCommunicator::world();
    let (long, mut short) = ([7_u8; 1000], [0_u8; 10]);
    mpi::request::scope(|scope| {
        let own = world.this_process();
        let receive = own.immediate_receive_into(scope, &mut short[..]);
        let send = own.immediate_send(scope, &long[..]);
        send.wait();
        receive.wait();
    });
    let gpu = simulated(ranks.rank());
    let sum = ranks.all_reduce(&gpu.ones(&[3], DType::F32)?, Reduce::Sum)?;
    assert_eq!(sum.to_vec::<f32>()?, [ranks.count() as f32; 3]);
    Ok(())
}
