//! A portable compute memory manager over [wgpu](https://wgpu.rs): tensors carved out of a few
//! large buffers, and the kernels to compute with them, on Vulkan, Metal, DX12 and WebGPU.
//!
//! # Overview
//!
//! A [`Gpu`] is a device with its memory. It makes [`Tensor`]s; operations on them are methods and
//! operators, named as in PyTorch and NumPy, and return a `Result`:
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
//! A call checks its shapes and types, and records; nothing runs yet. What was recorded runs when
//! somebody reads, at [`Gpu::flush`](lapidary_core::Gpu::flush), or when 256 commands wait. So
//! errors come at two times: what is wrong with the call, from the call; what is wrong with memory
//! or the device, from the call that needs the value ([`Tensor::force`], [`Tensor::to_vec`], …),
//! and only for the tensors concerned. See [`Error`].
//!
//! Dropping a tensor, on any thread, is free: its memory goes to the next command that wants some.
//!
//! # In your app
//!
//! [`Gpu::adopt`] computes on the device that your app has opened, [`Gpu::import`] makes a tensor
//! of one of its buffers, [`Gpu::with_bound`] hands tensors to its own passes. [`Kernel`] runs WGSL
//! of your own. [`guides::embed_in_your_app`] tells all of it, with budgets beside a game and notes
//! for egui and Bevy. In a browser, only the asynchronous forms wait ([`Gpu::open_async`],
//! [`Tensor::read`], …): see [`guides::on_the_web`].
//!
//! # Where the memory is
//!
//! [`Gpu::memory`](lapidary_core::Gpu::memory) is a value with all numbers; printed, it is a page.
//! Every tensor remembers the line that made it, and a name if it was given one
//! ([`Tensor::named`]): both are in the report and in errors.
//!
//! [`Gpu::snapshot`](lapidary_core::Gpu::snapshot) is all of it as one value, with every block, and
//! what happened before if [`Gpu::keep_history`](lapidary_core::Gpu::keep_history) was called.
//! [`Snapshot::map`] prints it as a picture. With the feature `snapshot`, `Snapshot::write_json`
//! writes it to a file. [`Gpu::advice`](lapidary_core::Gpu::advice) says in sentences what to
//! change. Who comes from PyTorch finds its habits in [`guides::from_torch`], and each function of
//! its memory in [`guides::torch_memory`].
//!
//! The package `lapidary-tools` shows all of that. Its program `lapidary` opens the files of
//! snapshots, and makes of them a page of HTML to look around in, or files for PyTorch's viewer,
//! Perfetto and RMM's tools. Its library does the same within your app, draws the memory live on a
//! terminal, and tells it to `lapidary top` through a local socket.
//!
//! # Finding bugs
//!
//! With [`Options::diagnostics`], or the environment variable `LAPIDARY_DIAGNOSTICS=all`, whoever
//! writes past the end of a tensor is named, be it a kernel of your own or commands of your app;
//! who writes to one that is gone; which operation made the first NaN; what a kernel left
//! unwritten; and what is alive when it should not be. See [`Diagnostics`] and [`Finding`].
//!
//! # Features
//!
//! * `lz4`: tensors that are spilled to disk may be compressed.
//! * `serde`, `snapshot`: what is told of memory can be serialized; snapshots are written to files
//!   and read.
//! * `tracing`: spans `flush`, `execution_pass`, `submission`, `compaction`, `eviction` (debug),
//!   and events for the reclaim steps that made room (info), refusals (warn) and a lost device
//!   (error), with the target `lapidary`, for the app's subscriber, which must not call this crate.
//! * `metrics`: `Gpu::record_metrics` tells the numbers to the app's recorder.
//! * `safetensors`: a model's weights from a file, uploaded or only when they are used, and to one:
//!   see `ModelFile`.
//! * `ndarray`: tensors from arrays of that crate, and back: `Gpu::tensor_from`,
//!   `Tensor::to_array`.
//! * `static-dxc`: DX12's better compiler linked into a program for Windows: see [`Dx12Compiler`].
//! * `sim`: a simulated device for tests, see the module `sim`.
//!
//! The memory manager alone, for kernels of your own and without tensors, is the crate
//! [`lapidary_core`].

mod files;
mod fuse;
mod gpu;
mod kernel;
mod ops;
mod tensor;

#[cfg(not(target_arch = "wasm32"))]
pub use lapidary_core::adapters;
pub use lapidary_core::{
    Access, AdapterKind, AdapterSummary, Advice, Block, BlockState, Bound, BoundRange, Budget,
    Buffer, Caps, ClassUse, Compacted, DType, Diagnostics, Dx12Compiler, Element, Error, Event,
    EvictedStorage, Finding, Findings, History, Holder, KernelError, KernelTime, Leak, Measure,
    Measured, MemoryStats, ModelFailure, Moment, Options, OutOfMemory, Picture, Pin, Pressure,
    PressureGuard, ReclaimStep, ReclaimStepUse, Recovered, Residency, Result, Sampler, Scope,
    ShaderCompiler, SlabMap, SlabUse, Snapshot, Source, SpillError, SpillFailure, StateFailure,
    Suggestion, Tag, TagUse, Topic, Tune, Tuned,
};
pub use lapidary_core::{alloc, units};

#[cfg(feature = "safetensors")]
pub use self::gpu::{LoadProgress, Model, ModelFile, ModelTensor};
pub use self::{
    gpu::{FusedKernel, Gpu, State, Upload},
    kernel::{Kernel, KernelCall, Operand},
    ops::{
        Activation, Causal, Choice, ClassLoss, Conv, Epilogue, PadMode, Pool, Quantized, Reduction,
        Scalar, ScatterReduce,
    },
    tensor::Tensor,
};

/// Guides: what people know from elsewhere and where it is here, and how to do what many want to
/// do.
pub mod guides {
    #[doc = include_str!("guides/configuration.md")]
    pub mod configuration {}
    #[doc = include_str!("guides/embed_in_your_app.md")]
    pub mod embed_in_your_app {}
    #[doc = include_str!("guides/from_torch.md")]
    pub mod from_torch {}
    #[doc = include_str!("guides/model_files.md")]
    pub mod model_files {}
    #[doc = include_str!("guides/on_the_web.md")]
    pub mod on_the_web {}
    #[doc = include_str!("guides/stay_inside_1_gib.md")]
    pub mod stay_inside_1_gib {}
    #[doc = include_str!("guides/torch_memory.md")]
    pub mod torch_memory {}
    #[doc = include_str!("guides/train_in_little_memory.md")]
    pub mod train_in_little_memory {}
    #[doc = include_str!("guides/write_a_kernel.md")]
    pub mod write_a_kernel {}
}

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

/// The wgpu that [`Gpu::adopt`] and [`Gpu::with_bound`] speak of.
pub use lapidary_core::wgpu;

#[cfg(any(test, feature = "sim"))]
pub use lapidary_core::sim;
