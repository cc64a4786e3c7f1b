//! One call of a custom kernel: checks the bound operands against the text's declarations.

use std::fmt;

use super::nesting::Declaration;
use super::reflect::StorageBinding;
use super::{Kernel, diagnose};
use crate::buffer::{Buffer, words};
use crate::dtype::DType;
use crate::engine::kernel::{Arg, Launch};
use crate::engine::{Engine, Handle, UNWRITTEN};
use crate::error::{Error, Result};
use crate::memory::{CANARY_BYTES, PATTERN, Residency};

/// A call of a [`Kernel`] under construction. [`run`](Self::run) does all checks and copies.
#[must_use = "a call does nothing before it is run"]
#[derive(Clone)]
pub struct KernelCall<T = Buffer> {
    kernel: Kernel,
    given: Vec<(String, Given<T>)>,
    params: Option<Vec<u8>>,
    groups: Option<[u32; 3]>,
}

/// An operand of a kernel: a [`Buffer`], or a value that lies in a buffer, such as a tensor.
pub trait Bind {
    /// The bytes from the first element to the last. `None` where the elements are in another order
    /// or have gaps; then a `read` binding gets a [copy](Self::copied).
    fn buffer(&self) -> Option<Buffer>;

    /// A new buffer with the same elements, in order and without gaps.
    ///
    /// # Errors
    /// The errors of making the copy.
    fn copied(&self) -> Result<Buffer>;

    /// The element type, if there is one. The binding must be declared for it.
    fn dtype(&self) -> Option<DType>;

    /// What errors call it, for example `the tensor`.
    fn noun(&self) -> &'static str;

    /// Its elements, for errors: `the elements of [2, 3] with strides [1, 2]`.
    fn elements(&self) -> String;
}

impl Bind for Buffer {
    fn buffer(&self) -> Option<Buffer> {
        Some(self.clone())
    }

    #[track_caller]
    fn copied(&self) -> Result<Buffer> {
        self.copy()
    }

    fn dtype(&self) -> Option<DType> {
        None
    }

    fn noun(&self) -> &'static str {
        "the buffer"
    }

    fn elements(&self) -> String {
        format!("the {} bytes of a buffer", self.size_bytes())
    }
}

/// The operand that a call names for a binding.
#[derive(Clone)]
enum Given<T> {
    Bound(T),
    /// A new buffer of this size, in bytes.
    Output(u64, Option<DType>),
}

/// An operand as the device gets it.
struct SeenOperand {
    buffer: Buffer,
    dtype: DType,
    /// The range in the storage: offset and size, in bytes.
    range: (u64, u64),
}

impl SeenOperand {
    /// A whole buffer, rounded to whole words.
    fn part(buffer: Buffer, dtype: DType) -> Self {
        let start = match buffer.is_empty() {
            true => 0,
            false => buffer.offset_bytes(),
        };
        let range = (start, buffer.size_bytes().next_multiple_of(4));
        SeenOperand {
            buffer,
            dtype,
            range,
        }
    }

    fn overlaps(&self, other: &SeenOperand) -> bool {
        let ((start, len), (other_start, other_len)) = (self.range, other.range);
        self.buffer.shares_memory_with(&other.buffer)
            && start < other_start + other_len
            && other_start < start + len
    }
}

impl<T: Bind + Clone> KernelCall<T> {
    pub(super) fn new(kernel: &Kernel) -> Self {
        KernelCall {
            kernel: kernel.clone(),
            given: Vec::new(),
            params: None,
            groups: None,
        }
    }

    /// Binds a buffer by the name of a binding. A `read` binding takes any buffer. It reads a copy
    /// in three cases. The elements are not consecutive, or do not start at a multiple of
    /// [`Caps::offset_alignment_bytes`](crate::Caps::offset_alignment_bytes), or another binding
    /// reads them already. A slice that starts inside a word of 4 bytes cannot be copied: then
    /// [`run`](Self::run) returns [`Error::Buffer`]. A `read_write` binding changes the operand in
    /// place, so it takes none of these.
    pub fn bind(mut self, name: &str, operand: &T) -> Self {
        let given = Given::Bound(operand.clone());
        self.given.push((name.to_owned(), given));
        self
    }

