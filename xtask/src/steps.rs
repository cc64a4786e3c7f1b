//! Checks as lists of steps, which a verb runs in order. After a failure the other steps still run.

use std::fs;
use std::time::Instant;

use pico_args::Arguments;

use crate::command;
use crate::process::{Result, Shell, bail, ensure, nothing_else};

/// One check: its name, what it is about, and the check.
pub(crate) type Step = (&'static str, &'static str, Check);

#[derive(Clone, Copy)]
pub(crate) enum Check {
    /// A function. It returns a short result for the table.
    Call(fn(&Shell) -> Result<String>),
    /// Lines of [`command`], one after the other.
    Run(&'static [&'static str]),
}

impl Check {
    fn run(self, sh: &Shell) -> Result<String> {
        match self {
            Check::Call(check) => check(sh),
            Check::Run(lines) => {
                lines.iter().try_for_each(|line| command::run(sh, line))?;
                let words = lines.iter().flat_map(|line| line.split(' '));
                let mut told: Vec<_> = words.filter(|word| word.starts_with("LAPIDARY_")).collect();
                told.dedup();
                Ok(told.join(", "))
            }
        }
    }
}

/// Runs the steps that the options select, and fails at the end if any of them did.
pub(crate) fn run(sh: &Shell, steps: &[Step], mut args: Arguments) -> Result<()> {
    if args.contains("--list") {
        for (name, about, _) in steps {
            println!("{name:<17} {about}");
        }
        return Ok(());
    }
    let (mut table, mut failed) = (String::new(), Vec::new());
    let (start, cpu_start) = (Instant::now(), cpu_seconds());
    let row = |name: &str, start: Instant, cpu_start: f64, result: &str| {
        let (took, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu_start);
        format!("{name:<17} {took:>8.1} {cpu:>11.1}  {result}\n")
    };
    for (name, about, check) in chosen(steps, args)? {
        println!("\n=== {name}: {about}");
        let (start, cpu_start) = (Instant::now(), cpu_seconds());
        let result = match check.run(sh) {
            Ok(found) if found.is_empty() => "ok".to_owned(),
            Ok(found) => format!("ok, {found}"),
            Err(error) => {
                // In full now, and again at the end of a long log.
                failed.push(format!("{name}: {error:#}"));
                eprintln!("{name}: {error:#}");
                let error = format!("FAILED: {error:#}").replace('\n', " ");
                error.chars().take(110).collect()
            }
        };
        table += &row(name, start, cpu_start, &result);
    }
    table += &row("total", start, cpu_start, "");
    print!("\nstep               seconds CPU seconds  result\n{table}");
    ensure!(failed.is_empty(), "failed: {}", failed.join("\n"));
    Ok(())
}

/// The steps that the options select, in the order of the list.
fn chosen(steps: &[Step], mut args: Arguments) -> Result<Vec<&Step>> {
    let only: Vec<String> = args.values_from_str("--only")?;
    let skip: Vec<String> = args.values_from_str("--skip")?;
    nothing_else(args)?;
    let names: Vec<_> = steps.iter().map(|step| step.0).collect();
    let mut given = only.iter().chain(&skip);
    if let Some(name) = given.find(|name| !names.contains(&name.as_str())) {
        bail!("there is no step `{name}` here; there are: {names:?}");
    }
    let has = |names: &[String], step: &Step| names.iter().any(|name| name == step.0);
    let is_chosen = |step: &&Step| (only.is_empty() || has(&only, step)) && !has(&skip, step);
    Ok(steps.iter().filter(is_chosen).collect())
}

/// CPU time of the ended programs that we started and of their children, which Linux has in the
/// fields 16 and 17 of `PID (xtask) STATE …`, in hundredths of a second.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = stat.split(' ').skip(15).take(2);
    let ticks = ticks.filter_map(|ticks| ticks.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

#[test]
fn steps_are_chosen_by_name_and_keep_their_order() {
    let steps = ["a", "b", "c"].map(|name| (name, "", Check::Run(&[])));
    let chosen = |args: &str| -> Result<String> {
        let args = args.split_whitespace().map(Into::into).collect();
        let chosen = chosen(&steps, Arguments::from_vec(args))?;
        Ok(chosen.into_iter().map(|step| step.0).collect())
    };
    for (args, steps) in [
        ("", "abc"),
        ("--only c --only a", "ac"),
        ("--skip a", "bc"),
        ("--only b --skip b", ""),
    ] {
        assert_eq!(chosen(args).expect(args), steps);
    }
    for args in ["--only e", "--only", "--fast", "a"] {
        assert!(chosen(args).is_err(), "{args}");
    }
}
