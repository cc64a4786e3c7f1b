//! Computes the page's cases on this machine, and prints the expected results: `src/expected.txt`.
//! `--check` compares with that file.

use std::process::ExitCode;

use lapidary::{Gpu, Options};
use web::cases::CASES;
use web::expected;

fn main() -> ExitCode {
    let is_check = std::env::args().nth(1).is_some_and(|arg| arg == "--check");
    match run(is_check) {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("expected: {sentence}");
            ExitCode::FAILURE
        }
    }
}

fn run(is_check: bool) -> Result<(), String> {
    let gpu = Options::from_env()
        .and_then(Gpu::open)
        .map_err(|error| error.to_string())?;
    let mut apart = 0_f32;
    for case in CASES {
        let told = |error: String| format!("{}: {error}", case.name);
        let values =
            pollster::block_on((case.run)(&gpu)).map_err(|error| told(error.to_string()))?;
        match is_check {
            true => {
                apart =
                    apart.max(expected::compare(case.name, &values, case.tolerance).map_err(told)?)
            }
            false => println!("{}", expected::line(case.name, &values)),
        }
    }
    if is_check {
        println!(
            "expected: cases={} apart={apart:.2e} adapter=\"{}\"",
            CASES.len(),
            gpu.caps().name
        );
    }
    Ok(())
}
