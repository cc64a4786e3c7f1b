//! What the app reads and what it writes in one call lies in different buffers, at any size. What
//! the app records wrongly is the error of its call, and nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lapidary::interop::{Access, Bound};
use lapidary::{Budget, DType, Error, Gpu, Options, Result, Tensor, wgpu};

use super::app::App;
use super::{floats, ramp};

const MIB: usize = 1 << 20;

/// `y = 2 x + y`.
pub(super) const ADD: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
    for (var i = id.x; i < arrayLength(&x); i += 64 * n.x) { y[i] += 2 * x[i]; }
}";

/// An app whose handler counts the errors that reach it.
pub(super) struct Listening {
    pub app: App,
    heard: Arc<AtomicU32>,
}

impl Listening {
    pub(super) fn open() -> Self {
        let (app, heard) = (App::open(), Arc::new(AtomicU32::new(0)));
        let hears = Arc::clone(&heard);
        app.device.on_uncaptured_error(Arc::new(move |_| {
            hears.fetch_add(1, Ordering::SeqCst);
        }));
        Listening { app, heard }
    }

    /// A handle with a budget for tensors of so many bytes.
    pub(super) fn with_budget(&self, slab_bytes: u64) -> Gpu {
        let staging_bytes = 1 << 20;
        let options = Options {
            budget: Some(Budget {
                staging_bytes: Some(staging_bytes),
                ..Budget::device(slab_bytes + staging_bytes)
            }),
            ..Options::from_env().unwrap()
        };
        let App {
            adapter,
            device,
            queue,
        } = &self.app;
        Gpu::adopt_with(adapter, device, queue, options).expect("a budget")
    }

    fn copy(&self, bound: &Bound, from: usize, to: usize) -> wgpu::CommandBuffer {
        let mut encoder = self.app.device.create_command_encoder(&Default::default());
        let (from, to) = (&bound[from], &bound[to]);
        encoder.copy_buffer_to_buffer(
            &from.buffer,
            from.offset_bytes,
            &to.buffer,
            to.offset_bytes,
            from.size_bytes,
        );
        encoder.finish()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.heard.load(Ordering::SeqCst), 0, "the app's handler");
        }
    }
}

fn never(_: &Bound) -> Vec<wgpu::CommandBuffer> {
    panic!("nothing is bound")
}

/// Whether two tensors lie in one buffer.
fn are_together(gpu: &Gpu, a: &Tensor, b: &Tensor) -> bool {
    let mut together = false;
    gpu.with_bound(&[(a, Access::Read), (b, Access::Read)], |bound| {
        together = bound[0].buffer == bound[1].buffer;
        Vec::new()
    })
    .unwrap();
    together
}

pub(super) fn filled(gpu: &Gpu, bytes: usize, value: f32) -> Tensor {
    let tensor = gpu.full(&[bytes / 4], value, DType::F32).unwrap();
    tensor.force().unwrap();
    tensor
}

#[track_caller]
pub(super) fn holds(tensor: &Tensor, value: f32) {
    let values = floats(tensor);
    let wrong = values.iter().position(|&one| one != value);
    assert_eq!(wrong.map(|at| (at, values[at])), None, "{value}");
}

/// Asserts that the error has all of these words.
#[track_caller]
fn says<T>(result: Result<T>, words: &[&str]) {
    let Err(error) = result else {
        panic!("no error with {words:?}")
    };
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{text:?} does not say {word:?}");
    }
}

#[test]
fn a_pass_reads_one_tensor_and_writes_another_at_any_size() -> Result<()> {
    let listening = Listening::open();
    let (gpu, pipeline) = (listening.app.gpu(), listening.app.compute(ADD));
    for bytes in [16, 4096, 256 << 10, MIB, 2 * MIB, 8 * MIB] {
        let (a, b) = (filled(&gpu, bytes, 1.0), filled(&gpu, bytes, 2.0));
        assert_eq!(are_together(&gpu, &a, &b), bytes < 4 * MIB, "{bytes}");
        let expected = [(1.0, 4.0), (9.0, 4.0), (9.0, 22.0), (53.0, 22.0)];
        let mut slabs = Vec::new();
        for (round, (in_a, in_b)) in expected.into_iter().enumerate() {
            let (from, to) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
            gpu.with_bound(&[(from, Access::Read), (to, Access::Write)], |bound| {
                assert_ne!(bound[0].buffer, bound[1].buffer);
                vec![listening.app.pass(&pipeline, bound.ranges(), 64)]
            })?;
            holds(&a, in_a);
            holds(&b, in_b);
            slabs.push(gpu.memory().stats().slabs_created);
            // The frame loop's compaction does not move them together again.
            gpu.memory().compact(1 << 30)?;
        }
        assert_eq!(slabs.iter().min(), slabs.iter().max(), "{bytes}");
    }
    Ok(())
}

