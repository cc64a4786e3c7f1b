//! A custom kernel on a device that computes on the host.

use std::fmt;
use std::sync::Arc;

use super::reflect::Reflection;
use crate::dtype::Element;
use crate::engine::kernel::CustomReference;
use crate::memory::FENCE_BYTES;

/// What a reference kernel is called with: the bindings by name, and the parameters.
pub struct CustomReferenceCall<'a> {
    text: &'a Reflection,
    bindings: &'a mut [Vec<u8>],
    params: &'a [u8],
    /// Bit `i`: binding `i` ends with some of the fence behind the tensor.
    fenced: u64,
}

impl CustomReferenceCall<'_> {
    /// The elements of a binding; none for a name that is not one.
    pub fn read<T: Element>(&self, name: &str) -> Vec<T> {
        match self.index(name) {
            Some(index) => {
                let bytes = &self.bindings[index];
                let fence = (self.fenced >> index & 1) as usize * FENCE_BYTES as usize;
                T::vec_from(&bytes[..bytes.len() - fence])
            }
            None => vec![],
        }
    }

    /// Writes elements to the beginning of a binding; what is beyond its end is left out, or found
    /// by [`Diagnostics::canaries`](crate::Diagnostics::canaries).
    pub fn write<T: Element>(&mut self, name: &str, elements: &[T]) {
        let index = self.index(name);
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

    fn index(&self, name: &str) -> Option<usize> {
        let mut operands = self.text.operands.iter();
        operands.position(|operand| operand.name == name)
    }
}

impl fmt::Debug for CustomReferenceCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CustomReferenceCall")
            .field(&self.text.entry)
            .finish()
    }
}

/// The reference kernel as the simulated device calls it.
pub(super) fn for_simulation(
    text: Arc<Reflection>,
    reference: impl Fn(&mut CustomReferenceCall<'_>) + Send + Sync + 'static,
) -> CustomReference {
    Arc::new(move |bindings: &mut [Vec<u8>], params: &[u8], fenced| {
        reference(&mut CustomReferenceCall {
            text: &text,
            bindings,
            params,
            fenced,
        });
    })
}
