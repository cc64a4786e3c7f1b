//! Functions of MPI that return at once, each with the memory that it reads and writes until it is
//! done. All unsafe code of this crate is here.
//!
//! The functions of the crate `mpi` borrow that memory. A wait that ends by a time-out could never
//! give it back, so here a call owns it. A call that is dropped before it is done leaks its memory,
//! since MPI may still write to it.
#![allow(unsafe_code, reason = "a call of MPI owns its memory until it is done")]

use std::ffi::{c_char, c_int};
use std::mem::{self, ManuallyDrop};
use std::ops::Range;

use mpi::ffi;
use mpi::raw::AsRaw;
use mpi::topology::SimpleCommunicator;

use crate::error::{Error, Result};

/// A call on its way.
pub(crate) struct Flight {
    function: &'static str,
    request: ffi::MPI_Request,
    memory: ManuallyDrop<Memory>,
    is_done: bool,
}

/// What a call reads and writes. MPI has the addresses of the vectors' contents, which stay where
/// they are when the vectors move.
struct Memory {
    send: Vec<u8>,
    receive: Vec<u8>,
    send_counts: Spans,
    receive_counts: Spans,
}

/// Ranges of bytes, as MPI takes them.
#[derive(Default)]
struct Spans {
    lens: Vec<c_int>,
    starts: Vec<c_int>,
}

impl Spans {
    /// Checks that they end within `most_bytes`.
    fn new(ranges: impl IntoIterator<Item = Range<usize>>, most_bytes: usize) -> Spans {
        let mut spans = Spans::default();
        for range in ranges {
            assert!(range.end <= most_bytes, "MPI would leave the memory");
            spans.starts.push(int(range.start));
            spans.lens.push(int(range.len()));
        }
        spans
    }
}

/// Ranges of these lengths, one after the other.
pub(crate) fn in_a_row(lens_bytes: impl IntoIterator<Item = usize>) -> Vec<Range<usize>> {
    let mut end_bytes = 0;
    let next = |len_bytes: usize| {
        end_bytes += len_bytes;
        end_bytes - len_bytes..end_bytes
    };
    lens_bytes.into_iter().map(next).collect()
}

/// Pieces are small, so their lengths fit.
fn int(len_bytes: usize) -> c_int {
    c_int::try_from(len_bytes).expect("a piece has less than 2 GiB")
}

impl Flight {
    /// Each rank gets what all ranks send, in the order of the ranks. All send the same length.
    pub(crate) fn all_gather(
        comm: &SimpleCommunicator,
        count: usize,
        send: Vec<u8>,
    ) -> Result<Flight> {
        let receive = vec![0; send.len() * count];
        let len = int(send.len());
        Self::begin("MPI_Iallgather", send, receive, |memory, request| {
            // SAFETY: `send` has `len` bytes and `receive` has `count` times as many, where `count`
            // is the size of the communicator. The flight owns both until the request is done.
            unsafe {
                ffi::MPI_Iallgather(
                    memory.send.as_ptr().cast(),
                    len,
                    ffi::RSMPI_UINT8_T,
                    memory.receive.as_mut_ptr().cast(),
                    len,
                    ffi::RSMPI_UINT8_T,
                    comm.as_raw(),
                    request,
                )
            }
        })
    }

    /// As [`all_gather`](Self::all_gather), of different lengths: rank `i` sends `lens_bytes[i]`.
    /// `receive` is memory to use.
    pub(crate) fn all_gather_parts(
        comm: &SimpleCommunicator,
        send: Vec<u8>,
        mut receive: Vec<u8>,
        lens_bytes: &[usize],
    ) -> Result<Flight> {
        receive.resize(lens_bytes.iter().sum(), 0);
        let spans = Spans::new(in_a_row(lens_bytes.iter().copied()), receive.len());
        Self::begin("MPI_Iallgatherv", send, receive, |memory, request| {
            memory.receive_counts = spans;
            // SAFETY: the spans lie within `receive`. The flight owns them, and the memory, until
            // the request is done.
            unsafe {
                ffi::MPI_Iallgatherv(
                    memory.send.as_ptr().cast(),
                    int(memory.send.len()),
                    ffi::RSMPI_UINT8_T,
                    memory.receive.as_mut_ptr().cast(),
                    memory.receive_counts.lens.as_ptr(),
                    memory.receive_counts.starts.as_ptr(),
                    ffi::RSMPI_UINT8_T,
                    comm.as_raw(),
                    request,
                )
            }
        })
    }

