//! Language models on lapidary, in whatever memory is free.
//!
#![doc = include_str!("../README.md")]

mod config;
mod error;
mod layer;
mod model;
mod names;
mod rope;
mod sampler;
mod scheduler;
mod weights;

pub use config::{Config, Family, Rope, Scaling};
pub use error::{Error, Result};
pub use model::{LanguageModel, ModelOptions};
pub use sampler::Sampling;
pub use scheduler::{ConversationId, End, Request, Said, Scheduler, SchedulerOptions};

/// The examples of lapidary's guide to this crate.
#[cfg(doctest)]
#[doc = include_str!("../../../src/guides/run_a_language_model.md")]
struct Guide;
