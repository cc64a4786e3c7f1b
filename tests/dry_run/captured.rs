//! Programs that use tensors of the device.

use lapidary::grad::Gradients;
use lapidary::optim::{AdamW, AdamWOptions, LossScaler, LossScalerOptions};
use lapidary::{Budget, DType, Error, Gpu, Options, Residency, Result, Tensor};

use super::transformer::Transformer;
use super::{check, gpu};
use crate::app::App;

#[test]
fn a_training_step_takes_what_its_dry_run_found() {
    let gpu = gpu();
    let net = Transformer::new(&gpu, 2, 64).unwrap();
    let dry = check(&gpu, "a step", |gpu| net.step(gpu, 4, 32));
    assert!(dry.fits() && dry.launches > 50, "{dry}");
    // The second step begins with other holes and the same live bytes.
    check(&gpu, "the next steps", |gpu| {
        (0..3)
            .map(|_| net.step(gpu, 4, 32))
            .collect::<Result<Vec<_>>>()
    });
    let weights = dry.holders.iter().find(|one| one.tag.contains("weights"));
    let expected_bytes = 4 * (2 * (3 + 1 + 4 + 4) * 64 * 64 + 64 * 16);
    assert_eq!(weights.map(|one| one.bytes), Some(expected_bytes), "{dry}");
}

#[test]
fn a_model_made_within_the_program_takes_what_was_found() {
    check(&gpu(), "a model and a step", |gpu| {
        let net = Transformer::new(gpu, 1, 64)?;
        let loss = net.step(gpu, 2, 32)?;
        Ok((net, loss))
    });
}

#[test]
fn the_device_and_its_tensors_are_as_before() {
    let gpu = gpu();
    let w = gpu.tensor(&[1.0_f32, 2.0], &[2]).unwrap();
    let w = w.named("w").requires_grad().unwrap();
    let plain = gpu.tensor(&[3.0_f32, 4.0], &[2]).unwrap();
    let loss = w.square().unwrap().sum_all().unwrap();
    gpu.finish().unwrap();
    let before = (gpu.memory().stats(), w.version(), plain.version());
    let change = |dry: &Gpu| -> Result<()> {
        assert!(dry.is_dry() && gpu.is_dry());
        {
            let _no_grad = dry.no_grad();
            w.sub_(&plain)?;
        }
        plain.add_(&w.square()?)?;
        assert!(plain.has_grad() && plain.version() == 1);
        w.on_gradient(|gradient| gradient * 100.0)?;
        assert_eq!(loss.backward()?.len(), 1);
        let kept = plain.clone().named("another");
        kept.sum_all()?
            .backward()?
            .get(&w)
            .expect("it depends on w");
        // The device's own handle stands for the dry one.
        let more = gpu.zeros(&[1 << 20], DType::F32)?;
        more.evict()?;
        gpu.memory().trim(0)?;
        more.pin().map(drop)?;
        gpu.finish()
    };
    gpu.dry_run(change).unwrap();
    assert!(!gpu.is_dry());
    let after = (gpu.memory().stats(), w.version(), plain.version());
    assert_eq!(after, before);
    assert_eq!(plain.tag().name(), None);
    assert!(!plain.has_grad());
    // The loss can still go backward, and the function is gone.
    let gradients = loss.backward().unwrap();
    let gradient = gradients.get(&w).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(gradient, [2.0, 4.0]);
    assert_eq!(plain.to_vec::<f32>().unwrap(), [3.0, 4.0]);
    assert_eq!(w.to_vec::<f32>().unwrap(), [1.0, 2.0]);
}

