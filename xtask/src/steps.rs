//! Checks as lists of steps, which a verb runs in order. After a failure the other steps still run.

use std::fs;
use std::time::Instant;

use pico_args::Arguments;

use crate::process::{Result, Shell, bail, ensure};

/// One check: its name, what it is about, and the check. It returns a short result for the table.
pub(crate) type Step = (&'static str, &'static str, fn(&Shell) -> Result<String>);

/// The result of a step that has nothing to tell.
pub(crate) const PASSED: String = String::new();

/// Runs the steps that the options select, and fails at the end if any of them did.
pub(crate) fn run(sh: &Shell, steps: &[Step], mut args: Arguments) -> Result<()> {
    if args.contains("--list") {
        steps
            .iter()
            .for_each(|(name, about, _)| println!("{name:<17} {about}"));
        return Ok(());
    }
    let (mut table, mut failed) = (String::new(), Vec::new());
    let (mut seconds, mut cpu_seconds) = (0.0, 0.0);
    for (name, about, check) in chosen(steps, args)? {
        println!("\n=== {name}: {about}");
        let (start, cpu_start) = (Instant::now(), cpu_seconds_now());
        let found = check(sh);
        let took = [start.elapsed().as_secs_f64(), cpu_seconds_now() - cpu_start];
        (seconds, cpu_seconds) = (seconds + took[0], cpu_seconds + took[1]);
        let result = match &found {
            Ok(found) if found.is_empty() => "ok".to_owned(),
            Ok(found) => format!("ok, {found}"),
            Err(error) => {
                // In full now, and again at the end of a long log.
                failed.push(format!("{name}: {error:#}"));
                eprintln!("{name}: {error:#}");
                let error = format!("FAILED: {error:#}");
                error
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .chars()
                    .take(110)
                    .collect()
            }
        };
        table += &format!("{name:<17} {:>8.1} {:>11.1}  {result}\n", took[0], took[1]);
    }
    println!(
        "\n{:<17} {:>8} {:>11}  result",
        "step", "seconds", "CPU seconds"
    );
    print!("{table}");
    println!("{:<17} {seconds:>8.1} {cpu_seconds:>11.1}", "total");
    ensure!(failed.is_empty(), "failed: {}", failed.join("\n"));
    Ok(())
}

/// The steps that the options select, in the order of the list.
fn chosen(steps: &[Step], mut args: Arguments) -> Result<Vec<&Step>> {
    let only: Vec<String> = args.values_from_str("--only")?;
    let skip: Vec<String> = args.values_from_str("--skip")?;
    nothing_else(args)?;
    let has = |names: &[String], step: &Step| names.iter().any(|name| name == step.0);
    let names: Vec<_> = steps.iter().map(|step| step.0).collect();
    let mut given = only.iter().chain(&skip);
    if let Some(name) = given.find(|name| !names.contains(&name.as_str())) {
        bail!(
            "there is no step `{name}` here; there are: {}",
            names.join(", ")
        );
    }
    let is_chosen = |step: &&Step| (only.is_empty() || has(&only, step)) && !has(&skip, step);
    Ok(steps.iter().filter(is_chosen).collect())
}

/// An error if arguments are left.
pub(crate) fn nothing_else(args: Arguments) -> Result<()> {
    let rest = args.finish();
    ensure!(
        rest.is_empty(),
        "there is no argument {rest:?}; see `cargo xtask VERB --help`"
    );
    Ok(())
}

/// CPU time of the programs that we started and of their children. Only Linux reports it.
fn cpu_seconds_now() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    cpu_seconds_of(&stat).unwrap_or(f64::NAN)
}

/// The same from the text of `/proc/self/stat`: `PID (NAME) STATE …`. Fields 16 and 17 have the
/// times of ended children, in hundredths of a second.
fn cpu_seconds_of(stat: &str) -> Option<f64> {
    // The name may contain spaces and parentheses.
    let (_, after_name) = stat.rsplit_once(") ")?;
    let of_children = after_name.split(' ').skip(13).take(2);
    let ticks: Result<Vec<f64>, _> = of_children.map(str::parse).collect();
    Some(
        ticks
            .ok()
            .filter(|ticks| ticks.len() == 2)?
            .iter()
            .sum::<f64>()
            / 100.0,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_chosen_by_name_and_keep_their_order() {
        const STEPS: &[Step] = &[
            ("a", "", |_| Ok(PASSED)),
            ("b", "", |_| Ok(PASSED)),
            ("c", "", |_| Ok(PASSED)),
        ];
        let chosen = |args: &str| -> Result<String> {
            let args = args.split_whitespace().map(Into::into).collect();
            let steps = chosen(STEPS, Arguments::from_vec(args))?;
            Ok(steps.into_iter().map(|step| step.0).collect())
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

    #[test]
    fn the_times_of_children_are_read_behind_a_name_with_parentheses() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 900 80 0 0 11 12 250 150 20 0 1 0";
        assert_eq!(cpu_seconds_of(stat), Some(4.0));
        assert_eq!(cpu_seconds_of("7 (a) S 1"), None);
    }
}
