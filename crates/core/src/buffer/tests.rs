//! Buffers on the simulated device keep their bytes, wherever the bytes were in between.

use crate::sim::{SimHandle, SimKernels, SimOptions};
use crate::{
    Advice, Budget, Buffer, Error, Gpu, Kernel, Options, Residency, Result,
    diagnostics::Diagnostics,
};
use crate::{Source, diagnostics::Finding};

fn open() -> (Gpu, SimHandle) {
    let options = SimOptions {
        dirty: true,
        ..SimOptions::default()
    };
    Gpu::simulated(options).unwrap()
}

fn refusal<T>(result: Result<T>) -> String {
    match result {
        Err(Error::Buffer { reason, .. }) => reason,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was not refused"),
    }
}

#[test]
fn what_is_written_is_read_also_through_slices_and_copies() {
    let (gpu, sim) = open();
    let all = gpu.buffer_from(&[1_u32, 2, 3, 4]).unwrap().named("numbers");
    assert_eq!(all.size_bytes(), 16);
    assert_eq!(all.to_string(), format!("16 B {}", all.tag()));
    let half = all.slice(8..16).unwrap();
    assert!(half.shares_memory_with(&all));
    let copy = half.copy().unwrap();
    half.write(&[7_u32, 8]).unwrap();
    assert_eq!(all.to_vec::<u32>().unwrap(), [1, 2, 7, 8]);
    assert_eq!(copy.to_vec::<u32>().unwrap(), [3, 4]);
    assert!(!copy.shares_memory_with(&all));
    let bytes = pollster::block_on(half.to_vec_async::<i8>());
    assert_eq!(bytes.unwrap(), [7, 0, 0, 0, 8, 0, 0, 0]);
    let seen = all.read_with(|words: &[u32]| words.iter().sum::<u32>());
    assert_eq!(seen.unwrap(), 18);
    let mut spare = vec![0_u8; 99];
    half.read_into(&mut spare).unwrap();
    assert_eq!(spare, [7, 0, 0, 0, 8, 0, 0, 0]);
    assert_eq!(
        gpu.buffer_zeroed(6).unwrap().to_vec::<u8>().unwrap(),
        [0; 6]
    );
    assert_eq!(sim.complaints(), [""; 0]);
}

#[test]
fn empty_buffers_are_buffers() {
    let (gpu, _) = open();
    let none = gpu.buffer_from::<f32>(&[]).unwrap();
    assert!(none.is_empty());
    none.write::<f32>(&[]).unwrap();
    assert_eq!(none.to_vec::<f32>().unwrap(), [0.0; 0]);
    assert_eq!(none.copy().unwrap().size_bytes(), 0);
    assert_eq!(none.slice(0..0).unwrap().size_bytes(), 0);
    assert_eq!(none.read_with(|seen: &[u8]| seen.len()).unwrap(), 0);
    drop(none.pin().unwrap());
}

