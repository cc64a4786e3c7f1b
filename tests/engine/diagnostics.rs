//! Planted bugs that diagnostics must find, and correct programs without findings.

use lapidary::sim::{Fault, FaultKind, SimHandle, SimOptions, Site};
use lapidary::{
    Budget, DType, Error, Gpu, Kernel, Options, Tensor,
    diagnostics::{Diagnostics, Finding},
};

use crate::engine::{ended, numbers, options};

/// A simulated device with diagnostics.
fn open(diagnostics: Diagnostics) -> (Gpu, SimHandle) {
    open_within(diagnostics, Budget::default())
}

fn open_within(diagnostics: Diagnostics, budget: Budget) -> (Gpu, SimHandle) {
    open_as(None, diagnostics, budget)
}

fn open_as(host_heap: Option<bool>, diagnostics: Diagnostics, budget: Budget) -> (Gpu, SimHandle) {
    let device = SimOptions {
        max_binding_bytes: 1 << 20,
        ..options()
    };
    let options = Options {
        diagnostics: Some(diagnostics),
        budget: Some(budget),
        host_heap,
        ..Options::from_env().unwrap()
    };
    Gpu::simulated_with(device, options).unwrap()
}

/// Writes `first..first + 4 * groups` numbers to `y`, without a check of its length.
const COUNT: &str = "
    @group(0) @binding(0) var<storage, read_write> y: array<f32>;
    @compute @workgroup_size(4)
    fn count(@builtin(global_invocation_id) id: vec3<u32>) { y[id.x] = f32(id.x); }
";

/// The kernel with a reference kernel that writes `written` numbers.
fn count(gpu: &Gpu, written: usize) -> Kernel {
    let kernel = Kernel::new(gpu, COUNT).unwrap();
    kernel.with_reference(move |call| call.write("y", &numbers(0, written)))
}

fn counted(kernel: &Kernel, len: usize) -> Tensor {
    let call = kernel.call().out("y", &[len], DType::F32);
    call.groups([8, 1, 1]).run_one().unwrap()
}

/// The only finding.
#[track_caller]
fn one(gpu: &Gpu) -> Finding {
    let mut found = gpu.diagnostics().check().unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn a_users_kernel_that_writes_past_the_end_is_named_with_the_tensor() {
    // An odd length too: three more elements are in the padding. Writing them is harmless but is
    // found.
    for (len, written, words) in [(12, 13, 1), (9, 12, 3), (9, 30, 21), (12, 76, 64)] {
        let (gpu, sim) = open(Diagnostics::all());
        let kernel = count(&gpu, written);
        let other = gpu.ones(&[64], DType::F32).unwrap();
        let y = counted(&kernel, len).named("counted");
        assert_eq!(y.to_vec::<f32>().unwrap(), numbers(0, len));
        let found = one(&gpu);
        let Finding::Overrun {
            made_at,
            first_byte,
            end_byte,
            words: counted,
            suspects,
            ..
        } = &found
        else {
            panic!("{found}");
        };
        assert_eq!(*counted, words, "{found}");
        assert_eq!(
            (*first_byte, *end_byte),
            (4 * len as u64, 4 * (len as u64 + words))
        );
        assert!(
            made_at.as_ref().unwrap().file().ends_with("diagnostics.rs"),
            "{found}"
        );
        assert_eq!(suspects[..], ["the kernel `count`"]);
        // The neighbour is intact, and the finding is reported only once.
        assert_eq!(other.to_vec::<f32>().unwrap(), [1.0; 64]);
        assert_eq!(gpu.diagnostics().check().unwrap(), []);
        drop((y, other, kernel));
        ended(gpu, &sim);
    }
}

#[test]
fn a_users_kernel_that_stays_within_is_not_suspected_and_sees_no_canary() {
    let (gpu, sim) = open(Diagnostics::all());
    let kernel = Kernel::new(
        &gpu,
        "@group(0) @binding(0) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(4)
        fn double(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < arrayLength(&y) { y[id.x] *= 2.0; }
        }",
    );
    let kernel = kernel.unwrap().with_reference(|call| {
        let doubled: Vec<f32> = call.read::<f32>("y").iter().map(|y| 2.0 * y).collect();
        call.write("y", &doubled);
    });
    for len in [1, 3, 4, 50] {
        let y = gpu.tensor(&numbers(0, len), &[len]).unwrap();
        kernel
            .call()
            .bind("y", &y)
            .groups([50, 1, 1])
            .run()
            .unwrap();
        let doubled: Vec<f32> = numbers(0, len).iter().map(|y| 2.0 * y).collect();
        assert_eq!(y.to_vec::<f32>().unwrap(), doubled);
    }
    assert_eq!(gpu.diagnostics().check().unwrap(), []);
    drop(kernel);
    ended(gpu, &sim);
}

#[test]
fn what_a_kernel_left_unwritten_is_found_once_it_is_read() {
    let (gpu, sim) = open(Diagnostics::all());
    let kernel = count(&gpu, 10);
    let y = counted(&kernel, 16);
    assert_eq!(gpu.diagnostics().check().unwrap(), [], "nobody has read it");
    let sum = y.sum_all().unwrap();
    let expected: Vec<f32> = [numbers(0, 10), vec![0.0; 6]].concat();
    assert_eq!(y.to_vec::<f32>().unwrap(), expected);
    assert_eq!(sum.to_vec::<f32>().unwrap(), [45.0]);
    let found = one(&gpu);
    let Finding::Unwritten {
        kernel: name,
        words,
        of_words,
        first_word,
        read_by,
        ..
    } = &found
    else {
        panic!("{found}");
    };
    assert_eq!((*words, *of_words, *first_word), (6, 16, 10), "{found}");
    assert_eq!((name.as_str(), read_by.as_str()), ("count", "`sum`"));
    drop((y, sum, kernel));
    ended(gpu, &sim);
}

#[test]
fn a_kernel_that_reads_its_output_finds_zeros_there() {
    let (gpu, sim) = open(Diagnostics::all());
    let kernel = Kernel::new(
        &gpu,
        "@group(0) @binding(0) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(1) fn more() { y[0] += 1.0; }",
    );
    let kernel = kernel.unwrap().with_reference(|call| {
        let y = call.read::<f32>("y");
        call.write("y", &[y[0] + 1.0]);
    });
    let call = kernel.call().out("y", &[3], DType::F32).groups([1, 1, 1]);
    let y = call.run_one().unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [1.0, 0.0, 0.0]);
    assert_eq!(gpu.diagnostics().check().unwrap(), []);
    drop((y, kernel));
    ended(gpu, &sim);
}

