//! Which programs are compared.

use std::path::Path;
use std::process::Command;

/// What the programs of a comparison of builds say of their versions.
pub(crate) fn versions(program: &Path, mkfs_xfs: Option<&Path>) -> Vec<String> {
    let mut versions = vec![
        version(program, "--version"),
        version(&oracle::program("mke2fs").unwrap_or_else(|| "mke2fs".into()), "-V"),
        version(Path::new("tar"), "--version"),
    ];
    versions.extend(mkfs_xfs.map(|path| version(path, "-V")));
    versions
}

/// The first line a program prints about its version.
fn version(program: &Path, flag: &str) -> String {
    let Ok(output) = Command::new(program).arg(flag).output() else {
        return format!("{}: not installed", program.display());
    };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    text.lines().next().unwrap_or("no version").to_owned()
}
