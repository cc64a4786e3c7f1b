//! Checks as lists of steps, which a verb runs in order. After a failure the other steps still run.

use std::fs;
use std::time::Instant;

use crate::process::Result;

/// One check. It returns a short result for the table.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) run: fn() -> Result<String>,
}

/// The steps of a verb.
pub(crate) struct Checks {
    pub(crate) verb: &'static str,
    pub(crate) steps: &'static [Step],
}

/// Result and duration of a step.
struct Outcome {
    name: &'static str,
    seconds: f64,
    cpu_seconds: Option<f64>,
    found: Result<String>,
}

impl Checks {
    /// Runs the selected steps, and fails at the end if any of them did. `other` is the verb with
    /// the other steps.
    pub(crate) fn run(&self, other: &Checks, args: &[String]) -> Result {
        if args.iter().any(|arg| arg == "--list") {
            for step in self.steps {
                println!("{:<17} {}", step.name, step.about);
            }
            return Ok(());
        }
        let chosen = choose(self, other, args)?;
        let outcomes: Vec<_> = chosen.into_iter().map(outcome).collect();
        print!("\n{}", table(&outcomes));
        // The sentences are repeated in full, because many people read only the end of a long log.
        let failed: Vec<_> = outcomes
            .iter()
            .filter_map(|outcome| Some((outcome.name, outcome.found.as_ref().err()?)))
            .map(|(name, sentence)| format!("{name}: {sentence}"))
            .collect();
        if failed.is_empty() {
            Ok(())
        } else {
            Err(format!("failed: {}", failed.join("\n")))
        }
    }

    fn has(&self, name: &str) -> bool {
        self.steps.iter().any(|step| step.name == name)
    }
}

fn outcome(step: &Step) -> Outcome {
    println!("\n=== {}: {}", step.name, step.about);
    let (start, cpu_start) = (Instant::now(), cpu_seconds());
    let found = (step.run)();
    if let Err(sentence) = &found {
        eprintln!("{}: {sentence}", step.name);
    }
    Outcome {
        name: step.name,
        seconds: start.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds().zip(cpu_start).map(|(now, then)| now - then),
        found,
    }
}

/// CPU time of the programs that we started and of their children. Only Linux reports it.
fn cpu_seconds() -> Option<f64> {
    cpu_seconds_of(&fs::read_to_string("/proc/self/stat").ok()?)
}

/// The same from the text of `/proc/self/stat`: `PID (NAME) STATE …`. Fields 16 and 17 have the
/// times of ended children, in hundredths of a second.
fn cpu_seconds_of(stat: &str) -> Option<f64> {
    const TICKS_PER_SECOND: f64 = 100.0;
    // The name may contain spaces and parentheses.
    let (_, after_name) = stat.rsplit_once(") ")?;
    let mut of_children = after_name.split(' ').skip(13).take(2);
    let mut next = || of_children.next()?.parse::<f64>().ok();
    Some((next()? + next()?) / TICKS_PER_SECOND)
}

/// The steps that the options select, in the order of the list.
fn choose<'a>(checks: &'a Checks, other: &Checks, args: &[String]) -> Result<Vec<&'a Step>> {
    let (mut only, mut skip) = (Vec::new(), Vec::new());
    let mut args = args.iter();
    while let Some(option) = args.next() {
        let list = match option.as_str() {
            "--only" => &mut only,
            "--skip" => &mut skip,
            _ => {
                return Err(format!(
                    "`{0}` has no option `{option}`; see `cargo xtask {0} --help`.",
                    checks.verb
                ));
            }
        };
        let name = args
            .next()
            .ok_or(format!("`{option}` wants the name of a step."))?;
        if !checks.has(name) {
            return Err(not_a_step(checks, other, name));
        }
        list.push(name.as_str());
    }
    let is_chosen =
        |step: &&Step| (only.is_empty() || only.contains(&step.name)) && !skip.contains(&step.name);
    Ok(checks.steps.iter().filter(is_chosen).collect())
}

