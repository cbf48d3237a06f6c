//! Checks of images by the guest's kernel.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::{Answer, GuestJob, Kernel, attempt, run, tree};
use crate::{Format, Tree};

/// Access mode of the guest's mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// On a read-only device.
    ReadOnly,
    /// Read-write: the image is recovered, mounted and unmounted as usual.
    ReadWrite,
}

/// Words of kernel messages about damage. A mount of a sound image has none of them.
const COMPLAINTS: [&str; 10] = [
    "error",
    "corrupt",
    "warning",
    "bad ",
    "failed",
    "bug:",
    "call trace",
    "inconsisten",
    "shutdown",
    "shutting down",
];

/// Messages that contain such words without indicating damage.
const HARMLESS: [&str; 5] = [
    // ext4 prints its error mode when it mounts.
    "errors=",
    "EXPERIMENTAL",
    "Write Protect is",
    "supports timestamps until",
    // The disk was removed.
    "Synchronize Cache",
];

fn job(image: &Path, access: Access, kernel: Kernel, script: String) -> GuestJob {
    GuestJob::new(script).disk(image, access == Access::ReadOnly).on(kernel)
}

/// Returns the command that mounts the first image at /mnt/image.
fn mount_command(image: &Path, access: Access, options: &str) -> String {
    let fs = Format::of(image).kernel_name();
    let mode = if access == Access::ReadOnly { "ro" } else { "rw" };
    // An earlier job may have mounted a copy of this image.
    let own = if fs == "xfs" { ",nouuid" } else { "" };
    let comma = if options.is_empty() { "" } else { "," };
    format!("mkdir -p /mnt/image && mount -t {fs} -o {mode}{own}{comma}{options} \"$1\" /mnt/image")
}

/// Returns the lines of a kernel log that indicate damage.
fn complaints(log: &str) -> Vec<&str> {
    let complains = |line: &&str| {
        let lower = line.to_lowercase();
        COMPLAINTS.iter().any(|word| lower.contains(word))
            && !HARMLESS.iter().any(|word| line.contains(word))
    };
    log.lines().filter(complains).collect()
}

/// Returns the answer if the script succeeded and the kernel log is clean.
fn silent(answer: Answer) -> Result<Answer, String> {
    let found = complaints(&answer.log);
    if answer.status == 0 && found.is_empty() {
        return Ok(answer);
    }
    let mut text = format!("exit status {}\n{}\n", answer.status, answer.output);
    for line in found {
        let _ = writeln!(text, "{line}");
    }
    let _ = write!(text, "kernel log:\n{}", answer.log);
    Err(text)
}

fn answered(job: &GuestJob) -> Result<Answer, String> {
    attempt(job).map_err(|failure| failure.to_string()).and_then(silent)
}

/// Commands that read everything in the image at /mnt/image.
const READ_ALL: &str = "find /mnt/image -xdev -type f -exec cat {} + >/dev/null\n\
    find /mnt/image -xdev -exec stat -c '' {} + >/dev/null";

/// Mounts an image, reads everything in it, and unmounts it.
///
/// # Errors
/// The failure or the kernel's complaint, with its log.
pub fn accepts(image: &Path, kernel: Kernel, access: Access) -> Result<(), String> {
    mount_log(image, kernel, access, "").map(drop)
}

/// Like [`accepts`], with mount options; returns the kernel's log.
///
/// # Errors
/// As [`accepts`].
pub fn mount_log(
    image: &Path,
    kernel: Kernel,
    access: Access,
    options: &str,
) -> Result<String, String> {
    let mount = mount_command(image, access, options);
    let script = format!("set -e\n{mount}\n{READ_ALL}\numount /mnt/image");
    answered(&job(image, access, kernel, script)).map(|answer| answer.log)
}

/// Returns the tree of an image as the guest's kernel shows it: types, owners, times, sizes, holes, contents, links,
/// attributes and access control lists.
///
/// # Errors
/// As [`accepts`].
pub fn shown(image: &Path, kernel: Kernel, access: Access, options: &str) -> Result<Tree, String> {
    let mut mount = mount_command(image, access, options);
    // Reading must not change anything that is compared.
    mount = mount.replace("-o ", "-o noatime,");
    let script = format!(
        "set -e\n[ -x /run/guest-tree ] || cp $FILES/guest-tree /run/guest-tree\n{mount}\n\
         /run/guest-tree /mnt/image\numount /mnt/image"
    );
    let mut job = job(image, access, kernel, script);
    job.files.push(("guest-tree", tree_program()?));
    let answer = answered(&job)?;
    tree::read_tree(&answer.output).ok_or_else(|| {
        let start: String = answer.output.chars().take(200).collect();
        format!("guest-tree is of another version; `cargo build -p diskwright-testkit` builds it\n{start}")
    })
}

