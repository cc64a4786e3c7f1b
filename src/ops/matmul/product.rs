//! One product: its output, its tile, and the commands that compute it.

use super::epilogue::Epilogue;
use super::form::{End, Form, Tile};
use super::output::Output;
use super::problem::Problem;
use super::right::{Groups, Right};
use super::{Shapes, choice, kernel_of, pack, product_dtype, summed_as};
use crate::ops::elementwise::arg;
use crate::tensor::Tensor;
use crate::tensor::layout::{Layout, checked};
use lapidary_core::internal::{Arg, Launch};
use lapidary_core::{DType, Result, adapter::AdapterKind};

impl Tensor {
    /// The product, by this tile or by a chosen one.
    #[track_caller]
    pub(super) fn matmul_by<'a>(
        &self,
        right: impl Into<Right<'a>>,
        end: &Epilogue,
        tile: Option<Tile>,
    ) -> Result<Tensor> {
        let right = right.into();
        let other = right.tensor;
        let of_product = product_dtype(self.dtype, other.dtype)?;
        self.same_engine("matmul", other)?;
        let shapes = Shapes::new(&self.layout, &other.layout)?;
        end.check(self, of_product, &shapes.result, other.rank() > 1)?;
        let dtype = end.cast.unwrap_or(of_product);
        let empty = shapes.result.contains(&0);
        if empty || shapes.a.shape.last() == Some(&0) {
            let c = Tensor::output(&self.engine, &shapes.result, summed_as(of_product))?;
            if !empty {
                c.clear_storage()?;
            }
            return end.apply_in(c)?.cast(dtype);
        }
        // Problems count in 32 bits.
        checked(&shapes.result, dtype)?;
        let may_swap = right.groups.is_none();
        let problem = Problem::new(&shapes.batch, &shapes.a, &shapes.b, may_swap);
        if !self.fuses(right, end, &problem, dtype) {
            let c = Tensor::output(&self.engine, &shapes.result, summed_as(of_product))?;
            let tile = tile.unwrap_or_else(|| self.tile(right, &c, &problem, false));
            let output = Output::new(&c, problem.n, right.groups, &Epilogue::new())?;
            launch([self, other], &problem, tile, &output)?;
            return end.apply_in(c)?.cast(dtype);
        }
        let n = problem.n;
        let tile =
            |c: &Tensor| tile.unwrap_or_else(|| self.tile(right, c, &problem, !end.is_empty()));
        let c = Tensor::output(&self.engine, &shapes.result, dtype)?;
        let of_c = tile(&c);
        // If the rows of a 16-bit result are not whole vec4s, two threads would share a word. So
        // the rows are padded, and a copy removes the padding.
        if of_c == Tile::Naive || n.is_multiple_of(4) || dtype.size_bytes() == 4 {
            launch(
                [self, other],
                &problem,
                of_c,
                &Output::new(&c, n, right.groups, end)?,
            )?;
            return Ok(c);
        }
        let padded_n = n.next_multiple_of(4);
        let shape = [problem.rows() as usize, padded_n as usize];
        let padded = Tensor::output(&self.engine, &shape, dtype)?;
        let storage = padded.storage.here();
        (self.engine.here()).pads(&storage, n as usize, padded_n as usize);
        let output = Output::new(&padded, padded_n, right.groups, end)?;
        launch([self, other], &problem, tile(&padded), &output)?;
        let whole = padded.narrow(1, 0, n as usize)?.contiguous()?;
        Ok(whole.view(Layout::contiguous(&shapes.result)))
    }

    /// Whether the product's kernel can compute the whole epilogue.
    fn fuses(&self, right: Right<'_>, end: &Epilogue, problem: &Problem, dtype: DType) -> bool {
        if end.is_empty() {
            return true;
        }
        // The kernel has only one operand for scales.
        if end.columns.is_some() && right.groups.is_some() {
            return false;
        }
        let caps = self.engine.caps();
        let scales = end.columns.as_ref().or(right.groups.map(|of| of.scales));
        let others = [self, right.tensor].into_iter().chain(scales);
        let windows: u64 = (others.chain(&end.bias).chain(&end.residual))
            .map(|tensor| tensor.storage.size_bytes().div_ceil(caps.max_binding_bytes))
            .sum();
        let most_windows = 4 + u64::from(scales.is_some());
        let along_columns = end.bias.is_some() || end.columns.is_some();
        let c_bytes = u64::from(problem.rows()) * u64::from(problem.n) * dtype.size_bytes();
        let is_ragged = dtype.size_bytes() == 2 && !problem.n.is_multiple_of(4);
        windows <= most_windows
            && c_bytes <= caps.max_binding_bytes
            && u64::from(caps.max_storage_bindings) > most_windows + 1
            && !(problem.swapped && along_columns)
            && !(is_ragged && end.residual.is_some())
    }

    fn tile(&self, right: Right<'_>, c: &Tensor, problem: &Problem, has_end: bool) -> Tile {
        let caps = self.engine.caps();
        let room_bytes = || self.engine.here().slab_limit_bytes();
        let dtypes = right.dtypes(self.dtype, c.dtype);
        let tile = match choice::choose(caps, dtypes, problem, room_bytes) {
            // The reference kernel has neither scales nor an epilogue.
            Tile::Naive if has_end || right.groups.is_some() => choice::least(caps, problem),
            tile => tile,
        };
        let has_windows = [self, right.tensor, c]
            .iter()
            .any(|tensor| tensor.storage.size_bytes() > caps.max_binding_bytes);
        match has_windows && caps.kind == AdapterKind::Cpu {
            true => tile.through_windows(),
            false => tile,
        }
    }
}