    /// Why a buffer cannot be bound in place, if it cannot.
    fn misfit(&self, buffer: &Buffer, is_written: bool) -> Option<String> {
        let alignment = self.kernel.engine.caps().offset_alignment_bytes;
        let start = buffer.offset_bytes();
        let end = start + buffer.size_bytes();
        let is_aligned = buffer.is_empty() || start.is_multiple_of(alignment);
        // A kernel must not write a word that the next elements of the storage share.
        let fits = is_aligned && (buffer.ends_with_word() || !is_written);
        (!fits).then(|| {
            format!(
                "bytes {start}..{end} of its memory do not start at a multiple of {alignment} or \
                 end inside a word: change a copy of it, and copy that back"
            )
        })
    }

    /// Makes a new buffer of `size_bytes` for a `read_write` binding. It holds zeros until the
    /// kernel writes.
    pub fn out(self, name: &str, size_bytes: u64) -> Self {
        self.out_of(name, size_bytes, None)
    }

    /// As [`out`](Self::out), with an element type.
    #[doc(hidden)]
    pub fn out_typed(self, name: &str, size_bytes: u64, dtype: DType) -> Self {
        self.out_of(name, size_bytes, Some(dtype))
    }

    fn out_of(mut self, name: &str, size_bytes: u64, dtype: Option<DType>) -> Self {
        let given = Given::Output(size_bytes, dtype);
        self.given.push((name.to_owned(), given));
        self
    }

    /// Sets the uniform's value: a number, or a `#[repr(C)]` struct that derives `bytemuck::Pod`
    /// (or only `NoUninit`) with the layout of WGSL. Padding at the end may be left out.
    pub fn params<P: bytemuck::NoUninit>(self, params: &P) -> Self {
        self.params_bytes(bytemuck::bytes_of(params))
    }

    /// Sets the bytes of the uniform.
    pub fn params_bytes(mut self, bytes: &[u8]) -> Self {
        self.params = Some(bytes.to_vec());
        self
    }

    /// Sets the number of workgroups in x, y and z.
    pub fn groups(mut self, groups: [u32; 3]) -> Self {
        self.groups = Some(groups);
        self
    }

