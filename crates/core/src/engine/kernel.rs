//! A kernel for the engine: a name, operands, a text for each variant, and a reference kernel.
//!
//! The text is WGSL without declarations of the operands. [`wgsl`] declares them once their
//! places are known. Only then is it clear which bindings the command writes to, which of them
//! coincide, and how many windows each needs. For every operand `x` of the kernel the text may use
//!
//! | name | what it is |
//! | --- | --- |
//! | `x_get(i) -> T` | element `i`, counted from the start of the storage |
//! | `x_get4(i) -> vec4<T>` | elements `i..i+4`, `i` a multiple of 4 |
//! | `x_put4(i, v)` | writes elements `i..i+4`, `i` a multiple of 4 (written operands only) |
//! | `x_put(i, v)` | writes element `i`: types of 4 bytes only, and never where bound as vec4s |
//! | `p` | the parameters: a `struct Params` that the text declares |
//! | `x_load(w, u) -> vec4<u32>` | 16 bytes of a page, from the window and offset of its [table](pages) |
//! | `x_store(w, u, v)` | writes 16 bytes of a page |
//!
//! `T` is [`DType::wgsl`]: f16 and bf16 are widened to f32, u8 and bool to u32, i8 to i32. Kernels
//! write whole vec4s, so a storage is padded to 16 bytes. Elements narrower than a word need no
//! other treatment.

pub(super) mod adapt_reference;
mod donors;
pub(crate) mod fused;
pub(crate) mod pages;
pub mod sections;
pub mod wgsl;

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::dtype::DType;
use crate::memory::{Dead, DeadList, Storage};
use fused::Fused;
use pages::Pages;
use wgsl::{Layout, Target};

/// Bit `i` in the code of a user's launch: operand `i` is bound with a part of its canary. Bit
/// `UNWRITTEN + i`: operand `i` is an output that begins full of the pattern. The diagnostics count
/// the words of the pattern that are left.
pub(crate) const UNWRITTEN: u32 = 8;

/// The bits of operands that are bound with a part of their canary.
const WITH_CANARY: u64 = 0xff;

/// The most operands of a kernel.
pub const MAX_OPERANDS: usize = 8;

/// The most bytes of parameters. Immediates have this size on every device that has them.
pub const MAX_PARAMS_BYTES: usize = 128;

/// What a kernel does with an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Only reads it.
    Read,
    /// Writes all of it and ignores the old contents.
    Write,
    /// Writes a part of it, or reads the old contents.
    Update,
}

/// A kernel's operand.
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    /// Its name in the text.
    pub(crate) name: &'static str,
    /// The kernel's access to it.
    pub role: Role,
    /// For the first operand: a function that says which rows the second operand names. See
    /// [`RowsNamed`].
    pub(crate) rows: Option<fn(&Launch) -> Option<RowsNamed>>,
    /// Whether it stands for all pages of a launch. Then the operand before it is their table.
    pub is_pages: bool,
}

/// Constructors: `Operand::read("a")`.
impl Operand {
    const fn new(name: &'static str, role: Role) -> Self {
        Operand {
            name,
            role,
            rows: None,
            is_pages: false,
        }
    }

    /// An operand that the kernel only reads.
    pub const fn read(name: &'static str) -> Self {
        Operand::new(name, Role::Read)
    }

    /// A table from which the kernel copies rows.
    pub const fn table(name: &'static str, rows: fn(&Launch) -> Option<RowsNamed>) -> Self {
        Operand {
            rows: Some(rows),
            ..Operand::read(name)
        }
    }

    /// An operand that the kernel writes whole and does not read.
    pub const fn write(name: &'static str) -> Self {
        Operand::new(name, Role::Write)
    }
    /// All [pages](pages::Pages) of a launch, behind the operand that is their table. The kernel
    /// only reads the table, which the engine writes.
    pub const fn pages(name: &'static str, role: Role) -> Self {
        Operand {
            is_pages: true,
            ..Operand::new(name, role)
        }
    }

    /// An operand that the kernel writes in part, or also reads.
    pub const fn update(name: &'static str) -> Self {
        Operand::new(name, Role::Update)
    }
}

