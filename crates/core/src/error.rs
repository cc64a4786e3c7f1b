//! The error type of the crate: the cause, the numbers, and what the caller can do.
//!
//! A call itself returns errors of shape, type and ownership. Errors of memory and of the device
//! belong to a tensor. The call that needs its value (`force`, `read`, …) returns them, so no
//! caller gets the error of another caller's work.

mod stores;

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use crate::dtype::DType;
use crate::shortage::OutOfMemory;
use crate::units::Bytes;

pub use stores::{StoreError, StoreFailure};

/// The result of every fallible call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every error of the crate. Cloning is cheap, because clones share the cause.
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum Error {
    /// No adapter was found, or none that fits the request.
    #[error("no GPU adapter: {reason}. {hint}")]
    NoAdapter {
        /// The adapters that were looked for, and those that the system has.
        reason: String,
        /// What to install or change on this system.
        hint: String,
    },
    /// An option or an argument has an invalid value.
    #[error("`{option}`: {reason}")]
    Option {
        /// The name of the option or argument.
        option: &'static str,
        /// What is wrong with the value.
        reason: String,
    },
    /// The shapes do not fit each other or the operation. Errors of shape and type name the method
    /// that the app called, and its line.
    #[error("{operation}: {reason}")]
    Shape {
        /// The name of the operation.
        operation: &'static str,
        /// The shapes, why they do not fit, and the line that called.
        reason: String,
    },
    /// The length of the data differs from the number of elements in the shape.
    #[error(
        "{operation}: {got} elements were given for shape {shape:?}, which holds {expected}{at}"
    )]
    Length {
        /// The name of the operation.
        operation: &'static str,
        /// The number of elements in the shape.
        expected: usize,
        /// The number of elements that the caller gave.
        got: usize,
        /// The shape.
        shape: Vec<usize>,
        /// The line that called; may be empty.
        at: String,
    },
    /// The number of elements of a shape, or of its bytes, is larger than an address can express.
    #[error("shape {shape:?} of {dtype} holds more bytes than can be addressed")]
    Overflow {
        /// The shape.
        shape: Vec<usize>,
        /// The element type.
        dtype: DType,
    },
    /// An axis that the tensor does not have.
    #[error("{operation}: axis {axis} is out of range for a tensor with {rank} dimensions{at}")]
    Axis {
        /// The name of the operation.
        operation: &'static str,
        /// The axis that the caller gave.
        axis: isize,
        /// The number of dimensions of the tensor.
        rank: usize,
        /// The line that called; may be empty.
        at: String,
    },
    /// An element type that the operation does not take.
    #[error("{operation}: {got} where {expected} is needed{at}{}", advice(.hint))]
    DType {
        /// The name of the operation.
        operation: &'static str,
        /// The types that the operation takes.
        expected: String,
        /// The type that it got.
        got: DType,
        /// What the caller can do; may be empty.
        hint: &'static str,
        /// The line that called; may be empty.
        at: String,
    },
    /// A tensor of another device, or of another share of the same device.
    #[error("{operation}: {}", foreign(operation))]
    Foreign {
        /// The name of the operation.
        operation: &'static str,
    },
    /// A write to a tensor that another share has lent.
    #[error(
        "{made_at} is lent by another share, which alone may write to it; change a copy made by `copy`"
    )]
    Lent {
        /// The tag of the tensor.
        made_at: String,
    },
    /// A share of the device's memory cannot be made, changed or used as the caller asked.
    #[error("the share `{share}`: {reason}")]
    Share {
        /// The names of the shares around it and its own, with `/` between them.
        share: String,
        /// What is wrong, with the numbers, and what the caller can do.
        reason: String,
    },
    /// One device of several failed. The others go on working.
    #[error("device {index} of {count} ({name}): {cause}")]
    Device {
        /// Its number in the list of devices, from 0.
        index: usize,
        /// The number of devices in the list.
        count: usize,
        /// The name of its adapter.
        name: String,
        /// Its error.
        cause: Arc<Error>,
    },
    /// A request that cannot succeed on this device, however much is freed.
    #[error(
        "{}{what} of {} never fits: the limit is {}. {hint}",
        prefix(.by), Bytes(*requested_bytes), Bytes(*limit_bytes)
    )]
    NeverFits {
        /// The thing that was asked for: a tensor, a binding, …
        what: &'static str,
        /// Its size in bytes.
        requested_bytes: u64,
        /// The limit in bytes.
        limit_bytes: u64,
        /// What the caller can do instead.
        hint: &'static str,
        /// The method that the app called, and its line or the tensor that it writes; may be empty.
        by: String,
    },
    /// There is no room now. The work stays queued and runs once there is room.
    #[error("{0}")]
    OutOfMemory(Arc<OutOfMemory>),
    /// The tensor has no value, because the command that should have computed it failed.
    #[error("the tensor made at {made_at} has no value: {cause}")]
    Poisoned {
        /// The place in the source that made the tensor, with its name if it has one.
        made_at: String,
        /// The error of that command.
        cause: Arc<Error>,
    },
    /// The device is lost. Every call returns this error until [`Gpu::reopen`](crate::Gpu::reopen),
    /// which says what it brings back. What lay in a [heap](crate::Options::host_heap) of the
    /// host's memory is lost with the device.
    #[error(
        "the device is lost: {reason}. `Gpu::reopen` brings back what a store, the disk, a source \
         or memory of the host alone still has"
    )]
    DeviceLost {
        /// The reason that the driver or the app gave.
        reason: String,
    },
    /// A kernel cannot be used: it does not parse, or a binding is missing or has another type.
    #[error("{0}")]
    Kernel(Arc<KernelError>),
    /// A function of the app made a call that must wait for the work that called this function.
    /// Such functions are callbacks for memory pressure, and sources.
    #[error(
        "a callback of this Gpu made a call that waits for that callback; make the call afterwards"
    )]
    Reentered,
    /// A call would have to wait, and in a browser no call may wait.
    #[error("{what} would have to wait, and a browser does not allow that: use the async form")]
    WouldBlock {
        /// The name of the call.
        what: &'static str,
    },
    /// A buffer cannot be imported or bound as the caller asked.
    #[error("{operation}: {reason}")]
    Buffer {
        /// The name of the operation.
        operation: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A tensor must stay at its place, because it is pinned or lies in a buffer of the app.
    #[error("{operation}: the tensor made at {made_at} is pinned or imported, and stays")]
    Pinned {
        /// The name of the call.
        operation: &'static str,
        /// The place in the source that made the tensor, with its name if it has one.
        made_at: String,
    },
    /// The source of a tensor did not give its bytes. The work that needs them stays queued. The
    /// engine asks the source again when a caller asks for the results of that work.
    #[error("the source of the tensor made at {made_at} failed at byte {offset_bytes}: {message}")]
    Source {
        /// The place in the source that made the tensor, with its name if it has one.
        made_at: String,
        /// The offset in the tensor, in bytes, at which the engine asked for bytes.
        offset_bytes: u64,
        /// The message of the source.
        message: String,
    },
    /// The spill file could not be created, grown, written or read. The error concerns the tensor
    /// whose bytes were being copied. Other tensors, spilled or not, are not affected.
    #[error("{0}")]
    Spill(Arc<SpillError>),
    /// The spill file holds other bytes than the engine wrote: another program changed it, or the
    /// disk fails. None of the damaged bytes were used.
    #[error(
        "a tensor of {} cannot be read back from the spill file in {folder}: {reason}, at byte \
         {offset_bytes}. Make the tensor again, and choose another folder if the disk fails",
        Bytes(*block_bytes)
    )]
    SpillCorrupt {
        /// The folder of the spill file.
        folder: String,
        /// The size in bytes of the tensor whose block is damaged.
        block_bytes: u64,
        /// The place of the damage, in bytes from the start of the file.
        offset_bytes: u64,
        /// What is wrong at that place.
        reason: &'static str,
    },
    /// A [store](crate::stores) did not take the bytes of a tensor, or does not give them back. The
    /// error concerns this tensor alone. If the store lost the bytes, the tensor has no value.
    #[error("{0}")]
    Store(Arc<StoreError>),
    /// A tensor was dropped because it could be computed again, but that failed.
    #[error("the tensor made at {made_at} cannot be computed again: {reason}")]
    Recompute {
        /// The place in the source that made the tensor, with its name if it has one.
        made_at: String,
        /// Why it failed.
        reason: String,
    },
    /// A state file could not be saved or loaded. An existing file is unchanged, unless the reason
    /// says otherwise.
    #[error("the state file {path}: {reason}{}", .failure.advice())]
    State {
        /// The path of the file.
        path: String,
        /// The kind of the failure.
        failure: StateFailure,
        /// What is wrong, as the system or this crate says it.
        reason: String,
    },
    /// A model file could not be opened, loaded or saved, or it does not hold the requested tensor.
    #[error("the model file {path}: {reason}{}", .failure.advice())]
    Model {
        /// The path of the file.
        path: String,
        /// The kind of the failure.
        failure: ModelFailure,
        /// What is wrong: names, shapes and numbers.
        reason: String,
    },
    /// Gradients cannot be computed, or an operation cannot be recorded for them.
    #[error("{operation}: {reason}")]
    Gradient {
        /// The name of the call or operation.
        operation: &'static str,
        /// What is wrong, with the lines concerned, and what the caller can do.
        reason: String,
    },
    /// A batch of a loader could not be prepared: a function of the app returned an error of its
    /// own, or panicked.
    #[error("batch {batch} of the loader: {cause}")]
    Loader {
        /// The number of the batch, from 0.
        batch: u64,
        /// The error of the app, or the message of the panic.
        cause: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The value of a tensor was asked for in a [dry run](crate::Gpu::dry_run), which computes
    /// nothing. The closure may ask [`Gpu::is_dry`](crate::Gpu::is_dry) and leave the read out. A
    /// program whose next calls depend on values has no dry run.
    #[error(
        "a value was read at {at}, and a dry run has no values: leave the read out if \
         `gpu.is_dry()`, or read after the dry run"
    )]
    DryRunRead {
        /// The line that read, as `file:line`.
        at: String,
    },
    /// A file does not have the expected format, such as a snapshot or a log.
    #[error("the {format} cannot be read: {reason}")]
    Format {
        /// The expected format.
        format: &'static str,
        /// What is wrong, and at which place of the file.
        reason: String,
    },
    /// The driver refused a request that the engine believes to be valid.
    #[error("the driver refused {what}: {message}")]
    Driver {
        /// The request.
        what: &'static str,
        /// The message of the driver.
        message: String,
    },
}