#[test]
fn the_operation_that_makes_the_first_nan_is_named() {
    let (gpu, sim) = open(Diagnostics::all());
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        let x = gpu
            .tensor(&[4.0_f32, -1.0, 9.0], &[3])
            .unwrap()
            .cast(dtype)
            .unwrap();
        let a = (&x + 1.0).unwrap();
        let b = (&a * 2.0).unwrap();
        let c = (&b - 5.0).unwrap().sqrt().unwrap();
        let d = (&c + 1.0).unwrap();
        let e = d.exp().unwrap();
        e.force().unwrap();
        let found = one(&gpu);
        let Finding::NonFinite {
            operation,
            dtype: of,
            elements,
            nans,
            infinities,
            first_element,
            of_infinity,
            ..
        } = &found
        else {
            panic!("{found}");
        };
        assert_eq!(operation.as_deref(), Some("sqrt"), "{found}");
        assert_eq!((*nans, *infinities, *first_element), (1, 0, 1), "{found}");
        assert_eq!((*of, *elements, *of_infinity), (dtype, 3, false), "{found}");
    }
    ended(gpu, &sim);
}

#[test]
fn an_infinity_and_the_nan_that_comes_of_it_are_both_named() {
    let (gpu, sim) = open(Diagnostics::all());
    let x = gpu.tensor(&[0.0_f32, 1.0], &[2]).unwrap();
    let y = x.log().unwrap();
    let z = (&y - &y).unwrap();
    z.force().unwrap();
    let found = gpu.diagnostics().check().unwrap();
    let names = found.iter().map(|finding| match finding {
        Finding::NonFinite {
            operation: Some(operation),
            nans,
            infinities,
            of_infinity,
            ..
        } => (operation.as_str(), *nans, *infinities, *of_infinity),
        other => panic!("{other}"),
    });
    let expected = [("log", 0, 1, false), ("sub", 1, 0, true)];
    assert_eq!(names.collect::<Vec<_>>(), expected);
    // An uploaded NaN is reported as uploaded.
    let nan = gpu.tensor(&[f32::NAN], &[1]).unwrap();
    (&nan + 1.0).unwrap().force().unwrap();
    let found = one(&gpu);
    assert!(
        matches!(
            &found,
            Finding::NonFinite {
                operation: None,
                ..
            }
        ),
        "{found}"
    );
    // So is one that a kernel reads and writes at the same place.
    let doubled = gpu.tensor(&[f32::NAN, 1.0], &[2]).unwrap();
    let kernel = Kernel::new(&gpu, DOUBLE).unwrap();
    let double = |x: &Tensor| kernel.call().bind("x", x).groups([1, 1, 1]).run();
    double(&doubled).unwrap();
    doubled.force().unwrap();
    let found = one(&gpu);
    let is_uploaded = matches!(
        &found,
        Finding::NonFinite {
            operation: None,
            ..
        }
    );
    assert!(is_uploaded, "{found}");
    drop((x, y, z, nan, doubled, kernel));
    ended(gpu, &sim);
}

