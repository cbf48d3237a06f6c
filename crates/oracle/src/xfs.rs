//! The programs of xfsprogs: mkfs.xfs of several releases, xfs_db, and the kernel's own scrub.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Once, OnceLock};

use crate::mount::{KernelMount, MountOptions};
use crate::need::{Need, missing};
use crate::{guest, scratch, tool};

/// A call of `mkfs.xfs`, built up option by option.
///
/// Without options it makes what the current release makes by default.
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
    /// The program of a release: `mkfs.xfs` is the current one, `xfsprogs-6.1/bin/mkfs.xfs` and
    /// `xfsprogs-5.10/bin/mkfs.xfs` are older.
    pub fn of(program: &'static str) -> Self {
        MkfsXfs { program, arguments: Vec::new() }
    }

    /// Any options.
    pub fn arguments<S: Into<OsString>>(mut self, more: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(more.into_iter().map(Into::into));
        self
    }

    /// Options separated by blanks.
    pub fn options(self, text: &str) -> Self {
        self.arguments(text.split_whitespace())
    }

    /// Fills the image as a prototype file says (`mkfs.xfs(8)`), or from a directory, which only the
    /// current release can.
    pub fn prototype(self, path: &Path) -> Self {
        self.arguments([OsString::from("-p"), path.into()])
    }

    /// Allows images below 300 MiB, which current releases make only for tests.
    fn allow_small(command: &mut std::process::Command) {
        for name in ["TEST_DIR", "TEST_DEV", "QA_CHECK_FS"] {
            command.env(name, "1");
        }
    }

    /// Makes a sparse image of `size` bytes. What was in the file is gone.
    ///
    /// # Panics
    /// With its output if `mkfs.xfs` fails.
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
    /// What it would make of a file of `size` bytes, as it prints it, making nothing.
    ///
    /// # Errors
    /// What it says to refuse.
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

/// Runs `xfs_db` commands on an image it opens read-only, and returns what they printed.
///
/// # Panics
/// If `xfs_db` fails. Commands that fail print their error.
#[track_caller]
pub fn xfs_db(image: &Path, commands: &[&str]) -> String {
    run_xfs_db(image, "-r", commands)
}

/// Runs `xfs_db` commands that may change the image, damaging it if that is asked.
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

/// Has a kernel check an image from the inside (`xfs_scrub -n`): this machine's if it offers that, else the guest's.
/// Returns false if neither does, and says so on standard error, once.
///
/// # Panics
/// With the findings of scrub.
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
