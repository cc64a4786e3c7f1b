//! `examples/objects`: tensors in an object store, in memory and in a folder.

use std::fs;

use crate::driver::{cargo_with_gpu, with_gpu};
use crate::line::Line;
use crate::process::{Result, command, run, target_dir, watch};

/// Least number of the 64 tensors that the store must hold at the end; usually 51.
const LEAST_IN_STORE: f64 = 40.0;

pub(crate) fn check() -> Result<String> {
    let mut build = cargo_with_gpu()?;
    build.args(["build", "--manifest-path", "examples/Cargo.toml"]);
    build.args(["--package", "objects"]);
    run(build.env("CARGO_TARGET_DIR", target_dir()))?;
    let folder = target_dir().join("objects-of-example");
    let _ = fs::remove_dir_all(&folder);
    let path = folder.display().to_string();
    let found = [one(&[])?, one(&[&path])?];
    Ok(found.join("; "))
}

fn one(args: &[&str]) -> Result<String> {
    let program = target_dir().join("debug").join("objects");
    let mut program = with_gpu(command(&program.display().to_string()))?;
    let output = watch(program.args(args), |_| true)?;
    if !output.succeeded {
        return Err("the example `objects` failed.".into());
    }
    let line = Line::last("objects", &output.lines)?;
    line.expect("left", "0")?;
    let in_store = line.number("in_store")?;
    if in_store < LEAST_IN_STORE {
        return line.complain("has too few tensors in the store");
    }
    Ok(format!("{in_store} of 64 tensors in the store"))
}
