//! Tensors and buffers that share bytes.

use lapidary::{DType, Error, Kernel, Source};

use crate::engine::{ended, open, options};

#[test]
fn a_tensor_and_its_buffer_share_what_is_written() {
    let (gpu, sim) = open(options());
    let words: Vec<u32> = (0..24).collect();
    let buffer = gpu.buffer_from(&words).unwrap().named("words");
    let part = buffer.slice(32..96).unwrap();
    let tensor = gpu.tensor_of(&part, &[2, 8], DType::U32).unwrap();
    assert_eq!(tensor.to_vec::<u32>().unwrap(), words[8..]);
    assert_eq!(tensor.tag().name(), Some("words"));
    tensor.select(0, 1).unwrap().write(&[9_u32; 8]).unwrap();
    assert_eq!(buffer.to_vec::<u32>().unwrap()[16..], [9; 8]);
    let row = tensor.select(0, 1).unwrap().buffer().unwrap();
    row.write(&[7_u32; 8]).unwrap();
    assert_eq!(tensor.to_vec::<u32>().unwrap()[8..], [7; 8]);
    assert!(tensor.t().unwrap().buffer().is_none());
    assert!(row.shares_memory_with(&buffer));
    drop((buffer, part, tensor, row));
    ended(gpu, &sim);
}

#[test]
fn a_buffer_that_is_awaited_has_its_elements_and_the_callers_line() {
    let (gpu, sim) = open(options());
    let words: Vec<u32> = (0..1 << 20).collect();
    let (line, made) = (line!(), gpu.buffer_from_async(&words));
    let buffer = pollster::block_on(made).unwrap();
    assert_eq!(buffer.tag().line(), line);
    assert!(buffer.to_vec::<u32>().unwrap() == words);
    buffer
        .backed_by(Source::bytes(bytes_of(&words).into()))
        .unwrap();
    let written_bytes = gpu.memory().stats().evicted_bytes;
    buffer.evict().unwrap();
    assert_eq!(gpu.memory().stats().evicted_bytes, written_bytes);
    assert!(buffer.to_vec::<u32>().unwrap() == words);
    drop(buffer);
    ended(gpu, &sim);
}

fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[test]
fn kernels_take_tensors_and_buffers_side_by_side() {
    let (gpu, sim) = open(options());
    let text = "
        @group(0) @binding(0) var<storage, read> x: array<f32>;
        @group(0) @binding(1) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(4)
        fn add(@builtin(global_invocation_id) id: vec3<u32>) { y[id.x] += x[id.x]; }";
    let add = Kernel::new(&gpu, text).unwrap();
    let x = gpu.tensor(&[1.0_f32, 2.0, 3.0, 4.0], &[4]).unwrap();
    let y = gpu.buffer_from(&[10.0_f32; 4]).unwrap();
    let call = add.call().bind("x", &x).bind("y", &y);
    assert!(call.groups([1, 1, 1]).run().unwrap().is_empty());
    assert_eq!(y.to_vec::<f32>().unwrap(), [11.0, 12.0, 13.0, 14.0]);
    drop((add, x, y));
    ended(gpu, &sim);
}

#[test]
fn a_buffer_that_is_no_such_tensor_is_refused() {
    let ((gpu, sim), (other, _)) = (open(options()), open(options()));
    let buffer = gpu.buffer(16).unwrap();
    let refused = |shape: &[usize], bytes: std::ops::Range<u64>| {
        let part = buffer.slice(bytes).unwrap();
        match gpu.tensor_of(&part, shape, DType::F32) {
            Err(Error::Buffer { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    };
    assert!(refused(&[5], 0..16).contains("takes 20"));
    assert!(refused(&[2], 2..10).contains("starts at byte 2"));
    let foreign = other.tensor_of(&buffer, &[4], DType::F32);
    assert!(matches!(foreign, Err(Error::Foreign { .. })), "{foreign:?}");
    drop(buffer);
    ended(gpu, &sim);
}

#[test]
fn a_call_reads_what_its_operands_hold_when_it_runs() {
    let (gpu, sim) = open(options());
    let text = "
        @group(0) @binding(0) var<storage, read> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(4)
        fn copy(@builtin(global_invocation_id) id: vec3<u32>) { y[id.x] = x[id.x]; }";
    let copy = Kernel::new(&gpu, text).unwrap();
    let x = gpu.tensor(&[1_u32, 2, 3, 4], &[2, 2]).unwrap();
    let y = gpu.buffer(16).unwrap();
    // Its elements are not contiguous, so the kernel reads a copy.
    let across = x.t().unwrap();
    let call = copy.call().bind("x", &across).bind("y", &y);
    let call = call.groups([1, 1, 1]);
    x.write(&[5_u32, 6, 7, 8]).unwrap();
    call.clone().run().unwrap();
    assert_eq!(y.to_vec::<u32>().unwrap(), [5, 7, 6, 8]);
    x.write(&[9_u32, 10, 11, 12]).unwrap();
    call.run().unwrap();
    assert_eq!(y.to_vec::<u32>().unwrap(), [9, 11, 10, 12]);
    drop((copy, x, across, y));
    ended(gpu, &sim);
}
