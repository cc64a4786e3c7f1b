//! A custom kernel's reference on a simulated device.

use std::fmt;
use std::sync::Arc;

use super::reflect::Reflection;
use crate::dtype::Element;
use crate::engine::kernel::CustomReference;
use crate::memory::CANARY_BYTES;

/// The argument of a reference kernel: bindings by name, and parameters.
pub struct CustomReferenceCall<'a> {
    text: &'a Reflection,
    bindings: &'a mut [Vec<u8>],
    params: &'a [u8],
    /// Bit `i`: binding `i` ends with a part of the canary behind its buffer.
    with_canary: u64,
}

impl CustomReferenceCall<'_> {
    /// The elements of a binding; empty for an unknown name.
    pub fn read<T: Element>(&self, name: &str) -> Vec<T> {
        match self.text.operand(name) {
            Some(index) => {
                let bytes = &self.bindings[index];
                let canary = (self.with_canary >> index & 1) as usize * CANARY_BYTES as usize;
                T::vec_from(&bytes[..bytes.len() - canary])
            }
            None => vec![],
        }
    }

    /// Writes elements to the beginning of a binding. Elements beyond its end are dropped;
    /// [`Diagnostics::canaries`](crate::diagnostics::Diagnostics::canaries) reports them.
    pub fn write<T: Element>(&mut self, name: &str, elements: &[T]) {
        let index = self.text.operand(name);
        if let Some(binding) = index.and_then(|index| self.bindings.get_mut(index)) {
            for (to, from) in binding.iter_mut().zip(T::bytes_of(elements)) {
                *to = *from;
            }
        }
    }

    /// The bytes of the parameters.
    pub fn params(&self) -> &[u8] {
        self.params
    }
}

impl fmt::Debug for CustomReferenceCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CustomReferenceCall")
            .field(&self.text.entry)
            .finish()
    }
}

/// Wraps the reference kernel for the simulated device.
pub(super) fn for_simulation(
    text: Arc<Reflection>,
    reference: impl Fn(&mut CustomReferenceCall<'_>) + Send + Sync + 'static,
) -> CustomReference {
    Arc::new(
        move |bindings: &mut [Vec<u8>], params: &[u8], with_canary| {
            reference(&mut CustomReferenceCall {
                text: &text,
                bindings,
                params,
                with_canary,
            });
        },
    )
}