    /// Rank `i` gets the range `sent[i]` of `send`, and sends `received[i]` bytes, which arrive one
    /// after the other. `receive` is memory to use.
    pub(crate) fn all_to_all(
        comm: &SimpleCommunicator,
        (send, sent): (Vec<u8>, &[Range<usize>]),
        (mut receive, received): (Vec<u8>, &[usize]),
    ) -> Result<Flight> {
        receive.resize(received.iter().sum(), 0);
        let sent = Spans::new(sent.iter().cloned(), send.len());
        let received = Spans::new(in_a_row(received.iter().copied()), receive.len());
        Self::begin("MPI_Ialltoallv", send, receive, |memory, request| {
            memory.send_counts = sent;
            memory.receive_counts = received;
            // SAFETY: the spans lie within `send` and `receive`. The flight owns them, and the
            // memory, until the request is done.
            unsafe {
                ffi::MPI_Ialltoallv(
                    memory.send.as_ptr().cast(),
                    memory.send_counts.lens.as_ptr(),
                    memory.send_counts.starts.as_ptr(),
                    ffi::RSMPI_UINT8_T,
                    memory.receive.as_mut_ptr().cast(),
                    memory.receive_counts.lens.as_ptr(),
                    memory.receive_counts.starts.as_ptr(),
                    ffi::RSMPI_UINT8_T,
                    comm.as_raw(),
                    request,
                )
            }
        })
    }

    /// All ranks get the bytes of `root`. They all give as many.
    pub(crate) fn broadcast(
        comm: &SimpleCommunicator,
        root: usize,
        bytes: Vec<u8>,
    ) -> Result<Flight> {
        Self::begin("MPI_Ibcast", Vec::new(), bytes, |memory, request| {
            // SAFETY: the flight owns `receive` until the request is done.
            unsafe {
                ffi::MPI_Ibcast(
                    memory.receive.as_mut_ptr().cast(),
                    int(memory.receive.len()),
                    ffi::RSMPI_UINT8_T,
                    int(root),
                    comm.as_raw(),
                    request,
                )
            }
        })
    }

    /// Sends bytes to one rank.
    pub(crate) fn send(comm: &SimpleCommunicator, to: usize, bytes: Vec<u8>) -> Result<Flight> {
        const TAG: c_int = 0;
        Self::begin("MPI_Isend", bytes, Vec::new(), |memory, request| {
            // SAFETY: the flight owns `send` until the request is done.
            unsafe {
                ffi::MPI_Isend(
                    memory.send.as_ptr().cast(),
                    int(memory.send.len()),
                    ffi::RSMPI_UINT8_T,
                    int(to),
                    TAG,
                    comm.as_raw(),
                    request,
                )
            }
        })
    }

    fn begin(
        function: &'static str,
        mut send: Vec<u8>,
        mut receive: Vec<u8>,
        call: impl FnOnce(&mut Memory, *mut ffi::MPI_Request) -> c_int,
    ) -> Result<Flight> {
        // An empty vector has the address 1, which is Open MPI's `MPI_IN_PLACE`.
        send.reserve(1);
        receive.reserve(1);
        let mut flight = Flight {
            function,
            // SAFETY: a constant of the library.
            request: unsafe { ffi::RSMPI_REQUEST_NULL },
            memory: ManuallyDrop::new(Memory {
                send,
                receive,
                send_counts: Spans::default(),
                receive_counts: Spans::default(),
            }),
            is_done: false,
        };
        let code = call(&mut flight.memory, &mut flight.request);
        checked(function, code)?;
        Ok(flight)
    }

    /// Lets MPI work. Is the call done?
    pub(crate) fn test(&mut self) -> Result<bool> {
        if !self.is_done {
            let mut flag = 0;
            // SAFETY: the request is that of this call, or MPI's null request. The status is not
            // wanted.
            let code =
                unsafe { ffi::MPI_Test(&mut self.request, &mut flag, ffi::RSMPI_STATUS_IGNORE) };
            checked(self.function, code)?;
            self.is_done = flag != 0;
        }
        Ok(self.is_done)
    }

    /// The memory that was sent, and the one with the received bytes, of a call that is done.
    pub(crate) fn end(mut self) -> (Vec<u8>, Vec<u8>) {
        debug_assert!(self.is_done, "MPI may still write");
        let memory = &mut *self.memory;
        match self.is_done {
            true => (mem::take(&mut memory.send), mem::take(&mut memory.receive)),
            false => Default::default(),
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if self.is_done {
            // SAFETY: MPI is done with the memory, and nobody uses it after this.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

/// Lets functions on this communicator return errors, instead of ending all processes.
pub(crate) fn return_errors(comm: &SimpleCommunicator) -> Result<()> {
    // SAFETY: the communicator is live, and the handler is a constant of the library.
    let code = unsafe { ffi::MPI_Comm_set_errhandler(comm.as_raw(), ffi::RSMPI_ERRORS_RETURN) };
    checked("MPI_Comm_set_errhandler", code)
}

/// An error for a code other than MPI's success.
fn checked(function: &'static str, code: c_int) -> Result<()> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut text = [0_u8; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    let mut len = 0;
    // SAFETY: `text` has as many bytes as MPI writes at most.
    unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast::<c_char>(), &mut len) };
    let len = usize::try_from(len).unwrap_or(0).min(text.len());
    Err(Error::Mpi {
        function,
        reason: String::from_utf8_lossy(&text[..len]).into_owned(),
    })
}
