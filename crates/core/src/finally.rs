//! Runs a function at the end of a scope.

/// Runs its function when it is dropped: also after a panic, and in a future that is given up.
pub(crate) struct Finally<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for Finally<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
