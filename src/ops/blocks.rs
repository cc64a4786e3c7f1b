//! Matrices whose elements are stored in blocks, as GGUF files have them. Kernels read the blocks
//! as they are, and widen them in registers.

#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use bytemuck::{Pod, Zeroable};

use super::elementwise::arg;
use super::long::assemble;
use super::matmul::{Epilogue, lanes};
use super::normalize::check_float;
use super::quantized::{MOST_WIDE_BYTES, check_last};
use super::rows::groups;
use super::skeleton::Skeleton;
use super::text::Text;
use crate::file_formats::BlockFormat;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use lapidary_core::adapter::{AdapterKind, ShaderCompiler};
use lapidary_core::internal::sections::push_sections;
use lapidary_core::internal::{Arg, BuiltInKernel, Launch, Operand, Variant};
use lapidary_core::{Caps, DType, Result};

const FORMATS: &str = include_str!("../../shaders/blocks/formats.wgsl");
const DEQUANTIZE: &str = include_str!("../../shaders/blocks/dequantize.wgsl");
const PRODUCT: &str = include_str!("../../shaders/blocks/product.wgsl");

/// Elements of a group. The kernels take one or two groups at once.
const GROUP: usize = 32;

/// Rows of blocks that a workgroup takes. A software adapter loads a row of inputs for more of
/// them, and several rows for some more. Adapters of four lanes compile long texts slowly.
const COLUMNS: u8 = 4;
const COLUMNS_OF_ONE_ON_CPU: u8 = 32;
const COLUMNS_OF_ONE_OF_FEW_LANES: u8 = 16;
const COLUMNS_ON_CPU: u8 = 8;

/// Most rows of a tile.
const TILE_ROWS: usize = 4;
/// FXC takes six seconds for four.
const TILE_ROWS_OF_FXC: usize = 2;

/// Most rows that are multiplied with the blocks. For more, the blocks are widened first: then each
/// is widened once, and not once for each tile.
const MOST_ROWS: usize = 8;

/// Invocations that share out a row where subgroups have no fixed size.
const LANES: u8 = 32;

/// `y` = the elements of `w`.
static DEQUANTIZE_BLOCKS: BuiltInKernel = BuiltInKernel {
    name: "dequantize_blocks",
    operands: &[Operand::read("w"), Operand::write("y")],
    text: dequantize_text,
    reference: reference!(reference::dequantize),
};

/// `y` = `x` times the transposed `w`; the second one adds `residual`.
static BLOCK_PRODUCT: [BuiltInKernel; 2] = [
    product_kernel(&[X, W, Operand::write("y")]),
    product_kernel(&[X, W, Operand::read("residual"), Operand::write("y")]),
];

const X: Operand = Operand::read("x");
const W: Operand = Operand::read("w");

const fn product_kernel(operands: &'static [Operand]) -> BuiltInKernel {
    BuiltInKernel {
        name: "block_product",
        operands,
        text: product_text,
        reference: reference!(reference::product),
    }
}

/// `struct Params` of `shaders/blocks/dequantize.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct Widening {
    count: u32,
    start: u32,
}

/// `struct Params` of `shaders/blocks/product.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct Product {
    m: u32,
    n: u32,
    k: u32,
    x_start: u32,
    w_start: u32,
    row_bytes: u32,
    residual_start: u32,
}

/// A variant of the product, packed into a variant's code. That of the other kernel is the format.
#[derive(Clone, Copy, Debug)]
struct Form {
    format: BlockFormat,
    rows: u8,
    columns: u8,
    lanes: u8,
    /// The lanes are those of a subgroup.
    has_subgroups: bool,
    has_residual: bool,
}

impl Form {
    fn pack(self) -> u64 {
        let format = self.format as u8;
        let [subgroups, residual] = [self.has_subgroups, self.has_residual].map(u8::from);
        let [rows, columns, lanes] = [self.rows, self.columns, self.lanes];
        u64::from_le_bytes([format, rows, columns, lanes, subgroups, residual, 0, 0])
    }

