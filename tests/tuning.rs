//! Variants that are tried at first use. Results do not change, no trial disturbs other work, and
//! none happens twice.

mod disturbed;

use std::path::{Path, PathBuf};

use lapidary::sim::{SimHandle, SimOptions};
use lapidary::{
    Budget, DType, Gpu, Options, Result, Tensor,
    adapter::{AdapterKind, Tune},
};

/// A folder that is deleted at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let unique = format!("lapidary-tuned-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(unique);
        let _ = std::fs::remove_dir_all(&folder);
        Folder(folder)
    }

    /// The file with the results. Nothing else of tuning may be in the folder.
    fn file(&self) -> PathBuf {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut files: Vec<PathBuf> = paths
            .filter(|path| path.to_string_lossy().contains("tuning_"))
            .collect();
        assert_eq!(files.len(), 1, "{files:?}");
        files.remove(0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn options(tune: Tune, folder: Option<&Path>) -> Options {
    Options {
        // Ignores the environment's settings of both.
        budget: Some(Budget::default()),
        tune: Some(tune),
        cache_folder: folder.map(Path::to_path_buf),
        ..Options::default()
    }
}

fn simulated(device: SimOptions, options: Options) -> (Gpu, SimHandle) {
    let device = SimOptions {
        dirty: true,
        compact_always: Some(false),
        ..device
    };
    Gpu::simulated_with(device, options).unwrap()
}

/// Small integers. The sums of their products are exact.
fn whole(gpu: &Gpu, shape: &[usize]) -> Result<Tensor> {
    let len = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..len).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
    gpu.tensor(&values, shape)
}

/// Exact results and rounded results.
type Results = (Vec<Vec<f32>>, Vec<Vec<f32>>);

/// Calls of each family that are large enough for trials, with exact and with rounded results.
fn work(gpu: &Gpu) -> Result<Results> {
    let (a, b) = (whole(gpu, &[64, 66])?, whole(gpu, &[66, 64])?);
    let x = whole(gpu, &[64, 1024])?;
    let exact = [
        a.matmul(&b)?,
        a.matmul(&whole(gpu, &[72, 66])?.t()?)?,
        a.cast(DType::F16)?
            .matmul(&b.cast(DType::F16)?)?
            .cast(DType::F32)?,
        x.sum(&[1])?,
        x.sum(&[0])?,
        x.max(&[0, 1])?,
    ];
    let rounded = [
        x.softmax(1)?,
        x.layer_norm(&[1024], None, None, 1e-5)?,
        x.var(&[1], 1)?,
    ];
    let read = |of: &[Tensor]| of.iter().map(Tensor::to_vec::<f32>).collect::<Result<_>>();
    Ok((read(&exact)?, read(&rounded)?))
}

#[track_caller]
fn assert_same(got: &Results, expected: &Results) {
    assert_eq!(got.0, expected.0);
    for (got, expected) in got.1.iter().flatten().zip(expected.1.iter().flatten()) {
        let close = (got - expected).abs() <= 1e-5 * expected.abs().max(1.0);
        assert!(close, "{got}, not {expected}");
    }
}

/// Runs trials on one device and reads their results with another.
fn check(name: &str, open: impl Fn(Options) -> Gpu) {
    let folder = Folder::new(name);
    let by_rule = open(options(Tune::Off, Some(&folder.0)));
    let expected = work(&by_rule).unwrap();
    assert_eq!(by_rule.kernels().tuned(), Default::default());

    let gpu = open(options(Tune::FirstUse, Some(&folder.0)));
    assert_same(&work(&gpu).unwrap(), &expected);
    let found = gpu.kernels().tuned();
    assert!(found.trials > 0, "{found:?}");
    assert!(found.never.is_empty(), "{found:?}");
    assert_same(&work(&gpu).unwrap(), &expected);
    assert_eq!(
        gpu.kernels().tuned().trials,
        found.trials,
        "nothing is tried twice"
    );

    let text = std::fs::read_to_string(folder.file()).unwrap();
    assert!(text.starts_with("lapidary tuning 1 crc32 "), "{text}");
    for (problem, variant) in &found.best {
        assert!(
            text.contains(&format!("best {problem} = {variant}\n")),
            "{text}"
        );
    }
    let later = open(options(Tune::FirstUse, Some(&folder.0)));
    // Only problems that were not tried for lack of time are tried now. Here they are not, because
    // the time is used up.
    let (problem, _) = &found.best[0];
    assert!(problem.starts_with("matmul f32") || problem.starts_with("matmul f16"));
    let (a, b) = (
        whole(&later, &[64, 66]).unwrap(),
        whole(&later, &[66, 64]).unwrap(),
    );
    assert_eq!(
        a.matmul(&b).unwrap().to_vec::<f32>().unwrap(),
        expected.0[0]
    );
    assert_eq!(
        later.kernels().tuned().trials,
        0,
        "{:?}",
        later.kernels().tuned()
    );
    assert_eq!(later.kernels().tuned().best, found.best);
    println!(
        "{name}: {} trials in {:?}\n{text}",
        found.trials, found.time
    );
}

#[test]
fn an_adapter_finds_the_same_results_and_keeps_what_it_found() {
    check("adapter", |options| Gpu::open(options).unwrap());
}

#[test]
fn a_simulated_device_goes_through_the_motions() {
    for kind in [AdapterKind::Discrete, AdapterKind::Cpu] {
        check(&format!("{kind:?}"), |options| {
            let device = SimOptions {
                kind,
                ..SimOptions::default()
            };
            simulated(device, options).0
        });
    }
}

#[test]
#[ignore = "the next test runs it, in a process of its own"]
fn a_child_that_is_told_by_its_environment() {
    let said = Options {
        tune: None,
        ..options(Tune::Off, None)
    };
    match Gpu::simulated_with(SimOptions::default(), said) {
        Ok((gpu, _)) => {
            let a = whole(&gpu, &[64, 64]).unwrap();
            a.matmul(&a).unwrap().force().unwrap();
            println!("it has tried: {}", gpu.kernels().tuned().trials > 0);
        }
        Err(error) => println!("it is refused: {error}"),
    }
}

#[test]
fn the_environment_decides_where_the_options_do_not() {
    let cases = [
        (None, "it has tried: false"),
        (Some("off"), "it has tried: false"),
        (Some("0"), "it has tried: false"),
        (Some("first-use"), "it has tried: true"),
        (Some(""), "LAPIDARY_TUNE"),
        (Some("always"), "LAPIDARY_TUNE"),
    ];
    for (said, expected) in cases {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.env_remove("LAPIDARY_TUNE");
        child.envs(said.map(|said| ("LAPIDARY_TUNE", said)));
        let name = "tuning::a_child_that_is_told_by_its_environment";
        let output = child
            .args(["--ignored", "--exact", name, "--nocapture"])
            .output();
        let output = String::from_utf8(output.unwrap().stdout).unwrap();
        assert!(output.contains(expected), "{said:?}: {output}");
    }
}

#[test]
fn small_problems_and_those_without_variants_are_not_tried() {
    let (gpu, _) = simulated(SimOptions::default(), options(Tune::FirstUse, None));
    let a = whole(&gpu, &[32, 32]).unwrap();
    a.matmul(&a).unwrap().softmax(1).unwrap().force().unwrap();
    let ints = a.cast(DType::I32).unwrap();
    let wide = ints.repeat(&[4, 4]).unwrap();
    wide.matmul(&wide).unwrap().force().unwrap();
    assert_eq!(gpu.kernels().tuned(), Default::default());
}

#[test]
fn a_file_that_names_nonsense_does_no_harm() {
    let folder = Folder::new("nonsense");
    let open = || {
        simulated(
            SimOptions::default(),
            options(Tune::FirstUse, Some(&folder.0)),
        )
        .0
    };
    let gpu = open();
    let expected = work(&gpu).unwrap();
    drop(gpu);
    let text = std::fs::read_to_string(folder.file()).unwrap();
    // With a valid checksum, as if the file had not been changed.
    let body: String = text.lines().skip(1).fold(String::new(), |body, line| {
        let line = match line.split_once(" = ") {
            Some((problem, _)) => format!("{problem} = matmul Workgroup {{ rows: 200 }}"),
            None => line.to_owned(),
        };
        body + &line + "\n"
    });
    let crc = crc32(body.as_bytes());
    let head = format!("lapidary tuning 1 crc32 {crc:08x}\n");
    std::fs::write(folder.file(), head + &body).unwrap();
    let gpu = open();
    assert!(
        gpu.kernels()
            .tuned()
            .best
            .iter()
            .all(|(_, variant)| variant.contains("200"))
    );
    assert_same(&work(&gpu).unwrap(), &expected);
    assert!(gpu.kernels().tuned().trials > 0, "it is found out anew");
}

/// The checksum of the file's first line, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| match crc & 1 {
            0 => crc >> 1,
            _ => crc >> 1 ^ 0xedb8_8320,
        })
    })
}
