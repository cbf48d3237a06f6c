//! Mounts in the background.
//!
//! A process with threads must not fork, so the program is started again. Its standard output is a pipe:
//! a byte in it says that the mount can be used, its end that there is none; the exit status then tells
//! why. Until the byte is sent, standard error is the user's.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use diskwright::{Error, Outcome, Result};
use rustix::stdio::{dup2_stderr, dup2_stdout, stdout};

use crate::terminal;

/// The argument that tells the second process what it is.
pub(super) const FLAG: &str = "in-background";

/// Mounts in another process, with the arguments of this one, and returns when the mount can be used.
pub(super) fn start() -> Result<Outcome> {
    let program =
        std::env::current_exe().map_err(|e| failed("find", "this program".as_ref(), e))?;
    let mut arguments = std::env::args_os();
    let mut command = Command::new(&program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    // Behind the name of the command, because options may come before it, and a `--` later.
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

/// What the status of the second process means. It has said why, unless a signal ended it.
fn outcome(status: ExitStatus) -> Outcome {
    match status.code() {
        Some(1) => Outcome::No,
        Some(2) => Outcome::Usage,
        Some(3) => Outcome::Image,
        Some(4) => Outcome::Io,
        _ => {
            let signal = status.signal().map(|signal| format!(" by signal {signal}"));
            let how = signal.unwrap_or_default();
            terminal::message(&format_args!("the mount was ended{how} before it could be used"));
            Outcome::Io
        }
    }
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Host { operation, path: path.to_owned(), source }
}

/// What it takes to go into the background, opened while errors can still be told.
pub(super) struct Detach {
    null: File,
    log: Option<File>,
}

impl Detach {
    pub(super) fn new(log: Option<&Path>) -> Result<Self> {
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

    /// Lets go of the terminal and of the directory that the program was started in, and says that the
    /// mount can be used. None of it fails where the mount could: then it simply goes on.
    pub(super) fn detach(self) {
        let Self { null, log } = self;
        let _ = rustix::process::setsid();
        let _ = std::env::set_current_dir("/");
        let _ = dup2_stderr(log.as_ref().unwrap_or(&null));
        let _ = rustix::io::write(stdout(), b"\n");
        let _ = dup2_stdout(&null);
    }
}
