//! Other programs can read saved files. A new file replaces the old one only when it is complete.

use std::collections::HashMap;
use std::fs;

use half::f16;
use lapidary::sim::{FileFault, FileFaultKind, FileSite, Repeat};
use lapidary::{Budget, DType, Error, Gpu, Tensor, failure::ModelFailure, files::ModelFile};

use crate::model::files::{Folder, failure, open, open_with};
use crate::model::loads::GOLDEN;

/// The tensors of the golden file.
fn golden(gpu: &Gpu) -> Vec<(&'static str, Tensor)> {
    vec![
        ("mask", gpu.scalar(true).unwrap()),
        ("b", gpu.tensor(&[1, 1], &[2]).unwrap()),
        ("empty", gpu.tensor::<f16>(&[], &[0, 4]).unwrap()),
        ("a", gpu.tensor(&[0.5_f32, 1.5, 2.5], &[1, 3]).unwrap()),
    ]
}

fn named<'a>(tensors: &'a [(&'a str, Tensor)]) -> Vec<(&'a str, &'a Tensor)> {
    tensors
        .iter()
        .map(|(name, tensor)| (*name, tensor))
        .collect()
}

#[test]
fn what_is_saved_is_byte_for_byte_what_python_saves() {
    let (folder, gpu) = (Folder::new(), open());
    let path = folder.file("saved.safetensors");
    let tensors = golden(&gpu);
    gpu.files()
        .save_model(&path, &named(&tensors), &[("format", "pt")])
        .unwrap();
    assert_eq!(fs::read(&path).unwrap(), GOLDEN);
    assert_eq!(folder.names(), ["saved.safetensors"]);
}

/// People give model files to others, so the default permissions apply.
#[cfg(unix)]
#[test]
fn others_may_read_it_where_they_may_read_other_files() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, gpu) = (Folder::new(), open());
    let tensors = golden(&gpu);
    let mode = |name: &str| {
        fs::metadata(folder.file(name))
            .unwrap()
            .permissions()
            .mode()
    };
    fs::write(folder.file("other"), "text").unwrap();
    gpu.files()
        .save_model(folder.file("saved"), &named(&tensors), &[])
        .unwrap();
    assert_eq!(mode("saved"), mode("other"));
}

#[test]
fn views_and_large_tensors_are_saved_as_what_they_show() {
    let (folder, gpu) = (Folder::new(), open());
    let path = folder.file("saved.safetensors");
    let large = gpu.arange(0, 3 << 20, 1, DType::I32).unwrap();
    let view = large
        .slice(0, 0, Some(35), 1)
        .unwrap()
        .reshape(&[5, 7])
        .unwrap();
    let view = view.t().unwrap();
    gpu.files()
        .save_model(&path, &[("large", &large), ("view", &view)], &[])
        .unwrap();
    let file = ModelFile::open(&path).unwrap();
    assert!(file.metadata().is_empty());
    let model = open().files().load_model_backed(&file).unwrap();
    let loaded = model
        .expect("view", &[7, 5])
        .unwrap()
        .to_vec::<i32>()
        .unwrap();
    assert_eq!(loaded, view.to_vec::<i32>().unwrap());
    assert!(model.get("large").unwrap().to_vec::<i32>().unwrap() == large.to_vec::<i32>().unwrap());
    // The format's own reader accepts it too.
    let bytes = fs::read(&path).unwrap();
    let theirs = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(theirs.tensor("view").unwrap().shape(), [7, 5]);
}

#[test]
fn a_model_that_is_backed_by_a_file_can_be_saved_over_it() {
    let (folder, gpu) = (Folder::new(), open());
    let path = folder.with("model.safetensors", GOLDEN);
    let model = gpu
        .files()
        .load_model_backed(&ModelFile::open(&path).unwrap())
        .unwrap();
    let a = model.get("a").unwrap();
    let doubled = (&a + &a).unwrap();
    gpu.files()
        .save_model(&path, &[("a", &doubled)], &[])
        .unwrap();
    // The previous file can still be read through the open model.
    assert_eq!(model.get("b").unwrap().to_vec::<i32>().unwrap(), [1, 1]);
    let again = open()
        .files()
        .load_model(&ModelFile::open(&path).unwrap(), |_| {})
        .unwrap();
    assert_eq!(
        again.get("a").unwrap().to_vec::<f32>().unwrap(),
        [1.0, 3.0, 5.0]
    );
}

