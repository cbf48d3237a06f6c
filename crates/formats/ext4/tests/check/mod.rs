//! Tests of the check: it finds nothing in valid images, and at least as much as e2fsck in damaged ones.

mod damage;
mod kernel;
mod missed;
pub(crate) mod sound;
mod unusual;
pub(crate) mod victim;

use std::num::NonZero;
use std::sync::Arc;

use disk::BlockDevice;
use vfs::check::{Finding, FindingList, Options, Summary};

/// Returns the findings of the check of an image.
fn check(device: Arc<dyn BlockDevice>) -> vfs::Result<(Vec<Finding>, Summary)> {
    let found = FindingList::default();
    let options = Options::default().with_threads(NonZero::new(2).expect("two is not zero"));
    let summary = ext4::check::check(device, &options, &found)?;
    Ok((found.into_findings(), summary))
}

/// Formats a finding as one line for a message.
pub(crate) fn show(finding: &Finding) -> String {
    let Finding { code, place, detail, expected, found, path } = finding;
    let path = path.as_deref().map(String::from_utf8_lossy);
    format!("{} {place:?} {detail:?}: expected {expected:?}, found {found:?} {path:?}", code.name)
}

/// Asserts that the check finds nothing in an image.
#[track_caller]
fn assert_sound(name: &str, device: Arc<dyn BlockDevice>) -> Summary {
    let (findings, summary) = check(device).expect("an image that can be checked");
    let lines: Vec<_> = findings.iter().map(show).collect();
    assert!(lines.is_empty(), "{name}:\n{}", lines.join("\n"));
    assert!(summary.is_complete, "{name}: not all was looked at");
    summary
}