#[test]
fn several_operands_of_each_access_are_set_apart() -> Result<()> {
    let listening = Listening::open();
    let gpu = listening.app.gpu();
    let read: Vec<_> = (0..3).map(|i| filled(&gpu, MIB / 2, i as f32)).collect();
    let written: Vec<_> = (3..6).map(|i| filled(&gpu, MIB / 2, i as f32)).collect();
    let operands = [
        &read[0],
        &written[0],
        &read[1],
        &written[1],
        &read[2],
        &written[2],
    ];
    let access = |index: usize| [Access::Read, Access::Write][index % 2];
    let operands: Vec<_> = (0..)
        .zip(operands)
        .map(|(index, one)| (one, access(index)))
        .collect();
    gpu.with_bound(&operands, |bound| {
        for reader in [0, 2, 4] {
            for writer in [1, 3, 5] {
                assert_ne!(bound[reader].buffer, bound[writer].buffer);
            }
        }
        vec![listening.copy(bound, 0, 5), listening.copy(bound, 4, 1)]
    })?;
    let expected = [0.0, 2.0, 1.0, 4.0, 2.0, 0.0];
    for ((tensor, _), value) in operands.iter().zip(expected) {
        holds(tensor, value);
    }
    // The same tensor may be named twice with one access.
    let (a, b) = (&read[0], &written[0]);
    gpu.with_bound(
        &[
            (a, Access::Read),
            (b, Access::Write),
            (a, Access::Read),
            (b, Access::Write),
        ],
        |bound| {
            assert_eq!(bound[0].buffer, bound[2].buffer);
            assert_ne!(bound[0].buffer, bound[3].buffer);
            vec![listening.copy(bound, 2, 1)]
        },
    )?;
    holds(b, 0.0);
    Ok(())
}

#[test]
fn bytes_go_through_a_texture_of_the_app() -> Result<()> {
    let listening = Listening::open();
    let (gpu, device) = (listening.app.gpu(), &listening.app.device);
    let size = wgpu::Extent3d {
        width: 64,
        height: 16,
        depth_or_array_layers: 1,
    };
    let texture = device.create_texture(&wgpu::TextureDescriptor {
        label: None,
        size,
        mip_level_count: 1,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format: wgpu::TextureFormat::R32Float,
        usage: wgpu::TextureUsages::COPY_SRC | wgpu::TextureUsages::COPY_DST,
        view_formats: &[],
    });
    let (a, b) = (
        gpu.tensor(&ramp(5, 1024), &[1024])?,
        filled(&gpu, 4096, 0.0),
    );
    gpu.with_bound(&[(&a, Access::Read), (&b, Access::Write)], |bound| {
        let layout = |index: usize| wgpu::TexelCopyBufferInfo {
            buffer: &bound[index].buffer,
            layout: wgpu::TexelCopyBufferLayout {
                offset: bound[index].offset_bytes,
                bytes_per_row: Some(256),
                rows_per_image: None,
            },
        };
        let mut encoder = device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_texture(layout(0), texture.as_image_copy(), size);
        encoder.copy_texture_to_buffer(texture.as_image_copy(), layout(1), size);
        vec![encoder.finish()]
    })?;
    assert_eq!(floats(&b), ramp(5, 1024));
    Ok(())
}

#[test]
fn a_budget_for_both_is_enough() -> Result<()> {
    let listening = Listening::open();
    // In one slab of 4 MiB, and then in two of 2 MiB. Others are evicted for that.
    for beside in [0, 1, 3] {
        let gpu = listening.with_budget(4 << 20);
        let others: Vec<_> = (0..beside)
            .map(|i| filled(&gpu, MIB / 2, i as f32))
            .collect();
        let (a, b) = (filled(&gpu, 2 * MIB, 1.0), filled(&gpu, 2 * MIB, 2.0));
        for (from, to) in [(&a, &b), (&b, &a), (&a, &b)] {
            gpu.with_bound(&[(from, Access::Read), (to, Access::Write)], |bound| {
                assert_ne!(bound[0].buffer, bound[1].buffer);
                vec![listening.copy(bound, 0, 1)]
            })?;
        }
        holds(&a, 1.0);
        holds(&b, 1.0);
        (0..)
            .zip(&others)
            .for_each(|(i, other)| holds(other, i as f32));
        assert!(gpu.memory().stats().device_bytes.peak <= 5 << 20);
    }
    Ok(())
}

