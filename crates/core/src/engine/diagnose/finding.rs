//! The options and findings of the diagnostics: plain values.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::memory::Tag;

/// The bugs to look for while a program runs:
/// [`Options::diagnostics`](crate::Options::diagnostics).
///
/// All checks are off by default, and then cost nothing. A bug that is found is a [`Finding`]. It
/// goes to the crate `log` as a warning, and to the list of
/// [`GpuDiagnostics::findings`](crate::diagnostics::GpuDiagnostics::findings).
/// With checks on, every flush, read and finish waits for the device and looks. Results are the
/// same, bit for bit.
///
/// Checks take memory: 128 to 320 KiB of the budget, and 256 to 511 bytes for each tensor's canary.
/// They also take time, measured on lavapipe with a read after each step of a small network (`cargo
/// bench --bench diagnostics`). A step took 1.9 times as long with canaries, 2.7 times with poison,
/// 2.1 times with `non_finite` and 3.2 times with all.
///
/// Buffers of the app that were [imported](crate::Gpu::import) have no canaries. Findings that were
/// not collected before a device loss are lost.
///
/// ```
/// use lapidary_core::{Options, diagnostics::Diagnostics};
///
/// let all = Options { diagnostics: Some(Diagnostics::all()), ..Options::default() };
/// let some: Diagnostics = "canaries,non_finite".parse()?;
/// assert!(some.canaries && !some.poison);
/// # Ok::<(), lapidary_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Diagnostics {
    /// Puts a canary of at least 256 bytes behind each tensor. One kernel checks all canaries, so a
    /// write past the end of a tensor is found ([`Finding::Overrun`]). A write before the beginning
    /// hits the canary of the neighbour, which the finding names too.
    ///
    /// A [`Kernel`](crate::Kernel) of the app gets its written operands with 256 bytes of their
    /// canary. So a write with a wrong index lands there and is not cut off at the last element.
    /// `arrayLength` returns the same as without checks.
    ///
    /// Wrong indices are not found in operands that are bound exactly. Those are views that end
    /// before their storage, imports, and arrays whose elements do not divide 256. The same holds
    /// if the text hands `arrayLength` something other than `&name`.
    pub canaries: bool,
    /// Fills freed memory with words of `0xffed_ffed`, which are NaN in floats of every width. The
    /// memory is checked before it is reused, and at every flush. So a write to it through a range
    /// that the app has kept is found ([`Finding::WrittenAfterFree`]). A read from there returns
    /// NaN.
    pub poison: bool,
    /// Finds words that a [`Kernel`](crate::Kernel) of the app leaves unwritten in its
    /// [`out`](crate::KernelCall::out), as soon as an operation or the host reads the tensor
    /// ([`Finding::Unwritten`]). They read as zeros, as without checks. An output that the kernel
    /// itself reads is not watched. A word of `0xffed_ffed` counts as unwritten and becomes zero.
    /// All other ways to make a tensor write all of it.
    pub unwritten: bool,
    /// Lists the tensors that are alive when the last [`Gpu`](crate::Gpu) is dropped
    /// ([`Finding::Leak`]). [`GpuDiagnostics::leaks`](crate::diagnostics::GpuDiagnostics::leaks)
    /// lists them at any time, also without this option.
    pub leaks: bool,
    /// Checks every result of floats. Reports the operation whose result has a NaN although its
    /// operands had none, or an infinity although they had neither ([`Finding::NonFinite`]). Fusion
    /// is off meanwhile ([`Options::fuse`](crate::Options::fuse)).
    pub non_finite: bool,
}

impl Diagnostics {
    /// Turns all checks on.
    #[must_use]
    pub const fn all() -> Self {
        Self::each(true)
    }

    /// Turns all checks off.
    #[must_use]
    pub const fn none() -> Self {
        Self::each(false)
    }