const DOUBLE: &str = "
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@compute @workgroup_size(2)
fn double(@builtin(local_invocation_index) i: u32) { x[i] *= 2.0; }";

#[test]
fn a_kernel_answers_for_the_part_that_it_reads() {
    let (gpu, sim) = open(Diagnostics::all());
    // Fresh memory has a pattern of NaN.
    let arena = gpu.buffer(1024).unwrap();
    let part = arena.slice(0..512).unwrap();
    part.write(&[1.0_f32; 128]).unwrap();
    let kernel = Kernel::new(&gpu, SUM).unwrap();
    let call = kernel.call().bind("x", &part).out("y", &[1], DType::F32);
    let sum = call.groups([1, 1, 1]).run_one().unwrap();
    assert_eq!(sum.to_vec::<f32>().unwrap(), [128.0]);
    assert_eq!(gpu.diagnostics().check().unwrap(), []);
    drop((arena, part, kernel, sum));
    ended(gpu, &sim);
}

const SUM: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(1)
fn sum() {
    var all = 0.0;
    for (var i = 0u; i < arrayLength(&x); i++) { all += x[i]; }
    y[0] = all;
}";

/// Checks that the answers of the diagnostics do not arrive, and that this is reported once.
#[track_caller]
fn diagnose_in_vain(gpu: &Gpu, sim: &SimHandle) {
    sim.arm(Fault::once(Site::ReadMapped, 1, FaultKind::Invalid));
    let error = gpu.diagnostics().check().unwrap_err();
    assert!(matches!(error, Error::Driver { .. }), "{error}");
    assert_eq!(gpu.diagnostics().check().unwrap(), []);
}

#[test]
fn what_is_not_known_is_told_and_not_blamed_on_what_comes_after() {
    let (gpu, sim) = open(Diagnostics::all());
    let kernel = count(&gpu, 13);
    let y = counted(&kernel, 12);
    diagnose_in_vain(&gpu, &sim);
    let root = gpu.tensor(&[-1.0_f32], &[1]).unwrap().sqrt().unwrap();
    diagnose_in_vain(&gpu, &sim);
    let more = (&root + 1.0).unwrap();
    more.force().unwrap();
    let found = one(&gpu);
    let Finding::NonFinite { operation, .. } = &found else {
        panic!("{found}");
    };
    assert_eq!(operation.as_deref(), Some("sqrt"), "{found}");
    drop((y, root, more, kernel));
    ended(gpu, &sim);
}

#[test]
fn a_long_history_of_which_nothing_is_known_is_walked_once() {
    let (gpu, sim) = open(Diagnostics::all());
    let mut y = gpu.ones(&[4], DType::F32).unwrap();
    for _ in 0..60 {
        y = (&y + &y).unwrap();
    }
    diagnose_in_vain(&gpu, &sim);
    let half = (&y * 0.5).unwrap();
    assert_eq!(half.to_vec::<f32>().unwrap(), [2.0_f32.powi(59); 4]);
    assert_eq!(gpu.diagnostics().check().unwrap(), []);
    drop((y, half));
    ended(gpu, &sim);
}

#[test]
fn what_lives_longer_than_its_device_is_listed() {
    let (gpu, _sim) = open(Diagnostics::all());
    let findings = gpu.diagnostics().findings();
    let held = gpu.ones(&[10], DType::F32).unwrap().named("held");
    let view = held.narrow(0, 0, 5).unwrap();
    held.force().unwrap();
    drop((&held + 1.0).unwrap());
    let pending = (&held + 2.0).unwrap();
    let leaks = gpu.diagnostics().leaks();
    assert_eq!(leaks.len(), 2, "{leaks:?}");
    assert!(
        leaks
            .iter()
            .all(|leak| (leak.storages, leak.bytes) == (1, 40)),
        "{leaks:?}"
    );
    let again = gpu.clone();
    drop(gpu);
    assert!(findings.is_empty());
    drop(again);
    let found = findings.take();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found
            .iter()
            .any(|finding| finding.to_string().contains("`held`")),
        "{found:?}"
    );
    drop((held, view, pending));
}