#[test]
fn without_memory_for_both_the_error_names_them_and_nothing_is_called() -> Result<()> {
    let listening = Listening::open();
    let gpu = listening.with_budget(4 << 20);
    let (a, b) = (
        filled(&gpu, MIB, 1.0).named("source"),
        filled(&gpu, MIB, 2.0).named("target"),
    );
    let held = filled(&gpu, MIB, 3.0);
    assert!(are_together(&gpu, &a, &b) && are_together(&gpu, &a, &held));
    // The slab of 4 MiB stays for the pinned tensor, and the budget has no other slab.
    let pin = held.pin()?;
    let operands = [(&a, Access::Read), (&b, Access::Write)];
    let refused = gpu.with_bound(&operands, never);
    assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
    says(
        refused,
        &["source", "target", "1.00 MiB", "pinned", "with_bound"],
    );
    holds(&a, 1.0);
    holds(&b, 2.0);
    drop(pin);
    gpu.with_bound(&operands, |bound| vec![listening.copy(bound, 0, 1)])?;
    holds(&b, 1.0);
    holds(&held, 3.0);
    Ok(())
}

#[test]
fn a_pinned_tensor_stays_and_the_other_one_moves() -> Result<()> {
    let listening = Listening::open();
    let gpu = listening.app.gpu();
    for pins_reader in [true, false] {
        let (a, b) = (
            filled(&gpu, MIB, 1.0).named("first"),
            filled(&gpu, MIB, 2.0).named("second"),
        );
        let place = |of: &Tensor| {
            let mut place = None;
            let look = |bound: &Bound| {
                place = Some((bound[0].buffer.clone(), bound[0].offset_bytes));
                Vec::new()
            };
            gpu.with_bound(&[(of, Access::Read)], look).map(|()| place)
        };
        let fixed = if pins_reader { &a } else { &b };
        let (pin, before) = (fixed.pin()?, place(fixed)?);
        let operands = [(&a, Access::Read), (&b, Access::Write)];
        gpu.with_bound(&operands, |bound| vec![listening.copy(bound, 0, 1)])?;
        assert_eq!(place(fixed)?, before);
        drop(pin);
        holds(&b, 1.0);

        // Both are pinned, by pins or by a call around.
        let (c, d) = (
            filled(&gpu, MIB, 1.0).named("first"),
            filled(&gpu, MIB, 2.0).named("second"),
        );
        let operands = [(&c, Access::Read), (&d, Access::Write)];
        let pins = [c.pin()?, d.pin()?];
        says(
            gpu.with_bound(&operands, never),
            &["first", "second", "pinned", "1.00 MiB"],
        );
        drop(pins);
        gpu.with_bound(&[(&c, Access::Read), (&d, Access::Read)], |_| {
            says(
                gpu.with_bound(&operands, never),
                &["first", "second", "pinned"],
            );
            Vec::new()
        })?;
        gpu.with_bound(&operands, |bound| vec![listening.copy(bound, 0, 1)])?;
        holds(&d, 1.0);
    }
    Ok(())
}

#[test]
fn bytes_that_are_read_and_written_at_once_are_refused_before_the_call() -> Result<()> {
    let listening = Listening::open();
    let gpu = listening.app.gpu();
    let x = filled(&gpu, 4096, 1.0).named("both");
    let (front, back) = (x.narrow(0, 0, 512)?, x.narrow(0, 512, 512)?);
    for (one, other) in [(&x, &x), (&front, &back), (&x, &back)] {
        for accesses in [[Access::Read, Access::Write], [Access::Write, Access::Read]] {
            let operands = [(one, accesses[0]), (other, accesses[1])];
            says(
                gpu.with_bound(&operands, never),
                &["0 and 1", "both", "Access::Write"],
            );
        }
        gpu.with_bound(&[(one, Access::Write), (other, Access::Write)], |_| {
            Vec::new()
        })?;
    }
    holds(&x, 1.0);
    Ok(())
}

