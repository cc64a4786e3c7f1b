//! Operands that the app reads and writes in one call, on a simulated device that refuses.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use crate::engine::{Pinned, block_on};
use crate::sim::{Fault, FaultKind, SimHandle, SimOptions, Site};
use crate::units::MIB;
use crate::{Budget, Buffer, Error, Gpu, Options, Result};

/// Words of each buffer.
const LEN: usize = 256 << 10;

struct World {
    gpu: Gpu,
    sim: SimHandle,
    buffers: Vec<Buffer>,
}

impl World {
    /// Buffers of 1 MiB that lie together, in a budget for so many.
    fn new(device: SimOptions, room: u64) -> Self {
        let staging_bytes = Some(MIB);
        let options = Options {
            budget: Some(Budget {
                staging_bytes,
                ..Budget::device((room + 1) * MIB)
            }),
            ..Options::from_env().unwrap()
        };
        let (gpu, sim) = Gpu::simulated_with(device, options).unwrap();
        let make = |value| gpu.buffer_from(&vec![value; LEN]).unwrap();
        let buffers: Vec<_> = (0..4_u32).map(make).collect();
        buffers.iter().try_for_each(Buffer::force).unwrap();
        gpu.finish().unwrap();
        World { gpu, sim, buffers }
    }

    /// As a call that reads the first and the third buffer, and writes the second.
    async fn pin(&self) -> Result<Pinned> {
        let [a, b, c] = [0, 1, 2].map(|index| self.buffers[index].storage().here().clone());
        let engine = self.gpu.engine.here();
        engine.pin(&[a, b.clone(), c], &[b]).await
    }

    /// Whatever happened: what is pinned is apart, values are right, and no pin is left.
    fn check(&self, pinned: Option<Result<Pinned>>, what: &str) {
        match pinned {
            Some(Ok(pinned)) => {
                let [a, b, c] = [0, 1, 2].map(|index| pinned.places[index].buffer);
                assert!(a != b && c != b, "{what}");
            }
            Some(Err(error)) => assert!(!matches!(error, Error::DeviceLost { .. }), "{what}"),
            None => {}
        }
        for (value, buffer) in (0..).zip(&self.buffers) {
            assert_eq!(buffer.to_vec::<u32>().unwrap(), vec![value; LEN], "{what}");
        }
        let again = block_on("a test", self.pin());
        let [a, b] = again
            .map(|pinned| [pinned.places[0].buffer, pinned.places[1].buffer])
            .unwrap();
        assert_ne!(a, b, "{what}");
        for buffer in &self.buffers {
            buffer.evict().unwrap();
        }
        assert_eq!(self.sim.complaints(), [""; 0], "{what}");
    }
}

#[test]
fn a_refusal_at_any_call_leaves_values_and_no_pins() {
    const SITES: [Site; 6] = [
        Site::CreateBuffer,
        Site::Submit,
        Site::Map,
        Site::MapDone,
        Site::ReadMapped,
        Site::WriteMapped,
    ];
    for (room, maps_slabs) in [(16, false), (4, false), (3, false), (3, true)] {
        for site in SITES {
            for nth in 1..=5 {
                let kind = match nth % 2 {
                    0 => FaultKind::OutOfMemory,
                    _ => FaultKind::Invalid,
                };
                let device = SimOptions {
                    maps_slabs,
                    dirty: true,
                    ..SimOptions::default()
                };
                let world = World::new(device, room);
                world.sim.arm(Fault::once(site, nth, kind));
                let pinned = block_on("a test", world.pin());
                world.sim.disarm();
                world.check(
                    Some(pinned),
                    &format!("{room} {maps_slabs} {site:?} {nth} {kind:?}"),
                );
            }
        }
    }
}

#[test]
fn a_call_that_is_dropped_at_any_moment_leaves_values_and_no_pins() {
    let device = SimOptions {
        pauses: 2,
        lag_submissions: 2,
        dirty: true,
        ..SimOptions::default()
    };
    for room in [16, 3] {
        let mut is_dropped = true;
        for polls in 0.. {
            if !is_dropped {
                break;
            }
            let world = World::new(device.clone(), room);
            let pinned = {
                let mut call = pin!(world.pin());
                let mut context = Context::from_waker(Waker::noop());
                let mut poll = || call.as_mut().poll(&mut context);
                (0..polls).find_map(|_| match poll() {
                    Poll::Ready(pinned) => Some(pinned),
                    Poll::Pending => None,
                })
            };
            is_dropped = pinned.is_none();
            world.check(pinned, &format!("{room} after {polls} polls"));
        }
    }
}
