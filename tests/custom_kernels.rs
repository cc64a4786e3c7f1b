//! Custom kernels on the default adapter: results, errors and their excerpts, and hostile texts.

mod computes;
mod hostile;
mod mutated;
mod refuses;
#[cfg(feature = "sim")]
mod simulated;

use lapidary::{Error, Gpu, Kernel, Options};

fn gpu() -> Gpu {
    Gpu::open(Options::from_env().unwrap()).unwrap()
}

/// The message and the excerpt of a kernel's error.
fn shown<T: std::fmt::Debug>(result: lapidary::Result<T>) -> (String, String) {
    match result {
        Err(Error::Kernel(error)) => (error.message.clone(), error.excerpt.clone()),
        other => panic!("{other:?} is no kernel error"),
    }
}

/// Does the excerpt show this line, with carets under this part of it?
#[track_caller]
fn points_at(excerpt: &str, line: usize, source: &str, part: &str) {
    let shown: Vec<&str> = excerpt.lines().collect();
    let gutter = format!("{line} | ");
    let found = shown.iter().position(|shown| shown.starts_with(&gutter));
    let found = found.unwrap_or_else(|| panic!("no line {line} in:\n{excerpt}"));
    let text = &shown[found][gutter.len()..];
    assert!(text.contains(source), "not `{source}`:\n{excerpt}");
    let carets = shown[found + 1];
    let column = carets.find('^').unwrap() - gutter.len();
    let wide = carets.matches('^').count();
    let under: String = text.chars().skip(column).take(wide).collect();
    assert_eq!(under, part, "\n{excerpt}");
    // A long line is cut off on the left.
    let place = format!("wgsl:{line}:{}", column + 1);
    let is_cut = text.starts_with('…');
    assert!(is_cut || shown[0].contains(&place), "{excerpt}");
}

const SAXPY: &str = "
struct Params { a: f32, n: u32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> z: array<f32>;
@group(0) @binding(3) var<uniform> p: Params;
@compute @workgroup_size(64)
fn saxpy(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < p.n { z[id.x] = p.a * x[id.x] + y[id.x]; }
}";

#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct SaxpyParams {
    a: f32,
    n: u32,
}

/// A kernel with the usual frame around the body, for tests that need no bindings of their own.
fn framed(gpu: &Gpu, declarations: &str, body: &str) -> lapidary::Result<Kernel> {
    let text = format!(
        "{declarations}\n@compute @workgroup_size(64)\n\
         fn main(@builtin(global_invocation_id) id: vec3<u32>) {{\n{body}\n}}"
    );
    Kernel::new(gpu, &text)
}
