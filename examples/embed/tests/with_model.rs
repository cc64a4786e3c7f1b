//! Tests that need the real model. `cargo xtask test --with-model` runs them.

#[path = "with_model/budgets.rs"]
mod budgets;
#[path = "with_model/golden.rs"]
mod golden;
#[path = "with_model/precisions.rs"]
mod precisions;
#[path = "with_model/searches.rs"]
mod searches;
#[path = "with_model/setup.rs"]
mod setup;
