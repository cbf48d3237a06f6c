//! What a script saw, as lines that can be compared.

use std::fmt::Display;
use std::io;

use rustix::io::Errno;

/// What an operation came to, as text that is the same wherever it is the same.
pub(super) trait Outcome {
    fn told(self) -> String;
}

/// A result whose value says something.
impl<T: Display> Outcome for Result<T, Errno> {
    fn told(self) -> String {
        match self {
            Ok(value) => value.to_string(),
            Err(errno) => name(errno),
        }
    }
}

impl<T: Display> Outcome for io::Result<T> {
    fn told(self) -> String {
        match self {
            Ok(value) => value.to_string(),
            Err(error) => Errno::from_io_error(&error).map_or(error.to_string(), name),
        }
    }
}

/// The names that the manual pages have, for the errors that scripts meet.
fn name(errno: Errno) -> String {
    let known = [
        (Errno::NOSPC, "ENOSPC"),
        (Errno::IO, "EIO"),
        (Errno::INVAL, "EINVAL"),
        (Errno::NXIO, "ENXIO"),
        (Errno::OPNOTSUPP, "EOPNOTSUPP"),
        (Errno::NOTTY, "ENOTTY"),
        (Errno::EXIST, "EEXIST"),
        (Errno::NOENT, "ENOENT"),
        (Errno::NOTEMPTY, "ENOTEMPTY"),
        (Errno::NOTDIR, "ENOTDIR"),
        (Errno::ISDIR, "EISDIR"),
        (Errno::PERM, "EPERM"),
        (Errno::ACCESS, "EACCES"),
        (Errno::FBIG, "EFBIG"),
        (Errno::NODATA, "ENODATA"),
        (Errno::RANGE, "ERANGE"),
        (Errno::TOOBIG, "E2BIG"),
        (Errno::ROFS, "EROFS"),
        (Errno::BADF, "EBADF"),
    ];
    let found = known.iter().find(|(known, _)| *known == errno);
    found.map_or_else(|| format!("errno {}", errno.raw_os_error()), |(_, name)| (*name).to_owned())
}

/// The lines of a script on one mount: what was done, and what it came to.
#[derive(Default)]
pub(super) struct Trace {
    lines: Vec<(String, String)>,
}

impl Trace {
    /// Notes an operation and its outcome.
    pub(super) fn note(&mut self, operation: impl Into<String>, outcome: impl Outcome) {
        self.lines.push((operation.into(), outcome.told()));
    }

    /// Notes something that was seen.
    pub(super) fn saw(&mut self, what: impl Into<String>, value: impl Display) {
        self.lines.push((what.into(), value.to_string()));
    }

    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Operations that came to something else: operation, ours, the kernel's.
    pub(super) fn differences(&self, kernel: &Self) -> Vec<(String, String, String)> {
        let pairs = self.lines.iter().zip(&kernel.lines);
        let mut found: Vec<_> = pairs
            .filter(|(ours, theirs)| ours != theirs)
            .map(|((operation, ours), (theirs_is, theirs))| {
                assert_eq!(operation, theirs_is, "a script does the same wherever it runs");
                (operation.clone(), ours.clone(), theirs.clone())
            })
            .collect();
        if self.len() != kernel.len() {
            let (ours, theirs) = (self.len().to_string(), kernel.len().to_string());
            found.push((String::from("operations"), ours, theirs));
        }
        found
    }
}

/// A short name for contents: their length and a hash.
pub(super) fn digest(bytes: &[u8]) -> String {
    format!("{} bytes {:08x}", bytes.len(), crc32c::crc32c(bytes))
}
