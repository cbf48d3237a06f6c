//! The compared programs and their command lines.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::Need;

use crate::measurements::sources::Census;

/// Block size of all images, in bytes.
const BLOCK_SIZE: u64 = 4096;

/// Bytes per inode in Debian's `mke2fs.conf`. More inodes than that must be requested explicitly.
const MKE2FS_INODE_RATIO: u64 = 16384;

/// A program that turns a directory into an image (or, for tar, only reads it).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Contestant {
    /// The program under test, and its format for `--fs`.
    Diskwright(PathBuf, &'static str),
    Mke2fs,
    MkfsXfs(PathBuf),
    Tar,
}

/// An image to create.
pub(crate) struct BuildJob<'a> {
    pub(crate) source: &'a Path,
    pub(crate) image: &'a Path,
    pub(crate) census: Census,
}

impl BuildJob<'_> {
    /// Returns the size of the image in bytes: the same for all contestants, and sufficient for each.
    fn image_bytes(&self) -> u64 {
        // ext4 can have at most one inode per 4 KiB block.
        let need = self.census.bytes + self.census.bytes / 4 + self.census.entries * 4500;
        (need + (1 << 30)).next_multiple_of(1 << 20)
    }
}

impl Contestant {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Contestant::Diskwright(_, "xfs") => "diskwright build --fs xfs",
            Contestant::Diskwright(..) => "diskwright build",
            Contestant::Mke2fs => "mke2fs -d",
            Contestant::MkfsXfs(_) => "mkfs.xfs -p",
            Contestant::Tar => "tar -c to cat",
        }
    }

    /// Returns whether it creates an image.
    pub(crate) fn makes_image(&self) -> bool {
        !matches!(self, Contestant::Tar)
    }

    /// Returns whether it is the program under test.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self, Contestant::Diskwright(..))
    }

    /// Prepares the image file, which is not timed, and the command to be timed.
    pub(crate) fn prepare(&self, job: &BuildJob<'_>) -> Result<Command, String> {
        if job.image.exists() {
            std::fs::remove_file(job.image).map_err(|error| error.to_string())?;
        }
        if matches!(self, Contestant::Mke2fs | Contestant::MkfsXfs(_)) {
            File::create(job.image)
                .and_then(|file| file.set_len(job.image_bytes()))
                .map_err(|error| format!("{}: {error}", job.image.display()))?;
        }
        Ok(match self {
            Contestant::Diskwright(program, format) => diskwright(program, format, job),
            Contestant::Mke2fs => mke2fs(job),
            Contestant::MkfsXfs(program) => {
                let mut command = Command::new(program);
                command.args(["-q", "-f", "-p"]).arg(job.source).arg(job.image);
                command
            }
            Contestant::Tar => {
                // GNU tar does not read file contents if it writes to /dev/null itself.
                let mut command = Command::new("bash");
                let script = "set -o pipefail; tar -c -C \"$0\" . | cat >/dev/null";
                command.args(["-c", script]).arg(job.source);
                command
            }
        })
    }
}

fn diskwright(program: &Path, format: &str, job: &BuildJob<'_>) -> Command {
    let mut command = Command::new(program);
    command.arg("build").arg(job.source).arg(job.image);
    command.args(["--fs", format, "--size", &job.image_bytes().to_string()]);
    command
}

fn mke2fs(job: &BuildJob<'_>) -> Command {
    let mut command = testkit::command("mke2fs");
    command.args(["-q", "-F", "-t", "ext4", "-b", &BLOCK_SIZE.to_string()]);
    let inodes_wanted = job.census.entries + 1000;
    if job.image_bytes() / MKE2FS_INODE_RATIO < inodes_wanted {
        command.args(["-N", &inodes_wanted.to_string()]);
    }
    command.arg("-d").arg(job.source).arg(job.image);
    command
}

/// Returns the program under test: as given, or next to this one.
pub(crate) fn program_under_test(given: Option<&Path>) -> Result<PathBuf, String> {
    let beside = || std::env::current_exe().ok().map(|path| path.with_file_name("diskwright"));
    let program = given.map(Path::to_path_buf).or_else(beside).unwrap_or_default();
    if program.is_file() {
        return Ok(program);
    }
    Err(format!(
        "{} does not exist; run `cargo build --profile dist --workspace` first",
        program.display()
    ))
}

/// Returns the mkfs.xfs that can copy a directory, or the reason why it is missing.
pub(crate) fn mkfs_xfs(given: Option<&Path>) -> Result<PathBuf, String> {
    match (given, testkit::missing(Need::Tool("mkfs.xfs"))) {
        (Some(path), _) if path.is_file() => Ok(path.to_path_buf()),
        (Some(path), _) => Err(format!("{} does not exist", path.display())),
        (None, None) => Ok(testkit::program("mkfs.xfs").unwrap_or_else(|| "mkfs.xfs".into())),
        (None, Some(reason)) => Err(reason),
    }
}
