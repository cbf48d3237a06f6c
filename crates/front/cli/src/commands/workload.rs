//! `diskwright workload`: the program `diskwright-bench`, with the same arguments.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use diskwright::{Error, Outcome, Result};

/// Name of the program.
const PROGRAM: &str = "diskwright-bench";

const HELP: &str = "\
diskwright-bench is a separate program, searched for in the directory of diskwright and in PATH. All arguments are passed \
to it, including --help.

Examples:
  diskwright workload --help
  diskwright workload create --target memory:xfs --target kernel:xfs";

/// Run published file-system workloads with the program diskwright-bench
#[derive(Debug, Args)]
#[command(after_help = HELP, disable_help_flag = true)]
pub(crate) struct WorkloadArgs {
    /// Arguments of diskwright-bench
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

pub(crate) fn run(_: &WorkloadArgs) -> Result<Outcome> {
    // Options for remote images can be on either side of the command, and belong to the program too.
    let mut words: Vec<_> = env::args_os().skip(1).collect();
    if let Some(at) = words.iter().position(|word| word == "workload") {
        words.remove(at);
    }
    let program = beside().unwrap_or_else(|| PROGRAM.into());
    run_instead(Command::new(&program).args(words)).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => Error::Usage(missing()),
        _ => Error::Host { operation: "run", path: program, source },
    })
}

/// Returns the program in the directory of this one, if it is there.
fn beside() -> Option<PathBuf> {
    let path =
        env::current_exe().ok()?.with_file_name(format!("{PROGRAM}{}", env::consts::EXE_SUFFIX));
    path.is_file().then_some(path)
}

fn missing() -> String {
    format!(
        "workload needs {PROGRAM}, a separate program that is neither beside this one nor in PATH; packages of \
         Diskwright contain it, or install it with: cargo install --git {} {PROGRAM}",
        env!("CARGO_PKG_REPOSITORY")
    )
}

/// Replaces this process, so that standard streams, signals and the exit status are those of the other program.
#[cfg(unix)]
fn run_instead(command: &mut Command) -> io::Result<Outcome> {
    Err(std::os::unix::process::CommandExt::exec(command))
}

/// Runs a program with the same standard streams, and ends with its exit status.
#[cfg(not(unix))]
fn run_instead(command: &mut Command) -> io::Result<Outcome> {
    let status = command.status()?;
    std::process::exit(status.code().unwrap_or(Outcome::No as i32))
}
