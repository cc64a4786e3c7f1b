//! Sources: where a buffer's bytes can be read again, so that no copy has to be kept.

use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::task::Poll;

use parking_lot::ReentrantMutex;

use crate::driver::{BoxFuture, MaybeSend, MaybeShared};

#[cfg(not(target_arch = "wasm32"))]
type ReadNow = dyn Fn(u64, &mut [u8]) -> io::Result<()> + Send + Sync;
#[cfg(target_arch = "wasm32")]
type ReadNow = dyn Fn(u64, &mut [u8]) -> io::Result<()>;

#[cfg(not(target_arch = "wasm32"))]
type ReadLater = dyn Fn(u64, u64) -> BoxFuture<'static, io::Result<Vec<u8>>> + Send + Sync;
#[cfg(target_arch = "wasm32")]
type ReadLater = dyn Fn(u64, u64) -> BoxFuture<'static, io::Result<Vec<u8>>>;

/// How the bytes are read.
#[derive(Clone)]
enum Read {
    Now(Arc<ReadNow>),
    Later(Arc<ReadLater>),
}

/// Gives a buffer's bytes again, as often as needed: a range of a file, bytes that the app keeps,
/// or a function, which may also be asynchronous.
///
/// A buffer with a source costs nothing to evict. It is restored when a command uses it. Cheap to
/// clone.
///
/// ```
/// use lapidary_core::Source;
///
/// // Bytes at an offset of the tensor, into a slice that must be filled to its end.
/// let ramp = Source::reader(|offset, bytes| {
///     for (index, byte) in bytes.iter_mut().enumerate() {
///         *byte = (offset as usize + index) as u8;
///     }
///     Ok(())
/// });
/// # fn use_it(gpu: lapidary_core::Gpu, ramp: Source) -> lapidary_core::Result<()> {
/// let buffer = gpu.buffer_backed(ramp, 256)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Source {
    read: Read,
    /// Number of bytes, if known.
    len_bytes: Option<u64>,
}

impl Source {
    /// The bytes of a file from an offset on. The file is opened now and must not change: the bytes
    /// are not checked. A read takes as many bytes as the buffer has, so one file may hold many
    /// buffers.
    ///
    /// # Errors
    /// The system's error when the file cannot be opened. `InvalidInput` if it is not a regular
    /// file: a pipe cannot be read at an offset.
    pub fn file(path: impl AsRef<Path>, offset_bytes: u64) -> io::Result<Source> {
        // Check before opening: opening a pipe waits for its writer.
        if !std::fs::metadata(&path)?.is_file() {
            let reason = "the path names no regular file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let file = File::open(path)?;
        let file_bytes = file.metadata()?.len();
        let read = move |at: u64, bytes: &mut [u8]| {
            let at = offset_bytes.checked_add(at);
            let at = at.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
            read_exact_at(&file, bytes, at)
        };
        Ok(Source {
            read: Read::Now(Arc::new(read)),
            len_bytes: Some(file_bytes.saturating_sub(offset_bytes)),
        })
    }

    /// Bytes that the app keeps anyway.
    pub fn bytes(bytes: Arc<[u8]>) -> Source {
        let len_bytes = bytes.len() as u64;
        let read = move |at: u64, into: &mut [u8]| {
            let from = usize::try_from(at).ok().and_then(|at| bytes.get(at..));
            let from = from.and_then(|rest| rest.get(..into.len()));
            let from = from.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
            into.copy_from_slice(from);
            Ok(())
        };
        Source {
            read: Read::Now(Arc::new(read)),
            len_bytes: Some(len_bytes),
        }
    }

    /// A function that fills a slice with the buffer's bytes from an offset on. Any thread may call
    /// it, piece by piece, and before a command needs the bytes. Only one thread calls it at a
    /// time. The last call may end after the last `Gpu` has gone. It must not call this `Gpu`.
    pub fn reader(
        read: impl Fn(u64, &mut [u8]) -> io::Result<()> + MaybeShared + 'static,
    ) -> Source {
        // A function of the app may need it, although it is `Sync`: it may seek in a file.
        let one_at_a_time = ReentrantMutex::new(());
        let read = move |offset_bytes: u64, bytes: &mut [u8]| {
            let _alone = one_at_a_time.lock();
            read(offset_bytes, bytes)
        };
        Source {
            read: Read::Now(Arc::new(read)),
            len_bytes: None,
        }
    }

    /// An asynchronous function that gives so many of the buffer's bytes from an offset on, such as
    /// by a range request over HTTP. It is called before a command needs the bytes. Several calls
    /// may be under way at a time. Neither the function nor its future may call this `Gpu`.
    ///
    /// In a browser the engine awaits the future. Natively a thread waits for it, which may be one
    /// that other calls wait for. So something else must drive the future, such as a runtime with
    /// threads of its own.
    ///
    /// ```
    /// use lapidary_core::Source;
    ///
    /// # async fn fetch(url: &str, range: std::ops::Range<u64>) -> std::io::Result<Vec<u8>> {
    /// #     Ok(Vec::new())
    /// # }
    /// let weights = Source::reader_async(|offset_bytes, len_bytes| {
    ///     fetch("https://example.org/weights", offset_bytes..offset_bytes + len_bytes)
    /// });
    /// # fn use_it(gpu: lapidary_core::Gpu, weights: Source) -> lapidary_core::Result<()> {
    /// let buffer = gpu.buffer_backed(weights, 256)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reader_async<F>(read: impl Fn(u64, u64) -> F + MaybeShared + 'static) -> Source
    where
        F: Future<Output = io::Result<Vec<u8>>> + MaybeSend + 'static,
    {
        let read = move |offset_bytes: u64, len_bytes: u64| -> BoxFuture<'static, _> {
            Box::pin(read(offset_bytes, len_bytes))
        };
        Source {
            read: Read::Later(Arc::new(read)),
            len_bytes: None,
        }
    }

