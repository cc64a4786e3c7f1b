//! Devices with any limits. The error names a limit that is too low, or the device computes the
//! same as one with all of the adapter's limits.

use lapidary::{DType, Error, Gpu, Result, Tensor, wgpu};

use super::app::{App, USED};
use super::{assert_close, floats, gpu, small};

/// The results of all sets of limits.
#[derive(Debug, Default)]
struct Tally {
    /// wgpu refused to open the device.
    unopened: u32,
    refused: u32,
    adopted: u32,
}

/// A few operations of every family with small operands.
fn program(gpu: &Gpu) -> Result<Vec<Vec<f32>>> {
    const ROWS: usize = 37;
    const LEN: usize = 29;
    let matrix = |seed| gpu.tensor(&small(ROWS * LEN, seed), &[ROWS, LEN]);
    let (a, b) = (matrix(1)?, matrix(2)?);
    let row = gpu.tensor(&small(LEN, 3), &[LEN])?;
    let picked = gpu.tensor(&[5_u32, 0, 36, 5], &[4])?;
    let where_to = gpu.tensor(&[7_u32; LEN], &[1, LEN])?;
    let image = gpu.tensor(&small(2 * 3 * 9 * 9, 4), &[2, 3, 9, 9])?;
    let weight = gpu.tensor(&small(4 * 3 * 3 * 3, 5), &[4, 3, 3, 3])?;
    let heads = |seed| gpu.tensor(&small(2 * 12 * 16, seed), &[1, 2, 12, 16]);
    let (sorted, order) = a.sort(1, true)?;
    let (best, _) = a.top_k(5, 0, false)?;
    let (q, k, v) = (heads(6)?, heads(7)?, heads(8)?);
    let scattered = a.copy()?;
    scattered.add_(&b)?;
    scattered.narrow(1, 1, 3)?.fill_(7.0)?;
    let results = [
        (&a.mul(&b)? + &row)?.relu()?,
        a.gt(&b)?.where_(&a, &b)?,
        a.addcmul(&b, &a, 0.5)?,
        a.t()?.contiguous()?,
        a.cast(DType::F16)?
            .add(&a.cast(DType::F16)?)?
            .cast(DType::F32)?,
        a.sum(&[0])?,
        a.sum(&[1])?,
        a.var(&[0, 1], 1)?,
        a.argmax(1)?.cast(DType::F32)?,
        a.cumsum(0)?,
        a.softmax(-1)?,
        a.softmax(0)?,
        a.layer_norm(&[LEN], Some(&row), Some(&row), 1e-5)?,
        a.rms_norm(&[LEN], Some(&row), 1e-5)?,
        a.matmul(&b.t()?)?,
        a.narrow(0, 0, 1)?.matmul(&b.t()?)?,
        sorted,
        order.cast(DType::F32)?,
        best,
        a.index_select(0, &picked)?,
        a.gather(0, &where_to)?,
        Tensor::concat(&[&a, &b, &a, &b, &a], 1)?,
        image.conv2d(&weight, None, &lapidary::operations::Conv::default())?,
        q.scaled_dot_product_attention(&k, &v, None, false, None)?,
        gpu.arange(0, 100, 3, DType::F32)?,
        gpu.rand_uniform(&[ROWS], -1.0, 1.0, 9, DType::F32)?,
        scattered,
    ];
    results.iter().map(|result| Ok(floats(result))).collect()
}

/// Adopts a device with some limits and computes on it.
fn check(limits: &wgpu::Limits, without: wgpu::Features, expected: &[Vec<f32>], tally: &mut Tally) {
    let Some(app) = App::try_with(without, |all| *all = limits.clone()) else {
        tally.unopened += 1;
        return;
    };
    match Gpu::adopt(&app.adapter, &app.device, &app.queue) {
        Ok(gpu) => {
            tally.adopted += 1;
            if expected.is_empty() {
                let x = gpu.tensor(&[3.0_f32, 1.0, 2.0], &[3]).unwrap();
                assert_eq!(floats(&x.add(&x).unwrap()), [6.0, 2.0, 4.0]);
            } else {
                let got = program(&gpu).unwrap_or_else(|error| panic!("{error}\n{limits:?}"));
                for (got, expected) in got.iter().zip(expected) {
                    assert_close(got, expected);
                }
            }
        }
        Err(Error::Option { option, reason }) => {
            tally.refused += 1;
            let is_named = option.starts_with("max_") || option.starts_with("min_");
            assert!(
                is_named && reason.contains("needs at "),
                "{option}: {reason}"
            );
        }
        Err(other) => panic!("{other}\n{limits:?}"),
    }
}