    const fn each(is_on: bool) -> Self {
        Diagnostics {
            canaries: is_on,
            poison: is_on,
            unwritten: is_on,
            leaks: is_on,
            non_finite: is_on,
        }
    }

    /// The same options without the checks on the device.
    pub(crate) fn without_looks(self) -> Self {
        Diagnostics {
            leaks: self.leaks,
            ..Diagnostics::none()
        }
    }

    /// Whether any check runs on the device.
    pub(crate) fn looks(&self) -> bool {
        self.canaries || self.poison || self.unwritten || self.non_finite
    }
}

/// Parses `all`, `none`, or names with commas between them.
impl FromStr for Diagnostics {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut wanted = Diagnostics::none();
        let names = text.split(',').map(str::trim);
        for name in names.filter(|name| !name.is_empty()) {
            match name {
                "all" => wanted = Diagnostics::all(),
                "none" => wanted = Diagnostics::none(),
                "canaries" => wanted.canaries = true,
                "poison" => wanted.poison = true,
                "unwritten" => wanted.unwritten = true,
                "leaks" => wanted.leaks = true,
                "non_finite" => wanted.non_finite = true,
                _ => {
                    let reason = format!(
                        "`{name}` is not one of: all, none, canaries, poison, unwritten, leaks, \
                         non_finite"
                    );
                    return Err(Error::option("diagnostics", reason));
                }
            }
        }
        Ok(wanted)
    }
}

/// A bug that was found. Its `Display` form is one or two sentences.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// A command wrote past the end of a tensor, or before the beginning of the next one.
    #[non_exhaustive]
    Overrun {
        /// The maker of the tensor; `None` if there are too many tags.
        made_at: Option<Tag>,
        /// The size of the tensor in bytes, padded to a multiple of 16.
        size_bytes: u64,
        /// The first byte that was written, counted from the beginning of the tensor.
        first_byte: u64,
        /// The byte after the last one that was written.
        end_byte: u64,
        /// The number of changed words in between.
        words: u64,
        /// The maker of the tensor that lies right behind it, if there is one.
        next: Option<Tag>,
        /// The commands since the last look that found the canary whole; at most the last 8.
        suspects: Vec<String>,
    },
    /// A command wrote to memory of a freed tensor.
    #[non_exhaustive]
    WrittenAfterFree {
        /// The maker of the last tensor that lay there.
        made_at: Option<Tag>,
        /// The size of that tensor in bytes.
        size_bytes: u64,
        /// The first byte that was written, counted from the beginning of that tensor.
        first_byte: u64,
        /// The byte after the last one that was written.
        end_byte: u64,
        /// The number of changed words in between.
        words: u64,
        /// The commands since the last look that found the memory unchanged; at most the last 8.
        suspects: Vec<String>,
    },
    /// A kernel of the app left elements of its output unwritten, and they were read.
    #[non_exhaustive]
    Unwritten {
        /// The maker of the output: the call of the kernel.
        made_at: Tag,
        /// The entry point of the kernel.
        kernel: String,
        /// The number of unwritten words.
        words: u64,
        /// The number of words of the output.
        of_words: u64,
        /// The index of the first unwritten word.
        first_word: u64,
        /// The first reader.
        read_by: String,
    },
    /// An operation made the first NaN or infinity.
    #[non_exhaustive]
    NonFinite {
        /// The operation. `None` if the app or a source wrote the value.
        operation: Option<String>,
        /// The maker of the tensor.
        made_at: Tag,
        /// The element type.
        dtype: DType,
        /// The number of elements of its storage.
        elements: u64,
        /// The number of NaN elements.
        nans: u64,
        /// The number of infinite elements.
        infinities: u64,
        /// The first of them, counted from the start of the storage.
        first_element: u64,
        /// Whether the operands had infinities, so that a NaN may come from one.
        of_infinity: bool,
    },
    /// Tensors were alive when the last handle of their device was dropped.
    Leak(Leak),
}

