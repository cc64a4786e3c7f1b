//! What happens to a work that has stopped.

use lapidary::sim::{Fault, FaultKind, Site};
use lapidary::{DType, Error, Residency, Result};
use pollster::block_on;

use super::world::{KIB, LOWER, Rest, Value, World};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Event {
    /// The future is kept, and other work runs.
    Keep,
    Drop,
    /// The device is lost. The future goes on before the device is replaced, or after that.
    Lose {
        before: bool,
    },
    /// The budget is lowered to this room for slabs. Then it is raised again.
    Lower(u64),
    /// The next call of this kind is refused.
    Refuse(Site, FaultKind),
    /// A share of a higher priority makes a tensor of so many bytes.
    Urgent(u64),
}

pub(super) const EVENTS: [Event; 14] = [
    Event::Keep,
    Event::Drop,
    Event::Lose { before: true },
    Event::Lose { before: false },
    Event::Lower(LOWER),
    Event::Lower(256 * KIB),
    Event::Refuse(Site::Submit, FaultKind::OutOfMemory),
    Event::Refuse(Site::Submit, FaultKind::Invalid),
    Event::Refuse(Site::CreateBuffer, FaultKind::OutOfMemory),
    Event::Refuse(Site::Map, FaultKind::OutOfMemory),
    Event::Refuse(Site::MapDone, FaultKind::OutOfMemory),
    Event::Refuse(Site::Wait, FaultKind::OutOfMemory),
    Event::Urgent(4 * KIB),
    Event::Urgent(512 * KIB),
];

impl Event {
    /// Lets it happen, and the rest of the work run to its end.
    pub(super) fn strike(self, world: &World, rest: Option<Rest>) {
        let end = |rest: Option<Rest>| rest.map_or(Ok(()), block_on);
        match self {
            Event::Keep => {
                let other = world.gpu.full(&[1024], 5, DType::U32).unwrap();
                assert_eq!(other.to_vec::<u32>().unwrap(), [5; 1024]);
                world.gpu.finish().unwrap();
                end(rest).unwrap();
            }
            Event::Drop => {
                drop(rest);
                world.gpu.finish().unwrap();
            }
            Event::Lose { before } => {
                world.sim.lose("on purpose");
                let (early, late) = match before {
                    true => (rest, None),
                    false => (None, rest),
                };
                self.expect(end(early));
                while world.gpu.flush().is_ok() {}
                world.gpu.reopen().unwrap();
                self.expect(end(late));
            }
            Event::Lower(bytes) => {
                let memory = world.gpu.memory();
                let before = memory.budget();
                let after = World::budget_of(before, bytes);
                memory.set_budget(after).unwrap();
                memory.set_budget(before).unwrap();
                self.expect(end(rest));
            }
            Event::Refuse(site, kind) => {
                world.sim.arm(Fault::once(site, 1, kind));
                self.expect(end(rest));
                world.sim.disarm();
            }
            Event::Urgent(bytes) => {
                let words = vec![9; bytes.min(world.setup.most_urgent_bytes) as usize / 4];
                let urgent = world.frame.tensor(&words, &[words.len()]).unwrap();
                world.frame.flush().unwrap();
                assert_eq!(urgent.residency(), Residency::Device, "it is done at once");
                end(rest).unwrap();
                assert!(urgent.to_vec::<u32>().unwrap() == words);
            }
        }
    }

    /// Checks that the work ended well, or with an error that the event explains.
    fn expect(self, result: Result<()>) {
        let Err(error) = result else { return };
        let is_short = matches!(error, Error::OutOfMemory(_));
        let explains = match self {
            Event::Lose { .. } => is_loss(&error),
            Event::Lower(bytes) => is_short || bytes < LOWER && never_fits(&error),
            Event::Refuse(..) => {
                is_short || matches!(error, Error::Driver { .. } | Error::Poisoned { .. })
            }
            _ => false,
        };
        assert!(explains, "{error}");
    }

    /// Checks a value after the event. `is_made`: the work makes it. `is_safe`: it was not on the
    /// device when the event came.
    pub(super) fn check(self, value: &Value, is_made: bool, is_safe: bool) {
        let ends_early = matches!(self, Event::Drop | Event::Lose { .. } | Event::Refuse(..));
        let is_written = value.before.is_some();
        match value.tensor.to_vec::<u32>() {
            Ok(words) if words == value.words => {}
            Ok(words) => {
                let is_old = ends_early && value.before.as_ref() == Some(&words);
                assert!(is_old, "a wrong value");
            }
            Err(error) => {
                let is_poisoned = matches!(error, Error::Poisoned { .. });
                let explains = match self {
                    Event::Drop => is_written && is_poisoned,
                    Event::Lose { .. } => !is_safe && is_loss(&error),
                    Event::Lower(bytes) => is_made && bytes < LOWER && never_fits(&error),
                    Event::Refuse(..) => is_made && is_poisoned,
                    _ => false,
                };
                assert!(explains, "{error}");
            }
        }
    }
}

fn never_fits(error: &Error) -> bool {
    match error {
        Error::NeverFits { .. } => true,
        Error::Poisoned { cause, .. } => never_fits(cause),
        _ => false,
    }
}

fn is_loss(error: &Error) -> bool {
    match error {
        Error::DeviceLost { .. } => true,
        Error::Poisoned { cause, .. } => is_loss(cause),
        _ => false,
    }
}
