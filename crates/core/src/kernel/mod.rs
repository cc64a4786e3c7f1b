//! Kernels that users write: WGSL text, reflected by naga, with buffers bound by name.
//!
//! ```text
//!   Kernel::new ─ nesting ─ reflect ──── rewrite::check
//!                 │ depth   │ parse,     │ valid also where inputs
//!                 │         │ effort,    │ share a buffer with outputs
//!                 │         │ bindings
//!   kernel.call() ─ call ── names, types, sizes, overlaps ── a Launch; the pass calls rewrite
//! ```
//!
//! `diagnose` shows errors at their line. Only this module uses naga.

mod call;
mod diagnose;
mod effort;
mod nesting;
#[cfg(any(test, feature = "sim"))]
mod reference;
mod reflect;
mod rewrite;
mod tokens;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::driver::{Caps, panic_message, with_deep_stack};
use crate::engine::kernel::{Custom, Role};
use crate::engine::{Engine, Handle};
use crate::error::Result;
use crate::gpu::Gpu;
use reflect::Reflection;

pub use call::{Bind, KernelCall};
#[cfg(any(test, feature = "sim"))]
pub use reference::CustomReferenceCall;

/// A kernel of your own: WGSL that computes on buffers.
///
/// # Writing one
///
/// An ordinary WGSL module with a `@compute` entry point. A call binds the variables that it
/// declares:
///
/// - Each `var<storage, read>` is an input. Each `var<storage, read_write>` is an output, or a
///   buffer changed in place. There are at most 8 of them, all in group 0. Choose any binding
///   numbers: a call binds buffers by *name*.
/// - One `var<uniform>`, of at most 128 bytes, takes the parameters of a call.
/// - An array of `f32`, `i32` or `u32` takes buffers, and tensors of that element type of the crate
///   `lapidary`. So does an array of vectors, matrices, atomics or structs of them. An array made
///   only of `u32` also takes tensors of narrower types, packed into words, little end first.
///   `unpack2x16float`, `unpack4xU8` and `unpack4xI8` unpack [`F16`](crate::DType::F16),
///   [`U8`](crate::DType::U8) (and [`Bool`](crate::DType::Bool)) and [`I8`](crate::DType::I8). A
///   [`Bf16`](crate::DType::Bf16) is `bitcast<f32>` of its bits as the upper half of a word.
/// - `arrayLength(&x)` is the length of the bound operand (in words, if it is packed), without
///   padding. Indices beyond it reach no other memory.
///
/// Override constants, textures, samplers, and features of extensions other than subgroups are
/// refused. `enable subgroups;` is optional: the engine adds it in browsers, which need it, and
/// removes it elsewhere.
///
/// ```no_run
/// use lapidary_core::{Gpu, Kernel};
///
/// # fn main() -> lapidary_core::Result<()> {
/// let gpu = Gpu::open(Default::default())?;
/// let saxpy = Kernel::new(&gpu, "
///     struct Params { a: f32 }
///     @group(0) @binding(0) var<storage, read> x: array<f32>;
///     @group(0) @binding(1) var<storage, read> y: array<f32>;
///     @group(0) @binding(2) var<storage, read_write> z: array<f32>;
///     @group(0) @binding(3) var<uniform> p: Params;
///
///     @compute @workgroup_size(64)
///     fn saxpy(@builtin(global_invocation_id) id: vec3<u32>) {
///         let i = id.x;
///         if i < arrayLength(&z) {
///             z[i] = p.a * x[i] + y[i];
///         }
///     }
/// ")?;
/// let n = 1000;
/// let x = gpu.buffer_from(&vec![1.0_f32; n])?;
/// let y = gpu.buffer_from(&vec![2.0_f32; n])?;
/// let z = saxpy
///     .call()
///     .bind("x", &x)
///     .bind("y", &y)
///     .out("z", 4 * n as u64)
///     .params(&3.0_f32)
///     .groups([n.div_ceil(64) as u32, 1, 1])
///     .run_one()?;
/// assert_eq!(z.to_vec::<f32>()?, vec![5.0; n]);
/// # Ok(())
/// # }
/// ```
///
/// # What is checked
///
/// The text is checked when the kernel is made; names, types, sizes and overlaps at each call. An
/// error shows its line.
///
/// ```text
/// kernel `saxpy`: `y` is not bound; the bindings are `x` (read), `y` (read), `z` (read_write)
///  --> wgsl:4:51
///   |
/// 4 |     @group(0) @binding(1) var<storage, read> y: array<f32>;
///   |                                              ^ not bound
/// ```
///
/// Errors that the device finds later, in compiling or running, belong to the tensors that the
/// kernel should have written. Each call is a separate submission.
///
/// [`Diagnostics`](crate::diagnostics::Diagnostics) finds kernels that write past an end or leave
/// output unwritten.
///
/// Three things are yours to take care of:
///
/// - A loop that never ends blocks the device until its driver or operating system stops it. That
///   may lose the device: [`Error::DeviceLost`](crate::Error).
/// - The software rasterizer lavapipe silently leaves a loop when an invocation has tested the
///   conditions of all its loops 65,535 times together. A loop tests once more than it has rounds,
///   each time that it is entered. Give longer work to more invocations.
/// - An input may lie in the same buffer as an output. It is then declared `read_write`, as always
///   on software adapters. So a barrier must not depend on an input's value without
///   `workgroupUniformLoad`.
///
/// Cheap to clone. The kernel is compiled at its first use. It is compiled again (at most once per
/// combination) when inputs share buffers with outputs in another way. The compiled pipelines are
/// released when the last clone and the last call are dropped.
#[derive(Clone)]
pub struct Kernel {
    engine: Handle<Engine>,
    text: Arc<Reflection>,
    custom: Arc<Custom>,
}

