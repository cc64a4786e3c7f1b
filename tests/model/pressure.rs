//! Weights backed by their file, with less memory than they take. Values do not change, and nothing
//! is written. Also the behaviour if the file changes.

use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::time::Duration;

use lapidary::units::MIB;
use lapidary::{
    Budget, DType, Error, Gpu, Options, Residency,
    failure::ModelFailure,
    files::{Model, ModelFile},
};

use crate::model::files::{Folder, bytes_of, failure, file_with, open, open_with};

const LAYERS: usize = 12;
const SIDE: usize = 512;

/// A model of 12 MiB. Its layers are matrices of integers that are small enough for exact sums.
fn layers() -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut layer = || {
        (0..SIDE * SIDE)
            .map(|_| random.i32(-1..=1) as f32)
            .collect()
    };
    let layers: Vec<Vec<f32>> = (0..LAYERS).map(|_| layer()).collect();
    let names: Vec<String> = (0..LAYERS).map(|at| format!("layer.{at}.weight")).collect();
    let arrays = names.iter().zip(&layers);
    let arrays: Vec<_> = arrays
        .map(|(name, layer)| (name.as_str(), "F32", &[SIDE, SIDE][..], bytes_of(layer)))
        .collect();
    file_with(&arrays)
}

/// Applies all layers to a row of numbers, twice.
fn run(gpu: &Gpu, model: &Model) -> Vec<f32> {
    let mut x = gpu
        .arange(0, SIDE as i32, 1, DType::I32)
        .unwrap()
        .cast(DType::F32)
        .unwrap();
    for at in (0..LAYERS).chain(0..LAYERS) {
        let weight = model
            .expect(&format!("layer.{at}.weight"), &[SIDE, SIDE])
            .unwrap();
        // Using a part needs the whole tensor on the device.
        let rows = weight.slice(0, 0, Some(8), 1).unwrap();
        x = (&x + &rows.sum(&[0]).unwrap()).unwrap();
    }
    x.to_vec().unwrap()
}

/// The model gives the same results with little memory as with much, loaded in both ways, and
/// nothing is written.
fn check(open: impl Fn(Budget) -> Gpu) {
    let folder = Folder::new();
    let path = folder.with("model.safetensors", &layers());
    let file = ModelFile::open(&path).unwrap();
    let roomy = open(Budget::default());
    let expected = run(&roomy, &roomy.files().load_model(&file, |_| {}).unwrap());
    for budget_bytes in [6 * MIB, 4 * MIB] {
        for backed in [true, false] {
            let gpu = open(Budget::device(budget_bytes));
            let model = match backed {
                true => gpu.files().load_model_backed(&file).unwrap(),
                false => gpu.files().load_model(&file, |_| {}).unwrap(),
            };
            assert_eq!(run(&gpu, &model), expected);
            let memory = gpu.memory().stats();
            assert!(memory.restores as usize > LAYERS, "{memory}");
            assert_eq!(
                (memory.host_bytes.peak, memory.spilled_bytes.peak),
                (0, 0),
                "{memory}"
            );
            assert!(memory.reserved_bytes.peak <= budget_bytes, "{memory}");
        }
    }
}

#[test]
fn a_model_larger_than_the_budget_computes_the_same_on_the_simulated_device() {
    check(|budget| open_with(budget).0);
}

#[test]
fn a_model_larger_than_the_budget_computes_the_same_on_an_adapter() {
    check(|budget| {
        let options = Options {
            budget: Some(budget),
            ..Options::from_env().unwrap()
        };
        Gpu::open(options).expect("the tests need an adapter")
    });
}

#[test]
fn what_was_loaded_from_bytes_is_dropped_and_read_again_if_it_is_backed_by_them() {
    let file = ModelFile::from_bytes(layers()).unwrap();
    let roomy = open();
    let expected = run(&roomy, &roomy.files().load_model(&file, |_| {}).unwrap());
    let gpu = open_with(Budget::device(4 * MIB)).0;
    assert_eq!(
        run(&gpu, &gpu.files().load_model_backed(&file).unwrap()),
        expected
    );
    assert_eq!(gpu.memory().stats().spilled_bytes.peak, 0);
}

#[test]
fn a_weight_that_was_written_to_is_no_longer_that_of_the_file() {
    let folder = Folder::new();
    let path = folder.with("model.safetensors", &layers());
    let gpu = open();
    let model = gpu
        .files()
        .load_model(&ModelFile::open(path).unwrap(), |_| {})
        .unwrap();
    let weight = model.get("layer.3.weight").unwrap();
    weight.fill_(2.0).unwrap();
    weight.evict().unwrap();
    assert_ne!(weight.residency(), Residency::Backed);
    assert!(
        weight
            .to_vec::<f32>()
            .unwrap()
            .iter()
            .all(|&element| element == 2.0)
    );
}

