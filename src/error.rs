//! The crate's one error: what went wrong, with the numbers, and what the caller can do.
//!
//! Errors of shape, type and ownership come back from the call itself. Errors of memory and of
//! the device come back from the call that needs the value (`force`, `read`, …) and belong to the
//! tensor: nobody is handed the error of somebody else's work.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use crate::dtype::DType;
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
        "the device is lost: {reason}. Open a new Gpu and upload again what the host still has"
    )]
    DeviceLost {
        /// What the driver, or the app, said.
        reason: String,
    },
    /// A kernel that cannot be used: a parse error, a binding that is missing or of another type.
    #[error("{0}")]
    Kernel(Arc<KernelError>),
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

/// Why there is no room now.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// Bytes of the command's operands and results that had to be placed.
    pub requested_bytes: u64,
    /// Bytes of all live tensors.
    pub live_bytes: u64,
    /// Bytes of all slabs.
    pub reserved_bytes: u64,
    /// Bytes of slabs given back that the device still uses.
    pub retiring_bytes: u64,
    /// The largest free range inside the slabs.
    pub largest_hole_bytes: u64,
    /// Where the tensor that found no room was made.
    pub made_at: String,
    /// Those who hold most: where they were made, and bytes.
    pub holders: Vec<(String, u64)>,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "out of memory: {} for the tensor made at {} found no room ({} live, {} reserved, \
             {} retiring, largest hole {})",
            Bytes(self.requested_bytes),
            self.made_at,
            Bytes(self.live_bytes),
            Bytes(self.reserved_bytes),
            Bytes(self.retiring_bytes),
            Bytes(self.largest_hole_bytes),
        )?;
        for (index, (tag, bytes)) in self.holders.iter().enumerate() {
            let lead = if index == 0 { "; most is held by" } else { "," };
            write!(f, "{lead} {tag} ({})", Bytes(*bytes))?;
        }
        if self.live_bytes == 0 && self.reserved_bytes == 0 && self.retiring_bytes == 0 {
            // There is nothing of ours that could be dropped.
            return f.write_str(
                ". Nothing is held here: it is more than the device has left for this program. Use \
                 smaller tensors, or end what else uses the device, and force again",
            );
        }
        f.write_str(". Drop tensors and force again: the work is still queued")
    }
}

/// What is wrong with a kernel, pointing at the place in its text where there is one.
#[derive(Clone, Debug)]
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
    /// passes, and what would block does not in its asynchronous form; the others stay.
    pub fn is_final(&self) -> bool {
        !matches!(self, Error::OutOfMemory(_) | Error::WouldBlock { .. })
    }
}