/// The number of the next kernel.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

impl Kernel {
    /// A kernel whose text has one entry point.
    ///
    /// # Errors
    /// [`Error::Kernel`](crate::Error::Kernel) with the place in the text. It stands for errors of
    /// syntax or validation, declarations that cannot be bound, and limits of the device. Also for
    /// a text of more than 1 MiB, and for expressions and blocks that are too deep: more than 200
    /// operators and nested brackets.
    pub fn new(gpu: &Gpu, wgsl: &str) -> Result<Kernel> {
        Self::made(gpu, wgsl, None)
    }

    /// A kernel that starts at one of several entry points. Only the variables that this entry
    /// point uses have to be bound.
    ///
    /// # Errors
    /// As [`new`](Self::new), and if there is no such entry point.
    ///
    /// ```no_run
    /// # fn demo(gpu: &lapidary_core::Gpu) -> lapidary_core::Result<()> {
    /// let text = "
    ///     @group(0) @binding(0) var<storage, read_write> x: array<u32>;
    ///     @compute @workgroup_size(64)
    ///     fn one(@builtin(global_invocation_id) id: vec3<u32>) { x[id.x] = 1; }
    ///     @compute @workgroup_size(64)
    ///     fn two(@builtin(global_invocation_id) id: vec3<u32>) { x[id.x] = 2; }
    /// ";
    /// let two = lapidary_core::Kernel::with_entry(gpu, text, "two")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_entry(gpu: &Gpu, wgsl: &str, entry: &str) -> Result<Kernel> {
        Self::made(gpu, wgsl, Some(entry))
    }

    fn made(gpu: &Gpu, wgsl: &str, entry: Option<&str>) -> Result<Kernel> {
        let caps = gpu.engine().caps();
        let text = Arc::new(with_deep_stack(|| read(wgsl, entry, caps))?);
        let custom = Arc::new(custom(gpu.engine(), &text));
        Ok(Kernel {
            engine: gpu.engine().clone(),
            text,
            custom,
        })
    }

    /// Sets a function that does the same work on the host, for a simulated device. It is faster
    /// than interpreting the WGSL, the default. It is called once per call of the kernel.
    ///
    /// ```
    /// use lapidary_core::{Gpu, Kernel, sim::SimOptions};
    ///
    /// # fn main() -> lapidary_core::Result<()> {
    /// let (gpu, _sim) = Gpu::simulated(SimOptions::default())?;
    /// let double = Kernel::new(&gpu, "
    ///     @group(0) @binding(0) var<storage, read_write> x: array<f32>;
    ///     @compute @workgroup_size(64)
    ///     fn double(@builtin(global_invocation_id) id: vec3<u32>) {
    ///         if id.x < arrayLength(&x) { x[id.x] *= 2.0; }
    ///     }
    /// ")?
    /// .with_reference(|call| {
    ///     let doubled: Vec<f32> = call.read::<f32>("x").iter().map(|x| 2.0 * x).collect();
    ///     call.write("x", &doubled);
    /// });
    /// let x = gpu.buffer_from(&[1.0_f32, 2.0])?;
    /// double.call().bind("x", &x).groups([1, 1, 1]).run()?;
    /// assert_eq!(x.to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(any(test, feature = "sim"))]
    #[must_use]
    pub fn with_reference(
        mut self,
        reference: impl Fn(&mut CustomReferenceCall<'_>) + Send + Sync + 'static,
    ) -> Kernel {
        let mut custom = custom(&self.engine, &self.text);
        custom.reference = Some(reference::for_simulation(self.text.clone(), reference));
        self.custom = Arc::new(custom);
        self
    }

    /// Starts a call. Bind buffers by name, then run it.
    pub fn call(&self) -> KernelCall {
        self.call_of()
    }

    /// A call with operands of another type.
    #[doc(hidden)]
    pub fn call_of<T: Bind + Clone>(&self) -> KernelCall<T> {
        KernelCall::new(self)
    }

    /// Whether this binding is declared `read_write`.
    #[doc(hidden)]
    pub fn writes(&self, name: &str) -> bool {
        let index = self.text.operand(name);
        index.is_some_and(|index| self.text.operands[index].writes)
    }

    #[doc(hidden)]
    pub fn engine(&self) -> &Handle<Engine> {
        &self.engine
    }

    /// The name of the entry point.
    pub fn entry(&self) -> &str {
        &self.text.entry
    }
}