    /// The number of bytes, where it is known without reading.
    pub fn len_bytes(&self) -> Option<u64> {
        self.len_bytes
    }

    /// Whether the bytes come from an asynchronous function.
    pub(crate) fn comes_later(&self) -> bool {
        matches!(self.read, Read::Later(_))
    }

    /// Fills a slice. A panic in the app's function becomes an error of its buffer. Waits for an
    /// asynchronous function; in a browser that is an error of the kind `WouldBlock`.
    pub fn read(&self, offset_bytes: u64, bytes: &mut [u8]) -> io::Result<()> {
        match &self.read {
            Read::Now(read) => catch(|| read(offset_bytes, bytes)),
            Read::Later(_) => {
                let read = self.read_async(offset_bytes, bytes);
                #[cfg(not(target_arch = "wasm32"))]
                return pollster::block_on(read);
                #[cfg(target_arch = "wasm32")]
                return {
                    drop(read);
                    Err(io::ErrorKind::WouldBlock.into())
                };
            }
        }
    }

    /// As [`read`](Self::read), as a future: the only form for asynchronous functions in a browser.
    pub async fn read_async(&self, offset_bytes: u64, bytes: &mut [u8]) -> io::Result<()> {
        match &self.read {
            Read::Now(_) => self.read(offset_bytes, bytes),
            Read::Later(_) => {
                let given = self.give(offset_bytes, bytes.len()).await?;
                bytes.copy_from_slice(&given);
                Ok(())
            }
        }
    }

    /// So many bytes from an offset on.
    pub(crate) async fn give(&self, offset_bytes: u64, len: usize) -> io::Result<Vec<u8>> {
        let Read::Later(read) = &self.read else {
            let mut bytes = vec![0; len];
            return self.read(offset_bytes, &mut bytes).map(|()| bytes);
        };
        let mut reading = None;
        // A poll calls the function, and drops what it returned: all code of the app is within it.
        let given = poll_fn(|context| {
            let polled = catch(|| {
                let called = reading.get_or_insert_with(|| read(offset_bytes, len as u64));
                let polled = called.as_mut().poll(context);
                if polled.is_ready() {
                    reading = None;
                }
                match polled {
                    Poll::Ready(given) => given.map(Some),
                    Poll::Pending => Ok(None),
                }
            });
            polled.transpose().map_or(Poll::Pending, Poll::Ready)
        });
        let given = given.await?;
        if given.len() != len {
            let message = format!("the source gave {} bytes instead of {len}", given.len());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
        }
        Ok(given)
    }
}

/// Calls a function of the app. A panic in it becomes an error.
fn catch<T>(call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let called = catch_unwind(AssertUnwindSafe(call));
    called.unwrap_or_else(|_| Err(io::Error::other("the source panicked")))
}

debug_by_name!(Source { len_bytes });

#[cfg(unix)]
fn read_exact_at(file: &File, bytes: &mut [u8], offset_bytes: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    file.read_exact_at(bytes, offset_bytes)
}

#[cfg(windows)]
fn read_exact_at(file: &File, bytes: &mut [u8], offset_bytes: u64) -> io::Result<()> {
    use std::os::windows::fs::FileExt;
    let mut done = 0;
    while done < bytes.len() {
        match file.seek_read(&mut bytes[done..], offset_bytes + done as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(not(any(unix, windows)))]
fn read_exact_at(_: &File, _: &mut [u8], _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_regular_file_is_refused_and_not_waited_for() {
        let pipe = std::env::temp_dir().join(format!("lapidary-pipe-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.is_ok_and(|status| status.success()), "mkfifo");
        for path in [
            pipe.as_path(),
            Path::new("/dev/null"),
            &std::env::temp_dir(),
        ] {
            let error = Source::file(path, 0).err().map(|error| error.kind());
            assert_eq!(
                error,
                Some(io::ErrorKind::InvalidInput),
                "{}",
                path.display()
            );
        }
        std::fs::remove_file(pipe).unwrap();
    }
}