/// The results of a program that creates, changes, moves, evicts, restores and drops tensors.
fn program(gpu: &Gpu) -> Vec<Vec<f32>> {
    let mut given = Vec::new();
    let mut held: Vec<Tensor> = Vec::new();
    for round in 0..40_usize {
        let len = 1 + 37 * round % 613;
        let x = gpu.tensor(&numbers(round, len), &[len]).unwrap();
        let y = ((&x + 1.0).unwrap() * 0.5).unwrap();
        y.narrow(0, len / 2, len - len / 2)
            .unwrap()
            .add_(&x.narrow(0, 0, 1).unwrap())
            .unwrap();
        let sum = y.sum_all().unwrap();
        let product = x
            .reshape(&[1, len])
            .unwrap()
            .matmul(&y.reshape(&[len, 1]).unwrap())
            .unwrap();
        if round % 5 == 4 {
            held[round / 5].evict().unwrap();
            gpu.memory().compact(1 << 20).unwrap();
        }
        if round % 3 == 2 {
            drop(held.remove(round / 3));
        }
        given.extend([sum, product].map(|one| one.to_vec::<f32>().unwrap()));
        held.push(y);
    }
    given.extend(held.iter().map(|one| one.to_vec::<f32>().unwrap()));
    given
}

#[test]
fn a_right_program_has_nothing_to_find_and_gives_the_same() {
    let (gpu, sim) = open(Diagnostics::none());
    let expected = program(&gpu);
    ended(gpu, &sim);
    for diagnostics in ["canaries", "poison", "unwritten", "non_finite", "all"] {
        let (gpu, sim) = open(diagnostics.parse().unwrap());
        assert_eq!(program(&gpu), expected, "{diagnostics}");
        let found = gpu.diagnostics().check().unwrap();
        assert!(
            found.is_empty(),
            "{diagnostics}: {} of {}",
            found[0],
            found.len()
        );
        ended(gpu, &sim);
    }
    // With constant evictions.
    let budget = Budget {
        device_bytes: Some(448 << 10),
        ..Budget::default()
    };
    let (gpu, sim) = open_within(Diagnostics::all(), budget);
    assert_eq!(program(&gpu), expected);
    assert_eq!(gpu.diagnostics().check().unwrap(), []);
    ended(gpu, &sim);
}

#[test]
fn what_was_found_before_the_device_went_does_not_come_back_on_the_next_one() {
    let (gpu, sim) = open_as(Some(false), Diagnostics::all(), Budget::default());
    let held = gpu.tensor(&[1.0_f32, 2.0], &[2]).unwrap();
    held.evict().unwrap();
    let kernel = count(&gpu, 20);
    let y = counted(&kernel, 4);
    one_overrun(&gpu);
    sim.lose("for a test");
    assert!(gpu.diagnostics().check().is_err());
    gpu.reopen().unwrap();
    assert_eq!(held.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    assert_eq!(gpu.diagnostics().check().unwrap(), []);
    let again = counted(&kernel, 4);
    one_overrun(&gpu);
    drop((held, y, again, kernel));
    ended(gpu, &sim);
}

#[track_caller]
fn one_overrun(gpu: &Gpu) {
    let found = one(gpu);
    assert!(matches!(found, Finding::Overrun { .. }), "{found}");
}

#[test]
fn what_is_looked_for_is_said_by_names() {
    let said = |text: &str| text.parse::<Diagnostics>();
    assert_eq!(said("all").unwrap(), Diagnostics::all());
    assert_eq!(said("").unwrap(), Diagnostics::none());
    let some = said(" canaries, leaks").unwrap();
    assert!(some.canaries && some.leaks && !some.poison);
    let error = said("canaries,mice").unwrap_err().to_string();
    assert!(
        error.contains("mice") && error.contains("non_finite"),
        "{error}"
    );
}

#[test]
fn thousands_of_canaries_and_freed_ranges_are_looked_at_and_are_whole() {
    let (gpu, sim) = open(Diagnostics::all());
    let kernel = count(&gpu, 20);
    let make = |number: usize| {
        gpu.full(&[1 + number % 90], number as f32, DType::F32)
            .unwrap()
    };
    let mut held: Vec<Tensor> = (0..3000).map(make).collect();
    assert_eq!(gpu.diagnostics().check().unwrap(), []);
    let mut number = 0;
    held.retain(|_| {
        number += 1;
        number % 3 > 0
    });
    let y = counted(&kernel, 4);
    one_overrun(&gpu);
    held.extend((0..500).map(make));
    assert_eq!(gpu.diagnostics().check().unwrap(), []);
    assert_eq!(held[1999].to_vec::<f32>().unwrap()[0], 2999.0 - 1.0);
    drop((held, y, kernel));
    ended(gpu, &sim);
}
