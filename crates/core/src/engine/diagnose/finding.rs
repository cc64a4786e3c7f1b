//! What is looked for, and what was found: plain values.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::memory::Tag;

/// Which bugs are looked for while a program runs:
/// [`Options::diagnostics`](crate::Options::diagnostics).
///
/// All are off by default, and then cost nothing. What is found is a [`Finding`]: a warning to the
/// crate `log`, and in the list of [`Gpu::findings`](crate::Gpu::findings). Every flush, read and
/// finish waits for the device and looks; results are the same, bit for bit.
///
/// They take memory: 128 to 320 KiB of the budget, and 256 to 511 bytes a tensor for its fence. And
/// time: a small network's steps, each of which was read, took on lavapipe 1.9 times as long with
/// canaries, 2.7 times with poison, 2.1 times with `non_finite` and 3.2 times with all
/// (`cargo bench --bench diagnostics`). Buffers of the app that were [imported](crate::Gpu::import)
/// have no fences, and a device that is lost takes along what was not told.
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
    /// Behind every tensor lies a fence of at least 256 bytes, and one kernel looks at all of them:
    /// whoever writes past an end is found ([`Finding::Overrun`]). A write before the beginning
    /// hits the fence of the neighbour, which the finding names too.
    ///
    /// What is written through by a [`Kernel`](crate::Kernel) of the app's is bound with 256 bytes
    /// of its fence, so that a wrong index lands there instead of being cut off at the last
    /// element; `arrayLength` says what it always says. It is bound exactly, and wrong indices are
    /// not found, where it is a view that ends before its storage does, an import, an array of
    /// elements that do not divide 256, or where the text hands `arrayLength` something else than
    /// `&name`.
    pub canaries: bool,
    /// What is freed is filled with words of `0xffed_ffed`, which are NaN in floats of every width,
    /// and is looked at before it is given out again, and at every flush: a write to it through a
    /// range that an app has kept is found ([`Finding::WrittenAfterFree`]), and what is read from
    /// there shows.
    pub poison: bool,
    /// What a [`Kernel`](crate::Kernel) of the app's leaves unwritten in its
    /// [`out`](crate::KernelCall::out) is found as soon as an operation or the host reads that
    /// tensor ([`Finding::Unwritten`]). It reads as zeros as ever. An output that the kernel itself
    /// reads is not watched, and a word of `0xffed_ffed` counts as unwritten and becomes zero.
    /// Nothing else can be without a value: whatever else makes a tensor writes all of it.
    pub unwritten: bool,
    /// When the last [`Gpu`](crate::Gpu) goes while tensors live, they are listed
    /// ([`Finding::Leak`]). [`Gpu::leaks`](crate::Gpu::leaks) lists them at any time, also without
    /// this.
    pub leaks: bool,
    /// Looks at every result of floats, and names the operation of which one has a NaN though its
    /// operands had none, or an infinity though they had neither ([`Finding::NonFinite`]).
    /// Operations are not put together meanwhile ([`Options::fuse`](crate::Options::fuse)).
    pub non_finite: bool,
}

/// What each is called.
const NAMES: [&str; 5] = ["canaries", "poison", "unwritten", "leaks", "non_finite"];

impl Diagnostics {
    /// Looks for all of them.
    #[must_use]
    pub const fn all() -> Self {
        Diagnostics {
            canaries: true,
            poison: true,
            unwritten: true,
            leaks: true,
            non_finite: true,
        }
    }

    /// Looks for none.
    #[must_use]
    pub const fn none() -> Self {
        Diagnostics {
            canaries: false,
            poison: false,
            unwritten: false,
            leaks: false,
            non_finite: false,
        }
    }

    /// Only what needs no look at the device.
    pub(crate) fn without_looks(self) -> Self {
        Diagnostics {
            leaks: self.leaks,
            ..Diagnostics::none()
        }
    }

    /// Is there anything to look for on the device?
    pub(crate) fn looks(&self) -> bool {
        self.canaries || self.poison || self.unwritten || self.non_finite
    }

    fn each(&mut self) -> [&mut bool; 5] {
        [
            &mut self.canaries,
            &mut self.poison,
            &mut self.unwritten,
            &mut self.leaks,
            &mut self.non_finite,
        ]
    }
}

/// `all`, `none`, or names with commas between them.
impl FromStr for Diagnostics {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut wanted = Diagnostics::none();
        for name in text
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
        {
            let place = NAMES.iter().position(|one| *one == name);
            match (name, place) {
                ("all", _) => wanted = Diagnostics::all(),
                ("none", _) => wanted = Diagnostics::none(),
                (_, Some(place)) => *wanted.each()[place] = true,
                _ => {
                    return Err(Error::Option {
                        option: "diagnostics",
                        reason: format!("`{name}` is none of all, none, {}", NAMES.join(", ")),
                    });
                }
            }
        }
        Ok(wanted)
    }
}

