//! Only the policy on recorded traces: reserved, moved and refused bytes if frees and moves take
//! effect at once. `lapidary replay` gives the engine's figures. This bench is a fast loop for
//! changes of the policy.
//!
//! ```text
//! cargo bench --bench traces -- [--slack PERMILLE,...] [--caps PERCENT,...] [--set NAME=VALUE] FILE...
//! ```

use lapidary::alloc::{AllocError, BlockId, Planner, PoolConfig, Pools, SlabId, Spot, Step};
use lapidary_tools::replay::trace;
use lapidary_tools::replay::trace::{Event, Trace};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const UNIT_BYTES: u64 = 256;
const MAX_SLAB_BYTES: u64 = 4 << 30;

/// Traces that repeat the same shapes. After warming up they should need no driver calls.
const FIXED_SHAPE: [&str; 6] = [
    "gpt2s_train",
    "resnet50_train",
    "mlp_ckpt_train",
    "mlp_accum_train",
    "llama1b_decode_concat",
    "sd15_unet_infer",
];

/// The result of one trace.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    ratio: f64,
    moved_share: f64,
    compactions: u64,
    largest_bytes: u64,
    buffers: u64,
    late_compactions: u64,
    late_buffers: u64,
    refused: u64,
    plans: u64,
    slowest: Duration,
}

struct Runner<'a> {
    pools: Pools,
    planner: Planner,
    limit_bytes: Option<u64>,
    outcome: &'a mut Outcome,
}

impl Runner<'_> {
    fn allocate(&mut self, size_bytes: u64, is_late: bool) -> Option<BlockId> {
        match self.pools.allocate(size_bytes) {
            Err(AllocError::NeedsSlab { .. }) => {}
            done => return done.ok(),
        }
        let start = Instant::now();
        let plan = self
            .pools
            .plan(&mut self.planner, size_bytes, self.limit_bytes, &|_| true);
        let steps = plan.map(<[Step]>::to_vec);
        self.outcome.slowest = self.outcome.slowest.max(start.elapsed());
        self.outcome.plans += 1;
        let before = self.pools.stats();
        let mut slab = None;
        for step in steps.ok()? {
            carry_out(&mut self.pools, step, &mut slab).expect("a plan for these very pools");
            let reserved_bytes = self.pools.reserved_bytes();
            assert!(self.limit_bytes.is_none_or(|limit| reserved_bytes <= limit));
        }
        let after = self.pools.stats();
        let moved_bytes = after.moved_bytes - before.moved_bytes;
        let created = after.slabs_created - before.slabs_created;
        self.outcome.compactions += u64::from(moved_bytes > 0);
        self.outcome.largest_bytes = self.outcome.largest_bytes.max(moved_bytes);
        self.outcome.late_compactions += u64::from(is_late && moved_bytes > 0);
        self.outcome.late_buffers += if is_late { created } else { 0 };
        Some(
            self.pools
                .allocate_anywhere(size_bytes)
                .expect("the plan made room"),
        )
    }
}

fn carry_out(
    pools: &mut Pools,
    step: Step,
    created: &mut Option<SlabId>,
) -> Result<(), AllocError> {
    match step {
        Step::Release(slab) => pools.remove_slab(slab)?,
        Step::Assign { slab, class } => pools.assign(slab, class)?,
        Step::Move { block, to } => drop(pools.relocate(block, &to)?),
        Step::Create(growth) => *created = Some(pools.add_slab(&growth)?),
        Step::MoveToNew {
            block,
            offset_bytes,
        } => {
            let slab = created.expect("a slab is created before blocks move there");
            pools.relocate(block, &Spot::new(slab, offset_bytes))?;
        }
    }
    Ok(())
}

fn replay(trace: &Trace, config: PoolConfig, limit_bytes: Option<u64>) -> Outcome {
    let mut outcome = Outcome::default();
    let mut runner = Runner {
        pools: Pools::new(config).expect("a good configuration"),
        planner: Planner::default(),
        limit_bytes,
        outcome: &mut outcome,
    };
    let mut blocks: Vec<Option<BlockId>> = vec![None; trace.storages];
    let mut refused = 0;
    let late_from = trace.events.len() * 2 / 3;
    for (number, &event) in trace.events.iter().enumerate() {
        match event {
            Event::Alloc { id, bytes } => {
                blocks[id] = runner.allocate(bytes, number >= late_from);
                refused += u64::from(blocks[id].is_none());
            }
            Event::Free { id } => {
                if let Some(block) = blocks[id].take() {
                    runner.pools.free(block).expect("the block is live");
                }
            }
            // Reads of operators have no effect here.
            Event::Run { .. } => {}
        }
    }
    runner.pools.check_invariants().expect("sound tables");
    let stats = runner.pools.stats();
    outcome.ratio = stats.peak_reserved_bytes as f64 / trace.peak_live_bytes.max(1) as f64;
    outcome.moved_share = stats.moved_bytes as f64 / stats.allocated_bytes.max(1) as f64;
    outcome.buffers = stats.slabs_created;
    outcome.refused = refused;
    outcome
}

struct Options {
    slacks_permille: Vec<u64>,
    caps_percent: Vec<u64>,
    settings: Vec<(String, u64)>,
    files: Vec<String>,
}

