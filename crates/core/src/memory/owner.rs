//! To whom a storage belongs: an engine, and perhaps one of its shares.

use std::sync::Arc;

use super::dead::DeadList;
use super::share::ShareHandle;

/// The engine and the share of a storage. It holds one `Arc`, as many as outside of shares. Each
/// costs the making and the drop of a tensor two atomic operations.
#[derive(Clone, Debug)]
pub(super) enum Owner {
    /// What is in no share.
    Engine(Arc<DeadList>),
    /// A share of the engine whose dead list the share has.
    Share(Arc<ShareHandle>),
    /// What stands in a dry run for something in a share of the device: the dry engine has a list
    /// of its own.
    Dry(Arc<(Arc<ShareHandle>, Arc<DeadList>)>),
}

impl Owner {
    #[inline]
    pub(super) fn new(share: Option<&Arc<ShareHandle>>, dead: &Arc<DeadList>) -> Self {
        match share {
            None => Owner::Engine(dead.clone()),
            Some(share) if share.is_of(dead) => Owner::Share(share.clone()),
            Some(share) => Owner::Dry(Arc::new((share.clone(), dead.clone()))),
        }
    }

    #[inline]
    pub(super) fn share(&self) -> Option<&Arc<ShareHandle>> {
        match self {
            Owner::Engine(_) => None,
            Owner::Share(share) => Some(share),
            Owner::Dry(both) => Some(&both.0),
        }
    }

    #[inline]
    pub(super) fn dead_list(&self) -> &Arc<DeadList> {
        match self {
            Owner::Engine(dead) => dead,
            Owner::Share(share) => share.dead_list(),
            Owner::Dry(both) => &both.1,
        }
    }
}
