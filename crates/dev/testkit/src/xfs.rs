//! Programs of xfsprogs: mkfs.xfs of several releases, xfs_db, and the kernel's scrub.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Once, OnceLock};

use crate::mount::{KernelMount, MountOptions};
use crate::need::{Need, missing};
use crate::{guest, scratch, tool};

/// A builder of a `mkfs.xfs` command.
///
/// Without options it uses the defaults of the current release.
#[derive(Clone, Debug)]
pub struct MkfsXfs {
    program: &'static str,
    arguments: Vec<OsString>,
}

impl Default for MkfsXfs {
    fn default() -> Self {
        Self::of("mkfs.xfs")
    }
}

impl MkfsXfs {
    /// Selects the program of a release: `mkfs.xfs` is the current one, `xfsprogs-6.1/bin/mkfs.xfs` and
    /// `xfsprogs-5.10/bin/mkfs.xfs` are older.
    pub fn of(program: &'static str) -> Self {
        MkfsXfs { program, arguments: Vec::new() }
    }

    /// Adds options.
    pub fn arguments<S: Into<OsString>>(mut self, more: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(more.into_iter().map(Into::into));
        self
    }

    /// Adds options separated by blanks.
    pub fn options(self, text: &str) -> Self {
        self.arguments(text.split_whitespace())
    }

    /// Fills the image from a prototype file (`mkfs.xfs(8)`), or from a directory, which only the current release
    /// supports.
    pub fn prototype(self, path: &Path) -> Self {
        self.arguments([OsString::from("-p"), path.into()])
    }

    /// Allows images below 300 MiB, which current releases create only for tests.
    fn allow_small(command: &mut std::process::Command) {
        for name in ["TEST_DIR", "TEST_DEV", "QA_CHECK_FS"] {
            command.env(name, "1");
        }
    }

    /// Creates a sparse image of `size` bytes, replacing the file.
    ///
    /// # Panics
    /// If `mkfs.xfs` fails, with its output.
    #[track_caller]
    pub fn create(&self, image: &Path, size: u64) {
        File::create(image)
            .and_then(|file| file.set_len(size))
            .unwrap_or_else(|error| panic!("{}: {error}", image.display()));
        let mut command = tool::command(self.program);
        command.args(["-q", "-f"]).args(&self.arguments).arg(image);
        Self::allow_small(&mut command);
        let finished = tool::finish(&mut command);
        assert!(
            finished.code == Some(0),
            "{command:?} ended with {:?}:\n{}",
            finished.code,
            finished.text
        );
    }
}

impl MkfsXfs {
    /// Returns the geometry for a file of `size` bytes, without creating anything.
    ///
    /// # Errors
    /// The message of a refusal.
    pub fn plan(&self, size: u64) -> Result<String, String> {
        let home = scratch();
        let mut command = tool::command(self.program);
        let file = format!("file,size={size},name={}", home.path().join("image").display());
        command.args(["-N", "-d", &file]).args(&self.arguments);
        Self::allow_small(&mut command);
        let finished = tool::finish(&mut command);
        if finished.code == Some(0) { Ok(finished.text) } else { Err(finished.text) }
    }
}

/// Runs `xfs_db` commands on an image opened read-only, and returns their output.
///
/// # Panics
/// If `xfs_db` fails. Failed commands print their error.
#[track_caller]
pub fn xfs_db(image: &Path, commands: &[&str]) -> String {
    run_xfs_db(image, "-r", commands)
}

/// Runs `xfs_db` commands that may change or damage the image.
///
/// # Panics
/// As [`xfs_db`].
#[track_caller]
pub fn xfs_db_write(image: &Path, commands: &[&str]) -> String {
    run_xfs_db(image, "-x", commands)
}

#[track_caller]
fn run_xfs_db(image: &Path, mode: &str, commands: &[&str]) -> String {
    let mut arguments = vec![OsString::from(mode), "-f".into()];
    arguments.extend(commands.iter().flat_map(|command| ["-c".into(), OsString::from(command)]));
    arguments.push(image.into());
    tool::run("xfs_db", arguments)
}

/// Checks a mounted image with `xfs_scrub -n`: on this machine's kernel if it supports that, otherwise on the guest's.
/// Returns false, with one message on standard error, if neither does.
///
/// # Panics
/// If scrub has findings, with them.
#[track_caller]
pub fn scrub(image: &Path) -> bool {
    static OFFERED: OnceLock<bool> = OnceLock::new();
    if missing(Need::Mount("xfs")).is_none() {
        let mount = KernelMount::new(image, &MountOptions::read_write("xfs"));
        let offered = *OFFERED.get_or_init(|| offers_scrub(mount.path()));
        if offered {
            let finished = tool::finish(tool::command("xfs_scrub").arg("-n").arg(mount.path()));
            assert!(finished.code == Some(0), "{}: {}", image.display(), finished.text);
        }
        mount.unmount();
        if offered {
            return true;
        }
    }
    if let Some(reason) = missing(Need::Guest("XFS_ONLINE_SCRUB")) {
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            let _ = writeln!(std::io::stderr(), "SKIPPED scrub: this kernel offers none; {reason}");
        });
        return false;
    }
    guest::scrub(image).unwrap_or_else(|found| panic!("{}: {found}", image.display()));
    true
}

/// Returns true if the kernel has a scrub for a mounted file system, and the programs for it are installed.
fn offers_scrub(mount: &Path) -> bool {
    if ["xfs_io", "xfs_scrub"].iter().any(|name| tool::program(name).is_none()) {
        return false;
    }
    let probe = tool::finish(tool::command("xfs_io").args(["-x", "-c", "scrub probe"]).arg(mount));
    probe.code == Some(0) && probe.text.is_empty()
}
