//! Finds the missing barrier of a sum within a workgroup.
//!
//! `cargo run -p wgsl-interpreter --example race`

use wgsl_interpreter::{Binding, Error, Kernel};

const WGSL: &str = "
@group(0) @binding(0) var<storage, read_write> sum: array<u32>;
var<workgroup> parts: array<u32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) i: u32) {
    parts[i] = i;
    workgroupBarrier();
    for (var half = 32u; half > 0u; half /= 2u) {
        if (i < half) { parts[i] += parts[i + half]; }
    }
    if (i == 0u) { sum[0] = parts[0]; }
}";

fn main() -> Result<(), Error> {
    let kernel = Kernel::from_wgsl(WGSL, "main")?;
    for lanes in [4, 32, 64] {
        let mut sum = [Binding::fresh(0, 0, 4)];
        let findings = kernel.dispatch([1, 1, 1]).lanes(lanes).run(&mut sum)?;
        println!("subgroups of {lanes}: {} findings", findings.len());
        for finding in findings {
            println!("  {finding}; {}", finding.kind.advice());
        }
    }
    Ok(())
}
