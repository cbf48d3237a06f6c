//! Messages, output and progress bars.

use std::fmt::{Debug, Display};
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::sync::OnceLock;
use std::time::Duration;

use diskwright::check::Phase;
use diskwright::extract::Observer;
use diskwright::hint::{self, Dialect, Hint, Setting};
use diskwright::{Error, Result, text};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Size of the output buffer in bytes.
const OUTPUT_BYTES: usize = 256 << 10;

/// Drop-in program that started this one.
static CALLED_AS: OnceLock<String> = OnceLock::new();

/// Name of the running program, unless it is `diskwright`.
static PROGRAM: OnceLock<&'static str> = OnceLock::new();

/// The command that runs, after its arguments were parsed.
static COMMAND: OnceLock<clap::Command> = OnceLock::new();

/// The hint that the running command words itself.
static OWN_HINT: OnceLock<(Hint, &'static str)> = OnceLock::new();

/// Makes messages those of a program.
pub(crate) fn speak_for(program: &'static str) {
    let _ = PROGRAM.set(program);
}

/// Makes hints name the options of a command.
pub(crate) fn hint_for(command: clap::Command) {
    let _ = COMMAND.set(command);
}

/// Replaces the text of a hint for the running command.
pub(crate) fn word_hint(hint: Hint, text: &'static str) {
    let _ = OWN_HINT.set((hint, text));
}

/// Makes messages those of a drop-in program that started this one.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(crate) fn speak_as(program: &str) {
    let _ = CALLED_AS.set(program.into());
}

/// Prints a message to standard error. All messages use this function: it escapes names, labels and
/// answers of servers, and hides secrets of addresses.
pub fn message(text: &dyn Display) {
    let program = PROGRAM.get().copied().unwrap_or("diskwright");
    // If standard error is closed, the message is lost.
    let text = text::safe(&text.to_string()).replace('\n', "\n  ");
    let _ = writeln!(io::stderr(), "{}: {text}", CALLED_AS.get().map_or(program, |name| name));
}

/// Makes messages of libraries name options of the running command, or of the drop-in program that started this one.
pub(crate) fn provide_hints() {
    hint::provide(Dialect { setting: setting_text, hint: hint_text });
}

fn setting_text(setting: Setting, with_value: bool) -> Option<String> {
    if let Some(program) = CALLED_AS.get() {
        return dropin::hints::setting_of(program, setting, with_value);
    }
    match running_has(setting.name()) {
        true => None,
        false => dropin::hints::of_diskwright(setting, with_value),
    }
}

fn hint_text(hint: Hint) -> Option<String> {
    if let Some(program) = CALLED_AS.get() {
        return dropin::hints::hint_of(program, hint);
    }
    OWN_HINT.get().filter(|(own, _)| *own == hint).map(|(_, text)| (*text).to_owned())
}

/// Returns whether the running command has an option.
fn running_has(option: &str) -> bool {
    COMMAND
        .get()
        .is_some_and(|command| command.get_arguments().any(|it| it.get_long() == Some(option)))
}

/// Writes text of several lines to standard error.
pub(crate) fn lines(lines: &[u8]) {
    let _ = io::stderr().write_all(lines);
}

/// Prints messages of libraries as messages of the program. They report errors of a mount that no
/// caller receives.
pub(crate) fn show_messages_of_libraries() {
    // Fails only if another subscriber is already installed.
    let _ = tracing::subscriber::set_global_default(Messages);
}

/// Subscriber for messages of libraries, which use no spans.
struct Messages;

impl Subscriber for Messages {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Shown);
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// Prints the message of an event.
struct Shown;

impl Visit for Shown {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            message(&format_args!("{value:?}"));
        }
    }
}

/// Returns whether standard output is a terminal, so that names must be escaped.
pub(crate) fn escapes_names() -> bool {
    io::stdout().is_terminal()
}