    fn unpack(code: u64) -> Form {
        let [format, rows, columns, lanes, subgroups, residual, ..] = code.to_le_bytes();
        Form {
            format: BlockFormat::ALL[usize::from(format)],
            rows,
            columns,
            lanes,
            has_subgroups: subgroups != 0,
            has_residual: residual != 0,
        }
    }
}

/// A matrix in blocks, `[n, k]`. Each row consists of whole blocks.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    format: BlockFormat,
    /// `[n, bytes of a row]` of u8, one row after the other.
    bytes: Tensor,
    k: usize,
}

impl Blocks {
    /// `bytes` is contiguous, and begins at a pair of words of its storage.
    pub(super) fn new(format: BlockFormat, bytes: Tensor) -> Blocks {
        let k = bytes.shape()[1] / format.block_bytes() * format.block_len();
        Blocks { format, bytes, k }
    }

    pub(super) fn format(&self) -> BlockFormat {
        self.format
    }

    pub(super) fn bytes(&self) -> &Tensor {
        &self.bytes
    }

    pub(super) fn shape(&self) -> [usize; 2] {
        [self.bytes.shape()[0], self.k]
    }

    fn row_bytes(&self) -> usize {
        self.bytes.shape()[1]
    }

    /// The rows that `indices`, of one dimension, names.
    #[track_caller]
    pub(super) fn rows(&self, indices: &Tensor) -> Result<Blocks> {
        let bytes = self.bytes.index_select(0, indices)?;
        Ok(Blocks::new(self.format, bytes))
    }

    /// The elements, `[n, k]` of f32.
    #[track_caller]
    pub(super) fn dequantize(&self) -> Result<Tensor> {
        self.dequantize_rows(0, self.shape()[0])
    }

    #[track_caller]
    fn dequantize_rows(&self, first: usize, count: usize) -> Result<Tensor> {
        let result = Tensor::output(&self.bytes.engine, &[count, self.k], DType::F32)?;
        let count = result.len() / span(self.format);
        if count == 0 {
            return Ok(result);
        }
        let params = Widening {
            count: count as u32,
            start: (self.bytes.layout.offset + first * self.row_bytes()) as u32,
        };
        let code = self.format as u64;
        let args = [self.arg(), arg(&result, true)];
        let groups = groups(result.engine.caps(), count as u64, 64);
        let launch = Launch::new(&DEQUANTIZE_BLOCKS, code, args, &params, groups);
        result.engine.launch(launch)?;
        Ok(result)
    }

    /// Refuses an operand of another type, shape or device.
    #[track_caller]
    pub(super) fn check(&self, x: &Tensor) -> Result<()> {
        const OPERATION: &str = "linear";
        check_float(OPERATION, x)?;
        x.same_engine(OPERATION, &self.bytes)?;
        check_last(OPERATION, x, self.shape()).located()
    }

    /// A linear layer of a checked operand.
    #[track_caller]
    pub(super) fn linear(&self, x: &Tensor, end: &Epilogue) -> Result<Tensor> {
        let [n, k] = self.shape();
        let mut shape = x.layout.shape.clone();
        shape.pop();
        let m = shape.iter().product();
        shape.push(n);
        end.check(x, x.dtype, &shape, true)?;
        let residual = (end.only_residual()).filter(|_| is_few(m) && n.is_multiple_of(4) && k > 0);
        let residual = residual.filter(|with| with.shape() == &shape[..]);
        let residual = residual.map(|with| with.reshape(&[m, n])?.at_a_vec4());
        let residual = residual.transpose()?;
        let product = self.product(&x.reshape(&[m, k])?, residual.as_ref())?;
        let product = product.reshape(&shape)?;
        let result = match residual {
            Some(_) => product,
            None => end.apply_in(product)?,
        };
        result.cast(end.cast_to().unwrap_or(x.dtype))
    }

