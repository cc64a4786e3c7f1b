//! OpenBLAS through its C interface: what this machine's processors can do, for shares in one run.
//!
//! The library is looked up when a bench starts, so that nothing links against it: on Debian it is
//! the package `libopenblas0-pthread`.

#![allow(
    unsafe_code,
    reason = "a C library is called, with slices of checked lengths"
)]

use libloading::Library;

/// Row-major, and whether an operand is transposed, as `cblas.h` has them.
const ROW_MAJOR: i32 = 101;
const AS_IT_IS: i32 = 111;
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

/// The library, with as many threads as it was opened for.
pub(crate) struct OpenBlas {
    sgemm: Sgemm,
    sgemv: Sgemv,
    // The functions are those of this library: it goes last.
    _library: Library,
}

/// Sizes of a product, and whether B lies transposed, as n rows of k.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) transposed: bool,
}

impl OpenBlas {
    /// The library with this many threads, or why there is none.
    pub(crate) fn open(threads: i32) -> Result<Self, libloading::Error> {
        let names = ["libopenblas.so.0", "libopenblas.dylib", "libopenblas.dll"];
        // SAFETY: OpenBLAS does nothing of note when it is loaded, and the signatures are those of
        // its `cblas.h`, with 32-bit integers as in every package that is called `openblas`.
        unsafe {
            let library = names
                .iter()
                .map(|name| Library::new(name))
                .reduce(Result::or)
                .expect("there are names")?;
            let set_threads: unsafe extern "C" fn(i32) =
                *library.get(b"openblas_set_num_threads\0")?;
            set_threads(threads);
            Ok(OpenBlas {
                sgemm: *library.get(b"cblas_sgemm\0")?,
                sgemv: *library.get(b"cblas_sgemv\0")?,
                _library: library,
            })
        }
    }

    /// `c = a · b` for one pair of matrices after the other.
    pub(crate) fn products(&self, sizes: Sizes, a: &[f32], b: &[f32], c: &mut [f32]) {
        let Sizes { m, n, k, .. } = sizes;
        let pairs = a.chunks_exact(m * k).zip(b.chunks_exact(k * n));
        for ((a, b), c) in pairs.zip(c.chunks_exact_mut(m * n)) {
            self.product(sizes, a, b, c);
        }
    }

    fn product(&self, sizes: Sizes, a: &[f32], b: &[f32], c: &mut [f32]) {
        let Sizes {
            m,
            n,
            k,
            transposed,
        } = sizes;
        assert!(a.len() == m * k && b.len() == k * n && c.len() == m * n);
        let [m, n, k] = [m, n, k].map(|size| i32::try_from(size).expect("a size that BLAS takes"));
        let (a, b, c) = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
        let (flip, line) = if transposed {
            (TRANSPOSED, k)
        } else {
            (AS_IT_IS, n)
        };
        // SAFETY: the slices are as long as the sizes say, and c is borrowed for writing.
        unsafe {
            match m {
                // A row times B is B transposed times a column.
                1 if transposed => {
                    (self.sgemv)(ROW_MAJOR, AS_IT_IS, n, k, 1.0, b, k, a, 1, 0.0, c, 1);
                }
                1 => (self.sgemv)(ROW_MAJOR, TRANSPOSED, k, n, 1.0, b, n, a, 1, 0.0, c, 1),
                _ => (self.sgemm)(
                    ROW_MAJOR, AS_IT_IS, flip, m, n, k, 1.0, a, k, b, line, 0.0, c, n,
                ),
            }
        }
    }
}
