//! State files: what was saved is loaded, by this program or the next one, and other files are
//! refused.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use half::{bf16, f16};
use lapidary::sim::{Fault, FaultKind, SimOptions, Site};
use lapidary::{
    Budget, DType, Element, Error, Gpu, Residency, Source, Tensor, failure::StateFailure,
    files::State,
};

const MIB: usize = 1 << 20;

/// A folder of the test, deleted after it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lapidary-test-state-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("job.state")
    }

    /// The folder contains only this file, and nothing unfinished.
    #[track_caller]
    fn holds_one_file(&self) {
        let names: Vec<_> = fs::read_dir(&self.0).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A device that lags behind and whose memory begins with garbage.
fn open() -> Gpu {
    let options = SimOptions {
        dirty: true,
        ..SimOptions::default()
    };
    Gpu::simulated(options).unwrap().0
}

/// Loads a file in both ways, each on its own device.
fn loaded(folder: &Folder) -> [State; 2] {
    [
        open().files().load_state(folder.file()).unwrap(),
        open().files().load_state_backed(folder.file()).unwrap(),
    ]
}

/// Saves and loads tensors with their shapes, both uploaded and backed.
#[track_caller]
fn check<T: Element>(tensor: &Tensor, gpu: &Gpu) {
    let folder = Folder::new();
    gpu.files()
        .save_state(folder.file(), &[("it", tensor)])
        .unwrap();
    folder.holds_one_file();
    let expected = tensor.to_vec::<T>().unwrap();
    for state in loaded(&folder) {
        let it = state.get("it").unwrap();
        assert_eq!((it.shape(), it.dtype()), (tensor.shape(), tensor.dtype()));
        assert!(it.is_contiguous());
        assert!(it.to_vec::<T>().unwrap() == expected);
        // It can be used in computations too.
        let again = it.copy().unwrap().to_vec::<T>().unwrap();
        assert!(again == expected);
    }
}

#[track_caller]
fn failure<T: std::fmt::Debug>(result: lapidary::Result<T>) -> StateFailure {
    match result {
        Err(Error::State { failure, .. }) => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn elements_of_every_type_and_length_are_loaded_as_they_were_saved() {
    fn check_type<T: Element>(gpu: &Gpu, element: impl Fn(usize) -> T) {
        for len in [0, 1, 2, 3, 4, 5, 4095, 4096, 4097, MIB - 1, MIB + 3] {
            let elements: Vec<T> = (0..len).map(&element).collect();
            check::<T>(&gpu.tensor(&elements, &[len]).unwrap(), gpu);
        }
    }
    let gpu = open();
    check_type(&gpu, |i| i as f32 - 0.5);
    check_type(&gpu, |i| f16::from_f32((i % 1000) as f32));
    check_type(&gpu, |i| i as i32 - 8);
    check_type(&gpu, |i| u32::MAX - i as u32);
    check_type(&gpu, |i| i as u8);
    check_type(&gpu, |i| i as i8);
    check_type(&gpu, |i| bf16::from_f32((i % 1000) as f32));
    check_type(&gpu, |i| i % 3 == 0);
}

#[test]
fn tensors_larger_than_a_part_are_loaded_as_they_were_saved() {
    let gpu = open();
    let elements: Vec<u32> = (0..5 * MIB as u32 + 1).collect();
    let t = gpu.tensor(&elements, &[elements.len()]).unwrap();
    check::<u32>(&t, &gpu);
}

#[test]
fn views_are_saved_as_what_they_show() {
    let gpu = open();
    let t = gpu.arange(0, 2 * 3 * 5, 1, DType::I32).unwrap();
    let t = t.reshape(&[2, 3, 5]).unwrap();
    for view in [
        t.permute(&[2, 0, 1]).unwrap(),
        t.flip(&[0, 2]).unwrap(),
        t.slice(2, 1, None, 2).unwrap(),
        t.select(1, 1).unwrap(),
        t.slice(0, 1, 1, 1).unwrap(),
        t.select(0, 1)
            .unwrap()
            .select(0, 2)
            .unwrap()
            .select(0, 3)
            .unwrap(),
        t.slice(1, 0, 1, 1)
            .unwrap()
            .broadcast_to(&[2, 4, 5])
            .unwrap(),
    ] {
        check::<i32>(&view, &gpu);
    }
}

#[test]
fn a_view_whose_elements_lie_far_apart_is_gathered_by_the_device() {
    let gpu = open();
    let (rows, columns) = (1000, 9001);
    let t = gpu
        .arange(0, (rows * columns) as i32, 1, DType::I32)
        .unwrap();
    let t = t.reshape(&[rows, columns]).unwrap();
    check::<i32>(&t.t().unwrap(), &gpu);
}

#[test]
fn many_tensors_come_back_under_their_names_in_order() {
    let gpu = open();
    let folder = Folder::new();
    let names: Vec<String> = (0..1000)
        .map(|i| format!("layer.{}", i * 7919 % 1000))
        .collect();
    let tensors: Vec<Tensor> = (0..1000).map(|i| gpu.tensor(&[i], &[]).unwrap()).collect();
    let named: Vec<_> = names.iter().map(String::as_str).zip(&tensors).collect();
    gpu.files().save_state(folder.file(), &named).unwrap();
    for state in loaded(&folder) {
        assert_eq!((state.len(), state.is_empty()), (1000, false));
        assert!(state.names().eq(names.iter().map(String::as_str)));
        for (i, name) in names.iter().enumerate() {
            assert_eq!(state.get(name).unwrap().item::<i32>().unwrap(), i as i32);
        }
        assert_eq!(failure(state.get("layer.1000")), StateFailure::Name);
        for (i, (name, tensor)) in state.into_iter().enumerate() {
            assert_eq!(name, names[i]);
            assert_eq!(tensor.tag().name(), Some(&*names[i]));
        }
    }
}

#[test]
fn a_state_of_nothing_is_a_state() {
    let folder = Folder::new();
    open().files().save_state(folder.file(), &[]).unwrap();
    assert!(loaded(&folder).iter().all(State::is_empty));
}

#[test]
fn names_are_just_names() {
    let gpu = open();
    let folder = Folder::new();
    let long = "ä".repeat(32 << 10);
    let names = [
        "",
        "\0",
        "../../etc/passwd",
        "\u{202e}txt.exe",
        "a\nb",
        "a",
        "A",
        &long,
    ];
    let tensors: Vec<Tensor> = (0..8).map(|i| gpu.tensor(&[i], &[1]).unwrap()).collect();
    let named: Vec<_> = names.into_iter().zip(&tensors).collect();
    gpu.files().save_state(folder.file(), &named).unwrap();
    for state in loaded(&folder) {
        assert!(state.names().eq(names));
        for (i, name) in names.into_iter().enumerate() {
            assert_eq!(state.get(name).unwrap().item::<i32>().unwrap(), i as i32);
        }
        let error = state.get("\u{202e}\0").unwrap_err().to_string();
        assert!(!error.contains(['\u{202e}', '\0']), "{error:?}");
    }
    let t = &tensors[0];
    for names in [["x", "x"], ["x", &(long.clone() + "ä")]] {
        let saved = gpu
            .files()
            .save_state(folder.file(), &names.map(|name| (name, t)));
        assert_eq!(failure(saved), StateFailure::Name);
    }
    assert_eq!(loaded(&folder)[0].len(), 8, "the old file is still there");
    folder.holds_one_file();
}

#[test]
fn what_was_evicted_is_saved_from_where_it_is() {
    for budget in [
        Budget::default(),
        Budget {
            host_bytes: Some(0),
            ..Budget::default()
        },
    ] {
        let gpu = open();
        gpu.memory().set_budget(budget).unwrap();
        let elements: Vec<u32> = (0..3 * MIB as u32).collect();
        let t = gpu.tensor(&elements, &[elements.len()]).unwrap();
        t.evict().unwrap();
        let evicted = t.residency();
        assert!(
            matches!(evicted, Residency::Host | Residency::Disk),
            "{evicted:?}"
        );
        check::<u32>(&t, &gpu);
        assert_eq!(t.residency(), evicted);
    }
    let gpu = open();
    let bytes: Arc<[u8]> = (0..3 * MIB).map(|i| i as u8).collect();
    let backed = gpu
        .backed(Source::bytes(bytes), &[3 * MIB], DType::U8)
        .unwrap();
    check::<u8>(&backed, &gpu);
    assert_eq!(backed.residency(), Residency::Backed);
}

#[test]
fn what_is_queued_is_in_the_state_and_what_comes_later_is_not() {
    let gpu = open();
    let folder = Folder::new();
    let t = gpu.tensor(&[1.0_f32, 2.0], &[2]).unwrap();
    let sum = (&t + 1.0).unwrap();
    gpu.files()
        .save_state(folder.file(), &[("t", &t), ("sum", &sum)])
        .unwrap();
    t.write(&[7.0_f32, 7.0]).unwrap();
    for state in loaded(&folder) {
        assert_eq!(state.get("t").unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0]);
        assert_eq!(
            state.get("sum").unwrap().to_vec::<f32>().unwrap(),
            [2.0, 3.0]
        );
    }
}

#[test]
fn a_job_that_works_on_its_own_backed_state_may_save_over_it() {
    let folder = Folder::new();
    let file = folder.file();
    let gpu = open();
    let ones = gpu.ones(&[300_000], DType::F32).unwrap();
    let kept = gpu.full(&[300_000], 5, DType::U8).unwrap();
    gpu.files()
        .save_state(&file, &[("x", &ones), ("kept", &kept)])
        .unwrap();
    for round in 2..6 {
        let gpu = open();
        let state = gpu.files().load_state_backed(&file).unwrap();
        let kept = state.get("kept").unwrap();
        let x = (state.get("x").unwrap() + 1.0).unwrap();
        gpu.files()
            .save_state(&file, &[("x", &x), ("kept", &kept)])
            .unwrap();
        assert_eq!(kept.residency(), Residency::Backed);
        assert_eq!(x.to_vec::<f32>().unwrap(), vec![round as f32; 300_000]);
        // The file has no name any more and is still read.
        assert_eq!(kept.to_vec::<u8>().unwrap(), vec![5; 300_000]);
        folder.holds_one_file();
    }
    for state in loaded(&folder) {
        assert_eq!(
            state.get("x").unwrap().to_vec::<f32>().unwrap(),
            vec![5.0; 300_000]
        );
    }
}

#[test]
fn a_backed_state_larger_than_the_budget_is_used_tensor_by_tensor() {
    let folder = Folder::new();
    let gpu = open();
    let named: Vec<(String, Tensor)> = (0..8)
        .map(|i| (i.to_string(), gpu.full(&[MIB], i, DType::F32).unwrap()))
        .collect();
    let named: Vec<_> = named.iter().map(|(name, t)| (name.as_str(), t)).collect();
    gpu.files().save_state(folder.file(), &named).unwrap();
    let small = open();
    small
        .memory()
        .set_budget(Budget::device(24 * MIB as u64))
        .unwrap();
    let state = small.files().load_state_backed(folder.file()).unwrap();
    for _ in 0..2 {
        for i in 0..8 {
            let t = state.get(&i.to_string()).unwrap();
            let sum = (t + 1.0).unwrap().to_vec::<f32>().unwrap();
            assert!(sum == vec![i as f32 + 1.0; MIB]);
        }
    }
    assert!(small.memory().stats().reserved_bytes.now <= 24 * MIB as u64);
}

#[test]
fn a_backed_file_that_somebody_writes_into_is_an_error_and_never_other_bytes() {
    use std::io::{Seek, SeekFrom, Write};
    let folder = Folder::new();
    let gpu = open();
    let t = gpu.zeros(&[2 * MIB], DType::U8).unwrap();
    gpu.files().save_state(folder.file(), &[("t", &t)]).unwrap();
    let state = gpu.files().load_state_backed(folder.file()).unwrap();
    let mut file = fs::OpenOptions::new()
        .write(true)
        .open(folder.file())
        .unwrap();
    file.seek(SeekFrom::Start(4096 + MIB as u64 + 10)).unwrap();
    file.write_all(&[1]).unwrap();
    let t = state.get("t").unwrap();
    let error = t.to_vec::<u8>().unwrap_err();
    assert!(matches!(error, Error::Source { .. }), "{error}");
    // The undamaged MiB is still read.
    let sound = t.slice(0, None, MIB as isize, 1).unwrap();
    assert!(sound.to_vec::<u8>().unwrap() == vec![0; MIB]);
    for result in [
        gpu.files().load_state(folder.file()),
        gpu.files().load_state_backed(folder.file()),
    ] {
        assert_eq!(failure(result), StateFailure::Damaged);
    }
}

#[test]
fn tensors_that_cannot_be_read_leave_the_old_file() {
    let folder = Folder::new();
    let (gpu, sim) = Gpu::simulated(SimOptions::default()).unwrap();
    let good = gpu.tensor(&[1, 2, 3], &[3]).unwrap();
    gpu.files()
        .save_state(folder.file(), &[("good", &good)])
        .unwrap();

    let foreign = open().zeros(&[1], DType::U8).unwrap();
    let saved = gpu
        .files()
        .save_state(folder.file(), &[("x", &good), ("y", &foreign)]);
    assert!(matches!(saved, Err(Error::Foreign { .. })), "{saved:?}");

    sim.arm(Fault::once(Site::Submit, 1, FaultKind::Lost));
    let more = (&good + 1).unwrap();
    let saved = gpu
        .files()
        .save_state(folder.file(), &[("x", &more), ("y", &good)]);
    assert!(matches!(saved, Err(Error::DeviceLost { .. })), "{saved:?}");

    folder.holds_one_file();
    for state in loaded(&folder) {
        assert_eq!(
            state.get("good").unwrap().to_vec::<i32>().unwrap(),
            [1, 2, 3]
        );
    }
}

#[test]
fn a_tensor_that_another_thread_writes_to_is_not_saved_half() {
    let folder = Folder::new();
    let gpu = open();
    let t = gpu.zeros(&[5 * MIB], DType::U32).unwrap();
    gpu.files().save_state(folder.file(), &[("t", &t)]).unwrap();
    let done = AtomicBool::new(false);
    let mut refused = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut value = 0;
            while !done.load(Ordering::Acquire) {
                value += 1;
                t.fill_(value).unwrap();
                gpu.flush().unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        for _ in 0..3 {
            match gpu.files().save_state(folder.file(), &[("t", &t)]) {
                Ok(()) => {}
                Err(error) => {
                    assert_eq!(failure::<()>(Err(error)), StateFailure::Changed);
                    refused += 1;
                }
            }
            let state = open().files().load_state(folder.file()).unwrap();
            let values = state.get("t").unwrap().to_vec::<u32>().unwrap();
            assert!(values.iter().all(|&value| value == values[0]));
        }
        done.store(true, Ordering::Release);
    });
    println!("{refused} of 3 were refused");
    folder.holds_one_file();
}

#[test]
fn a_tensor_beyond_the_device_that_loads_is_an_error() {
    let folder = Folder::new();
    let gpu = open();
    let t = gpu.zeros(&[2 * MIB], DType::U8).unwrap();
    gpu.files().save_state(folder.file(), &[("t", &t)]).unwrap();
    let options = SimOptions {
        max_buffer_bytes: MIB as u64,
        ..SimOptions::default()
    };
    let (small, _) = Gpu::simulated(options).unwrap();
    for result in [
        small.files().load_state(folder.file()),
        small.files().load_state_backed(folder.file()),
    ] {
        assert!(matches!(result, Err(Error::NeverFits { .. })), "{result:?}");
    }
}

#[test]
fn a_tensor_that_is_written_piece_by_piece_meanwhile_is_saved_whole_or_not_at_all() {
    const LEN: usize = 1 << 20;
    let (gpu, _sim) = Gpu::simulated(SimOptions::default()).unwrap();
    // Each write needs many pieces of staging.
    gpu.memory().set_budget(Budget::device(8 << 20)).unwrap();
    let tensor = gpu.full(&[LEN], 0, DType::F32).unwrap();
    let folder = Folder::new();
    let mut saved = 0;
    for round in 1..=40 {
        let save = || gpu.files().save_state(folder.file(), &[("it", &tensor)]);
        let values = vec![round as f32; LEN];
        let result = std::thread::scope(|scope| {
            let writer = scope.spawn(|| tensor.write(&values).unwrap());
            std::thread::sleep(Duration::from_micros(100 * (round % 10)));
            let result = save();
            writer.join().unwrap();
            result
        });
        match result {
            Ok(()) => saved += 1,
            Err(error) => {
                assert_eq!(failure::<()>(Err(error)), StateFailure::Changed);
                save().unwrap();
            }
        }
        let state = open().files().load_state(folder.file()).unwrap();
        let values = state.get("it").unwrap().to_vec::<f32>().unwrap();
        let torn = values.iter().find(|value| **value != values[0]);
        assert_eq!(torn, None, "beside {}", values[0]);
    }
    println!("{saved} of 40 states were saved at once");
}