/// Lowers one limit in ten: a little, by much, or to the minimum.
fn random_limits(random: &mut fastrand::Rng, most: &wgpu::Limits) -> wgpu::Limits {
    let mut limits = most.clone();
    let often = random.u32(2..20);
    macro_rules! lower {
        ($($field:ident),*) => {$(
            if random.u32(..often) == 0 {
                let has = u64::from(limits.$field);
                let lowered = match random.u32(..4) {
                    0 => 0,
                    1 => random.u64(..=has.min(16)),
                    2 => has >> random.u32(1..20).min(63),
                    _ => random.u64(..=has),
                };
                limits.$field = lowered.try_into().unwrap();
            }
        )*};
    }
    lower!(
        max_bind_groups,
        max_bindings_per_bind_group,
        max_non_sampler_bindings,
        max_dynamic_uniform_buffers_per_pipeline_layout,
        max_dynamic_storage_buffers_per_pipeline_layout,
        max_storage_buffers_per_shader_stage,
        max_uniform_buffers_per_shader_stage,
        max_uniform_buffer_binding_size,
        max_storage_buffer_binding_size,
        max_buffer_size,
        max_compute_workgroup_storage_size,
        max_compute_invocations_per_workgroup,
        max_compute_workgroup_size_x,
        max_compute_workgroup_size_y,
        max_compute_workgroup_size_z,
        max_compute_workgroups_per_dimension,
        max_immediate_size
    );
    if random.u32(..often) == 0 {
        limits.min_storage_buffer_offset_alignment <<= random.u32(..8);
    }
    if random.u32(..often) == 0 {
        limits.min_uniform_buffer_offset_alignment <<= random.u32(..8);
    }
    limits
}

/// `LAPIDARY_LIMITS` sets the number. Every tenth adopted device runs the whole program.
#[test]
fn any_limits_are_refused_by_name_or_work() {
    let number = |name, or| std::env::var(name).map_or(or, |text| text.parse().unwrap());
    let (seed, many) = (number("LAPIDARY_SEED", 5), number("LAPIDARY_LIMITS", 60));
    let expected = program(&gpu()).unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut tally = Tally::default();
    for index in 0..many {
        let without = match random.bool() {
            true => wgpu::Features::IMMEDIATES,
            false => wgpu::Features::empty(),
        };
        let mut most = App::limits();
        if random.bool() {
            // With the default limits as the upper bound, most devices are adopted and compute.
            most = wgpu::Limits::default();
            most.max_immediate_size = 128;
        }
        if without == wgpu::Features::IMMEDIATES {
            most.max_immediate_size = 0;
        }
        let limits = random_limits(&mut random, &most);
        let expected = if index % 10 == 0 { &expected[..] } else { &[] };
        check(&limits, without, expected, &mut tally);
    }
    println!("seed {seed}: {tally:?}");
    assert!(tally.refused > 10 && tally.adopted > 10, "{tally:?}");
}

#[test]
fn the_limits_that_wgpu_names_are_refused_by_name_or_work() {
    let expected = program(&gpu()).unwrap();
    let all = wgpu::Features::all();
    for (name, limits, is_adopted) in [
        ("default", wgpu::Limits::default(), true),
        ("downlevel", wgpu::Limits::downlevel_defaults(), false),
        ("WebGL2", wgpu::Limits::downlevel_webgl2_defaults(), false),
    ] {
        let mut tally = Tally::default();
        check(&limits, all, &expected, &mut tally);
        assert_eq!(
            (tally.adopted, tally.unopened),
            (is_adopted.into(), 0),
            "{name}"
        );
    }
}

