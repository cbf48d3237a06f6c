//! Standard output for several threads.

use std::io::{self, BufWriter, Stdout, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use diskwright::check::Report;
use diskwright::{Error, Result, text};

/// Size of the output buffer in bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Text,
    Json,
    JsonLines,
}

/// Standard output. After an error, nothing more is written.
pub(super) struct Output {
    style: Style,
    state: Mutex<OutputState>,
    has_failed: AtomicBool,
}

struct OutputState {
    out: BufWriter<Stdout>,
    failure: Option<io::Error>,
}

impl Output {
    pub(super) fn new(style: Style) -> Self {
        let out = BufWriter::with_capacity(BUFFER_BYTES, io::stdout());
        let state = Mutex::new(OutputState { out, failure: None });
        Self { style, state, has_failed: AtomicBool::new(false) }
    }

    pub(super) fn style(&self) -> Style {
        self.style
    }

    /// Returns whether writing has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    pub(super) fn write(&self, text: &str) {
        self.attempt(|out| out.write_all(text.as_bytes()));
    }

    /// Flushes the buffer.
    pub(super) fn flush(&self) {
        self.attempt(Write::flush);
    }

    /// Flushes the buffer.
    ///
    /// # Errors
    /// If any write has failed since the start.
    pub(super) fn finish(&self) -> Result<()> {
        self.flush();
        self.lock().failure.take().map_or(Ok(()), |error| Err(Error::Output(error)))
    }

    /// In text format, writes the name of the next image.
    pub(super) fn heading(&self, image: &Path, is_first: bool) {
        if self.style == Style::Text {
            let before = if is_first { "" } else { "\n" };
            let name = text::shown(image);
            self.write(&format!("{before}==> {name} <==\n"));
        }
    }

    pub(super) fn report(&self, report: &Report) {
        match self.style {
            Style::Text => self.attempt(|out| report.write_text(out)),
            Style::Json => self.write(&report.json_line()),
            Style::JsonLines => self.write(&report.json_summary_line()),
        }
    }

    fn attempt(&self, write: impl FnOnce(&mut BufWriter<Stdout>) -> io::Result<()>) {
        let mut state = self.lock();
        if state.failure.is_none()
            && let Err(error) = write(&mut state.out)
        {
            state.failure = Some(error);
            self.has_failed.store(true, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, OutputState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