/// What is foreign to an operation, and what the caller can do.
fn foreign(operation: &str) -> &'static str {
    match operation {
        "lend_to" => {
            "the handle is that of another device, which cannot read this memory. Copy to that \
             device with `to`"
        }
        _ => {
            "an operand belongs to another Gpu, or to another share of this one. Copy it here with \
             `to`, or lend it to this share with `lend_to`"
        }
    }
}

fn prefix(by: &str) -> String {
    match by {
        "" => String::new(),
        by => format!("{by}: "),
    }
}

fn advice(hint: &str) -> String {
    match hint {
        "" => String::new(),
        hint => format!(". {hint}"),
    }
}

/// The reason why a block could not be written to the spill file or read from it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SpillError {
    /// The kind of the failure.
    pub failure: SpillFailure,
    /// The operation that failed: `make the spill file`, `write a block`, …
    pub operation: &'static str,
    /// The size of the block in bytes.
    pub requested_bytes: u64,
    /// The bytes of all blocks in the spill file.
    pub used_bytes: u64,
    /// The largest allowed size of the spill file in bytes.
    pub quota_bytes: u64,
    /// The folder of the spill file.
    pub folder: String,
    /// The message of the system or of this crate; may be empty.
    pub cause: String,
}

/// The kinds of failures when spilling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SpillFailure {
    /// This system has no files; a browser, for example.
    Unavailable,
    /// The file cannot be created in the folder. The next spill tries again.
    Folder,
    /// The quota leaves no room. Drop spilled tensors, or raise the quota.
    QuotaFull,
    /// The disk is full.
    DiskFull,
    /// The system reports another failure.
    Io,
}

