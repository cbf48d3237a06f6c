//! Finding and running reference programs.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};

use crate::requirement::{self, Oldest, VERSION_FLAGS, Version};
use crate::skip::skip;

/// Output and exit status of a program.
pub(crate) struct Finished {
    /// Exit status; `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    /// Standard output followed by standard error, as text.
    pub(crate) text: String,
}

/// Returns the path of a program: the first version that is new enough among those installed by the project's scripts,
/// then in `PATH`, and in the `sbin` directories that a user's `PATH` often lacks. `None` if there is none;
/// [`missing`](crate::missing) returns the reason.
///
/// A name with a directory (`xfsprogs-6.1/bin/mkfs.xfs`) selects that installed release.
pub fn program(name: &str) -> Option<PathBuf> {
    find(name).ok()
}

/// Returns a command for a program, in the C locale and without standard input.
///
/// Skips the running test by [`skip`](crate::skip()) if the program is missing. Tests should use
/// [`require!`](crate::require) first.
///
/// # Panics
/// If [`skip`](crate::skip()) panics.
#[track_caller]
pub fn command(name: &str) -> Command {
    let program = find(name).unwrap_or_else(|reason| skip(&reason));
    let mut command = Command::new(program);
    command.env("LC_ALL", "C").stdin(Stdio::null());
    command
}

/// Copies an executable program with cp(1). If this process opened the copy for writing, a process that another test is
/// starting could inherit the descriptor, and the copy could not be executed until then.
///
/// # Panics
/// If it cannot be copied.
#[track_caller]
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let mut copy = Command::new("cp");
    let status = copy.arg(from.as_ref()).arg(to.as_ref()).status().expect("cp runs");
    assert!(status.success(), "{copy:?}");
}

/// Finds a program, or returns the reason why there is none. Cached by name for the process.
pub(crate) fn find(name: &str) -> Result<PathBuf, String> {
    static ANSWERS: OnceLock<Mutex<HashMap<String, Result<PathBuf, String>>>> = OnceLock::new();
    let answers = ANSWERS.get_or_init(Mutex::default);
    if let Some(answer) = answers.lock().expect("nothing panics with it").get(name) {
        return answer.clone();
    }
    let answer = look_for(&folders(), name);
    answers.lock().expect("nothing panics with it").insert(name.to_owned(), answer.clone());
    answer
}

/// Returns the search directories in order. The project's current xfsprogs comes before the system's.
fn folders() -> Vec<PathBuf> {
    let tools = installed();
    let path = std::env::var_os("PATH").unwrap_or_default();
    [tools.join("xfsprogs/bin"), tools.join("bin"), tools]
        .into_iter()
        .chain(std::env::split_paths(&path))
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .collect()
}

/// Returns the directory in which the project's scripts install programs; `DISKWRIGHT_TOOLS` overrides it.
pub(crate) fn installed() -> PathBuf {
    let ours = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/tools");
    std::env::var_os("DISKWRIGHT_TOOLS").map_or_else(ours, PathBuf::from)
}

/// Returns the first program with a name that is new enough; otherwise the problem of the first one, with advice.
fn look_for(folders: &[PathBuf], name: &str) -> Result<PathBuf, String> {
    let package = requirement::package(name);
    let oldest = package.and_then(|package| package.oldest);
    let mut first_reason = None;
    for path in folders.iter().map(|folder| folder.join(name)).filter(|path| is_program(path)) {
        let Some(oldest) = oldest else { return Ok(path) };
        match check_version(&path, name, oldest) {
            Ok(()) => return Ok(path),
            Err(reason) => first_reason = first_reason.or(Some(reason)),
        }
    }
    let reason = first_reason.unwrap_or_else(|| format!("{name} is not installed"));
    Err(package.map_or(reason.clone(), |package| format!("{reason}; {}", package.install)))
}

fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Returns the found and the required version if a program is too old.
pub(crate) fn check_version(path: &Path, name: &str, oldest: Oldest) -> Result<(), String> {
    let Oldest { version: (major, minor), why } = oldest;
    let needed = format!("{major}.{minor} is needed ({why})");
    match version_of(path) {
        Some(found) if found >= oldest.version => Ok(()),
        Some((major, minor)) => {
            Err(format!("{name} is {major}.{minor} ({}), {needed}", path.display()))
        }
        None => Err(format!("{name} does not report its version ({}), {needed}", path.display())),
    }
}

