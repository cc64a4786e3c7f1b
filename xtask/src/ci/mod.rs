//! `ci`: the longer checks, one after the other. A failed one does not stop those after it.
//!
//! A step that takes too long for every change is a nightly one: it runs with `--nightly`, or if
//! `--only` names it.

pub(crate) mod adapters;
mod app;
mod dx12;
mod examples;
mod formats;
mod hlsl;
mod mesa;
mod messages;
mod model;
mod page;
pub(crate) mod pressure;
mod reached;
mod shaders;
pub(crate) mod source;
pub(crate) mod targets;
mod terminal;
mod traces;
mod web;

use std::time::Instant;

use crate::process::Result;

/// One check. It returns what it found, in a few words for the table.
struct Step {
    name: &'static str,
    about: &'static str,
    /// Whether a run without `--nightly` leaves it out.
    nightly: bool,
    run: fn() -> Result<String>,
}

const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        about: "the source is formatted",
        nightly: false,
        run: source::fmt,
    },
    Step {
        name: "clippy",
        about: "no warnings, with all features",
        nightly: false,
        run: source::clippy,
    },
    Step {
        name: "clippy-bare",
        about: "no warnings in each crate alone, with default features",
        nightly: false,
        run: source::clippy_bare,
    },
    Step {
        name: "doc",
        about: "the documentation builds without warnings",
        nightly: false,
        run: source::doc,
    },
    Step {
        name: "random",
        about: "long random runs against models",
        nightly: false,
        run: source::random,
    },
    Step {
        name: "views",
        about: "all operations with all kinds of views, in pairs, on this adapter",
        nightly: true,
        run: source::views,
    },
    Step {
        name: "races",
        about: "every kernel and variant, interpreted on every sort of device: no races, right values",
        nightly: true,
        run: source::races,
    },
    Step {
        name: "texts",
        about: "100,000 changed texts of kernels, none of which may end the process",
        nightly: true,
        run: source::texts,
    },
    Step {
        name: "limits",
        about: "1,000 devices with random limits: refused by the limit's name, or they compute",
        nightly: true,
        run: source::limits,
    },
    Step {
        name: "pressure",
        about: "random programs under small budgets, with faults",
        nightly: false,
        run: pressure::programs,
    },
    Step {
        name: "tight",
        about: "the suite where tensors must leave and move",
        nightly: false,
        run: pressure::tight,
    },
    Step {
        name: "traces",
        about: "recorded traces: what is reserved, created, moved and evicted for them",
        nightly: false,
        run: traces::check,
    },
    Step {
        name: "formats",
        about: "PyTorch's own tool reads our snapshots, and finds the same totals",
        nightly: false,
        run: formats::memory_viz,
    },
    Step {
        name: "swiftshader",
        about: "the device's and every kernel's tests on SwiftShader",
        nightly: false,
        run: adapters::swiftshader,
    },
    Step {
        name: "validation",
        about: "the same under Vulkan's validation layer",
        nightly: false,
        run: adapters::validation,
    },
    Step {
        name: "mesa",
        about: "the newest lavapipe: cooperative matrices, a budget that moves, subgroups of 4 and 16",
        nightly: false,
        run: mesa::part,
    },
    Step {
        name: "mesa-whole",
        about: "the suite on the newest lavapipe, with subgroups of 8, 4 and 16",
        nightly: true,
        run: mesa::whole,
    },
    Step {
        name: "dx12",
        about: "every kernel's and the device's tests on DX12, under Wine",
        nightly: true,
        run: dx12::check,
    },
    Step {
        name: "spirv",
        about: "the translated shaders are valid SPIR-V",
        nightly: false,
        run: shaders::spirv,
    },
    Step {
        name: "fxc",
        about: "Microsoft's FXC compiles a sample of the kernels, soon enough (its DLL is downloaded)",
        nightly: false,
        run: hlsl::sample,
    },
    Step {
        name: "fxc-whole",
        about: "the same for every kernel",
        nightly: true,
        run: hlsl::whole,
    },
    Step {
        name: "dxc",
        about: "Microsoft's DXC compiles a sample of those that need shader model 6 (the same)",
        nightly: true,
        run: hlsl::sample_by_dxc,
    },
    Step {
        name: "targets",
        about: "it compiles for Windows, macOS and the web",
        nightly: false,
        run: targets::check,
    },
    Step {
        name: "examples",
        about: "the example programs run, learn, and keep within their memory",
        nightly: false,
        run: examples::run_all,
    },
    Step {
        name: "model",
        about: "a real encoder: PyTorch's vectors, small budgets, a search (the model is downloaded)",
        nightly: false,
        run: model::check,
    },
    Step {
        name: "app",
        about: "a program with a device of its own: without a window, and in one, with a pointer",
        nightly: false,
        run: app::check,
    },
    Step {
        name: "page",
        about: "a snapshot's page in Chromium: a million events, pointer, keys, hostile names",
        nightly: false,
        run: page::check,
    },
    Step {
        name: "top",
        about: "`lapidary top` in a terminal, beside a program that learns: numbers, keys, the program's end",
        nightly: false,
        run: terminal::top,
    },
    Step {
        name: "web",
        about: "the library in Chromium, on WebGPU: results as here, limits, a lost device",
        nightly: false,
        run: web::check,
    },
];

