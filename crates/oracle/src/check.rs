//! The verdict of `e2fsck` on an image.

use std::path::Path;

use crate::tool;

/// Asserts that `e2fsck -fn` finds nothing to say about an image.
///
/// # Panics
/// With the checker's full output if it reports, asks or warns about anything.
#[track_caller]
pub fn e2fsck(image: impl AsRef<Path>) {
    let image = image.as_ref();
    if let Err(output) = e2fsck_verdict(image) {
        panic!("e2fsck does not accept {}:\n{output}", image.display());
    }
}

/// Runs `e2fsck -fn`: nothing if the image is clean, else all the checker printed.
///
/// Exit status 0 alone is not enough, because some remarks (an extent tree that could be
/// narrower, a skipped journal) leave it at 0. Only the lines of a silent run are accepted.
///
/// # Errors
/// The checker's output, preceded by how it ended.
pub fn e2fsck_verdict(image: &Path) -> Result<(), String> {
    let finished = tool::finish(tool::command("e2fsck").arg("-fn").arg(image));
    let clean = finished.code == Some(0) && finished.text.lines().all(is_expected);
    if clean {
        return Ok(());
    }
    let remarks = finished.text.lines().filter(|line| !is_expected(line)).collect::<Vec<_>>();
    let remarks = remarks.join("\n");
    Err(format!("exit status {:?}, remarks:\n{remarks}\nall:\n{}", finished.code, finished.text))
}

/// Whether a line is part of every run: banner, pass headings, summary.
fn is_expected(line: &str) -> bool {
    let is_summary = line.contains(" files (") && line.ends_with(" blocks");
    line.is_empty() || line.starts_with("e2fsck 1.") || line.starts_with("Pass ") || is_summary
}
