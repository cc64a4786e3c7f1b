//! Devices with lower limits than the adapter's use other kernels and give the same numbers.

use lapidary::{DType, Result, wgpu};

use super::app::App;
use super::{everyday, floats};

const WINDOW_BYTES: u64 = 64 << 10;

/// A device whose bindings have at most 64 KiB.
fn small_windows(without: wgpu::Features) -> App {
    App::with(without, |limits| {
        limits.max_storage_buffer_binding_size = WINDOW_BYTES;
        limits.max_uniform_buffer_binding_size = WINDOW_BYTES;
    })
}

#[test]
fn every_family_computes_on_the_apps_device() -> Result<()> {
    everyday::run(&App::open().gpu())
}

#[test]
fn every_family_computes_through_several_windows() -> Result<()> {
    let app = small_windows(wgpu::Features::empty());
    let gpu = app.gpu();
    assert_eq!(gpu.caps().max_binding_bytes, WINDOW_BYTES);
    everyday::run(&gpu)
}

#[test]
fn every_family_computes_without_immediates_and_subgroups() -> Result<()> {
    let app = App::with(wgpu::Features::all(), |_| ());
    let gpu = app.gpu();
    assert_eq!(gpu.caps().max_immediate_bytes, 0);
    assert_eq!(gpu.caps().subgroup_lanes, None);
    everyday::run(&gpu)
}

#[test]
fn every_family_computes_through_windows_without_immediates() -> Result<()> {
    everyday::run(&small_windows(wgpu::Features::IMMEDIATES).gpu())
}

#[test]
fn a_batch_has_more_parameters_than_a_page_of_uniforms() -> Result<()> {
    let gpu = App::with(wgpu::Features::IMMEDIATES, |_| ()).gpu();
    let x = gpu.zeros(&[7], DType::F32)?;
    let mut total = 0.0;
    for step in 0..2000 {
        x.add_(step as f32)?;
        total += step as f32;
    }
    assert_eq!(floats(&x), [total; 7]);
    Ok(())
}
