//! Five minutes with lapidary: two tensors, a layer of a network, and where the memory is.
//!
//! ```text
//! cargo run --release --example hello
//! ```

use lapidary::{DType, Gpu, Options};

fn main() -> lapidary::Result<()> {
    // The fastest adapter of this machine, which may be a software adapter.
    let gpu = Gpu::open(Options::from_env()?)?;
    println!("on {}\n", gpu.caps().name);

    // Two points, and a layer that makes three numbers of each.
    let x = gpu.tensor(&[1.0_f32, 2.0, 3.0, 4.0], &[2, 2])?;
    let weight = gpu.tensor(&[1.0_f32, 0.0, -1.0, 0.0, 1.0, -1.0], &[2, 3])?;
    let bias = gpu.full(&[3], 0.5, DType::F32)?;

    // Nothing has run yet: the device gets all commands at once when a value is read.
    let y = (x.matmul(&weight)? + &bias)?.relu()?.named("y");
    println!("{y}");
    for row in y.to_vec::<f32>()?.chunks(3) {
        println!("  {row:?}");
    }

    // Every byte is accounted for, with the line that made it.
    println!("\n{}", gpu.memory().stats());
    Ok(())
}
