//! A kernel as the engine sees it: a name, operands, a text that depends on the variant, a
//! reference kernel.
//!
//! The text is WGSL in which the operands are not declared: [`wgsl`](super::wgsl) declares them
//! when the places are known, since only then is it clear which bindings are written through,
//! which coincide, and how many windows each needs. For every operand `x` of the kernel the text
//! may use
//!
//! | name | what it is |
//! | --- | --- |
//! | `x_get(i) -> T` | element `i`, counted from the start of the storage |
//! | `x_get4(i) -> vec4<T>` | elements `i..i+4`, `i` a multiple of 4 |
//! | `x_put4(i, v)` | writes elements `i..i+4`, `i` a multiple of 4 (written operands only) |
//! | `x_put(i, v)` | writes element `i`: types of 4 bytes only, and never where bound as vec4s |
//! | `p` | the parameters: a `struct Params` that the text declares |
//!
//! `T` is [`DType::wgsl`]: f16 and bf16 are widened to f32, u8 and bool to u32, i8 to i32. Whole
//! vec4s are written, so a storage is padded to 16 bytes, and elements narrower than a word need
//! nothing special.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use super::fused::Fused;
use super::wgsl::{Layout, Target};
use crate::dtype::DType;
use crate::memory::{Dead, DeadList, Storage};

/// Bit `i` of the code of a user's launch: operand `i` is bound with some of its fence. Bit
/// `UNWRITTEN + i`: it is an output full of the pattern, of which what is left is found.
pub(crate) const UNWRITTEN: u32 = 8;

/// The bits of the operands with some of their fence.
pub(crate) const FENCED: u64 = 0xff;

/// Operands of one kernel, at most.
pub const MAX_OPERANDS: usize = 8;

/// Bytes of parameters, at most: what immediates hold everywhere that has them.
pub const MAX_PARAMS_BYTES: usize = 128;

/// What a kernel does with an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Only reads it.
    Read,
    /// Writes all of it: what it held is of no interest.
    Write,
    /// Writes some of it, or reads what it held.
    Update,
}

/// A kernel's operand.
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    /// Its name in the text.
    pub(crate) name: &'static str,
    /// What is done with it.
    pub role: Role,
    /// Of the first operand: which rows of it the second one names. See [`RowsNamed`].
    pub(crate) rows: Option<fn(&Launch) -> Option<RowsNamed>>,
}

/// Names an operand: `Operand::read("a")`.
impl Operand {
    /// An operand that is only read.
    pub const fn read(name: &'static str) -> Self {
        Operand {
            name,
            role: Role::Read,
            rows: None,
        }
    }

    /// A table of which the kernel copies rows.
    pub const fn table(name: &'static str, rows: fn(&Launch) -> Option<RowsNamed>) -> Self {
        Operand {
            rows: Some(rows),
            ..Operand::read(name)
        }
    }

    /// An operand that is written whole, and not read.
    pub const fn write(name: &'static str) -> Self {
        Operand {
            name,
            role: Role::Write,
            rows: None,
        }
    }
    /// An operand of which some is written, or that is read too.
    pub const fn update(name: &'static str) -> Self {
        Operand {
            name,
            role: Role::Update,
            rows: None,
        }
    }
}

/// What a launch does that copies rows of its first operand, the table, one after the other into
/// its third: words of the second one name them. A row that the table does not have is zeros.
#[derive(Clone, Copy, Debug)]
pub struct RowsNamed {
    /// Where in the table row 0 starts.
    pub start_bytes: u64,
    /// From one row to the next.
    pub step_bytes: u64,
    /// Bytes of a row, without gaps.
    pub row_bytes: u64,
    /// How many rows the table has.
    pub rows: u32,
    /// The word that names the first row of the result, and from it to the next one.
    pub first_word: u32,
    /// See [`first_word`](Self::first_word).
    pub word_step: u32,
    /// How many rows the result has.
    pub count: u32,
}