/// Runs `write` with a buffered standard output and flushes it.
///
/// # Errors
/// Returns the errors of `write`, or of the output.
pub fn with_output<T>(
    write: impl FnOnce(&mut BufWriter<StdoutLock<'static>>) -> Result<T>,
) -> Result<T> {
    let mut out = BufWriter::with_capacity(OUTPUT_BYTES, io::stdout().lock());
    let result = write(&mut out);
    // Keep the output from before an error.
    let flushed = out.flush().map_err(Error::Output);
    let value = result?;
    flushed.map(|()| value)
}

/// Writes JSON with control characters escaped, so that it is safe on a terminal.
pub(crate) fn write_json(
    out: &mut (impl Write + ?Sized),
    value: &impl serde::Serialize,
) -> serde_json::Result<()> {
    let json = disk::address::safe_json(serde_json::to_string(value)?);
    out.write_all(json.as_bytes()).map_err(serde_json::Error::io)
}

/// Like [`write_json`], but on several lines.
pub(crate) fn write_json_pretty(
    out: &mut (impl Write + ?Sized),
    value: &impl serde::Serialize,
) -> serde_json::Result<()> {
    let json = disk::address::safe_json(serde_json::to_string_pretty(value)?);
    out.write_all(json.as_bytes()).map_err(serde_json::Error::io)
}

/// Starts periodic redrawing of a visible bar. That requires a thread, which may be unavailable.
pub fn tick(bar: &ProgressBar) {
    let has_thread = || std::thread::Builder::new().spawn(|| {}).is_ok_and(|it| it.join().is_ok());
    if !bar.is_hidden() && has_thread() {
        bar.enable_steady_tick(Duration::from_millis(125));
    }
}

/// Creates a spinner with counts on standard error, if that is a terminal.
pub(crate) fn spinner(what: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
    let template = "{spinner} {prefix} {pos} files, {msg}, {elapsed}";
    let style = ProgressStyle::with_template(template);
    let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    tick(&bar);
    bar.with_prefix(what)
}

/// Shows the progress of copying.
pub(crate) struct CopyProgress {
    bar: ProgressBar,
    bytes: u64,
}

impl CopyProgress {
    pub(crate) fn new(what: &'static str) -> Self {
        Self { bar: spinner(what), bytes: 0 }
    }
}

impl Drop for CopyProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl Observer for CopyProgress {
    fn file(&mut self, _: &[u8]) {
        self.bar.inc(1);
    }

    fn copied(&mut self, bytes: u64) {
        self.bytes += bytes;
        if !self.bar.is_hidden() {
            self.bar.set_message(text::size(self.bytes));
        }
    }

    fn warning(&mut self, text: &str) {
        self.bar.suspend(|| message(&text));
    }
}

/// Shows the progress of a check: its phase, and the read rate.
pub(crate) struct CheckProgress {
    bar: ProgressBar,
}

impl CheckProgress {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
        let template = "{spinner} checking {bar:20} {percent:>3}% {wide_msg} {elapsed}";
        let style = ProgressStyle::with_template(template);
        Self { bar: bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())) }
    }

    /// Shows that `done` of `total` units of a phase are complete, with bytes read and findings so
    /// far.
    pub(crate) fn show(&self, phase: Phase, done: u64, total: u64, bytes_read: u64, findings: u64) {
        if self.bar.is_hidden() {
            return;
        }
        let rate = bytes_read as f64 / self.bar.elapsed().as_secs_f64().max(0.001);
        let rate = text::size(rate as u64);
        let found = match findings {
            0 => String::new(),
            1 => ", 1 finding".into(),
            count => format!(", {count} findings"),
        };
        self.bar.set_length(total);
        self.bar.set_position(done);
        self.bar.set_message(format!("{}, {rate}/s{found}", phase.word()));
        self.bar.tick();
    }
}

impl Drop for CheckProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Shows the progress of a repair.
pub(crate) struct RepairProgress {
    bar: ProgressBar,
}

impl RepairProgress {
    pub(crate) fn new(what: &'static str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
        let template = "{spinner} {prefix} {bar:20} {percent:>3}% {wide_msg} {elapsed}";
        let style = ProgressStyle::with_template(template);
        let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { bar: bar.with_prefix(what) }
    }

    /// Shows that `done` of `total` units of a part are complete.
    pub(crate) fn show(&self, part: &'static str, done: u64, total: u64) {
        if !self.bar.is_hidden() {
            self.bar.set_length(total);
            self.bar.set_position(done);
            self.bar.set_message(part);
            self.bar.tick();
        }
    }
}

impl Drop for RepairProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Writes a report to standard output: one JSON object and a newline.
pub(crate) fn json_line(report: &impl serde::Serialize) -> diskwright::Result<()> {
    with_output(|out| {
        write_json(&mut *out, report)
            .map_err(std::io::Error::from)
            .and_then(|()| writeln!(out))
            .map_err(diskwright::Error::Output)
    })
}