impl fmt::Display for SpillError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "spilling could not {} in {} for {} ({} spilled",
            self.operation,
            self.folder,
            Bytes(self.requested_bytes),
            Bytes(self.used_bytes),
        )?;
        if self.quota_bytes < u64::MAX {
            write!(f, " of {} allowed", Bytes(self.quota_bytes))?;
        }
        f.write_str(")")?;
        if !self.cause.is_empty() {
            write!(f, ": {}", self.cause)?;
        }
        f.write_str(match self.failure {
            SpillFailure::Unavailable => ". Keep the tensors in memory: there is no disk to use",
            SpillFailure::Folder => ". Choose a folder that can be written",
            SpillFailure::QuotaFull => ". Drop spilled tensors, or raise the disk budget",
            SpillFailure::DiskFull => ". Free room on the disk, or choose a folder on another one",
            SpillFailure::Io => ". Try again; if it stays, choose a folder on another disk",
        })
    }
}

/// The kinds of failures when saving and loading a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StateFailure {
    /// This system has no files (a browser, for example), or it stores numbers big-endian.
    Unavailable,
    /// There is no file at this path.
    NotFound,
    /// A name is given twice, is too long, or is not in the file.
    Name,
    /// The file is truncated, was changed, or is no state file.
    Damaged,
    /// Another version, or another kind of machine, wrote the file; it cannot be read here.
    Unsupported,
    /// Another thread wrote to a tensor during the save.
    Changed,
    /// The disk is full.
    DiskFull,
    /// The system reports another failure.
    Io,
}

