//! Versions of the compared programs.

use std::path::Path;
use std::process::Command;

/// Returns the versions of the programs of a build comparison.
pub(crate) fn versions(program: &Path, mkfs_xfs: Option<&Path>) -> Vec<String> {
    let mut versions = vec![
        version(program, "--version"),
        version(&testkit::program("mke2fs").unwrap_or_else(|| "mke2fs".into()), "-V"),
        version(Path::new("tar"), "--version"),
    ];
    versions.extend(mkfs_xfs.map(|path| version(path, "-V")));
    versions
}

/// Returns the first line of a program's version output.
fn version(program: &Path, flag: &str) -> String {
    let Ok(output) = Command::new(program).arg(flag).output() else {
        return format!("{}: not installed", program.display());
    };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    text.lines().next().unwrap_or("no version").to_owned()
}
