//! Execution of the next program of the same name in `PATH`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;

/// Environment variable that prevents two programs from calling each other endlessly.
const HANDED_OVER: &str = "DISKWRIGHT_HANDED_OVER";

/// Returns the next program of this name in `PATH` that is not this one. Returns `None` unless this program was started
/// by that name: a caller of `diskwright as NAME` requests this program.
fn next(name: &str) -> Option<PathBuf> {
    let called = PathBuf::from(env::args_os().next()?);
    if env::var_os(HANDED_OVER).is_some() || called.file_name() != Some(OsStr::new(name)) {
        return None;
    }
    let own = env::current_exe().ok()?.canonicalize().ok()?;
    let path = env::var_os("PATH")?;
    let is_other = |file: &PathBuf| {
        let is_program = file.metadata().is_ok_and(|metadata| metadata.is_file());
        is_program && file.canonicalize().is_ok_and(|file| file != own)
    };
    env::split_paths(&path).map(|dir| dir.join(name)).find(is_other)
}

/// Runs the next program with these arguments and returns its status. Returns `None` if there is none or it cannot be
/// run.
pub(crate) fn run(
    name: &str,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Option<u8> {
    let arguments: Vec<OsString> =
        arguments.into_iter().map(|word| word.as_ref().to_owned()).collect();
    let status = Command::new(next(name)?).args(arguments).env(HANDED_OVER, "1").status().ok()?;
    // A program terminated by a signal has no status.
    Some(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}
