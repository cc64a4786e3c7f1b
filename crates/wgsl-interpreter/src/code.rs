//! The code of a compiled kernel: short instructions over the registers of one invocation.
//!
//! WGSL has no recursion, so the registers of each function have a fixed place. A register is an
//! index into one list of words. The words of a value's scalars follow each other, without the
//! padding of memory. A `vec3<f32>` is three words, a `u64` is two, an `f16` is one. Variables of
//! functions and of the invocation are registers too.

use std::ops::Range;

use super::together::{Collective, Cooperative};

/// A register: the first of the words of a value.
pub(super) type Reg = u32;

/// No register.
pub(super) const NONE: Reg = u32::MAX;

/// A kernel that is ready to run.
#[derive(Debug, Default)]
pub(super) struct Code {
    pub(super) instrs: Vec<Instr>,
    /// The origin of each instruction.
    pub(super) origins: Vec<Origin>,
    /// The first instruction of the entry point.
    pub(super) entry: u32,
    pub(super) workgroup_size: [u32; 3],
    /// The number of registers of an invocation.
    pub(super) registers: u32,
    /// The number of words that hold the positions of an invocation in its loops and calls.
    pub(super) control: u32,
    /// The registers of constants, and their values.
    pub(super) constants: Vec<(Reg, u32)>,
    /// The registers of builtins.
    pub(super) builtins: Vec<(naga::BuiltIn, Reg)>,
    /// The words of workgroup memory.
    pub(super) shared_words: u32,
    pub(super) buffers: Vec<Buffer>,
    pub(super) bounds: Vec<IndexBound>,
    pub(super) switches: Vec<Switch>,
    pub(super) collectives: Vec<Collective>,
    pub(super) cooperatives: Vec<Cooperative>,
    /// The names of the variables.
    pub(super) names: Vec<String>,
}

/// The origin of an instruction.
#[derive(Clone, Debug, Default)]
pub(super) struct Origin {
    /// The range of bytes in the text.
    pub(super) place: Range<u32>,
    /// The variable that the instruction reads or writes, in [`Code::names`].
    pub(super) name: u32,
}

/// A buffer that the kernel declares and uses.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    pub(super) source: Source,
    /// Whether the kernel declares it read-write.
    pub(super) may_write: bool,
    /// Whether elements of two bytes are written one by one, so that each has its own state.
    pub(super) has_halves: bool,
}

/// The source of a buffer's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The binding with this number in a bind group.
    Binding { group: u32, index: u32 },
    /// The dispatch's immediates.
    Immediates,
}

/// A type of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Num {
    Bool,
    I32,
    U32,
    F32,
    /// Stored as its 16 bits, computed as f32 and rounded.
    F16,
    I64,
    U64,
}

impl Num {
    /// The number of registers of one number.
    pub(super) fn words(self) -> u32 {
        match self {
            Num::I64 | Num::U64 => 2,
            _ => 1,
        }
    }
}

/// The limit of an index, and the distance of elements.
#[derive(Clone, Debug)]
pub(super) struct IndexBound {
    pub(super) count: Count,
    /// In words, or in bytes of a buffer.
    pub(super) stride: u32,
    pub(super) signed: bool,
}

/// The number of elements.
#[derive(Clone, Copy, Debug)]
pub(super) enum Count {
    Fixed(u32),
    /// As many as the buffer has from this byte on.
    Runtime {
        buffer: u32,
        first_bytes: u32,
    },
}

/// The targets of a `switch`.
#[derive(Clone, Debug, Default)]
pub(super) struct Switch {
    pub(super) cases: Vec<(u32, u32)>,
    pub(super) default: u32,
}

/// An address in memory: a fixed offset, and the register of a second offset, if there is one. Both
/// are in words, or in bytes of a buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address {
    pub(super) at: u32,
    pub(super) dynamic: Reg,
}

/// The kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    /// Registers of the invocation.
    Private,
    /// Workgroup memory.
    Shared,
    /// A buffer of [`Code::buffers`].
    Buffer(u32),
}

/// The operands of a function of two numbers, for each lane of a vector.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) to: Reg,
    pub(super) a: Reg,
    pub(super) b: Reg,
    pub(super) count: u8,
    /// Whether the operand is one number for all lanes.
    pub(super) a_is_one: bool,
    pub(super) b_is_one: bool,
}

/// An instruction.
#[derive(Clone, Copy, Debug)]
pub(super) enum Instr {
    Move(Move),
    Unary {
        num: Num,
        op: Unary,
        to: Reg,
        a: Reg,
        count: u8,
    },
    Binary {
        num: Num,
        op: Binary,
        pair: Pair,
    },
    Ternary {
        num: Num,
        op: Ternary,
        to: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
        count: u8,
    },
    Cast {
        from: Num,
        into: Num,
        to: Reg,
        a: Reg,
        count: u8,
    },
    Geometry {
        op: Geometry,
        is_half: bool,
        to: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
        shape: [u8; 3],
    },
    Pack {
        op: Pack,
        to: Reg,
        a: Reg,
        b: Reg,
    },
    Memory(MemoryAccess),
    Flow(Flow),
}

