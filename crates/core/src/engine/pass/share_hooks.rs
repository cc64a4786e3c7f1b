//! What passes do for shares, from the first share on.

use std::fmt::Debug;
use std::sync::Arc;

use crate::driver::BoxFuture;
use crate::engine::handle::Engine;
use crate::engine::pass::Pass;
use crate::engine::pass::turn::HoldGuard;
use crate::error::{Error, Result};
use crate::memory::{Budget, Memory, Storage, Whole};

/// What passes do for shares. One type does it; through the trait only a program that makes
/// shares contains the code.
pub(in crate::engine) trait PassHooks: Debug + Sync {
    /// Notes what may be lent now. Lets amounts follow the operating system's limit.
    fn note_lending(&self, engine: &Engine);

    /// Refuses a budget that does not leave what is guaranteed. Makes way for guarantees before.
    /// The limit of `whole` is that of the budget.
    fn check_budget<'a>(
        &self,
        engine: &'a Arc<Engine>,
        budget: &'a Budget,
        whole: Whole,
    ) -> BoxFuture<'a, Result<()>>;

    /// The same, without making way, for a caller that holds the lock.
    fn check_budget_now(
        &self,
        engine: &Engine,
        memory: &Memory,
        budget: &Budget,
        whole: Whole,
    ) -> Result<()>;

    /// Refuses pins that would keep others from what they are guaranteed.
    fn check_pins(&self, engine: &Engine, pinned: &[Arc<Storage>]) -> Result<()>;

    /// Computes the amounts of shares again, after the limits changed.
    fn follow_limits(&self, engine: &Engine, memory: &mut Memory, device_bytes: Option<u64>);

    /// Evicts what is above lowered ceilings, as far as possible. Leaves shares whose priority is
    /// below `least`.
    fn drain_to_ceilings<'a>(&self, pass: &'a Pass, least: i8) -> BoxFuture<'a, Result<()>>;

    /// From now on the pass drains the device to its limit, and others wait for all of that.
    fn hold_drain<'a>(&self, pass: &'a Pass) -> Option<HoldGuard<'a>>;

    /// Makes the storage's share hold less, if its limits, and not the device's, leave no room for
    /// the storage. Returns the error of the storage if that fails.
    fn lower_share<'a>(
        &self,
        pass: &'a Pass,
        storage: &'a Arc<Storage>,
    ) -> BoxFuture<'a, Result<Option<Error>>>;
}