impl<'a> Output<'a> {
    #[track_caller]
    fn new(c: &'a Tensor, c_row: u32, groups: Option<Groups<'_>>, end: &Epilogue) -> Result<Self> {
        // Inlined, because a closure would lose the caller's location.
        let scales = match end.columns.as_ref().or(groups.map(|of| of.scales)) {
            Some(scales) => Some(scales.contiguous()?),
            None => None,
        };
        let bias = match &end.bias {
            Some(bias) => Some(bias.contiguous()?),
            None => None,
        };
        let residual = match &end.residual {
            Some(residual) => Some(residual.broadcast_to(c.shape())?.contiguous()?),
            None => None,
        };
        let offset = |of: &Option<Tensor>| of.as_ref().map_or(0, |of| of.layout.offset as u32);
        Ok(Output {
            more: [
                end.scale.unwrap_or(1.0).to_bits(),
                offset(&bias),
                offset(&residual),
                offset(&scales),
            ],
            end: End {
                scale: end.scale.is_some(),
                columns: end.columns.is_some(),
                bias: bias.is_some(),
                activation: end.activation,
                residual: residual.is_some(),
            },
            c,
            c_row,
            scales,
            group_log2: groups.map_or(0, |of| of.log2),
            bias,
            residual,
        })
    }

    /// The command that computes C from two prepared operands.
    #[track_caller]
    pub(super) fn command(
        &self,
        [a, b]: [Arg; 2],
        form: Form,
        params: super::problem::Params,
        groups: [u32; 3],
    ) -> Result<()> {
        let naive = form.tile == Tile::Naive;
        let whole = naive || self.c_row.is_multiple_of(4);
        let vec4s = |index: usize| whole && self.more[index].is_multiple_of(4);
        let work = (params.size.iter()).fold(super::long::cost(a.dtype), |work, &dim| {
            work.saturating_mul(dim.into())
        });
        let form = Form {
            group_log2: self.group_log2,
            end: self.end,
            ..form
        };
        let mut args = vec![a, b];
        args.extend(self.scales.iter().map(|scales| {
            let by_vec4s = self.end.columns && self.more[3].is_multiple_of(4);
            arg(scales, by_vec4s)
        }));
        args.extend(
            self.bias
                .iter()
                .map(|bias| arg(bias, self.more[1].is_multiple_of(4))),
        );
        args.extend(self.residual.iter().map(|residual| arg(residual, vec4s(2))));
        args.push(arg(self.c, whole));
        let params = super::problem::Params {
            more: self.more,
            ..params
        };
        let launch = Launch::new(kernel_of(form), form.pack(), args, &params, groups);
        self.c.engine.launch(launch.with_work(work))
    }
}

/// Appends the commands of a product.
#[track_caller]
fn launch([a, b]: [&Tensor; 2], problem: &Problem, tile: Tile, output: &Output<'_>) -> Result<()> {
    let (first, second) = if problem.swapped { (b, a) } else { (a, b) };
    if matches!(tile, Tile::Packed { .. }) {
        return pack::launch([first, second], problem, tile, output);
    }
    let caps = a.engine.caps();
    let tile = match problem.b_is_vec8s() {
        true => tile,
        false => tile.without_vec8s(),
    };
    let form = choice::plain(tile, problem, choice::spread_of(caps, tile, problem));
    let naive = tile == Tile::Naive;
    let operands = [
        arg(first, !naive && problem.a.is_vec4_aligned()),
        arg(second, !naive && problem.b.is_vec4_aligned()),
    ];
    let groups = choice::groups(caps, form, problem);
    output.command(operands, form, problem.params(output.c_row), groups)
}