fn not_a_step(checks: &Checks, other: &Checks, name: &str) -> String {
    if other.has(name) {
        return format!("`{name}` is a step of `cargo xtask {}`.", other.verb);
    }
    let names: Vec<_> = checks.steps.iter().map(|step| step.name).collect();
    format!(
        "there is no step `{name}`; there are: {}.",
        names.join(", ")
    )
}

fn table(outcomes: &[Outcome]) -> String {
    let line = |name: &str, seconds: f64, cpu_seconds: Option<f64>| {
        let cpu = cpu_seconds.map_or("-".into(), |seconds| format!("{seconds:.1}"));
        format!("{name:<17} {seconds:>8.1} {cpu:>11}")
    };
    let mut text = format!(
        "{:<17} {:>8} {:>11}  result\n",
        "step", "seconds", "CPU seconds"
    );
    for outcome in outcomes {
        let found = match &outcome.found {
            Ok(found) if found.is_empty() => "ok".to_owned(),
            Ok(found) => format!("ok, {found}"),
            Err(sentence) => format!("FAILED: {}", shortened(sentence)),
        };
        text += &line(outcome.name, outcome.seconds, outcome.cpu_seconds);
        text += &format!("  {found}\n");
    }
    let seconds = outcomes.iter().map(|outcome| outcome.seconds).sum();
    let cpu_seconds = outcomes.iter().map(|outcome| outcome.cpu_seconds).sum();
    text + &line("total", seconds, cpu_seconds) + "\n"
}

/// The beginning of a sentence, as long as a line of the table. The whole was shown when the step
/// ended.
fn shortened(sentence: &str) -> String {
    const MOST: usize = 100;
    let line = sentence.lines().next().unwrap_or_default();
    let mut short: String = line.chars().take(MOST).collect();
    if short.len() < line.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn step(name: &'static str) -> Step {
        Step {
            name,
            about: "",
            run: || Ok(String::new()),
        }
    }

    const DAY: Checks = Checks {
        verb: "day",
        steps: &[step("a"), step("b"), step("c")],
    };
    const NIGHT: Checks = Checks {
        verb: "night",
        steps: &[step("d")],
    };

    fn chosen(args: &str) -> Result<Vec<&'static str>> {
        let args: Vec<_> = args.split_whitespace().map(str::to_owned).collect();
        let steps = choose(&DAY, &NIGHT, &args)?;
        Ok(steps.into_iter().map(|step| step.name).collect())
    }

    #[test]
    fn steps_are_chosen_by_name_and_keep_their_order() {
        assert_eq!(chosen(""), Ok(vec!["a", "b", "c"]));
        assert_eq!(chosen("--only c --only a"), Ok(vec!["a", "c"]));
        assert_eq!(chosen("--skip a"), Ok(vec!["b", "c"]));
        assert_eq!(chosen("--only b --skip b"), Ok(vec![]));
        assert!(chosen("--only e").is_err());
        assert!(chosen("--only").is_err());
        assert!(chosen("--fast").is_err());
    }

    #[test]
    fn a_step_of_the_other_verb_is_told_where_it_is() {
        let told = chosen("--only d").expect_err("it is no step of the day");
        assert!(told.contains("cargo xtask night"), "{told}");
    }

    #[test]
    fn the_table_tells_steps_that_failed_from_those_that_did_not() {
        let outcome = |name, found| Outcome {
            name,
            seconds: 1.5,
            cpu_seconds: Some(2.25),
            found,
        };
        let text = table(&[
            outcome("a", Ok(String::new())),
            outcome("b", Err("no.\nmore".into())),
        ]);
        let [_, a, b, total] = text.lines().collect::<Vec<_>>()[..] else {
            panic!("{text}");
        };
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(a), "a 1.5 2.2 ok");
        assert_eq!(words(b), "b 1.5 2.2 FAILED: no.");
        assert_eq!(words(total), "total 3.0 4.5");
    }

    #[test]
    fn the_times_of_children_are_read_behind_a_name_with_parentheses() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 900 80 0 0 11 12 250 150 20 0 1 0";
        assert_eq!(cpu_seconds_of(stat), Some(4.0));
        assert_eq!(cpu_seconds_of("7 (a) S 1"), None);
    }
}