/// Returns the program that prints trees, next to this test program.
fn tree_program() -> Result<PathBuf, String> {
    let here = std::env::current_exe().map_err(|error| error.to_string())?;
    let folders = here.ancestors().skip(1).take(2);
    folders.map(|folder| folder.join("guest-tree")).find(|path| path.is_file()).ok_or_else(|| {
        "guest-tree is not built; `cargo build -p diskwright-testkit` builds it".to_owned()
    })
}

/// Returns why [`shown`] cannot run here, or `None` if it can.
pub(crate) fn tree_missing() -> Option<String> {
    tree_program().err()
}

/// Checks a mounted XFS image with the newest kernel: `xfs_scrub -n`.
///
/// # Errors
/// Findings of scrub, or complaints of the kernel. Advice about performance is accepted.
pub fn scrub(image: &Path) -> Result<(), String> {
    let mount = mount_command(image, Access::ReadWrite, "");
    let script = format!(
        "set -e\n{mount}\nstatus=0\nxfs_scrub -n /mnt/image || status=$?\numount /mnt/image\nexit $status"
    );
    let answer = answered(&job(image, Access::ReadWrite, Kernel::Newest, script))?;
    if answer.output.lines().all(is_advice) { Ok(()) } else { Err(answer.output) }
}

/// Checks whether a line of `xfs_scrub` reports no problem. Many images of mkfs.xfs cause a summary, because the log is
/// in use and belongs to no file.
fn is_advice(line: &str) -> bool {
    let is_summary = line.ends_with("inodes used.") || line.ends_with("inodes found.");
    line.starts_with("Info: ") || line.trim().is_empty() || is_summary
}

/// Does the same as [`accepts`] with several images in one job, read-write, and the same as [`scrub`] with those of XFS
/// on the newest kernel.
///
/// # Errors
/// As [`accepts`] and [`scrub`]. The output names the images up to the failure.
pub fn accepts_all(images: &[PathBuf], kernel: Kernel) -> Result<(), String> {
    const NAME: &str = "image: ";
    let mut job = GuestJob::new("set -e\n").on(kernel);
    job.limit *= images.len() as u32;
    for image in images {
        job = job.disk(image, false);
        let mount = mount_command(image, Access::ReadWrite, "");
        let is_scrubbed = Format::of(image) == Format::Xfs && kernel == Kernel::Newest;
        let scrub = if is_scrubbed { "xfs_scrub -n /mnt/image" } else { ":" };
        let name = image.file_name().unwrap_or_default().display();
        let _ = write!(
            job.script,
            "echo '{NAME}{name}'\n{mount}\n{READ_ALL}\n{scrub}\numount /mnt/image\nshift\n"
        );
    }
    let answer = answered(&job)?;
    let is_expected = |line: &str| is_advice(line) || line.starts_with(NAME);
    if answer.output.lines().all(is_expected) { Ok(()) } else { Err(answer.output) }
}

/// Returns the user quotas of an image after the kernel's own quota check: user, kilobytes and inodes.
///
/// # Errors
/// As [`accepts`].
pub fn quota_report(image: &Path, kernel: Kernel) -> Result<Vec<(u32, u64, u64)>, String> {
    let (options, report) = match Format::of(image) {
        Format::Ext => {
            ("usrquota", "quotaon -u /mnt/image 2>/dev/null || true; repquota -un /mnt/image")
        }
        Format::Xfs => ("uquota", "xfs_quota -x -c 'report -ubin' /mnt/image"),
    };
    let mount = mount_command(image, Access::ReadWrite, options);
    let script = format!("set -e\n{mount}\n{report}\numount /mnt/image");
    let answer = answered(&job(image, Access::ReadWrite, kernel, script))?;
    Ok(answer.output.lines().filter_map(quota_line).collect())
}

/// Parses a line of a report: `#1000 -- 12 0 0 3 0 0`, with more words for grace periods.
fn quota_line(line: &str) -> Option<(u32, u64, u64)> {
    let words: Vec<_> = line.split_whitespace().collect();
    let user = words.first()?.strip_prefix('#')?.parse().ok()?;
    let numbers: Vec<u64> = words[1..].iter().filter_map(|word| word.parse().ok()).collect();
    // xfs_quota prints warnings after three numbers of blocks, repquota does not.
    let inodes = if words.iter().any(|word| word.starts_with('[')) { 4 } else { 3 };
    Some((user, *numbers.first()?, *numbers.get(inodes)?))
}

/// Returns whether a name exists in a directory that folds case.
///
/// # Errors
/// As [`accepts`].
pub fn finds_folded(image: &Path, kernel: Kernel, name: &str) -> Result<bool, String> {
    let mount = mount_command(image, Access::ReadOnly, "");
    let script = format!(
        "set -e\n{mount}\n[ -e /mnt/image/'{}' ] && echo found || echo absent\numount /mnt/image",
        name.replace('\'', "'\\''")
    );
    let answer = answered(&job(image, Access::ReadOnly, kernel, script))?;
    Ok(answer.output.trim() == "found")
}

