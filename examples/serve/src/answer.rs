//! The answer to a request, collected from the batches that its texts are in.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::error::Refusal;

/// The vectors of all texts of a request, one after the other, or why there are none.
pub(crate) type Answered = Result<Vec<f32>, Refusal>;

/// An answer that the worker completes and a connection waits for.
#[derive(Debug)]
pub(crate) struct Answer {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    vectors: Vec<f32>,
    /// Texts without a vector.
    left: usize,
    /// `None` once the answer is given.
    sender: Option<oneshot::Sender<Answered>>,
}

impl Answer {
    pub(crate) fn new(texts: usize, width: usize) -> (Answer, oneshot::Receiver<Answered>) {
        let (sender, receiver) = oneshot::channel();
        let state = State {
            vectors: vec![0.0; texts * width],
            left: texts,
            sender: Some(sender),
        };
        let state = Mutex::new(state);
        (Answer { state }, receiver)
    }

    /// Adds the vector of a text. The last one completes the answer.
    pub(crate) fn put(&self, text: usize, vector: &[f32]) {
        let mut state = self.lock();
        let start = text * vector.len();
        if let Some(room) = state.vectors.get_mut(start..start + vector.len()) {
            room.copy_from_slice(vector);
        }
        state.left = state.left.saturating_sub(1);
        if state.left == 0
            && let Some(sender) = state.sender.take()
        {
            // The client may be gone.
            let _ = sender.send(Ok(std::mem::take(&mut state.vectors)));
        }
    }

    /// Ends the request without vectors.
    pub(crate) fn refuse(&self, refusal: &Refusal) {
        if let Some(sender) = self.lock().sender.take() {
            let _ = sender.send(Err(refusal.clone()));
        }
    }

    /// Whether anybody still waits for it.
    pub(crate) fn is_wanted(&self) -> bool {
        let state = self.lock();
        state
            .sender
            .as_ref()
            .is_some_and(|sender| !sender.is_closed())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_come_in_any_order_and_the_last_completes_the_answer() {
        let (answer, mut receiver) = Answer::new(2, 2);
        answer.put(1, &[3.0, 4.0]);
        assert!(receiver.try_recv().is_err() && answer.is_wanted());
        answer.put(0, &[1.0, 2.0]);
        assert_eq!(receiver.try_recv().unwrap(), Ok(vec![1.0, 2.0, 3.0, 4.0]));
        assert!(!answer.is_wanted());
    }

    #[test]
    fn an_answer_that_nobody_waits_for_is_not_wanted() {
        let (answer, receiver) = Answer::new(1, 1);
        drop(receiver);
        assert!(!answer.is_wanted());
        answer.refuse(&Refusal::Failed);
        answer.put(0, &[1.0]);
    }
}