/// Moves words between registers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Move {
    Copy {
        to: Reg,
        from: Reg,
        words: u32,
    },
    /// Writes the same value `count` times.
    Splat {
        to: Reg,
        from: Reg,
        words: u8,
        count: u8,
    },
    Swizzle {
        to: Reg,
        from: Reg,
        words: u8,
        count: u8,
        pattern: [u8; 4],
    },
    /// Selects lane by lane, or all words by one condition.
    Select {
        to: Reg,
        condition: Reg,
        accept: Reg,
        reject: Reg,
        words: u32,
        each: bool,
    },
    /// Picks an element of a value. The bound has the words of an element.
    Pick {
        to: Reg,
        from: Reg,
        index: Reg,
        bound: u32,
    },
    /// Whether all, or any, of the lanes are true.
    Holds {
        to: Reg,
        from: Reg,
        count: u8,
        all: bool,
    },
}

/// Accesses memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum MemoryAccess {
    /// `to = previous + index * stride`, checked.
    Index {
        to: Reg,
        previous: Reg,
        index: Reg,
        bound: u32,
    },
    /// Begins the life of a variable, with zeros that count as unwritten, or with the words in its
    /// registers.
    Begin {
        at: Reg,
        words: u32,
        is_written: bool,
    },
    Load {
        to: Reg,
        space: Space,
        from: Address,
        words: u32,
    },
    Store {
        from: Reg,
        space: Space,
        to: Address,
        words: u32,
    },
    /// Loads `f16` elements, two per word of memory.
    LoadHalves {
        to: Reg,
        buffer: u32,
        from: Address,
        count: u32,
    },
    StoreHalves {
        from: Reg,
        buffer: u32,
        to: Address,
        count: u32,
    },
    AtomicLoad {
        to: Reg,
        space: Space,
        from: Address,
        words: u8,
    },
    AtomicStore {
        from: Reg,
        space: Space,
        to: Address,
        words: u8,
    },
    Atomic {
        num: Num,
        op: Atomic,
        /// The register for the earlier value; [`NONE`] if the kernel does not use it.
        old: Reg,
        value: Reg,
        space: Space,
        place: Address,
    },
    /// Writes the earlier value, and whether the exchange took place.
    CompareExchange {
        old: Reg,
        value: Reg,
        compare: Reg,
        words: u8,
        space: Space,
        place: Address,
    },
    Length {
        to: Reg,
        bound: u32,
    },
}

/// Changes the flow of control, or waits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Flow {
    Jump(u32),
    JumpUnless {
        condition: Reg,
        target: u32,
    },
    JumpIf {
        condition: Reg,
        target: u32,
    },
    Switch {
        value: Reg,
        table: u32,
    },
    Call {
        target: u32,
        control: u32,
    },
    Return {
        control: u32,
    },
    /// Begins the next round of a loop.
    Round {
        control: u32,
    },
    /// Ends a loop.
    Over {
        control: u32,
    },
    Barrier(naga::Barrier),
    Collective(u32),
    Cooperative(u32),
    End,
}

/// Functions of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unary {
    Negate,
    Not,
    Abs,
    Sign,
    Saturate,
    Cos,
    Cosh,
    Sin,
    Sinh,
    Tan,
    Tanh,
    Acos,
    Asin,
    Atan,
    Asinh,
    Acosh,
    Atanh,
    Radians,
    Degrees,
    Ceil,
    Floor,
    Round,
    Fract,
    Trunc,
    Exp,
    Exp2,
    Log,
    Log2,
    Sqrt,
    InverseSqrt,
    QuantizeToF16,
    IsNan,
    IsInf,
    CountTrailingZeros,
    CountLeadingZeros,
    CountOneBits,
    ReverseBits,
    FirstTrailingBit,
    FirstLeadingBit,
}

/// Functions of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
    Min,
    Max,
    Pow,
    Atan2,
    Step,
    Ldexp,
}

/// Functions of three numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ternary {
    Clamp,
    Fma,
    Mix,
    SmoothStep,
    ExtractBits,
    /// The fourth operand is in the register after the third.
    InsertBits,
}

/// Functions of whole vectors and matrices of floats. `shape` has their sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Geometry {
    Dot,
    Cross,
    Length,
    Distance,
    Normalize,
    FaceForward,
    Reflect,
    Refract,
    Outer,
    Transpose,
    Determinant,
    /// The shape is rows, the inner size, and columns.
    Product,
    Modf,
    Frexp,
}

/// Packs several numbers into one word, or unpacks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pack {
    Snorm4x8,
    Unorm4x8,
    Snorm2x16,
    Unorm2x16,
    Float2x16,
    I8x4,
    U8x4,
    I8x4Clamp,
    U8x4Clamp,
    DotI8x4,
    DotU8x4,
    FromSnorm4x8,
    FromUnorm4x8,
    FromSnorm2x16,
    FromUnorm2x16,
    FromFloat2x16,
    FromI8x4,
    FromU8x4,
    /// Packs two registers with the bits of an f16 each into one word, or unpacks it.
    Halves,
    FromHalves,
}

/// The effect of an atomic operation on a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Atomic {
    Add,
    Subtract,
    And,
    Or,
    Xor,
    Min,
    Max,
    Exchange,
}