/// Returns the version that a program prints; `None` also if it cannot be executed.
fn version_of(path: &Path) -> Option<Version> {
    VERSION_FLAGS.iter().find_map(|flag| {
        let mut command = Command::new(path);
        let output = command.arg(flag).env("LC_ALL", "C").stdin(Stdio::null()).output().ok()?;
        let text = [output.stdout, output.stderr].concat();
        first_version(&String::from_utf8_lossy(&text))
    })
}

/// Returns the first `MAJOR.MINOR` in a text.
pub(crate) fn first_version(text: &str) -> Option<Version> {
    text.split(|c: char| !c.is_ascii_digit() && c != '.').find_map(|word| {
        let mut parts = word.split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    })
}

/// Runs a command to its end and collects its output.
pub(crate) fn finish(command: &mut Command) -> Finished {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Finished { code: output.status.code(), text }
}

/// Runs a program that must succeed and returns its output.
///
/// # Panics
/// If the program fails, with its whole output.
pub(crate) fn run<S: AsRef<OsStr>>(name: &str, arguments: impl IntoIterator<Item = S>) -> String {
    let mut command = command(name);
    command.args(arguments);
    let finished = finish(&mut command);
    assert!(
        finished.code == Some(0),
        "{command:?} ended with {:?}:\n{}",
        finished.code,
        finished.text
    );
    finished.text
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};

    use super::{first_version, look_for};

    /// Creates a directory of programs that print these texts for any arguments.
    fn folder(root: &Path, name: &str, programs: &[(&str, &str)]) -> PathBuf {
        let folder = root.join(name);
        fs::create_dir(&folder).unwrap();
        for (program, text) in programs {
            let path = folder.join(program);
            fs::write(&path, format!("#!/bin/sh\necho '{text}' >&2\n")).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        }
        folder
    }

    #[test]
    fn versions_are_read_from_what_the_tools_print() {
        assert_eq!(first_version("mke2fs 1.47.0 (5-Feb-2023)\n\tUsing EXT2FS"), Some((1, 47)));
        assert_eq!(first_version("mkfs.xfs version 6.17.0"), Some((6, 17)));
        assert_eq!(first_version("usage: no number."), None);
    }

    #[test]
    fn a_program_that_is_too_old_is_named_with_both_versions_and_what_to_do() {
        let root = tempfile::tempdir().unwrap();
        let old = [("xfs_repair", "xfs_repair version 6.1.0"), ("e2fsck", "e2fsck 1.46.2 (2021)")];
        let folders = [folder(root.path(), "old", &old)];
        let reason = look_for(&folders, "xfs_repair").unwrap_err();
        assert!(reason.starts_with("xfs_repair is 6.1 ("), "{reason}");
        assert!(reason.contains("6.17 is needed"), "{reason}");
        assert!(reason.contains("scripts/install-xfsprogs"), "{reason}");
        let reason = look_for(&folders, "e2fsck").unwrap_err();
        assert!(reason.contains("e2fsck is 1.46 ("), "{reason}");
        assert!(reason.contains("1.47 is needed"), "{reason}");
        assert!(reason.contains("scripts/install-tools"), "{reason}");
    }

    #[test]
    fn the_first_program_that_is_new_enough_is_taken_wherever_it_is() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str, text: &str| folder(root.path(), name, &[("xfs_db", text)]);
        let old = at("old", "xfs_db version 6.1.0");
        let mute = at("mute", "xfs_db: cannot run here");
        let new = at("new", "xfs_db version 6.17.1");
        let newer = at("newer", "xfs_db version 10.0.0");
        let folders = [old.clone(), mute.clone(), new.clone(), newer.clone()];
        assert_eq!(look_for(&folders, "xfs_db"), Ok(new.join("xfs_db")));
        assert_eq!(look_for(&[old, newer.clone()], "xfs_db"), Ok(newer.join("xfs_db")));
        let reason = look_for(&[mute], "xfs_db").unwrap_err();
        assert!(reason.contains("does not report its version"), "{reason}");
    }

    #[test]
    fn programs_that_cannot_be_executed_are_not_found() {
        let root = tempfile::tempdir().unwrap();
        let folders = [folder(root.path(), "bin", &[("sqlite3", "3.40"), ("xfs_io", "7.0")])];
        for name in ["sqlite3", "xfs_io"] {
            let plain = Permissions::from_mode(0o644);
            fs::set_permissions(folders[0].join(name), plain).unwrap();
            let reason = look_for(&folders, name).unwrap_err();
            assert!(reason.starts_with(&format!("{name} is not installed; scripts/")), "{reason}");
        }
        // For programs outside of the table, only their existence is checked.
        assert_eq!(look_for(&folders, "none").unwrap_err(), "none is not installed");
    }
}
