//! Mounts in the background.
//!
//! A process with threads must not fork, so this program starts a second process. The standard
//! output of that process is a pipe. A byte in the pipe means that the mount is ready; end of file
//! means that mounting failed, and the exit status contains the reason. Until the byte is sent,
//! standard error is the user's.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use diskwright::{Error, Outcome, Result};
use rustix::stdio::{dup2_stderr, dup2_stdout, stdout};

use super::MountArgs;
use crate::terminal;

/// Argument that marks the second process.
pub(super) const FLAG: &str = "in-background";

/// Mounts in a second process, with the arguments of this one, and returns when the mount is ready.
pub(super) fn start() -> Result<Outcome> {
    let program =
        std::env::current_exe().map_err(|e| failed("find", "this program".as_ref(), e))?;
    let mut arguments = std::env::args_os();
    let mut command = Command::new(&program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    // Insert the flag after the command's name: global options may precede the name, and `--` may
    // follow it.
    let arguments: Vec<_> = arguments.collect();
    let name = arguments.iter().position(|argument| argument == "mount").map_or(0, |at| at + 1);
    let (before, behind) = arguments.split_at(name);
    command.args(before).arg(format!("--{FLAG}")).args(behind);
    let server = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut server = server.map_err(|e| failed("start", &program, e))?;
    let is_ready = server.stdout.as_mut().is_some_and(|pipe| pipe.read_exact(&mut [0]).is_ok());
    if is_ready {
        return Ok(Outcome::Done);
    }
    let status = server.wait().map_err(|e| failed("wait for", &program, e))?;
    Ok(outcome(status))
}

/// Converts the exit status of the second process, which has already printed the reason unless a
/// signal ended it.
fn outcome(status: ExitStatus) -> Outcome {
    match status.code() {
        Some(1) => Outcome::No,
        Some(2) => Outcome::Usage,
        Some(3) => Outcome::Image,
        Some(4) => Outcome::Io,
        _ => {
            let signal = status.signal().map(|signal| format!(" by signal {signal}"));
            let how = signal.unwrap_or_default();
            terminal::message(&format_args!(
                "the mount server ended{how} before the mount was ready"
            ));
            Outcome::Io
        }
    }
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Host { operation, path: path.to_owned(), source }
}

/// Files needed to detach, opened while errors can still be reported.
pub(super) struct Detach {
    null: File,
    log: Option<File>,
}

impl Detach {
    /// Opens the files for a process in the background. Returns `None` for one in the foreground.
    pub(super) fn of(args: &MountArgs) -> Result<Option<Self>> {
        args.is_background.then(|| Self::new(args.log.as_deref())).transpose()
    }

    fn new(log: Option<&Path>) -> Result<Self> {
        let null = Path::new("/dev/null");
        let null = File::options()
            .read(true)
            .write(true)
            .open(null)
            .map_err(|e| failed("open", null, e))?;
        let open = |path: &Path| {
            let log = File::options().append(true).create(true).open(path);
            log.map_err(|e| failed("open", path, e))
        };
        Ok(Self { null, log: log.map(open).transpose()? })
    }

    /// Detaches from the terminal and the working directory, and reports that the mount is ready.
    /// Errors are ignored, because the mount works without it.
    pub(super) fn detach(self) {
        let Self { null, log } = self;
        let _ = rustix::process::setsid();
        let _ = std::env::set_current_dir("/");
        let _ = dup2_stderr(log.as_ref().unwrap_or(&null));
        let _ = rustix::io::write(stdout(), b"\n");
        let _ = dup2_stdout(&null);
    }
}