/// Returns the contents of a file below an encrypted directory, after adding a key of 64 bytes (hexadecimal).
///
/// # Errors
/// As [`accepts`].
pub fn reads_encrypted(
    image: &Path,
    kernel: Kernel,
    key: &str,
    path: &str,
) -> Result<String, String> {
    let mount = mount_command(image, Access::ReadOnly, "");
    let script = format!(
        "set -e\n{mount}\nprintf '{}' | xfs_io -r -c add_enckey /mnt/image >/dev/null\n\
         cat /mnt/image/'{path}'\numount /mnt/image",
        escaped(key)
    );
    answered(&job(image, Access::ReadOnly, kernel, script)).map(|answer| answer.output)
}

/// Converts hexadecimal digits to octal escapes of printf.
fn escaped(hex: &str) -> String {
    let pair = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    (0..hex.len()).step_by(2).filter_map(pair).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "\\{byte:03o}");
        text
    })
}

/// Crashes an image under load: the kernel runs a script on the mounted image, at `$M`, and shuts the file system down,
/// with or without a flush of its log.
///
/// # Panics
/// If the script fails.
#[track_caller]
pub fn crash(image: &Path, kernel: Kernel, load: &str, is_log_flushed: bool) {
    crash_with(image, kernel, "", load, is_log_flushed);
}

/// Like [`crash`], with mount options.
///
/// # Panics
/// As [`crash`].
#[track_caller]
pub fn crash_with(image: &Path, kernel: Kernel, options: &str, load: &str, is_log_flushed: bool) {
    let mount = mount_command(image, Access::ReadWrite, options);
    let flag = if is_log_flushed { " -f" } else { "" };
    let script = format!(
        "set -e\n{mount}\nM=/mnt/image\n{load}\nxfs_io -x -c 'shutdown{flag}' $M\numount $M"
    );
    let answer = run(&job(image, Access::ReadWrite, kernel, script));
    assert!(answer.status == 0, "{}\n{}", answer.output, answer.log);
}

/// Returns bytes that a server on this machine's loopback sends to the guest.
///
/// # Errors
/// If the guest cannot connect.
pub fn tcp(port: u16) -> Result<String, String> {
    let script = format!("network && nc 10.0.2.2 {port} </dev/null");
    let answer = attempt(&GuestJob::new(script)).map_err(|failure| failure.to_string())?;
    if answer.status == 0 { Ok(answer.output) } else { Err(answer.output) }
}

/// Mounts an NFS export of a server on this machine's loopback, and runs a script there.
///
/// # Errors
/// If it cannot be mounted, or the script fails.
pub fn nfs(port: u16, version: &str, export: &str, script: &str) -> Result<String, String> {
    nfs_job(port, version, export, GuestJob::new(script))
}

/// Like [`nfs`], with the files and the time limit of a job.
///
/// # Errors
/// As [`nfs`].
pub fn nfs_job(port: u16, version: &str, export: &str, job: GuestJob) -> Result<String, String> {
    let ports = if version.starts_with('3') {
        format!(",mountport={port},mountproto=tcp")
    } else {
        String::new()
    };
    let script = &job.script;
    let script = format!(
        "network; modprobe -a nfsv3 nfsv4; mkdir -p /mnt/nfs\n\
         busybox mount -t nfs -o vers={version},addr=10.0.2.2,port={port},proto=tcp,nolock,soft,timeo=50,retrans=2{ports} \
         10.0.2.2:{export} /mnt/nfs || exit\ncd /mnt/nfs\n{script}\ncd /; umount /mnt/nfs"
    );
    let answer = attempt(&GuestJob { script, ..job }).map_err(|failure| failure.to_string())?;
    if answer.status == 0 {
        Ok(answer.output)
    } else {
        Err(format!("{}\n{}", answer.output, answer.log))
    }
}

#[cfg(test)]
mod tests {
    use super::{complaints, escaped, quota_line};

    #[test]
    fn complaints_and_remarks_are_distinguished() {
        let log = "XFS (sda): Mounting V5 Filesystem\nEXT4-fs (sda): mounted r/w. errors=remount-ro\n\
                   XFS (sda): Metadata corruption detected\n";
        assert_eq!(complaints(log), ["XFS (sda): Metadata corruption detected"]);
    }

    #[test]
    fn reports_of_both_formats_are_read() {
        assert_eq!(
            quota_line("#1000     --      12       0       0              3     0     0"),
            Some((1000, 12, 3))
        );
        assert_eq!(quota_line("#0 24 0 0 00 [--------] 5 0 0 00 [--------]"), Some((0, 24, 5)));
        assert_eq!(quota_line("User quota on /mnt (/dev/sda)"), None);
        assert_eq!(escaped("00ff"), "\\000\\377");
    }
}
