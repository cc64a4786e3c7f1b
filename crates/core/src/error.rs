//! The crate's one error: what went wrong, with the numbers, and what the caller can do.
//!
//! Errors of shape, type and ownership come back from the call itself. Errors of memory and of
//! the device come back from the call that needs the value (`force`, `read`, …) and belong to the
//! tensor: nobody is handed the error of somebody else's work.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use crate::dtype::DType;
use crate::shortage::OutOfMemory;
use crate::units::Bytes;

/// What every fallible call returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong. Cheap to clone: causes are shared.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// No adapter was found, or none that fits what was asked for.
    #[error("no GPU adapter: {reason}. {hint}")]
    NoAdapter {
        /// What was looked for, and what is there.
        reason: String,
        /// What to install or change on this system.
        hint: String,
    },
    /// An option, or an argument, has a value that cannot be.
    #[error("`{option}`: {reason}")]
    Option {
        /// Its name.
        option: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// Shapes that do not go together, or not with the operation.
    #[error("{operation}: {reason}")]
    Shape {
        /// The operation's name.
        operation: &'static str,
        /// Which shapes, and why not.
        reason: String,
    },
    /// The data's length is not what the shape holds.
    #[error("{got} elements were given for shape {shape:?}, which holds {expected}")]
    Length {
        /// How many elements the shape holds.
        expected: usize,
        /// How many came.
        got: usize,
        /// The shape.
        shape: Vec<usize>,
    },
    /// The product of a shape's dimensions, or its bytes, passes what can be addressed.
    #[error("shape {shape:?} of {dtype} holds more bytes than can be addressed")]
    Overflow {
        /// The shape.
        shape: Vec<usize>,
        /// The element type.
        dtype: DType,
    },
    /// An axis that the tensor does not have.
    #[error("{operation}: axis {axis} of a tensor with {rank} dimensions")]
    Axis {
        /// The operation's name.
        operation: &'static str,
        /// The axis, as given.
        axis: isize,
        /// How many there are.
        rank: usize,
    },
    /// An element type that the operation does not take.
    #[error("{operation}: {got} where {expected} is needed{}", advice(.hint))]
    DType {
        /// The operation's name.
        operation: &'static str,
        /// What it takes.
        expected: String,
        /// What it got.
        got: DType,
        /// What to do about it; may be empty.
        hint: &'static str,
    },
    /// A tensor of another `Gpu`.
    #[error("{operation}: an operand belongs to another Gpu; read it and upload it here")]
    Foreign {
        /// The operation's name.
        operation: &'static str,
    },
    /// A request that cannot succeed on this device, however much is freed.
    #[error(
        "{what} of {} never fits: this device's limit is {}. {hint}",
        Bytes(*requested_bytes), Bytes(*limit_bytes)
    )]
    NeverFits {
        /// What was asked for: a tensor, a binding, …
        what: &'static str,
        /// Its size.
        requested_bytes: u64,
        /// The limit that it passes.
        limit_bytes: u64,
        /// What to do instead.
        hint: &'static str,
    },
    /// There is no room now. The work stays queued and runs when there is.
    #[error("{0}")]
    OutOfMemory(Arc<OutOfMemory>),
    /// The tensor has no value, because the work that should have made it failed.
    #[error("the tensor made at {made_at} has no value: {cause}")]
    Poisoned {
        /// Where the tensor was made, with its name if it has one.
        made_at: String,
        /// What failed.
        cause: Arc<Error>,
    },
    /// The device is gone; every call says so from now on.
    #[error(
        "the device is lost: {reason}. `Gpu::reopen` brings back what the host, the disk or a source \
         still has"
    )]
    DeviceLost {
        /// What the driver, or the app, said.
        reason: String,
    },
    /// A kernel that cannot be used: a parse error, a binding that is missing or of another type.
    #[error("{0}")]
    Kernel(Arc<KernelError>),
    /// A call that must wait for work under way came from a function of the app which that very
    /// work has called: a callback for pressure, or a source.
    #[error("called from a callback of this Gpu, which waits for the callback to end")]
    Reentered,
    /// A call would have to wait, in a browser, where nothing may.
    #[error("{what} would have to wait, which nothing may in a browser: use the async form")]
    WouldBlock {
        /// The call.
        what: &'static str,
    },
    /// A buffer that cannot be imported or bound as asked.
    #[error("{operation}: {reason}")]
    Buffer {
        /// The operation's name.
        operation: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A tensor that must stay where it is: pinned, or in a buffer of the app.
    #[error("{operation}: the tensor made at {made_at} is pinned or imported, and stays")]
    Pinned {
        /// The call.
        operation: &'static str,
        /// Where the tensor was made, with its name if it has one.
        made_at: String,
    },
    /// The source of a tensor did not give its bytes. The work that needs them stays queued, and
    /// the source is asked again when somebody asks for its results.
    #[error("the source of the tensor made at {made_at} failed at byte {offset_bytes}: {message}")]
    Source {
        /// Where the tensor was made, with its name if it has one.
        made_at: String,
        /// Where in the tensor the bytes were wanted.
        offset_bytes: u64,
        /// What it said.
        message: String,
    },
    /// The spill file could not be made, grown, written or read. It concerns the tensor whose
    /// bytes were on their way; other tensors, spilled or not, are untouched.
    #[error("{0}")]
    Spill(Arc<SpillError>),
    /// The spill file gives back other bytes than were written: somebody changed it, or the disk
    /// fails. None of the damaged bytes were used.
    #[error(
        "a tensor of {} cannot be read back from the spill file in {folder}: {reason}, at byte \
         {offset_bytes}. Make the tensor again, and choose another folder if the disk fails",
        Bytes(*block_bytes)
    )]
    SpillCorrupt {
        /// The folder that the spill file was made in.
        folder: String,
        /// The bytes of the tensor whose block it is.
        block_bytes: u64,
        /// Where the damage was found, in bytes from the start of the file.
        offset_bytes: u64,
        /// What is wrong there.
        reason: &'static str,
    },
    /// A tensor that was given up because it could be computed again could not.
    #[error("the tensor made at {made_at} cannot be computed again: {reason}")]
    Recompute {
        /// Where the tensor was made, with its name if it has one.
        made_at: String,
        /// Why not.
        reason: String,
    },
    /// A state file could not be saved or loaded. A file that was there is as it was, unless the
    /// reason says otherwise.
    #[error("the state file {path}: {reason}{}", .failure.advice())]
    State {
        /// The file.
        path: String,
        /// Which kind of failure it is.
        failure: StateFailure,
        /// What is wrong, in the system's words or ours.
        reason: String,
    },
    /// A model's file could not be opened, loaded or saved, or holds something else than was asked
    /// for.
    #[error("the model file {path}: {reason}{}", .failure.advice())]
    Model {
        /// The file.
        path: String,
        /// Which kind of failure it is.
        failure: ModelFailure,
        /// What is wrong: names, shapes and numbers.
        reason: String,
    },
    /// A file that is not what it should be: a snapshot, a log.
    #[error("the {format} cannot be read: {reason}")]
    Format {
        /// What it should be.
        format: &'static str,
        /// What is wrong, and where.
        reason: String,
    },
    /// The driver refused something that we hold to be right, in its own words.
    #[error("the driver refused {what}: {message}")]
    Driver {
        /// What was asked of it.
        what: &'static str,
        /// Its own words.
        message: String,
    },
}