#[test]
fn ranges_of_one_buffer_of_the_app_have_one_access() -> Result<()> {
    let listening = Listening::open();
    let (app, gpu) = (&listening.app, listening.app.gpu());
    let buffer = app.buffer(2048);
    let a = gpu
        .import(&buffer, 0..1024, &[256], DType::F32)?
        .named("front");
    let b = gpu
        .import(&buffer, 1024..2048, &[256], DType::F32)?
        .named("back");
    a.fill_(1.0)?;
    b.fill_(2.0)?;
    // Operations of tensors do not care.
    b.add_(&a)?;
    a.copy_(&b)?;
    let refused = gpu.with_bound(&[(&a, Access::Read), (&b, Access::Write)], never);
    says(refused, &["front", "back", "one buffer of the app"]);
    let c = filled(&gpu, 1024, 0.0);
    gpu.with_bound(&[(&b, Access::Read), (&c, Access::Write)], |bound| {
        vec![listening.copy(bound, 0, 1)]
    })?;
    for tensor in [&a, &b, &c] {
        holds(tensor, 3.0);
    }
    Ok(())
}

#[test]
fn buffers_of_the_core_are_set_apart_too() -> Result<()> {
    let listening = Listening::open();
    let gpu = listening.app.gpu();
    let core: &lapidary_core::Gpu = &gpu;
    let (a, b) = (core.buffer_from(&[7_u32; 100])?, core.buffer_zeroed(400)?);
    core.with_bound(&[(&a, Access::Read), (&b, Access::Write)], |bound| {
        vec![listening.copy(bound, 0, 1)]
    })?;
    assert_eq!(b.to_vec::<u32>()?, [7; 100]);
    let halves = [a.slice(0..200)?, a.slice(200..400)?];
    let operands = [(&halves[0], Access::Read), (&halves[1], Access::Write)];
    says(
        core.with_bound(&operands, never),
        &["0 and 1", "Access::Write"],
    );
    Ok(())
}

#[test]
fn what_the_app_records_wrongly_is_the_error_of_its_call() -> Result<()> {
    let listening = Listening::open();
    let (app, gpu) = (&listening.app, listening.app.gpu());
    let device = &app.device;
    let (a, b) = (filled(&gpu, MIB, 1.0), filled(&gpu, MIB, 2.0));
    let pipeline = app.compute(ADD);
    type Mistake<'a> = (
        &'a str,
        Box<dyn FnOnce(&Bound) -> Vec<wgpu::CommandBuffer> + 'a>,
    );
    let encode = |record: &dyn Fn(&mut wgpu::CommandEncoder)| {
        let mut encoder = device.create_command_encoder(&Default::default());
        record(&mut encoder);
        vec![encoder.finish()]
    };
    let mistakes: Vec<Mistake> = vec![
        (
            "a copy within a buffer",
            Box::new(|bound| vec![listening.copy(bound, 0, 0)]),
        ),
        (
            "a pass that reads what it writes",
            Box::new(|bound| {
                let both = [bound[0].clone(), bound[0].clone()];
                vec![app.pass(&pipeline, &both, 1)]
            }),
        ),
        (
            "a copy past the end",
            Box::new(|bound| {
                encode(&|encoder| {
                    let (from, to) = (&bound[0].buffer, &bound[1].buffer);
                    encoder.copy_buffer_to_buffer(from, from.size(), to, 0, 4);
                })
            }),
        ),
        (
            "a copy of half a word",
            Box::new(|bound| {
                encode(&|encoder| {
                    encoder.copy_buffer_to_buffer(&bound[0].buffer, 0, &bound[1].buffer, 0, 2);
                })
            }),
        ),
        (
            "a dispatch without a pipeline",
            Box::new(|_| {
                encode(&|encoder| {
                    encoder
                        .begin_compute_pass(&Default::default())
                        .dispatch_workgroups(1, 1, 1);
                })
            }),
        ),
        (
            "too many workgroups",
            Box::new(|bound| vec![app.pass(&pipeline, bound.ranges(), u32::MAX)]),
        ),
        (
            "a pipeline of no shader",
            Box::new(|bound| {
                vec![app.pass(&app.compute("fn main() { nonsense }"), bound.ranges(), 1)]
            }),
        ),
        (
            "a binding too few",
            Box::new(|bound| vec![app.pass(&pipeline, &bound.ranges()[..1], 1)]),
        ),
        (
            "a buffer of no use",
            Box::new(|_| {
                let _ = app.buffer_for(4, wgpu::BufferUsages::empty());
                Vec::new()
            }),
        ),
        (
            "a vertex buffer",
            Box::new(|bound| {
                encode(&|encoder| {
                    let _ = encoder.begin_compute_pass(&Default::default());
                    encoder.clear_buffer(&bound[1].buffer, 1, Some(1));
                })
            }),
        ),
    ];
    for (what, mistake) in mistakes {
        let operands = [(&a, Access::Read), (&b, Access::Write)];
        let refused = gpu.with_bound(&operands, mistake);
        assert!(
            matches!(refused, Err(Error::Driver { .. })),
            "{what}: {refused:?}"
        );
        holds(&a, 1.0);
        holds(&b, 2.0);
    }
    gpu.with_bound(&[(&a, Access::Read), (&b, Access::Write)], |bound| {
        vec![app.pass(&pipeline, bound.ranges(), 64)]
    })?;
    holds(&b, 4.0);
    Ok(())
}