/// Tensors of one maker that are alive.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leak {
    /// The place that made them, with their name and scope.
    pub made_at: Tag,
    /// The number of storages; views share one.
    pub storages: u64,
    /// The bytes of the storages, wherever they are.
    pub bytes: u64,
}

/// A tag in words, if there is one.
fn place(tag: &Option<Tag>) -> String {
    let unknown = || "an unknown place, because there are too many tags".to_owned();
    tag.as_ref().map_or_else(unknown, Tag::to_string)
}

/// The suspects of a finding in a sentence.
fn accused(suspects: &[String]) -> String {
    match suspects {
        [] => String::new(),
        [one] => format!(" One command ran since the last check: {one}."),
        many => format!(" These ran since the last check: {}.", many.join(", ")),
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Overrun {
                made_at,
                size_bytes,
                first_byte,
                end_byte,
                words,
                next,
                suspects,
            } => {
                write!(
                    f,
                    "{words} words in bytes {first_byte}..{end_byte} of a tensor of {size_bytes} \
                     bytes were overwritten, past its end. It was made at {}.",
                    place(made_at)
                )?;
                if let Some(next) = next {
                    write!(f, " Behind it lies the tensor made at {next}.")?;
                }
                f.write_str(&accused(suspects))
            }
            Finding::WrittenAfterFree {
                made_at,
                size_bytes,
                first_byte,
                end_byte,
                words,
                suspects,
            } => write!(
                f,
                "{words} words in bytes {first_byte}..{end_byte} of a tensor of {size_bytes} bytes \
                 were written after it was freed. It was made at {}.{}",
                place(made_at),
                accused(suspects)
            ),
            Finding::Unwritten {
                made_at,
                kernel,
                words,
                of_words,
                first_word,
                read_by,
            } => write!(
                f,
                "kernel `{kernel}` left {words} of the {of_words} words of its output unwritten \
                 (the first is word {first_word}), and {read_by} read it. It was made at {made_at}."
            ),
            Finding::NonFinite {
                operation,
                made_at,
                dtype,
                elements,
                nans,
                infinities,
                first_element,
                of_infinity,
            } => {
                let by = match operation {
                    Some(operation) => format!("`{operation}` made"),
                    None => "the app or a source wrote".to_owned(),
                };
                write!(
                    f,
                    "{by} {nans} NaN and {infinities} infinities among {elements} elements of \
                     {dtype}, the first at element {first_element}"
                )?;
                match (operation, of_infinity) {
                    (None, _) => f.write_str(".")?,
                    (_, true) => f.write_str("; its operands had infinities, but no NaN.")?,
                    (_, false) => f.write_str("; its operands had none.")?,
                }
                write!(f, " The tensor was made at {made_at}.")
            }
            Finding::Leak(leak) => write!(f, "{leak}"),
        }
    }
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (storages, bytes) = (self.storages, self.bytes);
        let tensors = if storages == 1 { "tensor" } else { "tensors" };
        write!(
            f,
            "{storages} {tensors} of {bytes} bytes alive, made at {}.",
            self.made_at
        )
    }
}

/// The most findings that are kept. The first ones stay, because later ones tend to follow from
/// them.
const MOST_FINDINGS: usize = 256;

/// The list of findings. It may outlive its [`Gpu`](crate::Gpu), and then also has the leaks.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    list: Arc<Mutex<VecDeque<Finding>>>,
}

impl Findings {
    /// Takes the findings since the last call, in the order of their discovery. The list keeps at
    /// most 256.
    pub fn take(&self) -> Vec<Finding> {
        self.list.lock().drain(..).collect()
    }

    /// Whether the list has no finding.
    pub fn is_empty(&self) -> bool {
        self.list.lock().is_empty()
    }

    pub(crate) fn push(&self, finding: Finding) {
        log::warn!("{finding}");
        let mut list = self.list.lock();
        if list.len() < MOST_FINDINGS {
            list.push_back(finding);
        }
    }
}