/// Which text of a kernel: small, compared and hashed once a command.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Variant {
    /// What the kernel's own module put there: the operation, the rank, the tile, ….
    pub code: u64,
    /// Element type of each operand.
    pub dtypes: [DType; MAX_OPERANDS],
    /// Bit `i`: operand `i` is accessed by vec4s only (`x_get4`, `x_put4`), so it is bound as an
    /// array of vec4s, which loads and stores several words at once.
    pub vec4s: u8,
}

impl fmt::Debug for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:#x} {:?} vec4s {:#b}",
            self.code, self.dtypes, self.vec4s
        )
    }
}

/// A kernel of the crate: a constant.
pub struct Kernel {
    /// The stem of its WGSL file.
    pub name: &'static str,
    /// Its operands, in the order in which commands name them.
    pub operands: &'static [Operand],
    /// The text of a variant, with operands and `p` undeclared. Called once a pipeline.
    pub text: fn(&Variant) -> Cow<'static, str>,
    /// The same work, naively, on the host.
    /// `None` where the simulated device is compiled out.
    pub reference: Option<fn(&mut ReferenceCall)>,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// One operand of a command.
#[derive(Clone, Debug)]
pub struct Arg {
    /// Whose bytes.
    pub storage: Arc<Storage>,
    /// What they are.
    pub dtype: DType,
    /// Bound as vec4s (see [`Variant::vec4s`]).
    pub vec4s: bool,
}

/// Writes the whole shader of a custom kernel.
///
/// Bit `i` of the number: binding `i` shows some of the fence behind it.
pub(crate) type CustomShader = Box<dyn Fn(&Layout, &Target, u64) -> String + Send + Sync>;

/// The same work on the host: bindings, parameters, and the number that a [`CustomShader`] is
/// given.
#[cfg(any(test, feature = "sim"))]
pub(crate) type CustomReference = Arc<dyn Fn(&mut [Vec<u8>], &[u8], u64) + Send + Sync>;

/// The ranges of their storages that a launch's operands show: (offset, size) in bytes.
pub type Ranges = SmallVec<[(u64, u64); 0]>;

/// A kernel that a user wrote: its text is whole, but for the head of each binding's declaration.
///
/// The last to hold it may be a command: when it goes, its pipelines go too.
pub struct Custom {
    /// No other custom kernel of this process has it.
    pub(crate) id: u64,
    /// The entry point, by which the kernel is known.
    pub(crate) entry: String,
    /// What it does with each operand.
    pub(crate) roles: Vec<Role>,
    /// The whole shader for a layout. Every operand of a custom kernel is a part of its own, in
    /// one window.
    pub(crate) shader: CustomShader,
    /// The same work on the host, if the user gave it.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) reference: Option<CustomReference>,
    /// Where it says that it is gone.
    pub(crate) dead: Arc<DeadList>,
}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.entry)
    }
}

impl Drop for Custom {
    fn drop(&mut self) {
        self.dead.push(Dead::Kernel(self.id));
    }
}

/// Whose kernel it is.
#[derive(Clone, Debug)]
pub enum Program {
    /// One of the crate's.
    Builtin(&'static Kernel),
    /// One of the user's: it gets a submission of its own, so that its failure is its own.
    Custom(Arc<Custom>),
    /// Several of the crate's in one.
    Fused(Arc<Fused>),
}

impl Program {
    /// What reports call it.
    pub fn name(&self) -> &str {
        match self {
            Program::Builtin(kernel) => kernel.name,
            Program::Custom(custom) => &custom.entry,
            Program::Fused(fused) => &fused.name,
        }
    }

    /// What it does with operand `index`.
    pub fn role(&self, index: usize) -> Role {
        match self {
            Program::Builtin(kernel) => kernel.operands[index].role,
            Program::Custom(custom) => custom.roles[index],
            Program::Fused(fused) => fused.operands[index].role,
        }
    }

