//! Tensors on any GPU within a memory budget, over [wgpu](https://wgpu.rs): Vulkan, Metal, DX12 and
//! WebGPU. A memory manager places tensors in a few large buffers, and kernels compute with them.
//!
//! # Overview
//!
//! A [`Gpu`] is a device with its memory. It makes [`Tensor`]s; operations on them are methods and
//! operators, named as in PyTorch and NumPy, and return a `Result`. [`operations`] lists all of
//! them:
//!
//! ```no_run
//! use lapidary::{DType, Gpu, Options};
//!
//! let gpu = Gpu::open(Options::default())?;
//! let weights = gpu.rand_normal(&[784, 10], 0.0, 0.05, 7, DType::F32)?;
//! let images = gpu.full(&[32, 784], 0.5, DType::F32)?;
//! let probabilities = images.matmul(&weights)?.softmax(1)?;
//! let best = probabilities.argmax(1)?.to_vec::<u32>()?;
//! # Ok::<(), lapidary::Error>(())
//! ```
//!
//! # When things happen
//!
//! A call checks its shapes and types, and records a command; nothing runs yet. Commands run when a
//! call reads a value, at [`Gpu::flush`](lapidary_core::Gpu::flush), or when 256 commands wait. So
//! errors appear at two times. A wrong argument is an error of the call. A problem of memory or the
//! device is an error of a later call that needs the value, such as [`Tensor::force`] or
//! [`Tensor::to_vec`]. Only the tensors concerned have it. See [`Error`].
//!
//! Calls that wait have an asynchronous form, whose name ends in `_async`.
//!
//! Dropping a tensor costs nothing, on any thread: the next command that needs memory reuses its
//! memory.
//!
//! # Files
//!
//! [`Gpu::files`] saves tensors to files and loads them. A state file lets a long job go on in
//! another process. A model file has weights that other programs read and write, in the format
//! safetensors or GGUF: see [`guides::model_files`].
//!
//! # Gradients
//!
//! [`Tensor::requires_grad`] marks parameters, and [`Tensor::backward`] gives the gradients of a
//! number by them: see [`grad`] and [`guides::train`]. [`optim`] has the optimizers. [`loader`]
//! prepares and uploads batches ahead of the training loop.
//!
//! # Several devices
//!
//! `Gpu::open_all` opens all of a machine. The module `devices` sums over them, and trains on all
//! of them at once: see [`guides::several_gpus`]. Over several machines, the crate `lapidary-mpi`
//! does the same: see [`guides::on_a_cluster`].
//!
//! # In your app
//!
//! [`Gpu::adopt`] computes on the device that your app has opened. [`Gpu::import`] makes a tensor
//! of one of the app's buffers. [`Gpu::with_bound`] passes tensors to the app's own passes.
//! [`Kernel`] runs your own WGSL. [`guides::embed_in_your_app`] explains all of it, with budgets
//! beside a game and notes for egui and Bevy. In a browser, only the asynchronous forms wait
//! ([`Gpu::open_async`], [`Tensor::to_vec_async`], …): see [`guides::on_the_web`].
//!
//! # Where the memory is
//!
//! [`Gpu::memory`](lapidary_core::Gpu::memory) is the handle of the memory. Its
//! [`stats`](lapidary_core::GpuMemory::stats) are all numbers as a value, which prints as a report.
//! Every tensor remembers the line that made it, and its name, if it has one ([`Tensor::named`]).
//! Reports and errors show both.
//!
//! Its [`snapshot`](lapidary_core::GpuMemory::snapshot) is the whole state with every block, and
//! the history if [`keep_history`](lapidary_core::GpuMemory::keep_history) was called.
//! [`Snapshot::map`](stats::Snapshot::map) prints it as a picture. With the feature `snapshot`,
//! `Snapshot::write_json` writes it to a file. [`advice`](lapidary_core::GpuMemory::advice)
//! suggests changes in sentences. [`guides::from_torch`] is for users of PyTorch, and
//! [`guides::torch_memory`] lists PyTorch's functions for memory with their counterparts here.
//!
//! [`Gpu::dry_run`] says how much memory a program takes before it runs, and [`Gpu::fit_batch`]
//! how large a batch may be.
//!
//! The package `lapidary-tools` shows all of that. Its program `lapidary` opens files of snapshots.
//! It makes an interactive HTML page of them, or files for PyTorch's viewer, Perfetto and RMM's
//! tools. Its library does the same within your app. The library also draws the memory live on a
//! terminal, and sends it to `lapidary top` through a local socket.
//!
//! # Finding bugs
//!
//! [`Options::diagnostics`], or `LAPIDARY_DIAGNOSTICS=all` with [`Options::from_env`], finds these
//! bugs, in kernels of your own and in commands of your app, and names the culprit:
//!
//! * writes past the end of a tensor, and writes to a freed tensor;
//! * the operation that made the first NaN;
//! * output that a kernel left unwritten;
//! * tensors that are still alive when they should not be.
//!
//! `gpu.diagnostics().check()` returns them: see
//! [`GpuDiagnostics`](diagnostics::GpuDiagnostics), [`Diagnostics`](diagnostics::Diagnostics) and
//! [`Finding`](diagnostics::Finding).
//!
//! # Features
//!
//! * `lz4`: compresses tensors that are spilled to disk.
//! * `redis`: evicts tensors to the memory of a Redis or Valkey server: see
//!   [`guides::memory_of_other_nodes`].
//! * `serde`, `snapshot`: statistics and snapshots can be serialized; snapshots are written to
//!   files and read.
//! * `tracing`: spans `flush`, `execution_pass`, `submission`, `compaction`, `eviction` (debug).
//!   Events for reclaim steps that made room (info), refusals (warn) and a lost device (error). The
//!   target is `lapidary`. The app's subscriber must not call this crate.
//! * `metrics`: `GpuMemory::record_metrics` passes the numbers to the app's recorder.
//! * `model-files`: loads a model's weights from files of safetensors or GGUF, at once or when they
//!   are used, and saves them: see [`files`] and [`guides::model_files`].
//! * `ndarray`: converts tensors from and to arrays of that crate: `Gpu::tensor_from`,
//!   `Tensor::to_array`.
//! * `static-dxc`: links DX12's better compiler into a program for Windows: see
//!   [`Dx12Compiler`](adapter::Dx12Compiler).
//! * `sim`: a simulated device for tests, see the module `sim`.
//!
//! The crate [`lapidary_core`] is the memory manager alone, for your own kernels, without tensors.

