//! Compaction as a plan: which live blocks to move where, so that a request finds a hole.
//!
//! ```text
//! hole     [ a |  hole  | b |  hole  | c ]    b moves to another slab: one hole where there were two
//! release  [ a |            hole         ]    a moves away, the slab is given back, another is made
//! create   [ a |    hole    | b |  hole  ]    a and b fit in no hole: a small slab is made for them first
//! ```
//!
//! A planner moves nothing. A plan is a list of [`Step`]s over the present tables. The caller
//! executes the steps and may stop after any of them: each step leaves the tables complete and
//! reserves nothing for later steps. Blocks may be freed in the meantime. The caller then skips the
//! steps of such a block, and the plan still serves. If other blocks were allocated meanwhile, the
//! plan may fail: the pools refuse a step that does not apply any more.
//!
//! The search is greedy and bounded. It looks at no more than [`windows::MOST_WINDOWS`] windows,
//! [`query::MOST_SLABS`] slabs, and [`query::MOST_NODES`] blocks and holes. For a slice of
//! compaction (`pass`) it looks only at as many as the slice may concern. A [`Planner`] keeps its
//! tables, so planning takes nothing from the heap once they have grown.
//!
//! The planner tries the means. A [`draft::Draft`] has the slabs, their holes and the steps so far.
//! `windows` finds moves inside slabs that stay, and `victims` slabs to empty.
//!
//! **The order of the means.** The planner tries each only if those before it are not enough:
//!
//! 1. A hole that the short search overlooked.
//! 2. An empty slab of another class, once slabs are released and created again and again.
//! 3. Another slab below the mark, after the release of empty slabs.
//! 4. The cheapest moves that keep the reserved bytes below the mark.
//! 5. Another slab above the mark.
//!
//! A hard limit may forbid the last. Then the planner takes any hole in slabs of any kind, a slab
//! no larger than the request, and moves at any cost. Close to the limit it takes such a hole
//! before it moves blocks.

mod draft;
mod pass;
mod planner;
mod query;
mod room;
mod sorted;
mod step;
mod victims;
mod windows;

pub use planner::Planner;
pub use step::Step;