#[test]
fn the_devices_handles_tell_of_the_dry_run_and_change_nothing_outside() {
    let gpu = gpu();
    let x = gpu.ones(&[1 << 20], DType::F32).unwrap();
    let buffer = x.buffer().unwrap();
    // The device has a peak above what is alive, and a measurement under way.
    gpu.ones(&[1 << 20], DType::F32).unwrap().force().unwrap();
    gpu.finish().unwrap();
    let (memory, sampler) = (gpu.memory(), gpu.memory().sampler());
    let around = memory.measure("around").unwrap();
    let before = (
        memory.stats(),
        memory.budget(),
        memory.history().moments.len(),
    );
    let program = |dry: &Gpu| {
        memory.set_budget(Budget::device(64 << 20))?;
        assert_eq!(memory.budget(), dry.memory().budget());
        let measure = memory.measure("the dry run")?;
        let y = (&x + 1.0)?;
        gpu.finish()?;
        assert_eq!(measure.end()?.peak_live_bytes, 8 << 20);
        assert_eq!(memory.stats(), dry.memory().stats());
        assert_eq!(gpu.diagnostics().leaks(), dry.diagnostics().leaks());
        x.evict()?;
        assert_eq!(buffer.residency(), x.residency());
        assert_ne!(buffer.residency(), Residency::Device);
        x.add_(&y)?;
        assert_eq!(buffer.version(), x.version());
        assert!(buffer.shares_memory_with(&x.buffer().expect("a whole tensor")));
        memory.reset_peaks();
        memory.keep_history(16);
        // An observer outside sees the device.
        assert_eq!(sampler.memory().as_ref(), Some(&before.0));
        Ok(())
    };
    gpu.dry_run(program).unwrap();
    let after = (
        memory.stats(),
        memory.budget(),
        memory.history().moments.len(),
    );
    assert_eq!(after, before);
    gpu.ones(&[1 << 20], DType::F32).unwrap().force().unwrap();
    assert_eq!(around.end().unwrap().peak_live_bytes, 8 << 20);
    assert_eq!(memory.history().moments.len(), 0);
}

#[test]
fn a_history_from_before_gives_the_same_gradients_after_a_dry_backward() {
    let gpu = gpu();
    let w = gpu
        .rand_normal(&[128, 256], 0.0, 1.0, 1, DType::F32)
        .unwrap();
    let w = w.requires_grad().unwrap();
    // The result of `gelu` is computed again at the backward, for both of its readers.
    let h = w.gelu().unwrap();
    let loss = (h.square().unwrap() + h.exp().unwrap()).unwrap();
    let loss = loss.sum_all().unwrap();
    let gradient = || -> Result<Vec<f32>> {
        let gradients = loss.backprop().keep_history().run()?;
        gradients.get(&w).expect("it depends on w").to_vec()
    };
    let expected = gradient().unwrap();
    let dry = |_: &Gpu| loss.backprop().keep_history().run().map(drop);
    gpu.dry_run(dry).unwrap();
    assert_eq!(gradient().unwrap(), expected);
}