/// Loads lazily, uses one weight, changes the file, and uses this weight and another one.
fn meanwhile(happens: impl Fn(&Path)) -> (lapidary::Result<Vec<f32>>, ModelFile) {
    let folder = Folder::new();
    let path = folder.with("model.safetensors", &layers());
    let file = ModelFile::open(&path).unwrap();
    let gpu = open();
    let model = gpu.files().load_model_backed(&file).unwrap();
    let (there, other) = (
        model.get("layer.0.weight").unwrap(),
        model.get("layer.9.weight").unwrap(),
    );
    there.copy().unwrap().force().unwrap();
    let before = there.to_vec::<f32>().unwrap();
    assert_eq!(there.residency(), Residency::Device);
    happens(&path);
    let seen = other.to_vec::<f32>();
    // A tensor on the device stays valid.
    assert!(there.to_vec::<f32>().unwrap() == before);
    (seen, file)
}

#[track_caller]
fn fails_after(happens: impl Fn(&Path), says: &str) {
    let (seen, file) = meanwhile(happens);
    match seen {
        Err(Error::Source {
            message, made_at, ..
        }) => {
            assert!(message.contains(says), "{message}");
            assert!(made_at.contains("layer.9.weight"), "{made_at}");
        }
        other => panic!("{other:?}"),
    }
    let gpu = open();
    let (failed, text) = failure(gpu.files().load_model(&file, |_| {}));
    assert_eq!(failed, ModelFailure::Changed);
    assert!(text.contains(says), "{text}");
}

#[test]
fn a_file_that_is_cut_off_or_grows_or_is_written_to_is_an_error() {
    let changed = |path: &Path| OpenOptions::new().write(true).open(path).unwrap();
    fails_after(
        |path| changed(path).set_len(1 << 20).unwrap(),
        "has 1048576 now",
    );
    fails_after(|path| changed(path).set_len(0).unwrap(), "has 0 now");
    fails_after(
        |path| changed(path).set_len(1 << 25).unwrap(),
        "has 33554432 now",
    );
    let later = |file: &File| {
        // Clocks of file systems are coarse, so the time is set a moment later.
        let modified = file.metadata().unwrap().modified().unwrap();
        file.set_modified(modified + Duration::from_millis(10))
            .unwrap();
    };
    fails_after(
        |path| later(&changed(path)),
        "was written to after it had been opened",
    );
}

#[test]
fn a_file_that_is_removed_or_replaced_is_read_on() {
    let expected = meanwhile(|_| {}).0.unwrap();
    #[cfg(unix)]
    assert!(meanwhile(|path| fs::remove_file(path).unwrap()).0.unwrap() == expected);
    let replaced = meanwhile(|path| {
        let other = path.with_extension("new");
        fs::write(&other, b"something else").unwrap();
        fs::rename(other, path).unwrap();
    });
    assert!(replaced.0.unwrap() == expected);
}

#[test]
fn loading_tells_how_far_it_is() {
    let file = ModelFile::from_bytes(layers()).unwrap();
    let gpu = open();
    let (mut seen, mut names) = (Vec::new(), Vec::new());
    let model = gpu.files().load_model(&file, |at| {
        assert_eq!(at.total_bytes, (LAYERS * SIDE * SIDE * 4) as u64);
        seen.push(at.done_bytes);
        names.push(at.name.to_owned());
        // The function may use the device.
        gpu.ones(&[3], DType::F32).unwrap().force().unwrap();
    });
    assert_eq!(model.unwrap().len(), LAYERS);
    assert_eq!((seen.first(), seen.last()), (Some(&0), Some(&(12 << 20))));
    assert!(seen.is_sorted());
    names.dedup();
    assert_eq!(names, file.names().collect::<Vec<_>>());
}

#[test]
fn the_asynchronous_form_loads_the_same() {
    let file = ModelFile::from_bytes(layers()).unwrap();
    let gpu = open();
    let expected = run(&gpu, &gpu.files().load_model(&file, |_| {}).unwrap());
    let model = pollster::block_on(gpu.files().load_model_async(&file, |_| {})).unwrap();
    assert_eq!(run(&gpu, &model), expected);
    let one = pollster::block_on(gpu.files().load_tensor_async(&file, "layer.1.weight")).unwrap();
    assert_eq!(one.shape(), [SIDE, SIDE]);
}
