//! Calls take effect in the order in which they were made, without any waits.

use lapidary::sim::SimOptions;
use lapidary::{DType, Error};
use pollster::block_on;

use crate::engine::{ended, numbers, open, options};

/// All kinds of device that the engine treats differently.
fn devices() -> Vec<SimOptions> {
    let mut devices = Vec::new();
    for maps_slabs in [false, true] {
        for offset_alignment_bytes in [32, 256] {
            for lag_submissions in [0, 4, u32::MAX] {
                for max_immediate_bytes in [0, 128] {
                    devices.push(SimOptions {
                        maps_slabs,
                        offset_alignment_bytes,
                        lag_submissions,
                        max_immediate_bytes,
                        ..options()
                    });
                }
            }
        }
    }
    devices
}

#[test]
fn a_read_sees_what_was_there_at_its_call() {
    for options in devices() {
        let (gpu, sim) = open(options);
        let x = gpu.tensor(&numbers(0, 1000), &[1000]).unwrap();
        let first = x.to_vec_async::<f32>();
        x.add_(1).unwrap();
        let second = x.to_vec_async::<f32>();
        x.write(&numbers(500, 1000)).unwrap();
        let third = x.to_vec_async::<f32>();
        let sum = x.add(&x).unwrap();
        x.fill_(0).unwrap();
        drop(x);
        // They are awaited in another order.
        assert_eq!(block_on(third).unwrap(), numbers(500, 1000));
        assert_eq!(block_on(first).unwrap(), numbers(0, 1000));
        assert_eq!(sum.to_vec::<f32>().unwrap()[7], 1014.0);
        assert_eq!(block_on(second).unwrap(), numbers(1, 1000));
        drop(sum);
        ended(gpu, &sim);
    }
}

#[test]
fn a_view_shows_every_write_before_it_and_none_after() {
    for options in devices() {
        let (gpu, sim) = open(options);
        let x = gpu.zeros(&[4, 8], DType::I32).unwrap();
        let row = x.select(0, 2).unwrap();
        row.fill_(5).unwrap();
        let column = x.select(1, 3).unwrap().copy().unwrap();
        x.add_(&row).unwrap();
        row.write(&[9; 8]).unwrap();
        assert_eq!(column.to_vec::<i32>().unwrap(), [0, 0, 5, 0]);
        assert_eq!(
            x.select(1, 0).unwrap().to_vec::<i32>().unwrap(),
            [5, 5, 9, 5]
        );
        drop((x, row, column));
        ended(gpu, &sim);
    }
}

#[test]
fn uploads_larger_than_a_chunk_of_staging_arrive_whole() {
    for options in devices() {
        let options = SimOptions {
            max_buffer_bytes: 3 << 20,
            ..options
        };
        let (gpu, sim) = open(options);
        let values = numbers(0, 700_001);
        let x = gpu.tensor(&values, &[values.len()]).unwrap();
        assert!(x.to_vec::<f32>().unwrap() == values);
        x.write(&numbers(1, values.len())).unwrap();
        assert!(x.to_vec::<f32>().unwrap() == numbers(1, values.len()));
        drop(x);
        ended(gpu, &sim);
    }
}

#[test]
fn operands_of_several_windows_are_computed_right() {
    for options in devices() {
        let (gpu, sim) = open(options);
        // Two windows and a bit each, and one that begins inside a vec4.
        let values = numbers(0, 40_001);
        let x = gpu.tensor(&values, &[values.len()]).unwrap();
        let backwards = x.flip(&[0]).unwrap().neg().unwrap();
        let mut expected: Vec<f32> = values.iter().map(|v| -v).collect();
        expected.reverse();
        assert!(backwards.to_vec::<f32>().unwrap() == expected);
        drop((x, backwards));
        ended(gpu, &sim);
    }
}

#[test]
fn more_windows_than_a_dispatch_binds_never_fit() {
    let (gpu, sim) = open(options());
    let x = gpu.zeros(&[100_000], DType::F32).unwrap();
    // This call is not split into parts.
    let error = gpu.arange(0, 200_000, 1, DType::I32).unwrap_err();
    let Error::NeverFits {
        limit_bytes,
        requested_bytes,
        ..
    } = error
    else {
        panic!("{error}");
    };
    // Thirteen windows, of which the last is partly filled.
    let window_bytes = 64 << 10;
    assert_eq!(
        (limit_bytes, requested_bytes),
        (7 * window_bytes, 13 * window_bytes)
    );
    assert_eq!(x.to_vec::<f32>().unwrap(), [0.0; 100_000]);
    drop(x);
    ended(gpu, &sim);
}

#[test]
fn a_tensor_beyond_the_device_never_fits_and_says_so_at_the_call() {
    let (gpu, sim) = open(options());
    for error in [
        gpu.zeros(&[1 << 23], DType::F32).unwrap_err(),
        gpu.full(&[1 << 40], 1, DType::U8).unwrap_err(),
    ] {
        assert!(matches!(error, Error::NeverFits { .. }), "{error}");
        assert!(error.is_final());
    }
    assert_eq!(sim.counters().buffers_created, 0);
    ended(gpu, &sim);
}

#[test]
fn a_tensor_of_another_gpu_is_foreign() {
    let ((gpu, sim), (other, other_sim)) = (open(options()), open(options()));
    let (x, y) = (gpu.scalar(1.0_f32).unwrap(), other.scalar(2.0_f32).unwrap());
    for error in [
        x.add(&y).unwrap_err(),
        x.add_(&y).unwrap_err(),
        x.copy_(&y).unwrap_err(),
        lapidary::Tensor::concat(&[&x.unsqueeze(0).unwrap(), &y.unsqueeze(0).unwrap()], 0)
            .unwrap_err(),
    ] {
        assert!(matches!(error, Error::Foreign { .. }), "{error}");
    }
    drop((x, y));
    ended(gpu, &sim);
    ended(other, &other_sim);
}