#[test]
fn an_optimizer_from_before_makes_steps_that_do_not_show() {
    let gpu = gpu();
    let w = gpu.tensor(&[1.0_f32, 2.0], &[2]).unwrap();
    let w = w.requires_grad().unwrap();
    let mut adam = AdamW::new(&[&w], AdamWOptions::default()).unwrap();
    let step = |gpu: &Gpu, adam: &mut AdamW| {
        let x = gpu.ones(&[2], DType::F32)?;
        let mut gradients = Gradients::default();
        for _ in 0..2 {
            let loss = (&x * &w)?.square()?.sum_all()?;
            loss.backprop().add_to(&mut gradients)?;
        }
        gradients.clip_global_norm(1.0)?;
        adam.step(&gradients)
    };
    gpu.dry_run(|gpu| step(gpu, &mut adam)).unwrap();
    assert_eq!(w.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    let steps = |adam: &AdamW| adam.state("adam")[0].1.to_vec::<u32>().unwrap();
    assert_eq!(steps(&adam), [0]);
    step(&gpu, &mut adam).unwrap();
    assert_eq!(steps(&adam), [1]);
}

#[test]
fn a_scaler_from_before_changes_in_a_dry_run_and_not_after_it() {
    let gpu = gpu();
    let w = gpu.tensor(&[1.0_f32, 2.0], &[2]).unwrap();
    let w = w.requires_grad().unwrap();
    let mut adam = AdamW::new(&[&w], AdamWOptions::default()).unwrap();
    let options = LossScalerOptions {
        initial_scale: 8.0,
        growth_interval: 1,
        ..LossScalerOptions::default()
    };
    let mut scaler = LossScaler::new(&gpu, options).unwrap();
    let step = |adam: &mut AdamW, scaler: &mut LossScaler| {
        let gradients = scaler.scale(&w.square()?.sum_all()?)?.backward()?;
        adam.step_scaled(&gradients, scaler)
    };
    let rounds = |adam: &mut AdamW, scaler: &mut LossScaler| {
        for _ in 0..3 {
            step(adam, scaler)?;
            scaler.update()?;
        }
        // It ends before the last update.
        step(adam, scaler)
    };
    gpu.dry_run(|_| rounds(&mut adam, &mut scaler)).unwrap();
    let error = scaler.update().unwrap_err();
    assert!(matches!(error, Error::Gradient { .. }), "{error}");
    let scale = |scaler: &LossScaler| scaler.current_scale().unwrap().item::<f32>().unwrap();
    assert_eq!(scale(&scaler), 8.0);
    step(&mut adam, &mut scaler).unwrap();
    // What was checked on the device still counts after another dry run.
    gpu.dry_run(|_| rounds(&mut adam, &mut scaler)).unwrap();
    scaler.update().unwrap();
    assert_eq!(scale(&scaler), 16.0);
}

#[test]
fn gradients_and_states_from_before_are_the_apps_after_a_dry_run() {
    let gpu = gpu();
    let w = gpu.tensor(&[1.0_f32, 2.0], &[2]).unwrap();
    let w = w.requires_grad().unwrap();
    let loss = || w.square()?.sum_all();
    let mut adam = AdamW::new(&[&w], AdamWOptions::default()).unwrap();
    let mut scaler = LossScaler::new(&gpu, LossScalerOptions::default()).unwrap();
    let (of_adam, of_scaler) = (adam.state("adam"), scaler.state("scaler"));
    let load = |adam: &mut AdamW, scaler: &mut LossScaler| {
        let get = |state: &[(String, Tensor)], name: &str| {
            let one = state.iter().find(|one| one.0 == name);
            Ok(one.expect("a name of the state").1.clone())
        };
        adam.load_state("adam", |name| get(&of_adam, name))?;
        scaler.load_state("scaler", |name| get(&of_scaler, name))
    };
    gpu.dry_run(|_| load(&mut adam, &mut scaler)).unwrap();
    let mut gradients = loss().unwrap().backward().unwrap();
    let mut none = Gradients::default();
    let refused = |result: Result<()>| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Gradient { .. }), "{error}");
        assert!(
            error.to_string().contains("outside of the dry run"),
            "{error}"
        );
    };
    let change = |_: &Gpu| {
        refused(loss()?.backprop().add_to(&mut gradients));
        refused(loss()?.backprop().add_to(&mut none));
        refused(gradients.clip_global_norm(1.0).map(drop));
        refused(scaler.unscale(&mut gradients));
        adam.step(&gradients)
    };
    gpu.dry_run(change).unwrap();
    let of_w = gradients.get(&w).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(of_w, [2.0, 4.0]);
    loss().unwrap().backprop().add_to(&mut gradients).unwrap();
    loss().unwrap().backprop().add_to(&mut none).unwrap();
    scaler.unscale(&mut none).unwrap();
    adam.step_scaled(&none, &mut scaler).unwrap();
    scaler.update().unwrap();
    // The tensors that are loaded are those of the state after one step.
    load(&mut adam, &mut scaler).unwrap();
    adam.step(&gradients).unwrap();
    assert_eq!(adam.state("adam")[0].1.to_vec::<u32>().unwrap(), [2]);
}

#[test]
fn all_that_is_alive_on_the_device_counts() {
    let gpu = gpu();
    let held = gpu.zeros(&[1 << 20], DType::F32).unwrap();
    gpu.finish().unwrap();
    let queued = gpu.ones(&[1 << 20], DType::F32).unwrap();
    let dry = gpu.dry_run(|gpu| gpu.zeros(&[256], DType::F32)).unwrap();
    assert_eq!(dry.peak_live_bytes, (8 << 20) + 1024, "{dry}");
    assert_eq!(dry.holders.len(), 3, "{dry}");
    drop((held, queued));
}

#[test]
fn what_was_queued_before_is_no_part_of_the_program() {
    let gpu = gpu();
    let held = gpu.zeros(&[12 << 20], DType::F32).unwrap();
    held.force().unwrap();
    gpu.memory().set_budget(Budget::device(64 << 20)).unwrap();
    // It needs the place of the first.
    let queued = gpu.ones(&[8 << 20], DType::F32).unwrap();
    let dry = gpu.dry_run(|_| Ok(())).unwrap();
    assert_eq!((dry.evictions, dry.evicted_bytes), (0, 0), "{dry}");
    assert!(dry.fits() && dry.reclaim_steps.is_empty(), "{dry}");
    drop((held, queued));
}