/// A bug that was found. Prints as a sentence or two.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// Something wrote past the end of a tensor, or before the beginning of the one behind it.
    #[non_exhaustive]
    Overrun {
        /// Who made the tensor; `None` where there are too many tags.
        made_at: Option<Tag>,
        /// How long it is, in bytes, with padding to a multiple of 16.
        size_bytes: u64,
        /// The first byte that was written, counted from the beginning of the tensor ...
        first_byte: u64,
        /// ... and the one after the last.
        end_byte: u64,
        /// How many words were found changed in between.
        words: u64,
        /// Who made the tensor that lies right behind it, if there is one.
        next: Option<Tag>,
        /// What ran since the fence was last seen whole: of many kernels the last ones.
        suspects: Vec<String>,
    },
    /// Something wrote to memory of a tensor that was gone.
    #[non_exhaustive]
    WrittenAfterFree {
        /// Who made the tensor that lay there last.
        made_at: Option<Tag>,
        /// How long it was, in bytes.
        size_bytes: u64,
        /// The first byte that was written, counted from the beginning of that tensor ...
        first_byte: u64,
        /// ... and the one after the last.
        end_byte: u64,
        /// How many words were found changed in between.
        words: u64,
        /// What ran since it was last seen whole: of many kernels the last ones.
        suspects: Vec<String>,
    },
    /// A kernel of the app's left elements of its output unwritten, and somebody read it.
    #[non_exhaustive]
    Unwritten {
        /// Who made the output: the call of the kernel.
        made_at: Tag,
        /// The kernel's entry point.
        kernel: String,
        /// How many words it left.
        words: u64,
        /// How many the output has.
        of_words: u64,
        /// The first of them.
        first_word: u64,
        /// Who read it first.
        read_by: String,
    },
    /// An operation made the first NaN, or infinity.
    #[non_exhaustive]
    NonFinite {
        /// What was computed; `None` of what the app or a source wrote.
        operation: Option<String>,
        /// Who made the tensor.
        made_at: Tag,
        /// What its elements are.
        dtype: DType,
        /// How many elements its storage has.
        elements: u64,
        /// How many of them are NaN.
        nans: u64,
        /// How many are infinite.
        infinities: u64,
        /// The first of either, counted from the start of the storage.
        first_element: u64,
        /// Infinities were among the operands, so that a NaN came of one.
        of_infinity: bool,
    },
    /// Tensors were alive when the last handle of their device went.
    Leak(Leak),
}

/// Tensors that are alive, of one maker.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leak {
    /// Where they were made, with their name and scope.
    pub made_at: Tag,
    /// How many storages that is: views share one.
    pub storages: u64,
    /// Their bytes, wherever they are.
    pub bytes: u64,
}

/// A tag, where there is one.
struct Maker<'a>(&'a Option<Tag>);

impl fmt::Display for Maker<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(tag) => write!(f, "{tag}"),
            None => f.write_str("one of too many places to remember"),
        }
    }
}

/// Who may have done it.
struct Suspects<'a>(&'a [String]);

impl fmt::Display for Suspects<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => Ok(()),
            [one] => write!(f, " What ran since it was last whole is {one}."),
            many => write!(f, " What ran since it was last whole: {}.", many.join(", ")),
        }
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
                    "{words} words in bytes {first_byte}..{end_byte} of a tensor of {size_bytes} bytes \
                     were overwritten, past its end. It was made at {}.",
                    Maker(made_at)
                )?;
                if next.is_some() {
                    let next = Maker(next);
                    write!(f, " Behind it lies the tensor made at {next}.")?;
                }
                write!(f, "{}", Suspects(suspects))
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
                 were written after it was gone. It was made at {}.{}",
                Maker(made_at),
                Suspects(suspects)
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
                "kernel `{kernel}` left {words} of the {of_words} words of its output unwritten, the \
                 first of them word {first_word}, and {read_by} read it. It was made at {made_at}."
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
                    None => "what was written from outside has".to_owned(),
                };
                write!(
                    f,
                    "{by} {nans} NaN and {infinities} infinities among {elements} elements of {dtype}, \
                     the first of them element {first_element}"
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
        let Leak {
            made_at,
            storages,
            bytes,
        } = self;
        let tensors = if *storages == 1 { "tensor" } else { "tensors" };
        write!(
            f,
            "{storages} {tensors} of {bytes} bytes alive, made at {made_at}."
        )
    }
}

/// So many findings are kept: the first of all, since later ones tend to follow from them.
const MOST_FINDINGS: usize = 256;

/// The list of what was found. It may outlive its [`Gpu`](crate::Gpu), and then has the leaks too.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    list: Arc<Mutex<VecDeque<Finding>>>,
}

impl Findings {
    /// Takes what was found since the last time, in the order in which it was found. At most 256
    /// are kept.
    pub fn take(&self) -> Vec<Finding> {
        self.lock().drain(..).collect()
    }

    /// Has nothing been found, or all of it been taken?
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    pub(crate) fn push(&self, finding: Finding) {
        log::warn!("{finding}");
        let mut list = self.lock();
        if list.len() < MOST_FINDINGS {
            list.push_back(finding);
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Finding>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