impl StateFailure {
    fn advice(self) -> &'static str {
        match self {
            StateFailure::Unavailable => ". Read the tensors, and keep their elements elsewhere",
            StateFailure::NotFound => ". Save a state first, or look for it elsewhere",
            StateFailure::Name => ". Give each tensor one name, and ask for it by that",
            StateFailure::Damaged => ". Load an older state: nothing of this one was used",
            StateFailure::Unsupported => ". Read it with the version that wrote it",
            StateFailure::Changed => ". Save copies of the tensors, or save between the writes",
            StateFailure::DiskFull => ". Free room on the disk, or save to another one",
            StateFailure::Io => ". Look at the file and its folder, and try again",
        }
    }
}

/// The kinds of failures of a model file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ModelFailure {
    /// This system has no files (a browser, for example), or it stores numbers big-endian.
    Unavailable,
    /// There is no file at this path.
    NotFound,
    /// The file is truncated, contradicts itself, or is no safetensors file.
    Damaged,
    /// The file has changed since it was opened.
    Changed,
    /// The file has no tensor of this name, or the name cannot be saved.
    Name,
    /// The tensor has another shape than the caller asked for.
    Shape,
    /// The elements of the tensor have a type that the kernels do not support.
    Unsupported,
    /// An element does not fit into the type that the caller asked for.
    Value,
    /// The disk is full.
    DiskFull,
    /// The system reports another failure.
    Io,
}

