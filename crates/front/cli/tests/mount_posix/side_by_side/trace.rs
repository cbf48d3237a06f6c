//! Observations of a script, as lines that can be compared.

use std::fmt::Display;
use std::io;

use rustix::io::Errno;

/// Result of an operation, as comparable text.
pub(super) trait Outcome {
    fn told(self) -> String;
}

/// A result with a meaningful value.
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

/// Returns the manual pages' name for an error that scripts may get.
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

/// Lines of a script on one mount: operation and result.
#[derive(Default)]
pub(super) struct Trace {
    lines: Vec<(String, String)>,
}

impl Trace {
    /// Records an operation and its result.
    pub(super) fn note(&mut self, operation: impl Into<String>, outcome: impl Outcome) {
        self.lines.push((operation.into(), outcome.told()));
    }

    /// Records an observation.
    pub(super) fn saw(&mut self, what: impl Into<String>, value: impl Display) {
        self.lines.push((what.into(), value.to_string()));
    }

    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Returns the operations with different results: operation, ours, the kernel's.
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

/// Returns a short text for contents: their length and a hash.
pub(super) fn digest(bytes: &[u8]) -> String {
    format!("{} bytes {:08x}", bytes.len(), crc32c::crc32c(bytes))
}
