//! Bodies of requests and responses.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::Stream;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use tokio::time::{Instant, Sleep};

/// Time in which a client must send the next part of a body.
pub(crate) const STALL: Duration = Duration::from_secs(30);
/// Minimum size of that part, in bytes, except at the end.
const PROGRESS_BYTES: usize = 1024;

/// Body of a response, and of a request for `dav-server`.
pub(crate) type AnyBody = UnsyncBoxBody<Bytes, io::Error>;

pub(crate) fn empty() -> AnyBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn full(data: impl Into<Bytes>) -> AnyBody {
    Full::new(data.into()).map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn streamed(pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> AnyBody {
    use futures_util::TryStreamExt;
    StreamBody::new(pieces.map_ok(Frame::data)).boxed_unsync()
}

/// Body of a request that fails if the client makes no progress.
pub(crate) struct TimedBody<B> {
    body: B,
    /// Bytes since the last start of the timer.
    received: usize,
    timer: Pin<Box<Sleep>>,
}

impl<B> TimedBody<B> {
    pub(crate) fn new(body: B) -> Self {
        Self { body, received: 0, timer: Box::pin(tokio::time::sleep(STALL)) }
    }
}

impl<B: Body<Error = hyper::Error> + Unpin> Body for TimedBody<B> {
    type Data = B::Data;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<B::Data>>>> {
        let this = &mut *self;
        match Pin::new(&mut this.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                this.received += frame.data_ref().map_or(0, Buf::remaining);
                if this.received >= PROGRESS_BYTES {
                    this.received = 0;
                    this.timer.as_mut().reset(Instant::now() + STALL);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(io::Error::other(error)))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => match this.timer.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into()))),
                Poll::Pending => Poll::Pending,
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