impl ModelFailure {
    fn advice(self) -> &'static str {
        match self {
            ModelFailure::Unavailable => ". Read the bytes in another way, and give those",
            ModelFailure::NotFound => ". Look whether the path is right, or download the file",
            ModelFailure::Damaged => ". Download it again, or convert it again: nothing was loaded",
            ModelFailure::Changed => {
                ". Open it again, and replace files instead of writing into them"
            }
            ModelFailure::Name => ". The file's names are listed by `names`",
            ModelFailure::Shape => {
                ". It may be the file of another model, or of another size of it"
            }
            ModelFailure::Unsupported => ". Convert it to f32, f16 or bf16 first",
            ModelFailure::Value => ". Convert it to a type that has room for its values",
            ModelFailure::DiskFull => ". Free room on the disk, or save to another one",
            ModelFailure::Io => ". Look at the file and its folder, and try again",
        }
    }
}

/// An error in a kernel, with the place in the kernel's text if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelError {
    /// The name of the kernel.
    pub kernel: String,
    /// The error, in one sentence.
    pub message: String,
    /// The line of the text, with carets under the place. Empty if the error has no place.
    pub excerpt: String,
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel `{}`: {}", self.kernel, self.message)?;
        if !self.excerpt.is_empty() {
            write!(f, "\n{}", self.excerpt)?;
        }
        Ok(())
    }
}

/// The same sentence as `Display`. A program whose `main` returns an error prints this.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    pub(crate) fn option(option: &'static str, reason: impl Into<String>) -> Error {
        let reason = reason.into();
        Error::Option { option, reason }
    }

    pub(crate) fn driver(what: &'static str, message: impl Into<String>) -> Error {
        let message = message.into();
        Error::Driver { what, message }
    }

    pub(crate) fn buffer(operation: &'static str, reason: impl Into<String>) -> Error {
        let reason = reason.into();
        Error::Buffer { operation, reason }
    }

    pub(crate) fn foreign(operation: &'static str) -> Error {
        Error::Foreign { operation }
    }

    pub(crate) fn recompute(made_at: impl ToString, reason: impl Into<String>) -> Error {
        let (made_at, reason) = (made_at.to_string(), reason.into());
        Error::Recompute { made_at, reason }
    }

    /// An error that does not say yet what [asked](Self::asked_by) for that much.
    pub(crate) fn never_fits(
        what: &'static str,
        requested_bytes: u64,
        limit_bytes: u64,
        hint: &'static str,
    ) -> Error {
        Error::NeverFits {
            what,
            requested_bytes,
            limit_bytes,
            hint,
            by: String::new(),
        }
    }

    /// Names what asked for more than ever fits, unless the error does already.
    pub(crate) fn asked_by(mut self, asked: impl FnOnce() -> String) -> Error {
        if let Error::NeverFits { by, .. } = &mut self {
            if by.is_empty() {
                *by = asked();
            }
        }
        self
    }

    /// Whether a copy of a tensor's bytes, on disk or in a store, is not what was written.
    pub(crate) fn is_loss(&self) -> bool {
        match self {
            Error::SpillCorrupt { .. } => true,
            Error::Store(error) => error.failure.is_loss(),
            _ => false,
        }
    }

    /// Whether the error stays, however long the caller waits and whatever it frees. These errors
    /// may pass: out of memory, a failed source, a full or unwritable disk, a silent store, and a
    /// call that would block. The last does not occur in the asynchronous form of the call.
    pub fn is_final(&self) -> bool {
        match self {
            Error::OutOfMemory(_) | Error::Source { .. } | Error::WouldBlock { .. } => false,
            Error::Spill(error) => error.failure == SpillFailure::Unavailable,
            Error::Store(error) => error.failure.is_loss(),
            Error::State { failure, .. } => !matches!(
                failure,
                StateFailure::Changed | StateFailure::DiskFull | StateFailure::Io
            ),
            Error::Model { failure, .. } => {
                !matches!(failure, ModelFailure::DiskFull | ModelFailure::Io)
            }
            _ => true,
        }
    }
}