#[test]
fn what_cannot_be_is_refused_with_the_numbers() {
    let (gpu, _) = open();
    let buffer = gpu.buffer_from(&[1_u8, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    assert_eq!(
        refusal(buffer.slice(4..9)),
        "bytes 4..9 of a buffer that has 8"
    );
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is refused")]
    let backwards = buffer.slice(5..4);
    assert_eq!(refusal(backwards), "bytes 5..4 of a buffer that has 8");
    let odd = buffer.slice(1..7).unwrap();
    assert!(refusal(odd.copy()).contains("starts at byte 1"));
    assert!(refusal(odd.write(&[0_u8; 6])).contains("bytes 1 to 7"));
    assert!(refusal(odd.write(&[0_u8; 5])).contains("5 bytes were given for a buffer of 6 bytes"));
    assert!(refusal(odd.to_vec::<u32>()).contains("6 bytes are not a multiple"));
    assert!(refusal(odd.backed_by(Source::bytes([0; 6].into()))).contains("a slice is not all"));
    let short = Source::bytes([0; 7].into());
    assert!(refusal(gpu.buffer_backed(short, 8)).contains("has 7 bytes, and 8 are needed"));
    assert!(matches!(gpu.buffer(u64::MAX), Err(Error::NeverFits { .. })));
    assert_eq!(odd.to_vec::<u8>().unwrap(), [2, 3, 4, 5, 6, 7]);
}

#[test]
fn buffers_leave_and_come_back_with_their_bytes() {
    let (gpu, _) = open();
    let buffer = gpu.buffer_from(&[1.0_f32; 1000]).unwrap();
    buffer.advise(Advice::Late);
    let pin = buffer.pin().unwrap();
    assert!(matches!(buffer.evict(), Err(Error::Pinned { .. })));
    drop(pin);
    buffer.evict().unwrap();
    assert_eq!(buffer.residency(), Residency::Host);
    assert_eq!(buffer.to_vec::<f32>().unwrap(), [1.0; 1000]);
    buffer.prefetch().unwrap();
    gpu.finish().unwrap();
    assert_eq!(buffer.residency(), Residency::Device);
}

#[test]
fn a_source_or_a_function_stands_in_for_bytes_that_were_given_up() {
    let (gpu, _) = open();
    gpu.memory()
        .set_budget(Budget {
            host_bytes: Some(0),
            disk_bytes: Some(0),
            ..Budget::default()
        })
        .unwrap();
    let ramp = Source::reader(|offset_bytes, bytes| {
        let numbers = (offset_bytes..).map(|number| number as u8);
        bytes
            .iter_mut()
            .zip(numbers)
            .for_each(|(to, from)| *to = from);
        Ok(())
    });
    let backed = gpu.buffer_backed(ramp, 256).unwrap();
    let numbers: Vec<u8> = (0..=255).collect();
    assert_eq!(backed.to_vec::<u8>().unwrap(), numbers);
    let copy = backed.copy().unwrap();
    let inputs = [&backed];
    copy.recompute_with(&inputs, |inputs| inputs[0].copy())
        .unwrap();
    copy.evict().unwrap();
    backed.evict().unwrap();
    assert_eq!(copy.to_vec::<u8>().unwrap(), numbers);
    let slice = copy.slice(0..4).unwrap();
    let refused = slice.recompute_with(&[&backed], |inputs| inputs[0].slice(0..4));
    assert!(refusal(refused).contains("a slice is not all"));
    // The function must return a whole buffer of the same size.
    backed.backed_by(Source::bytes(numbers.into())).unwrap();
    copy.recompute_with(&[&backed], |inputs| inputs[0].slice(0..128))
        .unwrap();
    copy.evict().unwrap();
    assert!(matches!(copy.to_vec::<u8>(), Err(Error::Recompute { .. })));
}

#[test]
fn kernels_take_buffers_and_slices_and_refuse_those_of_others() {
    let (gpu, sim) = open();
    let ((other, _), text) = (
        open(),
        "
        @group(0) @binding(0) var<storage, read> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(64)
        fn add_up(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < arrayLength(&y) { y[id.x] += x[id.x]; }
        }",
    );
    let kernel = Kernel::new(&gpu, text).unwrap();
    let words: Vec<u32> = (0..200).collect();
    let x = gpu.buffer_from(&words).unwrap();
    let call = |x: &Buffer, y: &Buffer| {
        let call = kernel.call().bind("x", x).bind("y", y);
        call.groups([1, 1, 1]).run()
    };
    // An aligned slice is read in place, another is copied.
    for start in [0, 64, 100] {
        let y = gpu.buffer_from(&[1_u32; 3]).unwrap();
        let part = x.slice(4 * start..4 * start + 12).unwrap();
        call(&part, &y).unwrap();
        let expected = [1, 2, 3].map(|k| k + start as u32);
        assert_eq!(y.to_vec::<u32>().unwrap(), expected);
    }
    let unaligned = x.slice(4..16).unwrap();
    let in_place = call(&x, &unaligned).unwrap_err().to_string();
    assert!(in_place.contains("`y` is changed in place"), "{in_place}");
    let foreign = other.buffer(12).unwrap();
    assert!(matches!(call(&x, &foreign), Err(Error::Foreign { .. })));
    let same = call(&x, &x).unwrap_err().to_string();
    assert!(same.contains("bound to the same memory"), "{same}");
    let made = kernel.call().bind("x", &x).out("y", 12).groups([1, 1, 1]);
    assert_eq!(made.run_one().unwrap().to_vec::<u32>().unwrap(), [0, 1, 2]);
    assert_eq!(sim.complaints(), [""; 0]);
}

#[test]
fn what_a_kernel_leaves_unwritten_is_found() {
    let (gpu, _) = Gpu::simulated_with(
        SimOptions {
            kernels: SimKernels::Interpreted,
            ..SimOptions::default()
        },
        Options {
            diagnostics: Some(Diagnostics::all()),
            ..Options::from_env().unwrap()
        },
    )
    .unwrap();
    let kernel = Kernel::new(
        &gpu,
        "
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(1)
        fn half_of_it(@builtin(global_invocation_id) id: vec3<u32>) { y[id.x] = 1u; }",
    );
    let made = kernel.unwrap().call().out("y", 16).groups([2, 1, 1]);
    let made = made.run_one().unwrap();
    assert_eq!(made.to_vec::<u32>().unwrap(), [1, 1, 0, 0]);
    // It becomes a bug once a command reads it.
    made.copy().unwrap().force().unwrap();
    let found = gpu.diagnostics().check().unwrap();
    assert!(
        matches!(&found[..], [Finding::Unwritten { .. }]),
        "{found:?}"
    );
}
