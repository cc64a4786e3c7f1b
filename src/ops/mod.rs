//! Operations on tensors: one file a family of kernels, named as its WGSL in `shaders/`.
