//! Asks the app to free memory, and tells it that a level has risen to a watermark.

use std::mem::take;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::engine::outside::Pressure;
use crate::engine::pass::Pass;

/// Calls the app's callbacks. Returns the bytes that became free. The caller has no lock but the
/// execution lock.
pub(super) fn call_back(pass: &Pass, wanted_bytes: u64) -> u64 {
    let Some(callbacks) = pass.outside.begin_asking() else {
        return 0;
    };
    let freed_before = pass.lock().memory.slabs.freed_bytes;
    let levels = pass.driver.ledger().levels();
    let pressure = Pressure {
        wanted_bytes,
        reserved_bytes: levels.reserved_bytes.now,
        limit_bytes: (levels.limit_bytes != u64::MAX).then_some(levels.limit_bytes),
    };
    for callback in callbacks {
        let _inside = pass.inside();
        // A panic is the app's affair. The memory that it freed before counts.
        let _ = catch_unwind(AssertUnwindSafe(|| callback(&pressure)));
        // The app may have dropped the guard meanwhile, so this may be the last holder.
        pass.drop_app_value(callback);
    }
    let mut state = pass.lock();
    state.free_dead();
    let freed_bytes = state.memory.slabs.freed_bytes - freed_before;
    pass.outside.end_asking(freed_bytes > 0);
    freed_bytes
}

/// Calls the callbacks of the watermarks that were reached. The caller has no lock but the
/// execution lock.
pub(crate) fn tell_watermarks(pass: &Pass) {
    let reached = take(&mut pass.lock().memory.watermarks.reached);
    for one in reached {
        let listener = (pass.watermarks).begin_call(one.id, one.bytes, one.limit_bytes);
        let Some((mark, callback)) = listener else {
            continue;
        };
        tell!(WARN, "memory rose to a watermark", {
            share = mark.share.as_deref().unwrap_or("the device"),
            percent = u64::from(mark.percent),
            bytes = mark.bytes,
            limit_bytes = mark.limit_bytes
        });
        let _inside = pass.inside();
        // A panic is the app's affair.
        let _ = catch_unwind(AssertUnwindSafe(|| callback(&mark)));
        // The app may have dropped the guard meanwhile, so this may be the last holder.
        pass.drop_app_value(callback);
    }
}