#[test]
fn what_cannot_be_saved_leaves_what_was_there() {
    let (folder, gpu) = (Folder::new(), open());
    let path = folder.with("model.safetensors", GOLDEN);
    let a = gpu.ones(&[2], DType::F32).unwrap();
    let twice = [("a", &a), ("a", &a)];
    assert_eq!(
        failure(gpu.files().save_model(&path, &twice, &[])).0,
        ModelFailure::Name
    );
    let reserved = [("__metadata__", &a)];
    assert_eq!(
        failure(gpu.files().save_model(&path, &reserved, &[])).0,
        ModelFailure::Name
    );
    let notes = [("a", "b"), ("a", "c")];
    assert_eq!(
        failure(gpu.files().save_model(&path, &[("a", &a)], &notes)).0,
        ModelFailure::Name
    );
    let foreign = open().ones(&[2], DType::F32).unwrap();
    let saved = gpu.files().save_model(&path, &[("a", &foreign)], &[]);
    assert!(matches!(saved, Err(Error::Foreign { .. })));
    let missing = folder.file("none").join("model.safetensors");
    assert_eq!(
        failure(gpu.files().save_model(missing, &[("a", &a)], &[])).0,
        ModelFailure::NotFound
    );
    assert_eq!(fs::read(&path).unwrap(), GOLDEN);
    assert_eq!(folder.names(), ["model.safetensors"]);
}

#[test]
fn names_and_notes_of_every_kind_come_back() {
    let (folder, gpu) = (Folder::new(), open());
    let path = folder.file("saved.safetensors");
    let names = ["", "a\"b\\", "a\0\n", "記憶", "\u{202e}x", "../x"];
    let one = gpu.ones(&[1], DType::U8).unwrap();
    let tensors: Vec<_> = names.iter().map(|name| (*name, &one)).collect();
    let notes: Vec<_> = names.iter().map(|name| (*name, "\u{0}\"\u{7f}")).collect();
    gpu.files().save_model(&path, &tensors, &notes).unwrap();
    let file = ModelFile::open(&path).unwrap();
    assert!(names.iter().all(|name| file.describe(name).is_ok()));
    let notes = notes.into_iter().map(|(key, text)| (key, Some(text)));
    let expected: HashMap<_, _> = notes.collect();
    let found = file.metadata().iter();
    let found: HashMap<_, _> = found
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn whatever_call_fails_the_old_file_or_the_new_one_is_there() {
    for kind in [FileFaultKind::DiskFull, FileFaultKind::Io] {
        let folder = Folder::new();
        let path = folder.file("model.safetensors");
        let (gpu, sim) = open_with(Budget::default());
        let tensors = golden(&gpu);
        let one = gpu.ones(&[3], DType::F32).unwrap();
        let mut failed = 0;
        for nth in 1.. {
            gpu.files()
                .save_model(&path, &[("one", &one)], &[])
                .unwrap();
            let old = fs::read(&path).unwrap();
            let struck = sim.files().struck();
            sim.files().arm(FileFault {
                site: FileSite::AnyCall,
                nth,
                repeat: Repeat::Once,
                kind,
            });
            let saved = gpu
                .files()
                .save_model(&path, &named(&tensors), &[("format", "pt")]);
            assert_eq!(folder.names(), ["model.safetensors"]);
            let found = fs::read(&path).unwrap();
            match saved {
                Ok(()) => assert_eq!(found, GOLDEN),
                Err(error) => {
                    failed += 1;
                    let is_in_place = error.to_string().contains("the new file is in place");
                    let expected = if is_in_place { GOLDEN } else { &old };
                    assert_eq!(found, expected, "{error}");
                }
            }
            if sim.files().struck() == struck {
                break;
            }
        }
        assert!(failed > 5, "{failed}");
    }
}
