//! Kernels of users on tensors: wraps the core's kernels, and turns their new buffers into tensors.

mod backward;

use std::fmt;
use std::sync::Arc;

use lapidary_core::internal::Bind;
use lapidary_core::{Buffer, DType, Error, Result};

use crate::gpu::Gpu;
use crate::tensor::Tensor;
use crate::tensor::layout::{Layout, checked};
pub use backward::KernelBackward;
use backward::{Bound, KernelRule};

/// A kernel of your own: WGSL that computes on tensors, and on [`Buffer`]s.
///
/// [`lapidary_core::Kernel`] describes what the text may contain, and what is checked. Arrays take
/// tensors of their element type: `f32`, `i32` or `u32`, or vectors, matrices, atomics or structs
/// of them. An array made only of `u32` also takes tensors of narrower types, packed into words,
/// little end first. `unpack2x16float`, `unpack4xU8` and `unpack4xI8` unpack [`F16`](DType::F16),
/// [`U8`](DType::U8) (and [`Bool`](DType::Bool)) and [`I8`](DType::I8). A [`Bf16`](DType::Bf16) is
/// `bitcast<f32>` of its bits as the upper half of a word.
///
/// ```no_run
/// use lapidary::{DType, Gpu, Kernel};
///
/// # fn main() -> lapidary::Result<()> {
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
/// let x = gpu.tensor(&vec![1.0_f32; n], &[n])?;
/// let y = gpu.tensor(&vec![2.0_f32; n], &[n])?;
/// let z = saxpy
///     .call()
///     .bind("x", &x)
///     .bind("y", &y)
///     .out("z", &[n], DType::F32)
///     .params(&3.0_f32)
///     .groups([n.div_ceil(64) as u32, 1, 1])
///     .run_one()?;
/// assert_eq!(z.to_vec::<f32>()?, vec![5.0; n]);
/// # Ok(())
/// # }
/// ```
///
/// Cheap to clone.
#[derive(Clone)]
pub struct Kernel {
    kernel: lapidary_core::Kernel,
    backward: Option<Arc<KernelRule>>,
}

impl Kernel {
    /// A kernel whose text has one entry point.
    ///
    /// # Errors
    /// [`Error::Kernel`] with the place in the text: see [`lapidary_core::Kernel::new`].
    pub fn new(gpu: &Gpu, wgsl: &str) -> Result<Kernel> {
        lapidary_core::Kernel::new(gpu, wgsl).map(Kernel::over)
    }

    /// A kernel that starts at one of several entry points. Only the variables that this entry
    /// point uses have to be bound.
    ///
    /// # Errors
    /// As [`new`](Self::new), and if there is no such entry point.
    pub fn with_entry(gpu: &Gpu, wgsl: &str, entry: &str) -> Result<Kernel> {
        lapidary_core::Kernel::with_entry(gpu, wgsl, entry).map(Kernel::over)
    }

    fn over(kernel: lapidary_core::Kernel) -> Kernel {
        Kernel {
            kernel,
            backward: None,
        }
    }

    /// Sets a function that does the same work on the host, for a simulated device. It is faster
    /// than interpreting the WGSL, the default. It is called once per call of the kernel.
    ///
    /// ```
    /// use lapidary::{DType, Gpu, Kernel, sim::SimOptions};
    ///
    /// # fn main() -> lapidary::Result<()> {
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
    /// let x = gpu.tensor(&[1.0_f32, 2.0], &[2])?;
    /// double.call().bind("x", &x).groups([1, 1, 1]).run()?;
    /// assert_eq!(x.to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(any(test, feature = "sim"))]
    #[must_use]
    pub fn with_reference(
        self,
        reference: impl Fn(&mut crate::sim::CustomReferenceCall<'_>) + Send + Sync + 'static,
    ) -> Kernel {
        Kernel {
            kernel: self.kernel.with_reference(reference),
            ..self
        }
    }

    /// Starts a call. Bind tensors by name, then run it.
    pub fn call(&self) -> KernelCall {
        KernelCall {
            call: self.kernel.call_of(),
            bound: Bound::new(self),
            outputs: Vec::new(),
            error: None,
        }
    }

    /// The name of the entry point.
    pub fn entry(&self) -> &str {
        self.kernel.entry()
    }
}

/// Its entry point and bindings: `saxpy(x: array<f32>, …)`.
impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kernel.fmt(f)
    }
}

/// An operand of a kernel: a tensor or a [`Buffer`]. [`KernelCall::bind`] takes a reference to
/// either.
#[derive(Clone, Debug)]
pub struct Operand(Shown);

#[derive(Clone, Debug)]
enum Shown {
    Tensor(Tensor),
    Buffer(Buffer),
}

impl From<&Tensor> for Operand {
    fn from(tensor: &Tensor) -> Self {
        Operand(Shown::Tensor(tensor.clone()))
    }
}

impl From<&Buffer> for Operand {
    fn from(buffer: &Buffer) -> Self {
        Operand(Shown::Buffer(buffer.clone()))
    }
}

impl Bind for Operand {
    fn buffer(&self) -> Option<Buffer> {
        match &self.0 {
            Shown::Tensor(tensor) => tensor.buffer(),
            Shown::Buffer(buffer) => Some(buffer.clone()),
        }
    }

    #[track_caller]
    fn copied(&self) -> Result<Buffer> {
        match &self.0 {
            Shown::Tensor(tensor) => Ok(tensor.copy()?.bytes()),
            Shown::Buffer(buffer) => buffer.copy(),
        }
    }