/// The copies of a launch that picks rows. Words of the second operand name rows of the first
/// operand, the table. The launch copies them one after the other into the third operand. A row
/// that the table does not have becomes zeros.
#[derive(Clone, Copy, Debug)]
pub struct RowsNamed {
    /// The offset of row 0 in the table.
    pub start_bytes: u64,
    /// The distance from one row to the next.
    pub step_bytes: u64,
    /// The bytes of a row, without gaps.
    pub row_bytes: u64,
    /// The number of rows in the table.
    pub rows: u32,
    /// The index of the word that names the first row of the result.
    pub first_word: u32,
    /// The distance from one such word to the next.
    pub word_step: u32,
    /// The number of rows in the result.
    pub count: u32,
}

/// The key of a kernel's text: small, because each command compares and hashes it once.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Variant {
    /// A code of the kernel's own module: the operation, the rank, the tile, ….
    pub code: u64,
    /// The element type of each operand.
    pub dtypes: [DType; MAX_OPERANDS],
    /// Bit `i`: the text accesses operand `i` only by vec4s (`x_get4`, `x_put4`). Then it is bound
    /// as an array of vec4s, and each access loads or stores several words at once.
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

/// A kernel of our crates: a constant.
pub struct BuiltInKernel {
    /// The stem of its WGSL file.
    pub name: &'static str,
    /// Its operands, in the order in which commands name them.
    pub operands: &'static [Operand],
    /// The text of a variant, without declarations of operands and `p`. Called once per pipeline.
    pub text: fn(&Variant) -> Cow<'static, str>,
    /// The reference kernel: the same work on the host. `None` where the simulated device is
    /// compiled out.
    pub reference: Option<fn(&mut ReferenceCall)>,
}

impl BuiltInKernel {
    /// Whether it copies rows of this operand. Pages come after all operands.
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn has_rows_in(&self, operand: usize) -> bool {
        (self.operands.get(operand)).is_some_and(|operand| operand.rows.is_some())
    }
}

impl fmt::Debug for BuiltInKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// One operand of a command.
#[derive(Clone, Debug)]
pub struct Arg {
    /// The storage.
    pub storage: Arc<Storage>,
    /// The element type.
    pub dtype: DType,
    /// Whether it is bound as vec4s (see [`Variant::vec4s`]).
    pub vec4s: bool,
}

impl Arg {
    /// The argument for the operand that stands for pages.
    pub fn of_pages(pages: &Pages) -> Arg {
        Arg {
            storage: pages.storages()[0].clone(),
            dtype: DType::U32,
            vec4s: true,
        }
    }
}

/// Writes the whole shader of a custom kernel.
///
/// Bit `i` of the number: binding `i` shows a part of the canary behind it.
pub(crate) type CustomShader = Box<dyn Fn(&Layout, &Target, u64) -> String + Send + Sync>;

/// The reference of a custom kernel. Its arguments are the bindings, the parameters, and the same
/// number that a [`CustomShader`] gets.
#[cfg(any(test, feature = "sim"))]
pub(crate) type CustomReference = Arc<dyn Fn(&mut [Vec<u8>], &[u8], u64) + Send + Sync>;

/// For each operand of a launch, its range of the storage: (offset, size) in bytes.
pub type Ranges = SmallVec<[(u64, u64); 0]>;

/// A kernel that a user wrote. Its text is whole, except for the head of each binding's
/// declaration.
///
/// A command may be its last holder. Its pipelines are destroyed after its last holder drops it.
pub struct Custom {
    /// An id that no other custom kernel of this process has.
    pub(crate) id: u64,
    /// The entry point, which names the kernel.
    pub(crate) entry: String,
    /// Its access to each operand.
    pub(crate) roles: Vec<Role>,
    /// The whole shader for a layout. Each operand of a custom kernel is its own part with one
    /// window.
    pub(crate) shader: CustomShader,
    /// The reference on the host, if the user gave one.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) reference: Option<CustomReference>,
    /// The list to which the kernel adds itself when it is dropped.
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

/// The origin of a kernel.
#[derive(Clone, Debug)]
pub enum Program {
    /// A kernel of our crates.
    Builtin(&'static BuiltInKernel),
    /// A kernel of the user. It is submitted alone, so that its failure affects no other command.
    Custom(Arc<Custom>),
    /// Several kernels of our crates, fused.
    Fused(Arc<Fused>),
}

impl Program {
    /// The name in reports.
    pub fn name(&self) -> &str {
        match self {
            Program::Builtin(kernel) => kernel.name,
            Program::Custom(custom) => &custom.entry,
            Program::Fused(fused) => &fused.name,
        }
    }