    /// `[m, k]` of floats times the transposed matrix: `[m, n]` of f32. `residual` is added, if it
    /// is given; then there are few rows, and n is a multiple of four.
    #[track_caller]
    fn product(&self, x: &Tensor, residual: Option<&Tensor>) -> Result<Tensor> {
        let (m, [n, k]) = (x.shape()[0], self.shape());
        if m == 0 || n == 0 || k == 0 {
            return Tensor::zeroed(&x.engine, &[m, n], DType::F32);
        }
        if !is_few(m) {
            return self.product_of_many(x);
        }
        let x = x.at_a_vec4()?;
        let result = Tensor::output(&x.engine, &[m, n], DType::F32)?;
        let caps = x.engine.caps();
        let form = Form {
            has_residual: residual.is_some(),
            ..self.form(caps, m)
        };
        let params = Product {
            m: m as u32,
            n: n as u32,
            k: k as u32,
            x_start: x.layout.offset as u32,
            w_start: self.bytes.layout.offset as u32,
            row_bytes: self.row_bytes() as u32,
            residual_start: residual.map_or(0, |with| with.layout.offset as u32),
        };
        let tiles = n.div_ceil(form.columns.into()) * m.div_ceil(form.rows.into());
        let mut args = vec![arg(&x, true), self.arg()];
        args.extend(residual.map(|with| arg(with, true)));
        args.push(arg(&result, n.is_multiple_of(4)));
        let groups = groups(caps, tiles as u64, 1);
        let kernel = &BLOCK_PRODUCT[usize::from(form.has_residual)];
        let launch = Launch::new(kernel, form.pack(), args, &params, groups);
        x.engine
            .launch(launch.with_work(m as u64 * n as u64 * k as u64))?;
        Ok(result)
    }

    /// The product for many rows, which widens some of the matrix at a time.
    #[track_caller]
    fn product_of_many(&self, x: &Tensor) -> Result<Tensor> {
        let [n, k] = self.shape();
        let x = x.cast(DType::F32)?;
        let most = (MOST_WIDE_BYTES / (4 * k)).max(1);
        if n <= most {
            return x.matmul(&self.dequantize()?.t()?);
        }
        let shape = [x.shape()[0], n];
        assemble(&x, &shape, DType::F32, (1, most), |first, count| {
            x.matmul(&self.dequantize_rows(first, count)?.t()?)
        })
    }

    fn form(&self, caps: &Caps, m: usize) -> Form {
        let of_subgroup = lanes(caps).filter(|_| caps.kind == AdapterKind::Cpu);
        let most_rows = match caps.compiler {
            ShaderCompiler::Fxc => TILE_ROWS_OF_FXC,
            _ => TILE_ROWS,
        };
        Form {
            format: self.format,
            rows: m.next_power_of_two().min(most_rows) as u8,
            columns: match (of_subgroup, m) {
                (None, _) => COLUMNS,
                (Some(..8), 1) => COLUMNS_OF_ONE_OF_FEW_LANES,
                (_, 1) => COLUMNS_OF_ONE_ON_CPU,
                _ => COLUMNS_ON_CPU,
            },
            lanes: of_subgroup.unwrap_or(LANES),
            has_subgroups: of_subgroup.is_some(),
            has_residual: false,
        }
    }

    /// The bytes as words.
    fn arg(&self) -> Arg {
        Arg {
            dtype: DType::U32,
            ..arg(&self.bytes, false)
        }
    }
}

/// Elements that the kernels take at once: a group, or two that share their words.
fn span(format: BlockFormat) -> usize {
    match format {
        BlockFormat::Q4K | BlockFormat::Q5K => 2 * GROUP,
        _ => GROUP,
    }
}

/// Whether so many rows are multiplied with the blocks as they are.
fn is_few(rows: usize) -> bool {
    (1..=MOST_ROWS).contains(&rows)
}

/// The text of a kernel, with what reads some groups of this format in the place of `$group`.
fn text_with(format: BlockFormat, skeleton: &str) -> String {
    let mut group = String::new();
    let sections: &[&str] = match format {
        BlockFormat::Q4K | BlockFormat::Q5K => &["head_of_k", format.name()],
        BlockFormat::Q6K => &[format.name()],
        _ => &["words", format.name()],
    };
    push_sections(&mut group, FORMATS, sections);
    skeleton.replace("$group", &group)
}

/// The text, behind the functions that the format calls.
fn behind_functions(format: BlockFormat, text: String) -> Cow<'static, str> {
    let names: &[&str] = match format {
        BlockFormat::Q4K | BlockFormat::Q5K => &["functions", "of_k"],
        BlockFormat::Q6K => &["functions", "halves"],
        _ => &["functions"],
    };
    Text::new().sections(FORMATS, names).line(text).done()
}

