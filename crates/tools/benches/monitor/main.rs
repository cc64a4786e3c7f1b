//! The cost of monitoring: the share of a core that a program's serving thread takes, and that
//! `lapidary top` takes. `top` draws ten pictures a second in a terminal of 120 by 32.
//!
//! ```text
//! cargo bench --package lapidary-tools --bench monitor [-- SECONDS]
//! ```
//!
//! Both are CPU times that Linux counts for each thread, divided by the elapsed time. So the load
//! of the machine hardly matters. tmux provides the terminal. The bench fails if one of both takes
//! more than 2 % of a core.

#[cfg(target_os = "linux")]
mod share;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    use std::process::ExitCode;

    // `cargo test --benches` only checks that the bench starts.
    if std::env::args().any(|arg| arg == "--test") {
        return ExitCode::SUCCESS;
    }
    let seconds = std::env::args().find_map(|arg| arg.parse::<f64>().ok());
    match share::measure(seconds.unwrap_or(10.0)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!(
                "one of them takes more than {} % of a core",
                share::MOST_SHARE
            );
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("this bench needs the CPU times of threads that Linux reports");
}
