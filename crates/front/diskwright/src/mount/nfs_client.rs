//! The NFS client of the host's kernel, and the programs that mount and unmount with it.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use super::nfs_options::NfsMountOptions;
use crate::{Error, Result};

/// Seconds after which the client repeats a request, in tenths. It gives up after the third time, so that a server that
/// was killed does not block programs forever.
const TIMEOUT_TENTHS: u32 = 300;

/// Checks that this process may mount by NFS.
///
/// # Errors
/// On Linux without root, and on hosts other than Linux and macOS.
pub fn check_nfs_client() -> Result<()> {
    if cfg!(target_os = "linux") && !rustix::process::geteuid().is_root() {
        return Err(Error::Usage(
            "a mount by NFS needs root on Linux; run it as root, or mount with --via fuse".into(),
        ));
    }
    if !cfg!(any(target_os = "linux", target_os = "macos")) {
        return Err(Error::Usage(
            "a mount by NFS needs Linux or macOS; on this host, use serve --nfs and the mount command of the host"
                .into(),
        ));
    }
    Ok(())
}

/// Mounts an export of a server on this host.
///
/// # Errors
/// If the client of the kernel cannot mount it.
pub(super) fn mount(
    source: &str,
    port: u16,
    point: &Path,
    options: &NfsMountOptions,
) -> Result<()> {
    let mut command = mount_command(port, options);
    let output = command.arg(source).arg(point).stdin(Stdio::null()).output();
    let program = command.get_program().to_string_lossy().into_owned();
    let output = output.map_err(|e| Error::host("start", &program, e))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    // The path of the export is a secret.
    let said = said.trim().replace(source, "the export");
    let advice = if has_client() {
        ""
    } else {
        "; this kernel has no NFS client: load its module (modprobe nfs), or mount with --via fuse"
    };
    let problem = format!("{}: cannot mount by NFS: {said}{advice}", crate::text::shown(point));
    Err(Error::Mount(io::Error::other(problem)))
}

/// Returns the command without source and directory. `--internal-only` needs no program of nfs-utils: the kernel asks the
/// server itself.
#[cfg(not(target_os = "macos"))]
fn mount_command(port: u16, options: &NfsMountOptions) -> Command {
    let words = format!(
        "vers=3,proto=tcp,addr=127.0.0.1,port={port},mountproto=tcp,mountport={port},nolock,soft,\
         timeo={TIMEOUT_TENTHS},retrans=2{}",
        general(options)
    );
    let mut command = Command::new("mount");
    command.args(["--internal-only", "-t", "nfs", "-o", &words]);
    command
}

/// Returns the command without source and directory.
#[cfg(target_os = "macos")]
fn mount_command(port: u16, options: &NfsMountOptions) -> Command {
    let words = format!(
        "vers=3,tcp,port={port},mountport={port},locallocks,soft,intr,noresvport,timeo={TIMEOUT_TENTHS}{}",
        general(options)
    );
    let mut command = Command::new("mount_nfs");
    command.args(["-o", &words]);
    command
}

/// Returns the options that hosts have in common.
fn general(options: &NfsMountOptions) -> String {
    let mut words = String::from(",nosuid,nodev");
    if options.read_only {
        words += ",ro";
    }
    if !options.exec {
        words += ",noexec";
    }
    words
}

/// Returns whether the kernel has an NFS client, as far as known.
fn has_client() -> bool {
    let known = std::fs::read_to_string("/proc/filesystems");
    known.map_or(true, |known| known.lines().any(|line| line.trim_end().ends_with("\tnfs")))
}

/// Unmounts. On Linux, a mount in use ends when the last program stops using it.
///
/// # Errors
/// If that is not possible.
pub(super) fn unmount(point: &Path) -> io::Result<()> {
    let mut command = Command::new("umount");
    if cfg!(target_os = "linux") {
        command.args(["--internal-only", "--lazy"]);
    }
    let output = command.arg(point).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
