//! Launches the kernels over pages.

use bytemuck::{Pod, Zeroable};

use super::form::Form;
use super::plan::{Division, Part, Plan, Run};
use super::{APPEND, ATTENTION, Geometry, MERGE};
use crate::ops::elementwise::{arg, groups};
use crate::tensor::Tensor;
use lapidary_core::adapter::AdapterKind;
use lapidary_core::internal::{Arg, Engine, Handle, Launch};
use lapidary_core::{DType, Result};

/// The most bytes of the states of one launch.
const STATE_BYTES: u64 = 64 << 20;

/// `struct Params` of `shaders/paged/shared.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Params {
    /// Heads of queries, of keys, of a group, blocks of a group.
    pub(super) heads: [u32; 4],
    /// Start of the layer, units of a block, start of the tasks, of the table.
    pub(super) page: [u32; 4],
    /// First task, first row, tiles of a task, rows.
    pub(super) part: [u32; 4],
    /// Start of q or k, of v, distance of the farthest key that a row sees, unused.
    pub(super) rest: [u32; 4],
    /// Scale, softcap, its inverse, unused.
    pub(super) numbers: [f32; 4],
}

/// A call of attention over pages, whose shapes were checked.
pub(crate) struct Attention<'a> {
    pub(crate) geometry: Geometry,
    pub(crate) kv_heads: u32,
    pub(crate) layer: u32,
    /// Contiguous: `[rows, heads, size]`, `[rows, kv heads, size]`.
    pub(crate) q: &'a Tensor,
    pub(crate) k: &'a Tensor,
    pub(crate) v: &'a Tensor,
    pub(crate) scale: f32,
    pub(crate) window: Option<u32>,
    pub(crate) softcap: Option<f32>,
}

/// A plan, with the table that the kernels read.
pub(crate) struct Planned {
    plan: Plan,
    table: Tensor,
}

/// Appends keys and values to pages, then computes attention. `plans` keeps what the calls of one
/// step share.
#[track_caller]
pub(crate) fn attend(
    call: &Attention<'_>,
    runs: &[Run],
    plans: &mut Vec<Planned>,
) -> Result<Tensor> {
    let engine = &call.q.engine;
    let heads = call.q.layout.shape[1] as u32;
    let group = heads / call.kv_heads;
    let one_row = runs.iter().all(|run| run.rows == 1);
    let form = Form {
        is_capped: call.softcap.is_some(),
        ..Form::choose(call.geometry, group, one_row, engine.caps())
    };
    let blocks = group.div_ceil(form.heads());
    let division = Division {
        rows: form.rows() as usize,
        reach: call.window.map_or(u32::MAX, |window| window - 1),
        groups: (call.kv_heads * blocks) as usize,
        wanted: match engine.caps().kind {
            AdapterKind::Cpu => 32,
            _ => 1024,
        },
        page_tokens: call.geometry.page_tokens as usize,
        tile: form.tile() as usize,
    };
    let known = plans.iter().position(|one| one.plan.division == division);
    let index = match known {
        Some(index) => index,
        None => {
            plans.push(Planned::new(engine, runs, division)?);
            plans.len() - 1
        }
    };
    let planned = &plans[index];
    let running = Running {
        call,
        form,
        planned,
        heads: [heads, call.kv_heads, group, blocks],
    };
    running.append()?;
    running.attend()
}

impl Planned {
    #[track_caller]
    fn new(engine: &Handle<Engine>, runs: &[Run], division: Division) -> Result<Planned> {
        let plan = Plan::new(runs, division);
        let table = Tensor::output(engine, &[plan.words.len()], DType::U32)?;
        let bytes = bytemuck::cast_slice(&plan.words);
        (engine.here()).upload(&table.storage.here(), 0, bytes)?;
        Ok(Planned { plan, table })
    }
}

/// A call with its variant and plan.
struct Running<'a> {
    call: &'a Attention<'a>,
    form: Form,
    planned: &'a Planned,
    heads: [u32; 4],
}

impl Running<'_> {
    fn params(&self, part: Part, table_start: u32, starts: [u32; 2]) -> Params {
        let (call, geometry) = (self.call, self.call.geometry);
        let block_units = geometry.block_units();
        let reach = self.planned.plan.division.reach;
        let softcap = call.softcap.unwrap_or(1.0);
        Params {
            heads: self.heads,
            page: [
                call.layer * call.kv_heads * block_units,
                block_units,
                self.planned.plan.tasks_start,
                table_start,
            ],
            part: [part.first_task, part.first_row, part.tiles, part.rows],
            rest: [starts[0], starts[1], reach, 0],
            numbers: [call.scale, softcap, softcap.recip(), 0.0],
        }
    }

    #[track_caller]
    fn append(&self) -> Result<()> {
        let (call, plan) = (self.call, &self.planned.plan);
        let part = Part {
            rows: plan.rows as u32,
            ..Part::default()
        };
        let starts = [call.k, call.v].map(|x| x.layout.offset as u32);
        let params = self.params(part, plan.written_start, starts);
        let pages = plan.written.clone();
        let args = [
            arg(call.k, true),
            arg(call.v, true),
            arg(&self.planned.table, false),
            Arg::of_pages(&pages),
        ];
        let units = u64::from(2 * call.kv_heads * call.geometry.row_units());
        let engine = &call.q.engine;
        let groups = groups(engine.caps(), units * plan.rows as u64);
        // A form for all: the text depends on the geometry alone.
        let code = Form {
            log_heads: 0,
            log_rows: 0,
            is_capped: false,
            lanes: 0,
            ..self.form
        };
        let launch = Launch::new(&APPEND, code.pack(), args, &params, groups);
        engine.launch(launch.with_pages(pages))
    }

    #[track_caller]
    fn attend(&self) -> Result<Tensor> {
        let (call, plan) = (self.call, &self.planned.plan);
        let (engine, caps) = (&call.q.engine, call.q.engine.caps());
        let size = u64::from(call.geometry.head_size);
        let y = Tensor::output(engine, &call.q.layout.shape, call.q.dtype)?;
        let states = u64::from(self.form.rows() * self.heads[0]);
        let state_bytes = 4 * (size + 4) * states;
        let most_bytes = STATE_BYTES.min(caps.max_binding_bytes);
        let most_tasks = (most_bytes / state_bytes).clamp(1, caps.max_groups.into()) as u32;
        let of_pair = 2 * size * u64::from(self.heads[0]);
        for part in plan.parts(most_tasks, caps.most_work / of_pair) {
            let shape = [part.tasks as usize, (state_bytes / 4) as usize];
            let s = Tensor::output(engine, &shape, DType::F32)?;
            let params = self.params(part, plan.read_start, [call.q.layout.offset as u32, 0]);
            let table = arg(&self.planned.table, false);
            let args = [
                arg(call.q, true),
                arg(&s, true),
                table.clone(),
                Arg::of_pages(&plan.read),
            ];
            let groups_of_tasks = [part.tasks, self.heads[1] * self.heads[3], 1];
            let launch = Launch::new(&ATTENTION, self.form.pack(), args, &params, groups_of_tasks);
            let launch = launch.with_work(part.pairs * of_pair);
            engine.launch(launch.with_pages(plan.read.clone()))?;
            let elements = u64::from(part.rows) * u64::from(self.heads[0]) * size;
            let groups = groups(caps, elements / 4);
            let args = [arg(&s, true), table, arg(&y, true)];
            let code = Form {
                is_capped: false,
                lanes: 0,
                ..self.form
            };
            engine.launch(Launch::new(&MERGE, code.pack(), args, &params, groups))?;
        }
        Ok(y)
    }
}