fn parse_options() -> Result<Options, String> {
    let mut options = Options {
        slacks_permille: vec![PoolConfig::new(UNIT_BYTES, MAX_SLAB_BYTES).slack_permille],
        caps_percent: vec![110, 105, 102],
        settings: Vec::new(),
        files: Vec::new(),
    };
    let mut args = std::env::args().skip(1);
    let number = |text: &str| text.parse().map_err(|_| format!("`{text}` is no number"));
    while let Some(arg) = args.next() {
        let mut list = || {
            let text = args.next().ok_or(format!("`{arg}` needs numbers"))?;
            text.split(',').map(number).collect::<Result<_, String>>()
        };
        match arg.as_str() {
            "--slack" => options.slacks_permille = list()?,
            "--caps" => options.caps_percent = list()?,
            "--set" => {
                let text = args.next().unwrap_or_default();
                let (name, value) = text.split_once('=').ok_or("--set NAME=VALUE")?;
                options.settings.push((name.into(), number(value)?));
            }
            "--bench" => {}
            _ if arg.starts_with('-') => return Err(format!("no option `{arg}`")),
            _ => options.files.push(arg),
        }
    }
    Ok(options)
}

fn configure(options: &Options, slack_permille: u64) -> Result<PoolConfig, String> {
    let mut config = PoolConfig::new(UNIT_BYTES, MAX_SLAB_BYTES);
    config.slack_permille = slack_permille;
    for (name, value) in &options.settings {
        let field = match name.as_str() {
            "small_request" => &mut config.small_request_bytes,
            "small_slab" => &mut config.small_slab_bytes,
            "middle_slab" => &mut config.middle_slab_bytes,
            "own_request" => &mut config.own_request_bytes,
            "own_step" => &mut config.own_step_bytes,
            "alone_request" => &mut config.alone_request_bytes,
            "alone_excess" => &mut config.alone_excess_percent,
            "spent_slack" => &mut config.spent_slack_permille,
            "move" => &mut config.move_permille,
            "release_allowance" => &mut config.release_allowance,
            _ => return Err(format!("no setting `{name}`")),
        };
        *field = *value;
    }
    Ok(config)
}

fn print_row(trace: &Trace, config: PoolConfig, caps_percent: &[u64]) -> Outcome {
    let start = Instant::now();
    let free = replay(trace, config, None);
    let ns_per_event = start.elapsed().as_nanos() as f64 / trace.events.len().max(1) as f64;
    print!(
        "{:<34} {:>6.3} {:>6.2} % {:>6} {:>8.1} {:>7} {:>7} {:>6} {:>6} {:>6} {:>7.2}",
        trace.name,
        free.ratio,
        100.0 * free.moved_share,
        free.compactions,
        free.largest_bytes as f64 / (1 << 20) as f64,
        free.buffers,
        free.late_buffers,
        free.late_compactions,
        free.plans,
        ns_per_event as u64,
        free.slowest.as_secs_f64() * 1e3,
    );
    for &percent in caps_percent {
        let limit = u128::from(trace.peak_live_bytes) * u128::from(percent) / 100;
        let outcome = replay(trace, config, u64::try_from(limit).ok());
        print!(
            " | {:>5} {:>5.2} % {:>5}",
            outcome.refused,
            100.0 * outcome.moved_share,
            outcome.late_compactions
        );
    }
    println!();
    free
}

fn summarize(outcomes: &[(bool, Outcome)]) {
    let all = || outcomes.iter().map(|(_, outcome)| outcome);
    let fixed = || {
        outcomes
            .iter()
            .filter(|(fixed, _)| *fixed)
            .map(|(_, outcome)| outcome)
    };
    let geo = all().map(|outcome| outcome.ratio.ln()).sum::<f64>() / outcomes.len() as f64;
    println!(
        "geo-mean {:.4}, worst {:.4}; moved worst {:.2} %; fixed shapes, last third: buffers {}, compactions {}",
        geo.exp(),
        all().map(|outcome| outcome.ratio).fold(0.0, f64::max),
        100.0 * all().map(|outcome| outcome.moved_share).fold(0.0, f64::max),
        fixed()
            .map(|outcome| outcome.late_buffers)
            .max()
            .unwrap_or(0),
        fixed()
            .map(|outcome| outcome.late_compactions)
            .max()
            .unwrap_or(0),
    );
}

fn main() -> ExitCode {
    // `cargo test --benches` only checks that the bench starts.
    if std::env::args().any(|arg| arg == "--test") {
        return ExitCode::SUCCESS;
    }
    let options = match parse_options() {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(2);
        }
    };
    let mut traces = Vec::new();
    for file in &options.files {
        match trace::read(file.as_ref()) {
            Ok(trace) => traces.push(trace),
            Err(error) => eprintln!("{file}: {error}"),
        }
    }
    if traces.is_empty() {
        eprintln!("no trace is named");
        return ExitCode::from(2);
    }
    for &slack_permille in &options.slacks_permille {
        let config = match configure(&options, slack_permille) {
            Ok(config) => config,
            Err(message) => {
                eprintln!("{message}");
                return ExitCode::from(2);
            }
        };
        print!(
            "\nslack {} %\n{:<34} {:>6} {:>8} {:>6} {:>8} {:>7} {:>7} {:>6} {:>6} {:>6} {:>7}",
            slack_permille as f64 / 10.0,
            "trace",
            "ratio",
            "moved",
            "comp.",
            "max MiB",
            "buffers",
            "last/3",
            "comp/3",
            "plans",
            "ns/ev",
            "max ms"
        );
        for percent in &options.caps_percent {
            print!(" | cap {percent}: ref, mov, c/3");
        }
        println!();
        let outcomes: Vec<(bool, Outcome)> = traces
            .iter()
            .map(|trace| {
                let fixed = FIXED_SHAPE
                    .iter()
                    .any(|name| trace.name.starts_with(&format!("{name}.")));
                (fixed, print_row(trace, config, &options.caps_percent))
            })
            .collect();
        summarize(&outcomes);
    }
    ExitCode::SUCCESS
}
