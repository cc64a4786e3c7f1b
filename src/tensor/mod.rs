//! Tensors: a dtype, a layout, a storage.

pub(crate) mod layout;

use std::sync::Arc;

use crate::dtype::DType;
use crate::engine::Engine;
use crate::memory::Storage;
use layout::Layout;

/// An n-dimensional array in device memory.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub(crate) engine: Arc<Engine>,
    pub(crate) storage: Arc<Storage>,
    pub(crate) layout: Layout,
    pub(crate) dtype: DType,
}