/// All limits at their minimum.
#[test]
fn the_lowest_limits_that_are_adopted_work() {
    let expected = program(&gpu()).unwrap();
    let mut limits = wgpu::Limits::downlevel_webgl2_defaults();
    limits.max_storage_buffers_per_shader_stage = 8;
    limits.max_bindings_per_bind_group = 9;
    limits.max_bind_groups = 1;
    limits.max_non_sampler_bindings = 73_728;
    limits.max_buffer_size = 256 << 10;
    limits.max_storage_buffer_binding_size = 16 << 10;
    limits.max_uniform_buffers_per_shader_stage = 1;
    limits.max_dynamic_uniform_buffers_per_pipeline_layout = 1;
    limits.max_uniform_buffer_binding_size = 128;
    limits.max_compute_invocations_per_workgroup = 256;
    limits.max_compute_workgroup_size_x = 256;
    limits.max_compute_workgroup_size_y = 1;
    limits.max_compute_workgroup_size_z = 1;
    limits.max_compute_workgroup_storage_size = 8 << 10;
    limits.max_compute_workgroups_per_dimension = 65_535;
    for without in [wgpu::Features::all(), wgpu::Features::IMMEDIATES] {
        let mut tally = Tally::default();
        check(&limits, without, &expected, &mut tally);
        assert_eq!(
            (tally.adopted, tally.unopened),
            (1, 0),
            "{without:?} of {USED:?}"
        );
    }
}

/// Kernels for GPUs use more invocations and workgroup memory than those for software adapters.
#[cfg(feature = "sim")]
#[test]
fn the_lowest_limits_suffice_for_the_kernels_of_every_kind_of_device() {
    use lapidary::adapter::AdapterKind;
    use lapidary::sim::SimOptions;

    let expected = program(&gpu()).unwrap();
    for kind in [
        AdapterKind::Discrete,
        AdapterKind::Integrated,
        AdapterKind::Cpu,
    ] {
        let (gpu, sim) = Gpu::simulated(SimOptions {
            kind,
            max_buffer_bytes: 256 << 10,
            max_binding_bytes: 16 << 10,
            max_storage_bindings: 8,
            max_immediate_bytes: 0,
            max_invocations: 256,
            max_workgroup_bytes: 8 << 10,
            ..SimOptions::default()
        })
        .unwrap();
        for (got, expected) in program(&gpu).unwrap().iter().zip(&expected) {
            assert_close(got, expected);
        }
        assert_eq!(sim.complaints(), [""; 0]);
    }
}

#[test]
fn an_app_hears_which_features_its_device_lacks() {
    use lapidary::interop::wanted_features;
    use lapidary::stats::Topic;
    let text_of = |app: &App| {
        let advice = app.gpu().memory().advice();
        let about = advice.into_iter().find(|one| one.topic == Topic::Features);
        about.map(|one| one.to_string())
    };
    let adapter = App::adapter();
    let wanted = wanted_features(&adapter);
    assert!(adapter.features().contains(wanted) && wanted.contains(adapter.features() & USED));
    assert_eq!(text_of(&App::on(adapter.clone(), wanted, |_| ())), None);
    let helpful = [
        (
            wgpu::Features::IMMEDIATES,
            "IMMEDIATES, with a `max_immediate_size` of 128",
        ),
        (wgpu::Features::SUBGROUP, "SUBGROUP"),
        (
            wgpu::Features::MAPPABLE_PRIMARY_BUFFERS,
            "MAPPABLE_PRIMARY_BUFFERS",
        ),
        (wgpu::Features::SHADER_INT64, "SHADER_INT64"),
    ];
    for (feature, name) in helpful {
        let text = text_of(&App::on(adapter.clone(), wanted - feature, |_| ()));
        assert_eq!(text.is_some(), wanted.contains(feature), "{feature:?}");
        if let Some(text) = text {
            assert!(
                text.contains(name) && text.contains("wanted_features"),
                "{text}"
            );
        }
    }
    // The feature without its limit is of no use.
    let short = App::on(adapter.clone(), wanted, |limits| {
        limits.max_immediate_size = 64
    });
    let is_told = text_of(&short).is_some_and(|text| text.contains("IMMEDIATES"));
    assert_eq!(is_told, wanted.contains(wgpu::Features::IMMEDIATES));
    let opened = gpu();
    assert!(opened.caps().missing_features.is_empty() && opened.memory().advice().is_empty());
}
