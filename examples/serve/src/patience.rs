//! A socket that waits for its client only so long.
//!
//! Whoever sends requests and reads no answers would keep its connection for ever otherwise. Each
//! byte that the client takes gives it the whole time again, as nginx's `send_timeout` does.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// A connection whose writes fail if the client takes nothing for some time.
#[derive(Debug)]
pub(crate) struct Patient {
    stream: TcpStream,
    limit: Duration,
    /// The end of the wait, while bytes wait for the client.
    until: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    pub(crate) fn new(stream: TcpStream, limit: Duration) -> Patient {
        Patient {
            stream,
            limit,
            until: None,
        }
    }

    /// Looks at the outcome of a write: bytes end a wait, and the end of a wait is an error.
    fn looked_at(
        &mut self,
        written: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.until = None;
            return written;
        }
        let limit = self.limit;
        let until = self.until.get_or_insert_with(|| Box::pin(sleep(limit)));
        if until.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        // The system would keep for a while what the client has not taken.
        let _ = self.stream.set_zero_linger();
        let seconds = limit.as_secs_f32();
        let why = format!("the client took no byte of its answers for {seconds} s");
        Poll::Ready(Err(io::Error::new(ErrorKind::TimedOut, why)))
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.looked_at(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.looked_at(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Read;
    use std::net::SocketAddr;
    use std::thread;

    use tokio::net::TcpSocket;
    use tokio::time::Instant;

    use super::*;

    /// A busy machine may stop a reader for some of it.
    const LIMIT: Duration = Duration::from_secs(1);

    /// Both ends of a connection, whose buffers are small.
    async fn connection() -> (Patient, std::net::TcpStream) {
        let listening = TcpSocket::new_v4().unwrap();
        listening.set_send_buffer_size(8 << 10).unwrap();
        listening
            .bind(SocketAddr::from(([127, 0, 0, 1], 0)))
            .unwrap();
        let listener = listening.listen(1).unwrap();
        let client = TcpSocket::new_v4().unwrap();
        client.set_recv_buffer_size(8 << 10).unwrap();
        let address = listener.local_addr().unwrap();
        let client = client.connect(address).await.unwrap().into_std().unwrap();
        client.set_nonblocking(false).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        (Patient::new(stream, LIMIT), client)
    }

    /// Writes all of these bytes.
    async fn write(server: &mut Patient, mut bytes: &[u8], is_vectored: bool) -> io::Result<()> {
        while !bytes.is_empty() {
            let parts = [IoSlice::new(bytes)];
            let write = |context: &mut Context<'_>| match is_vectored {
                true => Pin::new(&mut *server).poll_write_vectored(context, &parts),
                false => Pin::new(&mut *server).poll_write(context, bytes),
            };
            bytes = &bytes[poll_fn(write).await?..];
        }
        Ok(())
    }

    #[tokio::test]
    async fn a_client_that_reads_slowly_gets_everything() {
        for is_vectored in [false, true] {
            let (mut server, mut client) = connection().await;
            let reader = thread::spawn(move || {
                let (mut total, mut buffer) = (0, [0; 4 << 10]);
                loop {
                    thread::sleep(LIMIT / 50);
                    match client.read(&mut buffer).unwrap() {
                        0 => return total,
                        count => total += count,
                    }
                }
            });
            let (start, bytes) = (Instant::now(), vec![7; 512 << 10]);
            write(&mut server, &bytes, is_vectored).await.unwrap();
            assert!(start.elapsed() > 2 * LIMIT, "{:?}", start.elapsed());
            drop(server);
            assert_eq!(reader.join().unwrap(), bytes.len());
        }
    }

    #[tokio::test]
    async fn a_client_that_reads_nothing_is_given_up() {
        for is_vectored in [false, true] {
            let (mut server, client) = connection().await;
            let start = Instant::now();
            let written = write(&mut server, &[7; 4 << 20], is_vectored).await;
            let error = written.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
            assert!(error.to_string().contains("1 s"), "{error}");
            assert!(start.elapsed() >= LIMIT);
            drop((server, client));
        }
    }
}