    /// How many operands it has.
    pub(crate) fn operands(&self) -> usize {
        match self {
            Program::Builtin(kernel) => kernel.operands.len(),
            Program::Custom(custom) => custom.roles.len(),
            Program::Fused(fused) => fused.operands.len(),
        }
    }
}

/// A kernel to run: a value, which waits in the queue until an execution pass places its operands.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The kernel.
    pub program: Program,
    /// See [`Variant::code`].
    pub code: u64,
    /// One for each of the kernel's operands.
    pub args: SmallVec<[Arg; 4]>,
    /// The bytes of the text's `struct Params`; at most [`MAX_PARAMS_BYTES`].
    pub params: SmallVec<[u8; 64]>,
    /// Workgroups in x, y, z.
    pub groups: [u32; 3],
    /// Bit `i`: if this command is the last to hold operand `i`, its storage may become that of
    /// a `Write` operand with elements as wide: element `i` of it depends on element `i` alone.
    pub may_reuse: u8,
    /// Which bytes of its storage each operand is, as (start, length), both multiples of 4; empty
    /// where they see whole storages. The crate's kernels count elements from the start of what
    /// they are shown; their ranges are the same or apart, and start at multiples of 16.
    pub ranges: Ranges,
    /// Multiply-adds, where they are many more than its operands have bytes; 0 elsewhere.
    pub work: u64,
}

impl Launch {
    /// The same, with so many multiply-adds to do.
    pub fn with_work(self, work: u64) -> Self {
        Launch { work, ..self }
    }

    /// About how much it is to do, as [`Caps::most_work`](crate::driver::Caps) counts it.
    pub(super) fn amount(&self) -> u64 {
        let bytes = (0..self.args.len()).map(|index| self.shown_bytes(index));
        bytes.sum::<u64>().max(self.work)
    }

    /// What it writes to is not what it was.
    pub(super) fn bump_versions(&self) {
        for (index, arg) in self.args.iter().enumerate() {
            if self.program.role(index) == Role::Update {
                arg.storage.bump_version();
            }
        }
    }

    /// A launch of a user's kernel, whose operands are ranges of their storages; the code says what
    /// is watched.
    pub(crate) fn custom(
        kernel: &Arc<Custom>,
        args: impl IntoIterator<Item = (Arg, (u64, u64))>,
        params: &[u8],
        groups: [u32; 3],
        code: u64,
    ) -> Self {
        let (args, ranges): (SmallVec<[Arg; 4]>, Ranges) = args.into_iter().unzip();
        debug_assert_eq!(args.len(), kernel.roles.len(), "{}", kernel.entry);
        debug_assert!(params.len() <= MAX_PARAMS_BYTES, "{}", kernel.entry);
        Launch {
            program: Program::Custom(kernel.clone()),
            code,
            args,
            params: SmallVec::from_slice(params),
            groups,
            may_reuse: 0,
            ranges,
            work: 0,
        }
    }

    /// A launch of one of the crate's kernels.
    pub fn new<P: bytemuck::NoUninit>(
        kernel: &'static Kernel,
        code: u64,
        args: impl IntoIterator<Item = Arg>,
        params: &P,
        groups: [u32; 3],
    ) -> Self {
        let args: SmallVec<[Arg; 4]> = args.into_iter().collect();
        debug_assert_eq!(args.len(), kernel.operands.len(), "{}", kernel.name);
        debug_assert!(size_of::<P>() <= MAX_PARAMS_BYTES, "{}", kernel.name);
        Launch {
            program: Program::Builtin(kernel),
            code,
            args,
            params: SmallVec::from_slice(bytemuck::bytes_of(params)),
            groups,
            may_reuse: 0,
            ranges: SmallVec::new(),
            work: 0,
        }
    }

    /// How many bytes of its storage an operand is.
    pub(crate) fn shown_bytes(&self, index: usize) -> u64 {
        match self.ranges.get(index) {
            Some((_, size_bytes)) => *size_bytes,
            None => self.args[index].storage.size_bytes(),
        }
    }

    /// How many windows of this size its operands need. Those of a kernel of the crate that are the
    /// same bytes share theirs.
    pub(crate) fn windows(&self, window_bytes: u64) -> u64 {
        let is_known = |index: usize| {
            (0..index).any(|other| {
                Arc::ptr_eq(&self.args[other].storage, &self.args[index].storage)
                    && self.ranges.get(other) == self.ranges.get(index)
            })
        };
        let is_custom = matches!(self.program, Program::Custom(_));
        (0..self.args.len())
            .filter(|&index| is_custom || !is_known(index))
            .map(|index| self.shown_bytes(index).div_ceil(window_bytes))
            .sum()
    }