    /// The access to operand `index`.
    pub fn role(&self, index: usize) -> Role {
        match self {
            Program::Builtin(kernel) => kernel.operands[index].role,
            Program::Custom(custom) => custom.roles[index],
            Program::Fused(fused) => fused.operands[index].role,
        }
    }

    /// The operand that stands for the pages of a launch, if the kernel has one.
    pub(crate) fn pages(&self) -> Option<usize> {
        match self {
            Program::Builtin(kernel) => kernel.operands.iter().position(|one| one.is_pages),
            Program::Custom(_) | Program::Fused(_) => None,
        }
    }

    /// The number of operands.
    pub(crate) fn operands(&self) -> usize {
        match self {
            Program::Builtin(kernel) => kernel.operands.len(),
            Program::Custom(custom) => custom.roles.len(),
            Program::Fused(fused) => fused.operands.len(),
        }
    }
}

/// The methods that the app called, one for each result. The last one stands for further results.
/// Empty if they are not known.
pub type Methods = SmallVec<[&'static str; 1]>;

/// A kernel to run: a value in the queue until an execution pass places its operands.
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
    /// Bit `i`: an output may take over the storage of operand `i` if this command is its last
    /// holder. Element `i` of that `Write` operand has the same size and depends on element `i` of
    /// this one alone.
    pub may_reuse: u8,
    /// The byte range of each operand in its storage, as (start, length), both multiples of 4.
    /// Empty if all operands are whole storages. Kernels of our crates count elements from the
    /// start of the range. Their ranges are equal or disjoint and start at multiples of 16.
    pub ranges: Ranges,
    /// The multiply-adds, if they are many more than the bytes of the operands; else 0.
    pub work: u64,
    /// For errors. Only a fused kernel has several, as only its results are of several calls.
    pub methods: Methods,
    /// The pages that the kernel reaches by a table. The first one is also its operand, by which
    /// pages are counted where one of them is enough.
    pub pages: Option<Arc<Pages>>,
}

impl Launch {
    /// The storage of the pages' table: the operand before that of the pages.
    pub(crate) fn page_table(&self) -> Option<&Arc<Storage>> {
        let operand = self.pages.as_ref().and_then(|_| self.program.pages())?;
        Some(&self.args.get(operand.checked_sub(1)?)?.storage)
    }

    /// The same launch with these pages.
    pub fn with_pages(self, pages: Arc<Pages>) -> Self {
        let pages = Some(pages);
        Launch { pages, ..self }
    }

    /// The same launch with this number of multiply-adds.
    pub fn with_work(self, work: u64) -> Self {
        Launch { work, ..self }
    }

    /// The approximate work, in the unit of [`Caps::most_work`](crate::driver::Caps).
    pub(super) fn amount(&self) -> u64 {
        self.operand_bytes().max(self.work)
    }

    /// The bytes of all operands.
    pub(super) fn operand_bytes(&self) -> u64 {
        (0..self.args.len())
            .map(|index| self.shown_bytes(index))
            .sum()
    }

    /// The method that the app called for the result of this number; empty if it is not known.
    pub fn method(&self, result: usize) -> &'static str {
        let method = self.methods.get(result).or(self.methods.last());
        method.copied().unwrap_or_default()
    }

    /// Its name in errors: the method that the app called for the last result, or the kernel's name
    /// by this function.
    #[cold]
    pub(super) fn name(&self, of_kernel: fn(&Launch) -> String) -> String {
        match self.methods.last() {
            None | Some(&"") => of_kernel(self),
            Some(&method) => method.to_owned(),
        }
    }