fn advice(hint: &str) -> String {
    match hint {
        "" => String::new(),
        hint => format!(". {hint}"),
    }
}

/// Why a block could not be written to the spill file, or read from it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SpillError {
    /// Which kind of failure it is.
    pub failure: SpillFailure,
    /// What was being done: `make the spill file`, `write a block`, …
    pub operation: &'static str,
    /// Bytes of the block.
    pub requested_bytes: u64,
    /// Bytes that all blocks take in the spill file.
    pub used_bytes: u64,
    /// Bytes that the spill file may have.
    pub quota_bytes: u64,
    /// The folder of the spill file.
    pub folder: String,
    /// The system's words, or ours; may be empty.
    pub cause: String,
}

/// The ways in which spilling fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SpillFailure {
    /// This system has no files, as in a browser.
    Unavailable,
    /// The file cannot be made in the folder. The next spill tries again.
    Folder,
    /// The quota leaves no room. Freeing spilled tensors, or a larger quota, helps.
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

/// The ways in which saving and loading a state fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StateFailure {
    /// This system has no files, as in a browser, or keeps numbers the other way round.
    Unavailable,
    /// There is no such file.
    NotFound,
    /// A name that is given twice, is too long, or is not in the file.
    Name,
    /// The file is cut off, changed, or no state file at all.
    Damaged,
    /// The file was written by a version, or on a kind of machine, that this one cannot read.
    Unsupported,
    /// Another thread wrote to a tensor while it was saved.
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

/// The ways in which a model's file fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ModelFailure {
    /// This system has no files, as in a browser, or keeps numbers the other way round.
    Unavailable,
    /// There is no such file.
    NotFound,
    /// The file is cut off, contradicts itself, or is no safetensors file.
    Damaged,
    /// The file is no longer as it was when it was opened.
    Changed,
    /// No tensor of the file has this name; or a name cannot be saved.
    Name,
    /// A tensor has another shape than was asked for.
    Shape,
    /// A tensor's elements are of a type that devices do not compute with.
    Unsupported,
    /// An element does not fit into the type that it is loaded as.
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

/// What is wrong with a kernel, pointing at the place in its text where there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelError {
    /// The kernel's name.
    pub kernel: String,
    /// One sentence.
    pub message: String,
    /// The line of the text, with a caret under the place; empty if it is about no place.
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

impl Error {
    /// Will it be the same however long one waits, and whatever is freed? Out of memory
    /// passes, a full or unwritable disk may, and what would block does not in its asynchronous
    /// form; the others stay.
    pub fn is_final(&self) -> bool {
        match self {
            Error::OutOfMemory(_) | Error::Source { .. } | Error::WouldBlock { .. } => false,
            Error::Spill(error) => error.failure == SpillFailure::Unavailable,
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