    fn dtype(&self) -> Option<DType> {
        match &self.0 {
            Shown::Tensor(tensor) => Some(tensor.dtype),
            Shown::Buffer(_) => None,
        }
    }

    fn noun(&self) -> &'static str {
        match &self.0 {
            Shown::Tensor(_) => "the tensor",
            Shown::Buffer(_) => "the buffer",
        }
    }

    fn elements(&self) -> String {
        match &self.0 {
            Shown::Tensor(tensor) => format!(
                "the elements of {:?} with strides {:?}",
                tensor.shape(),
                tensor.strides()
            ),
            Shown::Buffer(buffer) => buffer.elements(),
        }
    }
}

/// A call of a [`Kernel`] under construction. [`run`](Self::run) does all checks and copies.
#[must_use = "a call does nothing before it is run"]
#[derive(Clone)]
pub struct KernelCall {
    call: lapidary_core::KernelCall<Operand>,
    /// What a gradient needs of the call.
    bound: Bound,
    /// Shapes and types of the new tensors.
    outputs: Vec<(Vec<usize>, DType)>,
    /// The first error of an output's shape.
    error: Option<Error>,
}

impl KernelCall {
    /// Binds a tensor, or a [`Buffer`], by the name of a binding. A `read` binding takes any view.
    /// It reads a copy if the elements are not consecutive in memory, or if another binding reads
    /// them already. A `read_write` binding changes its operand in place, so the operand must be
    /// contiguous.
    pub fn bind(mut self, name: &str, operand: impl Into<Operand>) -> Self {
        let mut operand = operand.into();
        if let Shown::Tensor(tensor) = &mut operand.0 {
            self.bound.tensor(name, tensor);
            *tensor = tensor.untracked();
        }
        self.call = self.call.bind(name, &operand);
        self
    }

    /// Makes a new tensor for a `read_write` binding. It holds zeros until the kernel writes.
    pub fn out(mut self, name: &str, shape: &[usize], dtype: DType) -> Self {
        match checked(shape, dtype) {
            Ok((_, size_bytes)) => {
                self.call = self.call.out_typed(name, size_bytes, dtype);
                self.bound.output(name);
                self.outputs.push((shape.to_vec(), dtype));
            }
            Err(error) => {
                self.error.get_or_insert(error);
            }
        }
        self
    }

    /// Sets the uniform's value: a number, or a `#[repr(C)]` struct that derives `bytemuck::Pod`
    /// (or only `NoUninit`) with the layout of WGSL. Padding at the end may be left out.
    pub fn params<P: bytemuck::NoUninit>(self, params: &P) -> Self {
        self.params_bytes(bytemuck::bytes_of(params))
    }

    /// Sets the bytes of the uniform.
    pub fn params_bytes(mut self, bytes: &[u8]) -> Self {
        self.call = self.call.params_bytes(bytes);
        self.bound.params(bytes);
        self
    }

    /// Sets the number of workgroups in x, y and z.
    pub fn groups(mut self, groups: [u32; 3]) -> Self {
        self.call = self.call.groups(groups);
        self
    }

    /// Checks the call and queues it. Returns the new tensors, in the order of the calls of
    /// [`out`](Self::out).
    ///
    /// # Errors
    /// [`Error::Kernel`] for missing, unknown or repeated names, and for wrong types, access,
    /// sizes, parameters and numbers of groups. [`Error::Foreign`]. [`Error::NeverFits`] for a
    /// tensor larger than one binding of the device. The errors of making a tensor.
    ///
    /// ```no_run
    /// # fn demo(blur: &lapidary::Kernel, image: &lapidary::Tensor) -> lapidary::Result<()> {
    /// blur.call().bind("image", image).groups([16, 16, 1]).run()?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn run(self) -> Result<Vec<Tensor>> {
        if let Some(error) = self.error {
            return Err(error);
        }
        self.bound.check()?;
        let made = self.call.run()?;
        let outputs = made.into_iter().zip(self.outputs);
        let outputs = outputs.map(|(buffer, (shape, dtype))| tensor(&buffer, &shape, dtype));
        let outputs: Vec<Tensor> = outputs.collect();
        // A closure would hide the caller's line.
        let mut recorded = Vec::with_capacity(outputs.len());
        for index in 0..outputs.len() {
            recorded.push(self.bound.recorded(index, &outputs));
        }
        Ok(recorded)
    }

    /// As [`run`](Self::run), for a call with one new tensor.
    ///
    /// # Errors
    /// As [`run`](Self::run), and [`Error::Kernel`] if [`out`](Self::out) was not called
    /// exactly once.
    #[track_caller]
    pub fn run_one(self) -> Result<Tensor> {
        if let Some(error) = self.error {
            return Err(error);
        }
        self.bound.check()?;
        let made = self.call.run_one()?;
        let [(shape, dtype)] = &self.outputs[..] else {
            unreachable!("`run_one` of the core has one new buffer");
        };
        Ok(self.bound.recorded(0, &[tensor(&made, shape, *dtype)]))
    }
}

impl fmt::Debug for KernelCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.call.fmt(f)
    }
}

/// A whole buffer as a tensor.
fn tensor(buffer: &Buffer, shape: &[usize], dtype: DType) -> Tensor {
    Tensor::of_buffer(buffer, Layout::contiguous(shape), dtype)
}
