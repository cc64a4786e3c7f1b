//! Before a limit is lowered, the engine computes the values that could not be computed within it.
//!
//! A dropped value was made within the limit of its time. If the limit falls below what its launch
//! needs, no command could use the value. So it is computed before, and then evicted with its
//! bytes. This is impossible for limits that the system lowers: the engine learns of them too late.

use std::sync::Arc;

use crate::engine::Engine;
use crate::engine::pass::Pass;
use crate::engine::queue::cmd::Cmd;
use crate::finally::Finally;
use crate::memory::ShareId;

/// Computes the dropped values of a share, or of all, whose launches will not fit a limit of the
/// slabs. A value that finds no room now stays dropped. Until the result is dropped, no other value
/// is that could not be computed within the limit.
pub(crate) async fn prepare(
    engine: &Arc<Engine>,
    limit_bytes: u64,
    share: Option<ShareId>,
) -> Finally<impl FnMut()> {
    let beyond = {
        let state = &mut *engine.lock();
        state.lineages.expect_limit(limit_bytes);
        match state.rematerializers.has_lineages() {
            true => state.dropped_beyond(limit_bytes, share),
            false => Vec::new(),
        }
    };
    let guard = Finally(move || engine.lock().lineages.forget_limit(limit_bytes));
    if !beyond.is_empty() {
        let work = move |pass: Pass| async move {
            for storage in beyond {
                pass.lock().queue.push_head(Cmd::Prefetch(storage.clone()));
                pass.execute_for(&[], &[storage]).await?;
            }
            Ok(())
        };
        // Whatever prevents it, the limit is lowered: the value is `NeverFits` until it rises.
        drop(Pass::run(engine, work).await);
    }
    guard
}