#[cfg(not(target_arch = "wasm32"))]
pub mod devices;
mod file_formats;
pub mod files;
mod fuse;
mod gpu;
pub mod grad;
pub mod jobs;
mod kernel;
pub mod kv;
pub mod loader;
pub mod operations;
mod ops;
pub mod optim;
mod tensor;

pub use lapidary_core::{
    Advice, Budget, Buffer, DType, Element, Error, GpuMemory, Options, Residency, Result, Source,
};
pub use lapidary_core::{alloc, failure, interop, stats, stores, units};

/// Shares of a device's memory, with guarantees and ceilings: see [`Gpu::share`].
pub mod shares {
    pub use lapidary_core::shares::{Amount, ShareOptions, ShareUse, Watermark, WatermarkGuard};

    /// A share of a device's memory: a [`Gpu`](crate::Gpu) with a guarantee and a ceiling of its
    /// own.
    pub type Share = lapidary_core::shares::Share<crate::Gpu>;
}

/// Adapters, what a device can do, and the compilers of kernels.
pub mod adapter {
    pub use lapidary_core::Caps;
    pub use lapidary_core::adapter::*;
}

/// Bugs that the engine looks for, tensors that are still alive, the times of kernels, and the
/// kernels that fusion made.
pub mod diagnostics {
    pub use crate::gpu::FusedKernel;
    pub use lapidary_core::diagnostics::*;
}

pub use self::{
    gpu::{Gpu, Upload},
    kernel::{Kernel, KernelCall, Operand},
    tensor::Tensor,
};

/// The tables of operations, for the tests.
#[doc(hidden)]
pub mod internal {
    pub use crate::ops::{BINARY_ROWS, BinaryRow, UNARY_ROWS, UnaryRow};
}

/// Guides: for users of other libraries, and for common tasks.
pub mod guides {
    #[doc = include_str!("guides/configuration.md")]
    pub mod configuration {}
    #[doc = include_str!("guides/embed_in_your_app.md")]
    pub mod embed_in_your_app {}
    #[doc = include_str!("guides/feed_a_training_loop.md")]
    pub mod feed_a_training_loop {}
    #[doc = include_str!("guides/from_torch.md")]
    pub mod from_torch {}
    #[doc = include_str!("guides/memory_of_other_nodes.md")]
    pub mod memory_of_other_nodes {}
    #[doc = include_str!("guides/model_files.md")]
    pub mod model_files {}
    // Its examples need that crate, so the doctests of `lapidary-lm` compile them.
    #[cfg_attr(not(doctest), doc = include_str!("guides/run_a_language_model.md"))]
    pub mod run_a_language_model {}
    // Its examples need MPI, so the doctests of `lapidary-mpi` compile them.
    #[cfg_attr(not(doctest), doc = include_str!("guides/on_a_cluster.md"))]
    pub mod on_a_cluster {}
    #[doc = include_str!("guides/on_the_web.md")]
    pub mod on_the_web {}
    #[doc = include_str!("guides/several_gpus.md")]
    pub mod several_gpus {}
    #[doc = include_str!("guides/share_a_gpu.md")]
    pub mod share_a_gpu {}
    #[doc = include_str!("guides/stay_inside_1_gib.md")]
    pub mod stay_inside_1_gib {}
    #[doc = include_str!("guides/torch_memory.md")]
    pub mod torch_memory {}
    #[doc = include_str!("guides/train.md")]
    pub mod train {}
    #[doc = include_str!("guides/train_in_little_memory.md")]
    pub mod train_in_little_memory {}
    #[doc = include_str!("guides/write_a_kernel.md")]
    pub mod write_a_kernel {}
}

/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

/// The version of wgpu that [`Gpu::adopt`] and [`Gpu::with_bound`] use.
pub use lapidary_core::wgpu;

#[cfg(any(test, feature = "sim"))]
pub use lapidary_core::sim;
