//! OpenBLAS through its C interface, from the system's library, if it is there.
#![allow(
    unsafe_code,
    reason = "functions of a C library, looked up when the program runs"
)]

use libloading::Library;

use super::loops::threads;

const NAMES: [&str; 4] = [
    "libopenblas.so.0",
    "libopenblas.so",
    "libopenblas.dylib",
    "libopenblas.dll",
];

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

pub(crate) struct Blas {
    sgemm: Sgemm,
    sgemv: Sgemv,
    saxpy: Saxpy,
    /// The functions are the library's.
    _library: Library,
}

/// One operand: its elements, and whether they lie transposed.
pub(crate) type Operand<'a> = (&'a [f32], bool);

impl Blas {
    /// The library with as many threads as there are cores.
    pub(crate) fn load() -> Option<Blas> {
        // SAFETY: OpenBLAS's initializers only start its threads and read its variables.
        let library = NAMES
            .iter()
            .find_map(|name| unsafe { Library::new(name) }.ok())?;
        // SAFETY: the types are those of OpenBLAS's `cblas.h`, built with 32-bit integers as every
        // system packages it under these names; the library outlives the functions.
        unsafe {
            let set_threads = *library
                .get::<SetThreads>(b"openblas_set_num_threads")
                .ok()?;
            set_threads(i32::try_from(threads()).ok()?);
            Some(Blas {
                sgemm: *library.get::<Sgemm>(b"cblas_sgemm").ok()?,
                sgemv: *library.get::<Sgemv>(b"cblas_sgemv").ok()?,
                saxpy: *library.get::<Saxpy>(b"cblas_saxpy").ok()?,
                _library: library,
            })
        }
    }

    /// C, m × n, of A, m × k, and B, k × n.
    pub(crate) fn multiply(
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
            // A row by a matrix: C = Bᵀ · A, of B as it lies.
            let (rows, columns) = if is_b_transposed { (n, k) } else { (k, n) };
            // SAFETY: the lengths, checked above, are those that the sizes and strides describe.
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
    pub(crate) fn add_scaled(&self, y: &mut [f32], scale: f32, x: &[f32]) {
        assert_eq!(x.len(), y.len());
        let len = i32::try_from(x.len()).expect("sizes here are small");
        // SAFETY: both are as long as is said.
        unsafe { (self.saxpy)(len, scale, x.as_ptr(), 1, y.as_mut_ptr(), 1) }
    }
}