/// Parses and checks a text. naga panics at some texts instead of refusing them. It holds no state
/// of ours, so the panic becomes an ordinary error.
fn read(wgsl: &str, entry: Option<&str>, caps: &Caps) -> Result<Reflection> {
    let read = || {
        let text = Reflection::new(wgsl, entry, caps)?;
        rewrite::check(&text, caps).map(|()| text)
    };
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| {
        let message = format!("the WGSL parser failed: {}", panic_message(panic.as_ref()));
        Err(diagnose::error(entry.unwrap_or("?"), message))
    })
}

fn custom(engine: &Handle<Engine>, text: &Arc<Reflection>) -> Custom {
    let source = text.clone();
    Custom {
        id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        entry: text.entry.clone(),
        roles: text.operands.iter().map(role).collect(),
        shader: Box::new(move |layout, target, with_canary| {
            let is_writable = |operand: usize| layout.writable >> operand & 1 == 1;
            rewrite::rewrite(
                &source,
                &is_writable,
                with_canary,
                target.immediates,
                target.enables,
            )
        }),
        #[cfg(any(test, feature = "sim"))]
        reference: None,
        dead: engine.own().dead_list().clone(),
    }
}

/// A kernel may write only a part of a binding, or read its old value.
fn role(operand: &reflect::StorageBinding) -> Role {
    match operand.writes {
        true => Role::Update,
        false => Role::Read,
    }
}

/// Its entry point and bindings: `saxpy(x: array<f32>, …)`.
impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.text.entry)?;
        for (index, operand) in self.text.operands.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let ty = &self.text.text[operand.at.ty.clone()];
            write!(f, "{comma}{}: {ty}", operand.name)?;
        }
        f.write_str(")")
    }
}
