//! Reads of single rows from a table that is not on the device.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};

use lapidary::sim::SimOptions;
use lapidary::{Budget, DType, Error, Gpu, Residency, Result, Source, Tensor};

use crate::engine::{ended, open, options};

const ROWS: usize = 512;
const WIDTH: usize = 24;

/// The source of a table whose elements are their indices, and the number of bytes read from it.
fn numbers() -> (Source, Arc<AtomicU64>) {
    let read_bytes = Arc::new(AtomicU64::new(0));
    let count = read_bytes.clone();
    let source = Source::reader(move |offset, bytes| {
        count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        for (index, word) in bytes.chunks_exact_mut(4).enumerate() {
            word.copy_from_slice(&(offset as u32 / 4 + index as u32).to_le_bytes());
        }
        Ok(())
    });
    (source, read_bytes)
}

fn rows(numbers: &[u32]) -> Vec<u32> {
    let row = |&number: &u32| {
        let is_there = (number as usize) < ROWS;
        (0..WIDTH as u32).map(move |at| {
            if is_there {
                number * WIDTH as u32 + at
            } else {
                0
            }
        })
    };
    numbers.iter().flat_map(row).collect()
}

#[test]
fn rows_of_a_table_in_a_file_are_read_and_no_others() {
    let (gpu, sim) = open(options());
    look_up(&gpu);
    ended(gpu, &sim);
}

fn look_up(gpu: &Gpu) {
    let (source, read_bytes) = numbers();
    let table = gpu.backed(source, &[ROWS, WIDTH], DType::U32).unwrap();
    let named = [3, 500, 3, 511, 512, u32::MAX];
    let tokens = gpu.tensor(&named, &[2, 3]).unwrap();
    let made = table.embedding(&tokens).unwrap();
    assert_eq!(made.shape(), [2, 3, WIDTH]);
    assert_eq!(made.to_vec::<u32>().unwrap(), rows(&named));
    assert_eq!(table.residency(), Residency::Backed);
    assert_eq!(read_bytes.load(Ordering::Relaxed), 4 * 4 * WIDTH as u64);
    assert_eq!(gpu.memory().stats().restores, 0);
    // The indices may be computed, and may be a view.
    let computed = (&tokens.flatten().unwrap() - 1)
        .unwrap()
        .flip(&[0])
        .unwrap();
    let made = table.index_select(0, &computed).unwrap();
    let wanted: Vec<u32> = named.iter().rev().map(|number| number - 1).collect();
    assert_eq!(made.to_vec::<u32>().unwrap(), rows(&wanted));
    // The table may be a view too.
    let part = table.narrow(0, 100, 50).unwrap().narrow(1, 4, 8).unwrap();
    let made = part
        .index_select(0, &gpu.tensor(&[7_u32, 49], &[2]).unwrap())
        .unwrap();
    let wanted = [107, 149]
        .into_iter()
        .flat_map(|row| (0..8).map(move |at| row * 24 + 4 + at));
    assert_eq!(made.to_vec::<u32>().unwrap(), wanted.collect::<Vec<u32>>());
    assert_eq!(table.residency(), Residency::Backed);
}

/// Rows of an odd number of f16, which begin in the middle of words.
fn halves(gpu: &Gpu) -> Tensor {
    let table = gpu.arange(0, (ROWS * WIDTH) as i32, 1, DType::I32).unwrap();
    let table = table.reshape(&[ROWS, WIDTH]).unwrap().cast(DType::F16);
    table.unwrap().narrow(1, 0, 23).unwrap().copy().unwrap()
}

#[test]
fn a_table_that_was_evicted_stays_evicted_and_gives_its_rows() {
    for disk_only in [false, true] {
        let (gpu, sim) = open(options());
        if disk_only {
            let budget = Budget {
                host_bytes: Some(0),
                ..Budget::default()
            };
            gpu.memory().set_budget(budget).unwrap();
        }
        let table = halves(&gpu);
        let whole = table.to_vec::<half::f16>().unwrap();
        table.evict().unwrap();
        let evicted = table.residency();
        let named = gpu.tensor(&[5_i32, -1, 0, 77], &[4]).unwrap();
        for _ in 0..3 {
            let made = table.index_select(0, &named).unwrap();
            let sum = made.cast(DType::F32).unwrap().sum(&[1]).unwrap();
            let made = made.to_vec::<half::f16>().unwrap();
            for (at, row) in [(0, 5), (2, 0), (3, 77)] {
                assert_eq!(
                    made[at * 23..(at + 1) * 23],
                    whole[row * 23..(row + 1) * 23]
                );
            }
            assert_eq!(made[23..46], [half::f16::ZERO; 23]);
            assert_eq!(sum.to_vec::<f32>().unwrap()[1], 0.0);
        }
        assert_eq!(table.residency(), evicted);
        drop((table, named));
        ended(gpu, &sim);
    }
}

