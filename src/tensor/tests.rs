//! Tensors on the simulated device: reads return what was written, through any view.

use half::f16;

use super::Tensor;
use lapidary_core::internal::{Engine, Handle, block_on};
use lapidary_core::sim::{SimHandle, SimOptions};
use lapidary_core::{DType, Element, Error, Gpu, Residency, Result};

fn engine() -> (Handle<Engine>, SimHandle) {
    let options = SimOptions {
        dirty: true,
        ..SimOptions::default()
    };
    let (gpu, sim) = Gpu::simulated(options).unwrap();
    (gpu.engine().clone(), sim)
}

fn tensor<T: Element>(engine: &Handle<Engine>, elements: &[T], shape: &[usize]) -> Tensor {
    let tensor = Tensor::output(engine, shape, T::DTYPE).unwrap();
    tensor.write(elements).unwrap();
    tensor
}

/// Elements of a type, at every length around a word and a vec4, are read as they were written.
fn check_trip<T: Element>(element: impl Fn(usize) -> T) {
    let (engine, sim) = engine();
    for len in (0..=17).chain([255, 256, 257, 100_000]) {
        let elements: Vec<T> = (0..len).map(&element).collect();
        let t = tensor(&engine, &elements, &[len]);
        assert_eq!(t.to_vec::<T>().unwrap(), elements, "{len}");
        assert_eq!(
            block_on("a test", t.to_vec_async::<T>()).unwrap(),
            elements,
            "{len}"
        );
        assert_eq!(
            t.read_with(|all: &[T]| all == elements).ok(),
            Some(true),
            "{len}"
        );
        let mut backwards = elements;
        backwards.reverse();
        assert_eq!(
            t.flip(&[0]).unwrap().to_vec::<T>().unwrap(),
            backwards,
            "{len}"
        );
    }
    assert_eq!(sim.complaints(), [""; 0]);
}

#[test]
fn elements_of_every_type_and_length_come_back() {
    check_trip(|i| i as f32 - 0.5);
    check_trip(|i| f16::from_f32(i as f32));
    check_trip(|i| i as i32 - 8);
    check_trip(|i| u32::MAX - i as u32);
    check_trip(|i| i as u8);
    check_trip(|i| i % 3 == 0);
}

#[test]
fn views_are_read_wherever_they_start_and_end() {
    let (engine, _sim) = engine();
    let bytes: Vec<u8> = (0..60).collect();
    let t = tensor(&engine, &bytes, &[3, 4, 5]);
    for view in [
        t.select(0, 1).unwrap(),
        t.select(2, -1).unwrap(),
        t.permute(&[2, 0, 1]).unwrap(),
        t.slice(1, None, None, -2).unwrap().flip(&[2]).unwrap(),
        t.select(1, 3).unwrap().broadcast_to(&[2, 3, 5]).unwrap(),
        t.narrow(2, 5, 0).unwrap(),
        t.select(0, 2).unwrap().view_as(&[2, 10]).unwrap(),
    ] {
        let named: Vec<u8> = view
            .layout
            .elements()
            .map(|element| element as u8)
            .collect();
        assert_eq!(view.to_vec::<u8>().unwrap(), named, "{view:?}");
    }
    assert_eq!(
        t.select(0, 2)
            .unwrap()
            .select(0, 0)
            .unwrap()
            .select(0, 3)
            .unwrap()
            .item::<u8>()
            .unwrap(),
        43
    );
}

#[test]
fn a_read_sees_what_was_written_before_it_and_nothing_later() {
    let (engine, _sim) = engine();
    let t = tensor(&engine, &[1, 2, 3, 4], &[2, 2]);
    let before = t.version();
    let first = t.to_vec_async::<i32>();
    t.select(0, 1).unwrap().write(&[7, 8]).unwrap();
    let (second, unwanted) = (t.to_vec_async::<i32>(), t.to_vec_async::<i32>());
    t.write(&[0; 4]).unwrap();
    drop(unwanted);
    assert_eq!(block_on("a test", second).unwrap(), [1, 2, 7, 8]);
    assert_eq!(block_on("a test", first).unwrap(), [1, 2, 3, 4]);
    assert_eq!(t.to_vec::<i32>().unwrap(), [0; 4]);
    assert_eq!(t.version(), before + 2);
}

