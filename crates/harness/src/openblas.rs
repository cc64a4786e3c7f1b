//! OpenBLAS through its C interface. It shows what this machine's cores can do, for shares in one
//! run.
//!
//! The library is loaded when a bench starts, so nothing links against it. On Debian it is the
//! package `libopenblas0-pthread`.

#![allow(
    unsafe_code,
    reason = "functions of a C library, looked up when the program runs"
)]

use std::time::Duration;

use libloading::Library;

const NAMES: [&str; 3] = ["libopenblas.so.0", "libopenblas.dylib", "libopenblas.dll"];

/// Wait before something else is measured. OpenBLAS's threads spin for 2²⁸ ticks after each call
/// (103 ms at 2.6 GHz), and other work has one core less meanwhile.
pub const SETTLE: Duration = Duration::from_millis(200);

const ROW_MAJOR: i32 = 101;
const PLAIN: i32 = 111;
const TRANSPOSED: i32 = 112;

type Sgemm = unsafe extern "C" fn(
    i32,
    i32,
    i32,
    i32,
    i32,
    i32,
    f32,
    *const f32,
    i32,
    *const f32,
    i32,
    f32,
    *mut f32,
    i32,
);
type Sgemv = unsafe extern "C" fn(
    i32,
    i32,
    i32,
    i32,
    f32,
    *const f32,
    i32,
    *const f32,
    i32,
    f32,
    *mut f32,
    i32,
);
type Saxpy = unsafe extern "C" fn(i32, f32, *const f32, i32, *mut f32, i32);
type SetThreads = unsafe extern "C" fn(i32);

/// The library with its number of threads.
#[derive(Debug)]
pub struct OpenBlas {
    sgemm: Sgemm,
    sgemv: Sgemv,
    saxpy: Saxpy,
    /// Keeps the functions valid.
    _library: Library,
}

/// Sizes of a product, and whether B is stored transposed, as n rows of k.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub transposed: bool,
}

/// The elements of an operand, and whether they are stored transposed.
pub type Operand<'a> = (&'a [f32], bool);

impl OpenBlas {
    /// Loads the library with this many threads; an error if there is none.
    pub fn open(threads: i32) -> Result<Self, libloading::Error> {
        // SAFETY: loading OpenBLAS only starts its threads, and the signatures are those of its
        // `cblas.h`, with 32-bit integers as in every package called `openblas`.
        unsafe {
            let library = NAMES
                .iter()
                .map(|name| Library::new(name))
                .reduce(Result::or)
                .expect("there are names")?;
            let set_threads: SetThreads = *library.get(b"openblas_set_num_threads\0")?;
            set_threads(threads);
            Ok(OpenBlas {
                sgemm: *library.get(b"cblas_sgemm\0")?,
                sgemv: *library.get(b"cblas_sgemv\0")?,
                saxpy: *library.get(b"cblas_saxpy\0")?,
                _library: library,
            })
        }
    }

    /// `c = a · b` for each pair of matrices.
    pub fn products(&self, sizes: Sizes, a: &[f32], b: &[f32], c: &mut [f32]) {
        let Sizes { m, n, k, .. } = sizes;
        let pairs = a.chunks_exact(m * k).zip(b.chunks_exact(k * n));
        for ((a, b), c) in pairs.zip(c.chunks_exact_mut(m * n)) {
            self.multiply([m, n, k], (a, false), (b, sizes.transposed), c);
        }
    }

    /// C, m × n, from A, m × k, and B, k × n.
    pub fn multiply(
        &self,
        [m, n, k]: [usize; 3],
        (a, is_a_transposed): Operand<'_>,
        (b, is_b_transposed): Operand<'_>,
        c: &mut [f32],
    ) {
        assert!(a.len() == m * k && b.len() == k * n && c.len() == m * n);
        let int = |size: usize| i32::try_from(size).expect("sizes here are small");
        let form = |is_transposed| if is_transposed { TRANSPOSED } else { PLAIN };
        if m == 1 {
            // A row times a matrix: C = Bᵀ · A, with B as it is stored.
            let (rows, columns) = if is_b_transposed { (n, k) } else { (k, n) };
            // SAFETY: the lengths match the sizes and strides, as checked above.
            unsafe {
                (self.sgemv)(
                    ROW_MAJOR,
                    form(!is_b_transposed),
                    int(rows),
                    int(columns),
                    1.0,
                    b.as_ptr(),
                    int(columns),
                    a.as_ptr(),
                    1,
                    0.0,
                    c.as_mut_ptr(),
                    1,
                );
            }
            return;
        }
        // SAFETY: as above.
        unsafe {
            (self.sgemm)(
                ROW_MAJOR,
                form(is_a_transposed),
                form(is_b_transposed),
                int(m),
                int(n),
                int(k),
                1.0,
                a.as_ptr(),
                int(if is_a_transposed { m } else { k }),
                b.as_ptr(),
                int(if is_b_transposed { k } else { n }),
                0.0,
                c.as_mut_ptr(),
                int(n),
            );
        }
    }

    /// `y += scale * x`
    pub fn add_scaled(&self, y: &mut [f32], scale: f32, x: &[f32]) {
        assert_eq!(x.len(), y.len());
        let len = i32::try_from(x.len()).expect("sizes here are small");
        // SAFETY: both slices have the given length.
        unsafe { (self.saxpy)(len, scale, x.as_ptr(), 1, y.as_mut_ptr(), 1) }
    }
}
