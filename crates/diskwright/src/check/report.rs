//! What a check found.

use std::path::PathBuf;

use ::check::{Code, Finding, Severity, Summary};

use super::Format;
use crate::Outcome;

/// What a check found in an image.
#[derive(Clone, Debug)]
pub struct Report {
    /// The image file.
    pub image: PathBuf,
    /// The format that it was checked as.
    pub format: Format,
    /// What was looked at; all zero if that is not known, as the check was interrupted.
    pub summary: Summary,
    /// Whether somebody ended the check before its time.
    pub is_interrupted: bool,
    /// The first error of the device, if it failed to read: the check is incomplete then, and each finding may follow
    /// from the error.
    pub device_error: Option<String>,
    /// What is wrong, the worst kinds first, and by name where they are as bad as each other.
    pub kinds: Vec<FindingsOfKind>,
}

/// All findings of one code.
#[derive(Clone, Debug)]
pub struct FindingsOfKind {
    /// What they have in common.
    pub code: &'static Code,
    /// How many there are, those that are left out included.
    pub count: u64,
    /// The findings by place: all of them or, where there are too many to be kept, the first ones.
    pub findings: Vec<Finding>,
}

/// What a check comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything was looked at, and nothing is wrong.
    Clean,
    /// Something is wrong.
    Damaged,
    /// The device failed to read, or the check found nothing, but did not look at everything.
    Incomplete,
}

impl Verdict {
    /// The word for it in reports: `clean`, `damaged` or `incomplete`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Damaged => "damaged",
            Self::Incomplete => "incomplete",
        }
    }
}

impl FindingsOfKind {
    /// How many findings were not kept.
    pub fn left_out(&self) -> u64 {
        self.count.saturating_sub(self.findings.len() as u64)
    }
}

impl Report {
    /// What it comes to.
    pub fn verdict(&self) -> Verdict {
        match () {
            () if self.device_error.is_some() => Verdict::Incomplete,
            () if !self.kinds.is_empty() => Verdict::Damaged,
            () if self.summary.is_complete && !self.is_interrupted => Verdict::Clean,
            () => Verdict::Incomplete,
        }
    }

    /// Makes it the report of a check whose device failed, if it did.
    pub(crate) fn fail(&mut self, device_error: Option<&str>) {
        self.device_error = device_error.map(str::to_owned);
        self.summary.is_complete &= device_error.is_none();
    }

    /// How many findings there are.
    pub fn count(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.count).sum()
    }

    /// How many findings are that bad.
    pub fn count_of(&self, severity: Severity) -> u64 {
        let kinds = self.kinds.iter().filter(|kind| kind.code.severity == severity);
        kinds.map(|kind| kind.count).sum()
    }

    /// How a command ends that has no more to say than this.
    pub fn outcome(&self) -> Outcome {
        match self.verdict() {
            _ if self.is_interrupted => Outcome::Interrupted,
            _ if self.device_error.is_some() => Outcome::Io,
            Verdict::Clean => Outcome::Done,
            Verdict::Damaged | Verdict::Incomplete => Outcome::No,
        }
    }
}