#[test]
fn a_write_never_touches_its_neighbours() {
    let (engine, _sim) = engine();
    let bytes: Vec<u8> = (0..13).collect();
    let t = tensor(&engine, &bytes, &[13]);
    for (start, len, is_written) in [
        (0, 4, true),
        (4, 8, true),
        (12, 1, true),
        (8, 5, true),
        (13, 0, true),
        (0, 3, false),
        (1, 3, false),
        (12, 0, true),
        (10, 3, false),
    ] {
        let before = t.to_vec::<u8>().unwrap();
        let written = t.narrow(0, start, len).unwrap().write(&vec![99_u8; len]);
        assert_eq!(written.is_ok(), is_written, "{start} {len}: {written:?}");
        let mut expected = before;
        if is_written {
            expected[start..start + len].fill(99);
        }
        assert_eq!(t.to_vec::<u8>().unwrap(), expected, "{start} {len}");
    }
    // The last word is shared with elements outside the view.
    let front = tensor(&engine, &[1_u8; 16], &[16])
        .narrow(0, 0, 13)
        .unwrap();
    assert!(matches!(front.write(&[2_u8; 13]), Err(Error::Shape { .. })));
}

#[test]
fn what_cannot_be_is_refused_at_the_call() {
    let (engine, sim) = engine();
    let t = tensor(&engine, &[1.0_f32; 6], &[2, 3]);
    let calls = sim.counters().submissions;
    let message = |result: Result<()>| result.unwrap_err().to_string();
    assert_eq!(
        message(t.to_vec::<i32>().map(drop)),
        "to_vec: i32 where f32 is needed. Name the tensor's own element type, or convert the \
         tensor first"
    );
    assert!(matches!(t.write(&[1_u32; 6]), Err(Error::DType { .. })));
    assert_eq!(
        message(t.write(&[1.0_f32; 5])),
        "write: 5 elements were given for shape [2, 3], which holds 6"
    );
    assert!(matches!(
        t.t().unwrap().write(&[1.0_f32; 6]),
        Err(Error::Shape { .. })
    ));
    assert!(matches!(t.item::<f32>(), Err(Error::Shape { .. })));
    assert!(matches!(
        t.unsqueeze(0).unwrap().t(),
        Err(Error::Shape { .. })
    ));
    assert!(matches!(
        t.t().unwrap().view_as(&[6]),
        Err(Error::Shape { .. })
    ));
    assert!(matches!(
        Tensor::output(&engine, &[1 << 31, 1 << 31, 4], DType::F32),
        Err(Error::Overflow { .. })
    ));
    assert!(matches!(
        Tensor::output(&engine, &[1 << 20, 1 << 10], DType::F32),
        Err(Error::NeverFits { .. })
    ));
    let foreign = tensor(&self::engine().0, &[1.0_f32], &[1]);
    assert!(matches!(
        t.same_engine("add", &foreign),
        Err(Error::Foreign { .. })
    ));
    assert!(t.same_engine("add", &t.t().unwrap()).is_ok());
    assert_eq!(
        sim.counters().submissions,
        calls,
        "none of these runs anything"
    );
}

#[test]
fn a_tensor_says_what_it_is_without_waiting() {
    let (engine, sim) = engine();
    let line = line!() + 1;
    let t = Tensor::output(&engine, &[2, 3], DType::F16)
        .unwrap()
        .named("scores");
    let view = t.t().unwrap().narrow(0, 1, 2).unwrap();
    assert_eq!(
        (view.shape(), view.strides(), view.rank()),
        (&[2, 2][..], &[1, 3][..], 2)
    );
    assert_eq!(
        (view.len(), view.size_bytes(), view.dtype()),
        (4, 8, DType::F16)
    );
    assert!(!view.is_contiguous() && !view.is_empty() && view.shares_storage_with(&t));
    assert_eq!(view.residency(), Residency::Pending);
    assert_eq!(
        t.to_string(),
        format!("f16[2, 3] `scores` ({}:{line})", file!())
    );
    assert!(
        format!("{view:?}").contains("strides: [1, 3], offset: 1"),
        "{view:?}"
    );
    assert_eq!(sim.counters().submissions, 0);
    assert_eq!(
        Tensor::output(&engine, &[4, 0], DType::U8)
            .unwrap()
            .storage
            .size_bytes(),
        16
    );
}
