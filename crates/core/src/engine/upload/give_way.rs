//! Staging that the uploads of one share keep from another one.
//!
//! An upload that finds no room stays queued, with its bytes in staging. So a share that is at its
//! ceiling could fill all staging. Another share whose upload has room gets a chunk back: the
//! uploads with bytes there fail, and their storages are poisoned. It is the last resort. A share
//! that is short itself fails nobody else's uploads: its call gets the error.

use std::sync::Arc;

use crate::engine::pass::Pass;
use crate::engine::queue::cmd::Cmd;
use crate::error::{Error, Result};
use crate::memory::{Residency, Storage};

/// Fails uploads of other shares that found no room, if only they keep the upload to `dst` from
/// staging. Returns whether a chunk came back. The caller has the execution lock, and all commands
/// that can run have run.
pub(super) async fn others_give_way(pass: &Pass, dst: &Arc<Storage>) -> Result<bool> {
    let chunk = pass.lock().left_behind.chunk_of_others(dst.share());
    if chunk.is_none() || !has_room(pass, dst).await? {
        return Ok(false);
    }
    let given = pass.lock().left_behind.give_chunk_back(dst.share(), lost);
    if given.is_empty() {
        return Ok(false);
    }
    tell!(WARN, "uploads that found no room gave their staging to another share", {
        uploads = given.len() as u64,
        made_at = given[0].tag().to_string().as_str()
    });
    Ok(true)
}

/// Places the storage of an upload. Returns whether there was room.
async fn has_room(pass: &Pass, dst: &Arc<Storage>) -> Result<bool> {
    let is_here = || matches!(dst.residency(), Residency::Device | Residency::Imported);
    if !is_here() {
        // Without room the prefetch is dropped.
        pass.lock().queue.push_head(Cmd::Prefetch(dst.clone()));
        pass.execute_all().await?;
    }
    Ok(is_here())
}

/// The error of an upload that lost its staging.
fn lost(dst: &Storage, found: &Error) -> Error {
    let of = match dst.share_handle() {
        Some(share) => format!("the share `{}`", share.path()),
        None => "the device".into(),
    };
    let limit = match found {
        Error::NeverFits { .. } => "could never fit",
        _ => "found no room",
    };
    Error::buffer(
        "upload",
        format!(
            "it {limit} in {of}, and another share needed the staging that held its bytes: make \
             room, and write them again"
        ),
    )
}