#[test]
fn tensors_of_a_dry_run_are_of_no_use_after_it() {
    let gpu = gpu();
    let x = gpu.tensor(&[1.0_f32, 2.0], &[2]).unwrap();
    let mut left: Vec<Tensor> = Vec::new();
    let program = |gpu: &Gpu| {
        left.push((&x + 1.0)?);
        left.push(gpu.zeros(&[2], DType::F32)?);
        Ok(())
    };
    gpu.dry_run(program).unwrap();
    for tensor in &left {
        assert!(matches!(tensor + &x, Err(Error::Foreign { .. })));
        assert!(matches!(
            tensor.to_vec::<f32>(),
            Err(Error::DryRunRead { .. })
        ));
        assert!((tensor * 2.0).is_ok(), "they are tensors all the same");
    }
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 2.0]);
}

#[test]
fn another_thread_works_on_the_device() {
    let gpu = gpu();
    let x = gpu.tensor(&[1.0_f32, 2.0], &[2]).unwrap();
    let program = |_: &Gpu| {
        let other = std::thread::scope(|scope| {
            scope
                .spawn(|| (&x + 1.0)?.to_vec::<f32>())
                .join()
                .expect("it does not panic")
        });
        assert_eq!(other?, [2.0, 3.0]);
        &x + 1.0
    };
    gpu.dry_run(program).unwrap();
}

#[test]
fn a_dry_run_may_contain_another() {
    let gpu = gpu();
    let w = gpu.zeros(&[1 << 18], DType::F32).unwrap();
    let w = w.requires_grad().unwrap();
    let program = |outer: &Gpu| {
        let x = outer.ones(&[1 << 18], DType::F32)?;
        let inner = outer.dry_run(|_| (&w * &x)?.sum_all()?.backward())?;
        assert!(inner.peak_live_bytes >= 3 << 20, "{inner}");
        assert_eq!(inner.live_after_bytes, 3 << 20, "{inner}");
        (&w * &x)?.sum_all()?.backward()
    };
    let outer = gpu.dry_run(program).unwrap();
    assert_eq!(outer.live_after_bytes, 2 << 20, "{outer}");
    assert!(!w.detach().has_grad());
}

#[test]
fn buffers_of_the_app_take_no_memory_of_ours() {
    let app = App::open();
    let gpu = app.gpu();
    let buffer = app.buffer(4 << 20);
    let x = gpu
        .import(&buffer, 0..4 << 20, &[1 << 20], DType::F32)
        .unwrap();
    check(&gpu, "an imported tensor", |_| {
        x.add_(&x)?;
        &x + 1.0
    });
    let bound =
        gpu.dry_run(|gpu| gpu.with_bound(&[(&x, lapidary::interop::Access::Read)], |_| vec![]));
    assert!(matches!(bound, Err(Error::Buffer { .. })), "{bound:?}");
}

#[test]
fn nothing_is_written_to_the_disk() {
    let folder = std::env::temp_dir().join(format!("lapidary-dry-run-{}", std::process::id()));
    let options = Options {
        spill_folder: Some(folder.clone()),
        budget: Some(Budget::default()),
        ..Options::from_env().unwrap()
    };
    let gpu = Gpu::open(options).unwrap();
    let x = gpu.ones(&[1 << 20], DType::F32).unwrap();
    let program = |gpu: &Gpu| {
        let budget = Budget {
            host_bytes: Some(0),
            ..Budget::device(16 << 20)
        };
        gpu.memory().set_budget(budget)?;
        let made: Vec<_> = (0..8).map(|_| &x + 1.0).collect::<Result<_>>()?;
        gpu.finish()?;
        made.iter().try_for_each(|made| made.force())
    };
    let dry = gpu.dry_run(program).unwrap();
    assert!(dry.evicted_bytes > 16 << 20, "{dry}");
    assert!(dry.peak_disk_bytes > 16 << 20, "{dry}");
    assert!(!folder.exists());
    assert_ne!(x.residency(), Residency::Disk);
}
