//! Language models: each family against `transformers`, and what memory does to them.

#[path = "lm/descriptions.rs"]
mod descriptions;
#[path = "lm/families.rs"]
mod families;
#[path = "lm/memory.rs"]
mod memory;
#[path = "lm/served.rs"]
mod served;
#[path = "lm/talks.rs"]
mod talks;
#[path = "lm/weights.rs"]
mod weights;