#[test]
fn a_table_whose_rows_are_asked_for_again_and_again_comes_back() {
    let (gpu, sim) = open(options());
    let (source, read_bytes) = numbers();
    let table = gpu.backed(source, &[ROWS, WIDTH], DType::U32).unwrap();
    let named: Vec<u32> = (0..100).collect();
    let tokens = gpu.tensor(&named, &[100]).unwrap();
    for _ in 0..6 {
        let made = table.embedding(&tokens).unwrap();
        assert_eq!(made.to_vec::<u32>().unwrap(), rows(&named));
    }
    assert_eq!(table.residency(), Residency::Device);
    // Five times a hundred rows, and once all rows.
    let read = read_bytes.load(Ordering::Relaxed);
    assert_eq!(read, 4 * ((500 + ROWS) * WIDTH) as u64);
    drop((table, tokens));
    ended(gpu, &sim);
}

#[test]
fn a_table_that_never_fits_gives_its_rows() {
    let (gpu, sim) = open(SimOptions {
        memory_bytes: 4 << 20,
        max_buffer_bytes: 4 << 20,
        max_binding_bytes: 4 << 20,
        ..options()
    });
    gpu.memory().set_budget(Budget::device(1 << 20)).unwrap();
    let (source, _) = numbers();
    let table = gpu.backed(source, &[1 << 15, WIDTH], DType::U32).unwrap();
    let tokens = gpu.tensor(&[9_u32, 4], &[2]).unwrap();
    let buffers = sim.counters().buffers_created;
    for _ in 0..20 {
        let made = table.embedding(&tokens).unwrap();
        assert_eq!(made.to_vec::<u32>().unwrap(), rows(&[9, 4]));
    }
    assert!(sim.counters().buffers_created <= buffers + 4);
    drop((table, tokens));
    ended(gpu, &sim);
}

#[test]
fn what_a_source_says_goes_to_whoever_wants_the_rows() {
    let (gpu, sim) = open(options());
    let source = Source::reader(|_, _| Err(io::Error::other("the disk is gone")));
    let table = gpu.backed(source, &[ROWS, WIDTH], DType::U32).unwrap();
    let tokens = gpu.tensor(&[1_u32], &[1]).unwrap();
    let made = table.embedding(&tokens).unwrap();
    let error = made.to_vec::<u32>().unwrap_err();
    assert!(matches!(error, Error::Source { .. }), "{error}");
    assert!(error.to_string().contains("the disk is gone"), "{error}");
    drop((table, tokens, made));
    ended(gpu, &sim);
}

#[test]
fn an_adapter_reads_rows_of_a_file_too() -> Result<()> {
    let gpu = Gpu::open(lapidary::Options::from_env()?)?;
    let (source, read_bytes) = numbers();
    let table: Tensor = gpu.backed(source, &[ROWS, WIDTH], DType::U32)?;
    let tokens = gpu.tensor(&[3_u32, 4], &[2])?;
    let made = (table.embedding(&(&tokens * 2)?)? + 1)?;
    let wanted: Vec<u32> = rows(&[6, 8]).iter().map(|one| one + 1).collect();
    assert_eq!(made.to_vec::<u32>()?, wanted);
    assert_eq!(read_bytes.load(Ordering::Relaxed), 2 * 4 * WIDTH as u64);
    Ok(())
}

/// A dropped executor at any point does not change the rows of the next one.
#[test]
fn a_pass_that_is_dropped_loses_no_row() {
    for polls in 0..24 {
        let (gpu, sim) = open(SimOptions {
            pauses: 3,
            ..options()
        });
        let (source, _) = numbers();
        let table = gpu.backed(source, &[ROWS, WIDTH], DType::U32).unwrap();
        let tokens = gpu.tensor(&[400_u32, 2], &[2]).unwrap();
        let made = table.embedding(&tokens).unwrap();
        let mut read = Box::pin(made.to_vec_async::<u32>());
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..polls {
            if read.as_mut().poll(&mut context).is_ready() {
                break;
            }
        }
        drop(read);
        assert_eq!(made.to_vec::<u32>().unwrap(), rows(&[400, 2]), "{polls}");
        drop((table, tokens, made));
        ended(gpu, &sim);
    }
}
