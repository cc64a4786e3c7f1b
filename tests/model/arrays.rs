//! Arrays of the crate `ndarray` with any strides, uploaded and read back.

use half::{bf16, f16};
use lapidary::{Element, Error};
use ndarray::{Array, Array0, Array2, Array3, ArrayD, Axis, Dimension, Ix3, IxDyn, arr0, s};

use crate::model::files::open;

/// An array with these elements is uploaded and read back unchanged.
#[track_caller]
fn check<T: Element, D: Dimension>(array: &ndarray::ArrayRef<T, D>) {
    let tensor = open().tensor_from(array).unwrap();
    assert_eq!((tensor.shape(), tensor.dtype()), (array.shape(), T::DTYPE));
    let back = tensor.to_array::<T>().unwrap();
    assert_eq!(back, array.to_owned().into_dyn());
}

#[test]
fn views_of_any_strides_go_there_and_come_back() {
    let array = Array::from_iter(0..4 * 5 * 6)
        .into_shape_with_order((4, 5, 6))
        .unwrap();
    check(&array);
    check(&array.t());
    check(&array.slice(s![1..;2, ..;-1, 2..5]));
    check(&array.slice(s![.., ..0, ..]));
    check(&array.index_axis(Axis(1), 3));
    check(&array.view().permuted_axes([1, 2, 0]));
    check(&array.index_axis(Axis(0), 1).broadcast((3, 5, 6)).unwrap());
    check(&array.view().into_dyn());
    let column: Array2<i32> =
        Array::from_shape_fn((3, 7), |(row, column)| (row * 7 + column) as i32);
    check(&column.reversed_axes());
    check(&arr0(7_i32));
    check(&Array0::from_elem((), true));
    // Larger than one piece of an upload, and not in order.
    let large = Array3::from_shape_fn((3, 100, 2000), |(a, b, c)| (a * 7 + b * 3 + c) as f32);
    check(&large.view().permuted_axes([2, 0, 1]));
}

#[test]
fn elements_of_every_type_go_there_and_come_back() {
    fn check_type<T: Element>(element: impl Fn(usize) -> T) {
        let array = Array::from_shape_fn((3, 5), |(row, column)| element(row * 5 + column));
        check(&array);
        check(&array.t());
    }
    check_type(|at| at as f32 / 3.0);
    check_type(|at| f16::from_f32(at as f32 / 3.0));
    check_type(|at| bf16::from_f32(at as f32 / 3.0));
    check_type(|at| at as i32 - 7);
    check_type(|at| at as u32);
    check_type(|at| at as u8);
    check_type(|at| at as i8 - 7);
    check_type(|at| at % 3 == 0);
}

#[test]
fn views_of_a_tensor_become_arrays_of_what_they_show() {
    let gpu = open();
    let array = Array::from_iter(0..24)
        .into_shape_with_order((2, 3, 4))
        .unwrap();
    let tensor = gpu
        .tensor_from(&array)
        .unwrap()
        .permute(&[2, 0, 1])
        .unwrap();
    let back: Array<i32, Ix3> = tensor.to_array().unwrap().into_dimensionality().unwrap();
    assert_eq!(back, array.permuted_axes([2, 0, 1]));
    let waited: ArrayD<i32> = pollster::block_on(tensor.to_array_async()).unwrap();
    assert_eq!(waited, back.into_dyn());
    assert!(matches!(tensor.to_array::<f32>(), Err(Error::DType { .. })));
}

#[test]
fn an_array_of_more_axes_than_tensors_have_is_refused() {
    let array = ArrayD::from_elem(IxDyn(&[1; 9]), 1.0_f32);
    assert!(matches!(
        open().tensor_from(&array),
        Err(Error::Shape { .. })
    ));
}