    /// Checks the call and queues it. Returns the new buffers, in the order of the calls of
    /// [`out`](Self::out).
    ///
    /// # Errors
    /// [`Error::Kernel`] for missing, unknown or repeated names, and for wrong types, access,
    /// sizes, parameters and numbers of groups. [`Error::Foreign`]. [`Error::NeverFits`] for a
    /// buffer larger than one binding of the device. The errors of making a buffer.
    ///
    /// ```no_run
    /// # fn demo(blur: &lapidary_core::Kernel, image: &lapidary_core::Buffer) -> lapidary_core::Result<()> {
    /// blur.call().bind("image", image).groups([16, 16, 1]).run()?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn run(self) -> Result<Vec<Buffer>> {
        self.check_names()?;
        let groups = self.checked_groups()?;
        let params = self.checked_params()?;
        let mut seen = Vec::with_capacity(self.operands().len());
        let engine = self.engine();
        for operand in self.operands() {
            seen.push(self.see(operand, &engine)?);
        }
        self.separate(&mut seen)?;
        let outputs = self.outputs(&seen);
        let (mut code, unwritten) = self.watched(&mut seen);
        for (index, operand) in self.operands().iter().enumerate() {
            if !matches!(self.given(operand), Some(Given::Output(..))) {
                continue;
            }
            let output = &seen[index].buffer;
            match unwritten >> index & 1 {
                0 => output.clear()?,
                _ => {
                    words::fill(output, PATTERN)?;
                    code |= 1 << UNWRITTEN << index;
                }
            }
        }
        let args = seen.iter().map(|seen| {
            let arg = Arg {
                storage: seen.buffer.storage().here().clone(),
                dtype: seen.dtype,
                vec4s: false,
            };
            (arg, seen.range)
        });
        let launch = Launch::custom(&self.kernel.custom, args, &params, groups, code);
        engine.launch(launch)?;
        Ok(outputs)
    }

    /// As [`run`](Self::run), for a call with one new buffer.
    ///
    /// # Errors
    /// As [`run`](Self::run), and [`Error::Kernel`] if [`out`](Self::out) was not called
    /// exactly once.
    #[track_caller]
    pub fn run_one(self) -> Result<Buffer> {
        let is_output = |given: &&(String, Given<T>)| matches!(given.1, Given::Output(..));
        let count = self.given.iter().filter(is_output).count();
        let kernel = self.kernel.clone();
        let refuse = || {
            let message = format!("`run_one` gives one new output, and this call makes {count}");
            diagnose::error(&kernel.text.entry, message)
        };
        if count != 1 {
            return Err(refuse());
        }
        self.run()?.pop().ok_or_else(refuse)
    }

    /// The engine of the share in which the call runs: that of its first operand. A kernel serves
    /// all shares of its device.
    fn engine(&self) -> Handle<Engine> {
        let own = &self.kernel.engine;
        let bound = self.given.iter().filter_map(|(_, given)| match given {
            Given::Bound(bound) => bound.buffer(),
            Given::Output(..) => None,
        });
        let mut engines = bound.map(|buffer| buffer.engine().clone());
        let first = engines.find(|engine| engine.here().is_same_device(&own.here()));
        first.unwrap_or_else(|| own.clone())
    }

    fn operands(&self) -> &[StorageBinding] {
        &self.kernel.text.operands
    }

    fn refuse<R>(&self, message: String) -> Result<R> {
        Err(diagnose::error(&self.kernel.text.entry, message))
    }

    fn refuse_at<R>(&self, at: &Declaration, label: &str, message: String) -> Result<R> {
        let (text, place) = (&self.kernel.text, at.name.clone());
        Err(diagnose::error_at(
            &text.entry,
            &text.text,
            place,
            label,
            message,
        ))
    }

    fn bindings(&self) -> String {
        let access = |operand: &StorageBinding| match operand.writes {
            true => "read_write",
            false => "read",
        };
        let named = self.operands().iter();
        let named = named.map(|operand| format!("`{}` ({})", operand.name, access(operand)));
        named.collect::<Vec<_>>().join(", ")
    }

    fn given(&self, operand: &StorageBinding) -> Option<&Given<T>> {
        let mut given = self.given.iter();
        let found = given.find(|(name, _)| *name == operand.name);
        found.map(|(_, given)| given)
    }

    fn check_names(&self) -> Result<()> {
        for (index, (name, _)) in self.given.iter().enumerate() {
            let Some(operand) = self.kernel.text.operand(name) else {
                let uniform = self.kernel.text.params.as_ref();
                let hint = match uniform.is_some_and(|params| params.name == *name) {
                    true => "; its value is given by `params`",
                    false => "",
                };
                let entry = &self.kernel.text.entry;
                return self.refuse(format!(
                    "`{entry}` uses no storage binding `{name}`{hint}; the bindings are {}",
                    self.bindings()
                ));
            };
            if self.given[..index].iter().any(|(other, _)| other == name) {
                let message = format!("`{name}` is bound twice");
                return self.refuse_at(&self.operands()[operand].at, "", message);
            }
        }
        for operand in self.operands() {
            if self.given(operand).is_none() {
                let (name, all) = (&operand.name, self.bindings());
                let message = format!("`{name}` is not bound; the bindings are {all}");
                return self.refuse_at(&operand.at, "not bound", message);
            }
        }
        Ok(())
    }

    fn checked_groups(&self) -> Result<[u32; 3]> {
        let most = self.kernel.engine.caps().max_groups;
        match self.groups {
            None => self.refuse("no number of workgroups: call `groups([x, y, z])`".into()),
            Some(groups) if groups.contains(&0) => self.refuse(format!(
                "{groups:?} workgroups: each dimension needs at least 1"
            )),
            Some(groups) if groups.iter().any(|&groups| groups > most) => self.refuse(format!(
                "{groups:?} workgroups: this device takes at most {most} in each dimension; \
                 spread them over x, y and z"
            )),
            Some(groups) => Ok(groups),
        }
    }

    /// The bytes of the uniform, padded to its size.
    fn checked_params(&self) -> Result<Vec<u8>> {
        let text = &self.kernel.text;
        let (params, mut bytes) = match (&text.params, self.params.clone()) {
            (None, None) => return Ok(vec![]),
            (None, Some(bytes)) => {
                let len = bytes.len();
                return self.refuse(format!(
                    "{len} bytes of parameters, but the entry point uses no `var<uniform>`"
                ));
            }
            (Some(params), bytes) => (params, bytes.unwrap_or_default()),
        };
        if !(params.least_bytes..=params.size_bytes).contains(&(bytes.len() as u64)) {
            let (name, size) = (&params.name, params.size_bytes);
            let message = match &self.params {
                None => format!("`{name}` has no value: call `params` ({size} bytes)"),
                Some(given) => {
                    let given = given.len();
                    format!("{given} bytes of parameters, `{name}` takes {size}")
                }
            };
            return self.refuse_at(&params.at, &format!("{size} bytes"), message);
        }
        bytes.resize(params.size_bytes as usize, 0);
        Ok(bytes)
    }

    /// The buffer of an operand and its bytes. Makes or copies the buffer if necessary.
    #[track_caller]
    fn see(&self, operand: &StorageBinding, engine: &Handle<Engine>) -> Result<SeenOperand> {
        let name = &operand.name;
        let Some(given) = self.given(operand) else {
            return self.refuse(format!("`{name}` is not bound"));
        };
        let (dtype, what) = match given {
            Given::Bound(bound) => (bound.dtype(), bound.noun()),
            Given::Output(_, dtype) => (*dtype, "the output"),
        };
        // An operand without an element type has the declared one. Where that is a struct of floats
        // and integers, its integers must not be looked at as floats.
        let mut whole = operand.dtypes.iter().filter(|dtype| !dtype.is_float());
        let dtype = dtype.unwrap_or_else(|| *whole.next().unwrap_or(&operand.dtypes[0]));
        if !operand.dtypes.contains(&dtype) {
            let ty = &self.kernel.text.text[operand.at.ty.clone()];
            let takes: Vec<_> = operand.dtypes.iter().map(|dtype| dtype.name()).collect();
            let takes = takes.join(", ");
            let message =
                format!("`{name}` is declared `{ty}`, which takes {takes}, but {what} is {dtype}");
            return self.refuse_at(&operand.at, &format!("not {dtype}"), message);
        }
        let seen = match given {
            Given::Bound(bound) => self.see_bound(engine, operand, bound, dtype)?,
            Given::Output(bytes, _) => self.see_output(engine, operand, *bytes, dtype)?,
        };
        let (has, least) = (seen.range.1, operand.least_bytes);
        if has < least {
            let message = format!("`{name}` takes {least} bytes at least, but {what} has {has}");
            return self.refuse_at(&operand.at, &format!("{least} bytes"), message);
        }
        let most = self.kernel.engine.caps().max_binding_bytes;
        if has > most {
            return Err(Error::never_fits(
                "an operand of a custom kernel",
                has,
                most,
                "Call the kernel on slices of it",
            ));
        }
        Ok(seen)
    }

    #[track_caller]
    fn see_output(
        &self,
        engine: &Handle<Engine>,
        operand: &StorageBinding,
        size_bytes: u64,
        dtype: DType,
    ) -> Result<SeenOperand> {
        if !operand.writes {
            let name = &operand.name;
            let message = format!(
                "`{name}` is declared `read`, so it cannot be an output: bind something, or \
                 declare it `var<storage, read_write>`"
            );
            return self.refuse_at(&operand.at, "read", message);
        }
        let buffer = Buffer::new(engine, size_bytes)?;
        Ok(SeenOperand::part(buffer, dtype))
    }

    /// The operand in place if possible, else a copy of it.
    #[track_caller]
    fn see_bound(
        &self,
        engine: &Handle<Engine>,
        operand: &StorageBinding,
        bound: &T,
        dtype: DType,
    ) -> Result<SeenOperand> {
        let reason = match bound.buffer() {
            Some(buffer) => {
                if !engine.may_read(buffer.engine(), buffer.storage()) {
                    return Err(Error::foreign("a custom kernel"));
                }
                match self.misfit(&buffer, operand.writes) {
                    None => return Ok(SeenOperand::part(buffer, dtype)),
                    Some(reason) => reason,
                }
            }
            None => format!(
                "{} do not lie one after the other: change a copy of it, and copy that back",
                bound.elements()
            ),
        };
        match operand.writes {
            true => {
                let message = format!("`{}` is changed in place, but {reason}", operand.name);
                self.refuse_at(&operand.at, "read_write", message)
            }
            false => Ok(SeenOperand::part(bound.copied()?, dtype)),
        }
    }

    /// No other binding may see memory that the kernel writes. If two bindings read the same
    /// memory, the second gets a copy: both may have to be declared `read_write`, and such bindings
    /// must not overlap.
    #[track_caller]
    fn separate(&self, seen: &mut [SeenOperand]) -> Result<()> {
        for (second, operand) in self.operands().iter().enumerate() {
            let overlaps = |first: &usize| seen[*first].overlaps(&seen[second]);
            let Some(first) = (0..second).find(overlaps) else {
                continue;
            };
            let other = &self.operands()[first];
            if operand.writes || other.writes {
                let message = format!(
                    "`{}` and `{}` are bound to the same memory, and one of them is \
                     `read_write`: bind a copy, or use one binding for both",
                    other.name, operand.name
                );
                return self.refuse_at(&operand.at, "the same memory", message);
            }
            // An operand that starts inside a word has been copied already.
            let copy = &seen[second];
            seen[second] = SeenOperand::part(copy.buffer.copy()?, copy.dtype);
        }
        Ok(())
    }

    /// With diagnostics on, a written binding includes a part of the canary behind it, if the
    /// kernel cannot notice. Returns the bindings with a canary, and the outputs that are checked
    /// for unwritten bytes.
    fn watched(&self, seen: &mut [SeenOperand]) -> (u64, u64) {
        let Some(wanted) = self.kernel.engine.here().diagnostics() else {
            return (0, 0);
        };
        let (mut with_canary, mut unwritten) = (0, 0);
        let most = self.kernel.engine.caps().max_binding_bytes;
        for (index, (operand, seen)) in self.operands().iter().zip(seen).enumerate() {
            let storage = seen.buffer.storage().here();
            let (start, size_bytes) = seen.range;
            let is_end = start + size_bytes == storage.len_bytes().next_multiple_of(4);
            let stride_bytes = operand
                .stride_bytes
                .filter(|stride| CANARY_BYTES.is_multiple_of(*stride));
            if wanted.canaries
                && operand.writes
                && is_end
                && size_bytes > 0
                && size_bytes + CANARY_BYTES <= most
                && stride_bytes.is_some_and(|stride| size_bytes.is_multiple_of(stride))
                && self.kernel.text.lengths.is_some()
                && storage.residency() != Residency::Imported
            {
                seen.range.1 += CANARY_BYTES;
                with_canary |= 1 << index;
            }
            if wanted.unwritten && operand.writes && !operand.reads && size_bytes > 0 {
                unwritten |= 1 << index;
            }
        }
        (with_canary, unwritten)
    }

    /// The new buffers, in the order of the calls of `out`.
    fn outputs(&self, seen: &[SeenOperand]) -> Vec<Buffer> {
        let mut outputs = Vec::new();
        for (name, given) in &self.given {
            if let (Given::Output(..), Some(index)) = (given, self.kernel.text.operand(name)) {
                outputs.push(seen[index].buffer.clone());
            }
        }
        outputs
    }
}

impl<T> fmt::Debug for KernelCall<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.given.iter().map(|(name, _)| name);
        f.debug_struct("KernelCall")
            .field("kernel", &self.kernel)
            .field("given", &names.collect::<Vec<_>>())
            .field("groups", &self.groups)
            .finish_non_exhaustive()
    }
}