#[test]
fn the_apps_own_scopes_and_panics_stay_the_apps() -> Result<()> {
    let listening = Listening::open();
    let (app, gpu) = (&listening.app, listening.app.gpu());
    let x = filled(&gpu, 4096, 1.0);
    let mut own = None;
    gpu.with_bound(&[(&x, Access::Read)], |_| {
        let scope = app.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let _ = app.buffer_for(4, wgpu::BufferUsages::empty());
        own = pollster::block_on(scope.pop());
        Vec::new()
    })?;
    assert!(own.is_some());

    let panicked = catch_unwind(AssertUnwindSafe(|| {
        gpu.with_bound(&[(&x, Access::Write)], |_| panic!("the app's"))
    }));
    let message = panicked.unwrap_err();
    assert_eq!(message.downcast_ref::<&str>(), Some(&"the app's"));
    // Neither scopes nor pins are left.
    let mut left = None;
    let scope = |_: &Bound| {
        left = Some(app.device.push_error_scope(wgpu::ErrorFilter::Validation));
        Vec::new()
    };
    let refused = gpu.with_bound(&[(&x, Access::Read)], scope);
    assert!(matches!(refused, Err(Error::Driver { .. })), "{refused:?}");
    std::mem::forget(left);
    x.evict()?;
    holds(&x, 1.0);
    Ok(())
}

#[test]
fn random_calls_at_sizes_that_share_slabs_give_what_the_host_computes() -> Result<()> {
    let listening = Listening::open();
    let pipeline = listening.app.compute(ADD);
    for seed in 0..4 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let gpu = match seed % 2 {
            0 => listening.app.gpu(),
            _ => listening.with_budget(6 << 20),
        };
        // All have one size, so that each may be added to each.
        let bytes = *rng
            .choice(&[1 << 10, 64 << 10, 300 << 10, MIB])
            .expect("some");
        let tensors: Vec<_> = (0..7).map(|i| filled(&gpu, bytes, i as f32)).collect();
        let mut values: Vec<_> = (0..7).map(|i| i as f32).collect();
        let mut pin = None;
        for _ in 0..60 {
            let mut chosen: Vec<_> = (0..7).collect();
            rng.shuffle(&mut chosen);
            let &[from, to, other, ..] = &chosen[..] else {
                unreachable!()
            };
            match rng.u32(..8) {
                0 => {
                    tensors[from].add_(1.0)?;
                    values[from] += 1.0;
                }
                1 => tensors[from].evict().or_else(|error| match error {
                    Error::Pinned { .. } => Ok(()),
                    error => Err(error),
                })?,
                2 => {
                    pin = if rng.bool() {
                        Some(tensors[from].pin()?)
                    } else {
                        None
                    }
                }
                3 => drop(
                    gpu.memory()
                        .compact(*rng.choice(&[1 << 20, u64::MAX]).expect("two"))?,
                ),
                4 => holds(&tensors[from], values[from]),
                _ => {
                    let [from_, to_, other_] = [from, to, other].map(|index| &tensors[index]);
                    let third = *rng.choice(&[Access::Read, Access::Write]).expect("two");
                    let operands = [(from_, Access::Read), (to_, Access::Write), (other_, third)];
                    let done = gpu.with_bound(&operands, |bound| {
                        vec![listening.app.pass(&pipeline, &bound.ranges()[..2], 8)]
                    });
                    match done {
                        Ok(()) => values[to] = (values[to] + 2.0 * values[from]) % 1024.0,
                        Err(Error::OutOfMemory(_)) => assert!(pin.is_some() && seed % 2 == 1),
                        Err(error) => return Err(error),
                    }
                    // Small numbers are exact.
                    let small = tensors[to].sub(&(&(&tensors[to] / 1024.0)?.floor()? * 1024.0)?)?;
                    tensors[to].copy_(&small)?;
                }
            }
        }
        drop(pin);
        for (tensor, value) in tensors.iter().zip(values) {
            holds(tensor, value);
        }
    }
    Ok(())
}
