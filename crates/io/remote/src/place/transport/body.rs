//! Bounds the size of an answer's body, and requires progress.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use object_store::client::{HttpError, HttpResponseBody};
use tokio::time::{Instant, Sleep, sleep};

use super::{CancelReason, Limits};

/// A body with a maximum length. While a reader waits, each window must have its minimum of bytes. The time between two
/// reads does not count.
pub(super) struct Limited {
    body: HttpResponseBody,
    limits: Limits,
    bytes_max: u64,
    left: u64,
    /// End of the current window while a reader waits.
    end: Pin<Box<Sleep>>,
    is_waiting: bool,
    window_bytes: u64,
    /// Remaining time of the window when the reader stopped waiting.
    rest: std::time::Duration,
}

impl Limited {
    pub(super) fn new(body: HttpResponseBody, limits: Limits, bytes_max: u64) -> Self {
        let end = Box::pin(sleep(limits.window));
        let (left, rest) = (bytes_max, limits.window);
        Self { body, limits, bytes_max, left, end, is_waiting: false, window_bytes: 0, rest }
    }

    /// Starts or resumes the window.
    fn wait(&mut self) {
        if !self.is_waiting {
            self.is_waiting = true;
            let end = Instant::now() + self.rest;
            self.end.as_mut().reset(end);
        }
    }

    fn pause(&mut self) {
        self.is_waiting = false;
        self.rest = self.end.deadline().saturating_duration_since(Instant::now());
    }

    /// Fails if a window has ended with too few bytes.
    fn poll_window(&mut self, context: &mut Context<'_>) -> Result<(), CancelReason> {
        while self.end.as_mut().poll(context).is_ready() {
            let (bytes, least) = (self.window_bytes, self.limits.window_bytes);
            if bytes < least {
                return Err(CancelReason::Slow { bytes, window: self.limits.window, least });
            }
            self.window_bytes = 0;
            self.end.as_mut().reset(Instant::now() + self.limits.window);
        }
        Ok(())
    }
}

impl Body for Limited {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        self.wait();
        let polled = Pin::new(&mut self.body).poll_frame(context);
        let Poll::Ready(frame) = polled else {
            return match self.poll_window(context) {
                Ok(()) => Poll::Pending,
                Err(fault) => Poll::Ready(Some(Err(fault.into()))),
            };
        };
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            let len = data.len() as u64;
            let Some(left) = self.left.checked_sub(len) else {
                return Poll::Ready(Some(Err(CancelReason::Long(self.bytes_max).into())));
            };
            self.left = left;
            self.window_bytes += len;
            if let Err(fault) = self.poll_window(context) {
                return Poll::Ready(Some(Err(fault.into())));
            }
        }
        self.pause();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // Callers reserve memory by the hint, so it must not exceed the limit.
        let hint = self.body.size_hint();
        if hint.lower() <= self.left { hint } else { SizeHint::default() }
    }
}

/// Returns the bytes of a body up to its end, its limit or its first error.
pub(super) async fn collect(mut body: Limited) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(Ok(frame)) =
        std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
    {
        if let Some(data) = frame.data_ref() {
            bytes.extend_from_slice(data);
        }
    }
    bytes
}
