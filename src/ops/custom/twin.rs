//! A custom kernel on a device that computes on the host.

use std::fmt;
use std::sync::Arc;

use super::reflect::Reflection;
use crate::driver::HostKernel;
use crate::dtype::Element;

/// What a kernel's twin is called with: the bindings by name, and the parameters.
pub struct HostCall<'a> {
    text: &'a Reflection,
    bindings: &'a mut [Vec<u8>],
    params: &'a [u8],
}

impl HostCall<'_> {
    /// The elements of a binding; none for a name that is not one.
    pub fn read<T: Element>(&self, name: &str) -> Vec<T> {
        match self.index(name) {
            Some(index) => T::vec_from(&self.bindings[index]),
            None => vec![],
        }
    }

    /// Writes elements to the beginning of a binding; what is beyond its end is left out.
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

impl fmt::Debug for HostCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HostCall").field(&self.text.entry).finish()
    }
}

/// The twin as the simulated device calls it.
pub(super) fn host(
    text: Arc<Reflection>,
    twin: impl Fn(&mut HostCall<'_>) + Send + Sync + 'static,
) -> HostKernel {
    Arc::new(move |bindings: &mut [Vec<u8>], params: &[u8]| {
        twin(&mut HostCall {
            text: &text,
            bindings,
            params,
        });
    })
}
