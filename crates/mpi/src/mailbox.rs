//! Gradients on their way from the thread of a backward to the thread that speaks to other ranks.

use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lapidary::{Error, Result, Tensor};
use lapidary_core::internal::Pieces;

/// What the thread of a backward tells.
pub(crate) enum Letter {
    /// The gradient of the parameter of this number.
    Gradient(usize, Pieces),
    /// There are no more.
    Done,
}

/// Where the hooks of the parameters put gradients, during a backward.
#[derive(Debug, Default)]
pub(crate) struct Mailbox(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    sender: Option<Sender<Letter>>,
    /// The parameters whose gradients were taken.
    taken: Vec<usize>,
}

/// Closes the mailbox when it is dropped.
pub(crate) struct Closed<'a>(&'a Mailbox);

impl Mailbox {
    /// From now on gradients go to this sender. A backward within a forward pass comes before.
    pub(crate) fn open(&self, sender: Sender<Letter>) {
        *self.lock() = Open {
            sender: Some(sender),
            taken: Vec::new(),
        };
    }

    pub(crate) fn closed_at_the_end(&self) -> Closed<'_> {
        Closed(self)
    }

    /// The hook of a parameter. A gradient that is taken is freed when it has been reduced.
    pub(crate) fn take(&self, parameter: usize, gradient: &Tensor) -> Result<Option<Tensor>> {
        let mut open = self.lock();
        let Some(sender) = open.sender.clone() else {
            return Ok(Some(gradient.clone()));
        };
        if open.taken.contains(&parameter) {
            return Err(Error::Gradient {
                operation: "Replica::backward",
                reason: format!(
                    "parameter {parameter} got two gradients: run no other backward of the \
                     replica meanwhile"
                ),
            });
        }
        open.taken.push(parameter);
        drop(open);
        let mut pieces = Pieces::new(gradient.detach().contiguous()?.buffer())?;
        // Read now, before the rest of the backward: a device works in order.
        pieces.queue_all()?;
        // Nobody listens after an error of the reduction.
        let _ = sender.send(Letter::Gradient(parameter, pieces));
        Ok(None)
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        *self.0.lock() = Open::default();
    }
}