    /// Which text of the kernel it runs.
    pub fn variant(&self) -> Variant {
        let mut variant = Variant {
            code: self.code,
            dtypes: [DType::F32; MAX_OPERANDS],
            vec4s: 0,
        };
        if matches!(self.program, Program::Custom(_)) {
            // Its text is the same whatever the tensors hold.
            variant.code &= FENCED;
            return variant;
        }
        for (index, arg) in self.args.iter().enumerate() {
            variant.dtypes[index] = arg.dtype;
            variant.vec4s |= u8::from(arg.vec4s) << index;
        }
        variant
    }
}

/// What a reference kernel is called with: every operand's storage as bytes, from its start.
#[derive(Debug)]
pub struct ReferenceCall {
    /// One for each of [`Kernel::operands`]; what is left in the written ones is the result.
    pub operands: Vec<Vec<u8>>,
    /// The variant.
    pub variant: Variant,
    /// The bytes of `struct Params`.
    pub params: Vec<u8>,
}

impl ReferenceCall {
    /// The parameters as the struct that the launch was made from.
    pub fn params<P: bytemuck::AnyBitPattern>(&self) -> P {
        bytemuck::pod_read_unaligned(&self.params[..size_of::<P>()])
    }

    /// Element `index` of an operand of any float type.
    pub fn f32(&self, operand: usize, index: usize) -> f32 {
        match self.variant.dtypes[operand] {
            DType::F32 => f32::from_bits(self.word(operand, index)),
            DType::F16 => half::f16::from_bits(self.half(operand, index)).to_f32(),
            DType::Bf16 => half::bf16::from_bits(self.half(operand, index)).to_f32(),
            dtype => unreachable!("a reference kernel read {dtype} as a float"),
        }
    }

    /// Element `index` of an operand of any integer type, with its sign drawn out, or a bool as 0
    /// or 1.
    pub fn int(&self, operand: usize, index: usize) -> u32 {
        match self.variant.dtypes[operand] {
            DType::I32 | DType::U32 => self.word(operand, index),
            DType::U8 | DType::Bool => u32::from(self.operands[operand][index]),
            DType::I8 => i32::from(self.operands[operand][index] as i8) as u32,
            dtype => unreachable!("a reference kernel read {dtype} as an integer"),
        }
    }

    /// Writes element `index` of an operand of any float type.
    pub fn put_f32(&mut self, operand: usize, index: usize, value: f32) {
        match self.variant.dtypes[operand] {
            DType::F32 => self.put_word(operand, index, value.to_bits()),
            DType::F16 => self.put_half(operand, index, half::f16::from_f32(value).to_bits()),
            DType::Bf16 => self.put_half(operand, index, half::bf16::from_f32(value).to_bits()),
            dtype => unreachable!("a reference kernel wrote a float to {dtype}"),
        }
    }

    /// Writes element `index` of an operand of any integer type, or a bool as 0 or 1.
    pub fn put_int(&mut self, operand: usize, index: usize, value: u32) {
        match self.variant.dtypes[operand] {
            DType::I32 | DType::U32 => self.put_word(operand, index, value),
            DType::U8 | DType::Bool | DType::I8 => self.operands[operand][index] = value as u8,
            dtype => unreachable!("a reference kernel wrote an integer to {dtype}"),
        }
    }

    fn word(&self, operand: usize, index: usize) -> u32 {
        let bytes = &self.operands[operand][4 * index..4 * index + 4];
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    fn half(&self, operand: usize, index: usize) -> u16 {
        let bytes = &self.operands[operand][2 * index..2 * index + 2];
        u16::from_le_bytes([bytes[0], bytes[1]])
    }

    fn put_half(&mut self, operand: usize, index: usize, bits: u16) {
        self.operands[operand][2 * index..2 * index + 2].copy_from_slice(&bits.to_le_bytes());
    }

    fn put_word(&mut self, operand: usize, index: usize, value: u32) {
        self.operands[operand][4 * index..4 * index + 4].copy_from_slice(&value.to_le_bytes());
    }
}
