//! Compiled pipelines on disk only make a start faster.

use std::fs;
use std::path::{Path, PathBuf};

use lapidary::{DType, Gpu, Options};

/// Opens a device that keeps its pipelines in a folder, computes, and closes it.
fn run(folder: &Path) -> Option<PathBuf> {
    let options = Options {
        cache_folder: Some(folder.to_path_buf()),
        ..Options::from_env().unwrap()
    };
    let gpu = Gpu::open(options).unwrap();
    let keeps = gpu.caps().backend == "vulkan";
    let x = gpu.tensor(&[1.0_f32, 2.0, 3.0], &[3]).unwrap();
    let y = (&x + &x).unwrap().exp().unwrap();
    let expected = [2.0_f32, 4.0, 6.0].map(f32::exp);
    super::assert_close(&y.to_vec().unwrap(), &expected);
    drop((x, y, gpu));
    let mut files = fs::read_dir(folder).into_iter().flatten();
    let file = files.next().map(|file| file.unwrap().path());
    assert!(files.next().is_none(), "one file a device");
    assert_eq!(file.is_some(), keeps);
    file
}

#[test]
fn pipelines_are_kept_and_a_broken_file_is_replaced() {
    let folder = std::env::temp_dir().join(format!("lapidary-caches-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    let Some(file) = run(&folder) else {
        eprintln!("not run: the device keeps no pipelines");
        return;
    };
    let whole = fs::read(&file).unwrap();
    assert!(whole.starts_with(b"lapidary pipelines 1 crc32 "));
    run(&folder);
    for broken in [&b""[..], b"another program's", &whole[..whole.len() / 2]] {
        fs::write(&file, broken).unwrap();
        run(&folder);
        let after = fs::read(&file).unwrap();
        assert_eq!(after.len(), whole.len(), "written anew");
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_file_in_place_of_the_folder_changes_nothing() {
    let folder = std::env::temp_dir().join(format!("lapidary-in-the-way-{}", std::process::id()));
    fs::write(&folder, b"in the way").unwrap();
    let options = Options {
        cache_folder: Some(folder.clone()),
        ..Options::from_env().unwrap()
    };
    let gpu = Gpu::open(options).unwrap();
    assert_eq!(
        gpu.arange(0, 3, 1, DType::F32)
            .unwrap()
            .to_vec::<f32>()
            .unwrap(),
        [0.0, 1.0, 2.0]
    );
    gpu.keep_caches();
    drop(gpu);
    assert_eq!(fs::read(&folder).unwrap(), b"in the way");
    fs::remove_file(&folder).unwrap();
}