    /// Raises the version of each storage that the launch updates, by this line of the app.
    pub(super) fn bump_versions(&self, at: &'static Location<'static>) {
        for (index, arg) in self.args.iter().enumerate() {
            if self.program.role(index) == Role::Update {
                arg.storage.bump_version(Some(at));
            }
        }
    }

    /// A launch of a user's kernel, whose operands are ranges of storages. `code` says what the
    /// diagnostics watch.
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
        let program = Program::Custom(kernel.clone());
        let launch = Launch::plain(program, code, args, params, groups);
        Launch { ranges, ..launch }
    }

    /// A launch of a kernel of our crates.
    pub fn new<P: bytemuck::NoUninit>(
        kernel: &'static BuiltInKernel,
        code: u64,
        args: impl IntoIterator<Item = Arg>,
        params: &P,
        groups: [u32; 3],
    ) -> Self {
        let args: SmallVec<[Arg; 4]> = args.into_iter().collect();
        debug_assert_eq!(args.len(), kernel.operands.len(), "{}", kernel.name);
        debug_assert!(size_of::<P>() <= MAX_PARAMS_BYTES, "{}", kernel.name);
        let (program, params) = (Program::Builtin(kernel), bytemuck::bytes_of(params));
        Launch::plain(program, code, args, params, groups)
    }

    fn plain(
        program: Program,
        code: u64,
        args: SmallVec<[Arg; 4]>,
        params: &[u8],
        groups: [u32; 3],
    ) -> Self {
        Launch {
            program,
            code,
            args,
            params: SmallVec::from_slice(params),
            groups,
            may_reuse: 0,
            ranges: SmallVec::new(),
            work: 0,
            methods: Methods::new(),
            pages: None,
        }
    }

    /// The pages, in the order of their table.
    pub(crate) fn page_storages(&self) -> impl Iterator<Item = &Arc<Storage>> {
        self.pages.iter().flat_map(|pages| pages.storages())
    }

    /// The bytes of an operand.
    pub(crate) fn shown_bytes(&self, index: usize) -> u64 {
        match self.ranges.get(index) {
            Some((_, size_bytes)) => *size_bytes,
            None => self.args[index].storage.size_bytes(),
        }
    }

    /// The number of windows of this size that the operands need. In a kernel of our crates,
    /// operands with the same bytes share windows.
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

    /// The key of the launch's text.
    pub fn variant(&self) -> Variant {
        let mut variant = Variant {
            code: self.code,
            dtypes: [DType::F32; MAX_OPERANDS],
            vec4s: 0,
        };
        if matches!(self.program, Program::Custom(_)) {
            // The text of a custom kernel does not depend on the element types.
            variant.code &= WITH_CANARY;
            return variant;
        }
        for (index, arg) in self.args.iter().enumerate() {
            variant.dtypes[index] = arg.dtype;
            variant.vec4s |= u8::from(arg.vec4s) << index;
        }
        variant
    }
}

/// The reference kernel, if the simulated device is compiled in.
macro_rules! reference {
    ($run:expr) => {{
        #[cfg(any(test, feature = "sim"))]
        const RUN: Option<fn(&mut crate::engine::kernel::ReferenceCall)> = Some($run);
        #[cfg(not(any(test, feature = "sim")))]
        const RUN: Option<fn(&mut crate::engine::kernel::ReferenceCall)> = None;
        RUN
    }};
}
pub(crate) use reference;

/// The arguments of a reference kernel: each operand's storage as bytes, from its start.
#[derive(Debug)]
pub struct ReferenceCall {
    /// The operands, in the order of [`BuiltInKernel::operands`]. The results are left in the
    /// written ones.
    pub operands: Vec<Vec<u8>>,
    /// The variant.
    pub variant: Variant,
    /// The bytes of `struct Params`.
    pub params: Vec<u8>,
    /// For each window of the pages, its first byte in the operand that stands for them.
    pub windows: Vec<usize>,
}

impl ReferenceCall {
    /// The parameters, as the struct that made the launch.
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

    /// Element `index` of an operand of any integer type, sign-extended, or a bool as 0 or 1.
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
