//! Report of a check.

use std::path::PathBuf;

use vfs::check::{Code, Finding, Severity, Summary};

use super::Format;
use crate::Outcome;
use crate::damaged::DamagedFile;

/// Result of the check of an image.
#[derive(Clone, Debug)]
pub struct Report {
    /// The image file.
    pub image: PathBuf,
    /// Format used for the check.
    pub format: Format,
    /// Extent of the check; all zero if it was interrupted.
    pub summary: Summary,
    /// True if the check was cancelled.
    pub is_interrupted: bool,
    /// First read error of the device. The check is incomplete then, and findings may be caused by the error.
    pub device_error: Option<String>,
    /// Findings, most severe kinds first, then by name.
    pub kinds: Vec<FindingsOfKind>,
    /// Files that cannot be read completely, if they were searched for: [`super::files_on_bad_areas`].
    pub damaged_files: Option<DamagedFiles>,
}

/// Files on bad areas of a disk.
#[derive(Clone, Debug, Default)]
pub struct DamagedFiles {
    /// Number of files, including dropped ones.
    pub count: u64,
    /// The first files.
    pub files: Vec<DamagedFile>,
    /// True if all directories could be listed.
    pub is_complete: bool,
}

/// All findings of one code.
#[derive(Clone, Debug)]
pub struct FindingsOfKind {
    /// Common properties.
    pub code: &'static Code,
    /// Number of findings, including dropped ones.
    pub count: u64,
    /// Findings by location: all, or the first ones if there are too many.
    pub findings: Vec<Finding>,
}

/// Overall result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The check was complete and found nothing.
    Clean,
    /// The check found damage.
    Damaged,
    /// The device failed, or the check found nothing but was incomplete.
    Incomplete,
}

impl Verdict {
    /// Returns the name in reports: `clean`, `damaged` or `incomplete`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Damaged => "damaged",
            Self::Incomplete => "incomplete",
        }
    }
}

impl FindingsOfKind {
    /// Returns the number of dropped findings.
    pub fn left_out(&self) -> u64 {
        self.count.saturating_sub(self.findings.len() as u64)
    }
}

impl Report {
    /// Returns the overall result.
    pub fn verdict(&self) -> Verdict {
        match () {
            () if self.device_error.is_some() => Verdict::Incomplete,
            () if !self.kinds.is_empty() || self.has_damaged_files() => Verdict::Damaged,
            () if self.summary.is_complete && !self.is_interrupted => Verdict::Clean,
            () => Verdict::Incomplete,
        }
    }

    /// Returns whether files are on bad areas.
    fn has_damaged_files(&self) -> bool {
        self.damaged_files.as_ref().is_some_and(|damaged| damaged.count > 0)
    }

    /// Adds a device error, if there is one.
    pub(crate) fn fail(&mut self, device_error: Option<&str>) {
        self.device_error = device_error.map(str::to_owned);
        self.summary.is_complete &= device_error.is_none();
    }

    /// Returns the number of findings.
    pub fn count(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.count).sum()
    }

    /// Returns the number of findings of a severity.
    pub fn count_of(&self, severity: Severity) -> u64 {
        let kinds = self.kinds.iter().filter(|kind| kind.code.severity == severity);
        kinds.map(|kind| kind.count).sum()
    }

    /// Returns the exit status for this report.
    pub fn outcome(&self) -> Outcome {
        match self.verdict() {
            _ if self.is_interrupted => Outcome::Interrupted,
            _ if self.device_error.is_some() => Outcome::Io,
            Verdict::Clean => Outcome::Done,
            Verdict::Damaged | Verdict::Incomplete => Outcome::No,
        }
    }
}