/// The numbers of a format in the texts. A block lies in so many pairs of words at most, and one of
/// `Q5_0` may lie in one less.
fn numbers(format: BlockFormat) -> [(&'static str, u32); 5] {
    let [len, bytes] = [format.block_len(), format.block_bytes()].map(|count| count as u32);
    let span = span(format) as u32;
    // The block begins anywhere in a pair where it may by its length.
    let latest_end = bytes + 8 - (1 << bytes.trailing_zeros().min(3));
    [
        ("span", span),
        ("spans", len / span),
        ("bytes", bytes),
        ("pairs", latest_end.div_ceil(8)),
        ("has_rest", u32::from(!latest_end.is_multiple_of(8))),
    ]
}

/// A factor that makes elements equally large (see `shaders/blocks/formats.wgsl`).
fn units(format: BlockFormat) -> &'static str {
    match format {
        BlockFormat::Q8_0 => "",
        _ => " * vec4<f32>(1.0, 3.90625e-3, 1.52587890625e-5, 5.9604644775390625e-8)",
    }
}

fn dequantize_text(variant: &Variant) -> Cow<'static, str> {
    let format = BlockFormat::ALL[variant.code as usize];
    let skeleton = text_with(format, DEQUANTIZE);
    let skeleton = Skeleton::new(&skeleton).numbers(numbers(format));
    let skeleton = skeleton.with("units", units(format));
    let text = skeleton.numbers([("zero", format.zero())]).fill();
    behind_functions(format, text)
}

fn product_text(variant: &Variant) -> Cow<'static, str> {
    let form = Form::unpack(variant.code);
    let skeleton = text_with(form.format, PRODUCT);
    let text = Skeleton::new(&skeleton)
        .numbers(numbers(form.format))
        .numbers([
            ("rows", form.rows.into()),
            ("columns", form.columns.into()),
            ("lanes", form.lanes.into()),
        ])
        .with("subgroups", form.has_subgroups)
        .with("units", units(form.format))
        .with("has_offset", form.format != BlockFormat::Q8_0)
        .with("residual", form.has_residual)
        .with(
            "vec4s",
            variant.vec4s >> (2 + u8::from(form.has_residual)) & 1 == 1,
        )
        .fill();
    behind_functions(form.format, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::{valid, valid_beyond_fxc};

    #[test]
    fn every_variant_is_a_valid_shader() {
        for format in BlockFormat::ALL {
            let form = |rows, columns, lanes, has_subgroups, has_residual| Form {
                format,
                rows,
                columns,
                lanes,
                has_subgroups,
                has_residual,
            };
            let code = format as u64;
            valid(&DEQUANTIZE_BLOCKS, code, &[DType::U32, DType::F32], 0b10);
            let [plain, added] = &BLOCK_PRODUCT;
            for (rows, columns, x) in [
                (1, COLUMNS_OF_ONE_OF_FEW_LANES, DType::F32),
                (1, COLUMNS_OF_ONE_ON_CPU, DType::F32),
                (1, COLUMNS_OF_ONE_ON_CPU, DType::F16),
                (1, COLUMNS_OF_ONE_ON_CPU, DType::Bf16),
                (2, COLUMNS_ON_CPU, DType::F32),
                (4, COLUMNS_ON_CPU, DType::F32),
            ] {
                let check = |kernel, dtypes: &[DType], vec4s, has_residual| {
                    let code = form(rows, COLUMNS, LANES, false, has_residual).pack();
                    match usize::from(rows) <= TILE_ROWS_OF_FXC {
                        true => valid(kernel, code, dtypes, vec4s),
                        false => valid_beyond_fxc(kernel, code, dtypes, vec4s),
                    }
                    // FXC has no subgroups.
                    let code = form(rows, columns, 8, true, has_residual).pack();
                    valid_beyond_fxc(kernel, code, dtypes, vec4s);
                };
                let dtypes = [x, DType::U32, DType::F32, DType::F32];
                check(plain, &dtypes[..3], 0b001, false);
                check(plain, &dtypes[..3], 0b101, false);
                check(added, &dtypes, 0b1101, true);
            }
        }
    }
}