/// How a step ended and how long it took.
struct Outcome {
    name: &'static str,
    seconds: f64,
    found: Result<String>,
}

/// Runs the steps that the arguments leave, and fails at the end if any of them did.
pub(crate) fn ci(args: &[String]) -> Result {
    if args.iter().any(|arg| arg == "--list") {
        for step in STEPS {
            let when = if step.nightly { " (nightly)" } else { "" };
            println!("{:<12} {}{when}", step.name, step.about);
        }
        return Ok(());
    }
    let steps: Vec<_> = STEPS.iter().map(|step| (step.name, step.nightly)).collect();
    let chosen = choose(&steps, args)?;
    let mut outcomes = Vec::new();
    for step in STEPS.iter().filter(|step| chosen.contains(&step.name)) {
        println!("\n=== {}: {}", step.name, step.about);
        let start = Instant::now();
        let found = (step.run)();
        if let Err(sentence) = &found {
            eprintln!("{}: {sentence}", step.name);
        }
        outcomes.push(Outcome {
            name: step.name,
            seconds: start.elapsed().as_secs_f64(),
            found,
        });
    }
    print!("\n{}", table(&outcomes));
    // Said once more, whole: whoever sees only the end of a long log sees why.
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

/// The names of the steps that the options leave. Each step comes with whether it is nightly.
fn choose<'a>(steps: &[(&'a str, bool)], args: &[String]) -> Result<Vec<&'a str>> {
    let (mut only, mut skip, mut nightly) = (Vec::new(), Vec::new(), false);
    let mut args = args.iter();
    while let Some(option) = args.next() {
        let list = match option.as_str() {
            "--only" => &mut only,
            "--skip" => &mut skip,
            "--nightly" => {
                nightly = true;
                continue;
            }
            _ => {
                return Err(format!(
                    "`ci` has no option `{option}`; see `cargo xtask ci --help`."
                ));
            }
        };
        let name = args
            .next()
            .ok_or(format!("`{option}` wants the name of a step."))?;
        if !steps.iter().any(|(step, _)| step == name) {
            let names: Vec<_> = steps.iter().map(|(step, _)| *step).collect();
            return Err(format!(
                "there is no step `{name}`; there are: {}.",
                names.join(", ")
            ));
        }
        list.push(name.as_str());
    }
    let is_chosen = |&(name, is_nightly): &(&str, bool)| {
        let is_named = only.contains(&name);
        let is_due = only.is_empty() && (nightly || !is_nightly);
        (is_named || is_due) && !skip.contains(&name)
    };
    let chosen = steps.iter().copied().filter(is_chosen);
    Ok(chosen.map(|(name, _)| name).collect())
}

fn table(outcomes: &[Outcome]) -> String {
    let mut text = format!("{:<12} {:>8}  result\n", "step", "seconds");
    for Outcome {
        name,
        seconds,
        found,
    } in outcomes
    {
        let found = match found {
            Ok(found) if found.is_empty() => "ok".to_owned(),
            Ok(found) => format!("ok, {found}"),
            Err(sentence) => format!("FAILED: {}", shortened(sentence)),
        };
        text += &format!("{name:<12} {seconds:>8.1}  {found}\n");
    }
    let total: f64 = outcomes.iter().map(|outcome| outcome.seconds).sum();
    text + &format!("{:<12} {total:>8.1}\n", "total")
}

/// As much of a sentence as a line of the table holds; all of it was shown when the step ended.
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

    fn chosen(args: &str) -> Result<Vec<&'static str>> {
        let args: Vec<_> = args.split_whitespace().map(str::to_owned).collect();
        choose(&[("a", false), ("b", true), ("c", false)], &args)
    }

    #[test]
    fn steps_are_chosen_by_name_and_keep_their_order() {
        assert_eq!(chosen("--nightly"), Ok(vec!["a", "b", "c"]));
        assert_eq!(chosen("--only c --only a"), Ok(vec!["a", "c"]));
        assert_eq!(chosen("--nightly --skip a"), Ok(vec!["b", "c"]));
        assert_eq!(chosen(""), Ok(vec!["a", "c"]));
        assert_eq!(chosen("--only b"), Ok(vec!["b"]));
        assert!(chosen("--only d").is_err());
        assert!(chosen("--only").is_err());
        assert!(chosen("--fast").is_err());
    }

    #[test]
    fn the_table_tells_steps_that_failed_from_those_that_did_not() {
        let outcome = |name, found| Outcome {
            name,
            seconds: 1.5,
            found,
        };
        let text = table(&[
            outcome("a", Ok(String::new())),
            outcome("b", Err("no.\nmore".into())),
        ]);
        assert!(text.contains("a                 1.5  ok\n"), "{text}");
        assert!(
            text.contains("b                 1.5  FAILED: no.\n"),
            "{text}"
        );
        assert!(text.contains("total             3.0\n"), "{text}");
    }
}
