//! A mounted file system for tests: ours, or the kernel's own as the reference.
//!
//! With `DISKWRIGHT_PROOFS_ON=kernel` in the environment, everything runs on kernel mounts of the
//! same formats. A failure there is an error in the test. `DISKWRIGHT_PROOFS_OPTIONS` contains
//! additional options (`-o`) for our mounts.

pub(crate) mod lossy;
pub(crate) mod probe;
mod serve;
mod volatile;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::Signal;
use tempfile::TempDir;
use testkit::{KernelMount, Mke2fs, MkfsXfs, MountOptions, Need};

pub(crate) use crate::mount::wait_until;
use crate::mount::{Mounted, Mounting};
pub(crate) use testkit::Format;

/// Driver that serves a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// This project's driver.
    Own,
    /// The kernel's driver.
    Kernel,
}

impl Driver {
    /// Returns the driver that the environment selects.
    fn asked() -> Self {
        match std::env::var("DISKWRIGHT_PROOFS_ON").as_deref() {
            Ok("kernel") => Self::Kernel,
            Ok("own") | Err(_) => Self::Own,
            Ok(other) => panic!("DISKWRIGHT_PROOFS_ON is {other}: neither kernel nor own"),
        }
    }
}

/// Returns the maximum lifetime of a mount, after which it counts as hung.
fn limit() -> Duration {
    Duration::from_secs(testkit::effort(1_800, 1_800, 12 * 3_600))
}

/// Programs that tests run in mounts.
const PROGRAMS: [&str; 4] = ["bash", "getfacl", "setfacl", "tar"];

/// Requirements of a test for its file system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) format: Format,
    pub(crate) driver: Driver,
    /// Size of the image in bytes. XFS gets at least 300 MiB; for smaller sizes, half of the
    /// difference is used for its log.
    pub(crate) bytes: u64,
    /// A crash loses unflushed data.
    pub(crate) volatile: bool,
}

impl Wanted {
    /// Returns requirements with 512 MiB, and the driver that the environment selects.
    pub(crate) fn new(format: Format) -> Self {
        Self { format, driver: Driver::asked(), bytes: 512 << 20, volatile: false }
    }

    fn needs(&self) -> Vec<Need> {
        let mut needs = vec![Need::Root, Need::Mount(self.format.kernel_name())];
        let maker = if self.format == Format::Xfs { "mkfs.xfs" } else { "mke2fs" };
        needs.extend([maker, self.format.checker()].map(Need::Tool));
        needs.extend(PROGRAMS.map(Need::Tool));
        needs.push(match self.driver {
            Driver::Own => Need::Fuse,
            // xfs_io shuts file systems down.
            Driver::Kernel => Need::Tool("xfs_io"),
        });
        needs
    }
}

enum Mount {
    Own(Mounted),
    Kernel(KernelMount),
}

/// A mounted image for one test.
pub(crate) struct Place {
    wanted: Wanted,
    image: PathBuf,
    mount: Option<Mount>,
    /// Directory for the test's other files.
    home: TempDir,
}

impl Place {
    /// Creates an image and mounts it.
    #[track_caller]
    pub(crate) fn new(wanted: Wanted) -> Self {
        let home = testkit::scratch();
        let image = home.path().join("image");
        let mut place = Self { wanted, image, mount: None, home };
        println!("on {place:?}");
        match wanted.format {
            Format::Xfs => MkfsXfs::default().create(&place.image, wanted.bytes),
            Format::Ext => Mke2fs::new("ext4").block_size(4096).create(&place.image, wanted.bytes),
        }
        place.mount_with("");
        place
    }

    /// Mounts an existing image.
    #[track_caller]
    fn again(&self, options: &str) -> Mount {
        match self.wanted.driver {
            Driver::Own if self.wanted.volatile => {
                let command = |point: &Path| serve::command(&self.image, point);
                Mount::Own(Mounting::served_by(&self.image, command).limit(limit()).start())
            }
            Driver::Own => {
                let asked = std::env::var("DISKWRIGHT_PROOFS_OPTIONS").unwrap_or_default();
                let all = ["allow_other,suid,dev", options, &asked];
                let all: Vec<_> = all.into_iter().filter(|some| !some.is_empty()).collect();
                let mounting = Mounting::new(&self.image).options(&all.join(","));
                Mount::Own(mounting.limit(limit()).start())
            }
            Driver::Kernel => {
                let read_write = MountOptions::read_write(self.wanted.format.kernel_name());
                let options = MountOptions { extra: options, ..read_write };
                Mount::Kernel(KernelMount::new(&self.image, &options))
            }
        }
    }

    pub(crate) fn format(&self) -> Format {
        self.wanted.format
    }

    pub(crate) fn driver(&self) -> Driver {
        self.wanted.driver
    }

    /// Returns the image file.
    pub(crate) fn image(&self) -> &Path {
        &self.image
    }

    /// Returns a directory outside the mount.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Returns the root of the mount.
    pub(crate) fn path(&self) -> &Path {
        match self.mount.as_ref().expect("it is mounted") {
            Mount::Own(mount) => mount.path(),
            Mount::Kernel(mount) => mount.path(),
        }
    }

    /// Returns a path in the mount.
    pub(crate) fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.path().join(path)
    }

    /// Unmounts, and asserts that the image's checker finds nothing.
    #[track_caller]
    pub(crate) fn unmount(&mut self) {
        let (status, said) = self.unmount_unjudged();
        assert_eq!(status, 0, "{said}");
        judge(&self.image);
    }

    /// Unmounts. Returns the server's exit status and messages.
    #[track_caller]
    pub(crate) fn unmount_unjudged(&mut self) -> (i32, String) {
        match self.mount.take().expect("it is mounted") {
            Mount::Own(mount) => {
                // A process that is being started may briefly have inherited open files.
                wait_until("nobody to use the mount", || {
                    let unmounted = rustix::mount::unmount(mount.path(), UnmountFlags::NOFOLLOW);
                    assert!(unmounted.is_ok() || unmounted == Err(Errno::BUSY), "{unmounted:?}");
                    unmounted.is_ok()
                });
                let (status, said) = mount.wait();
                (status.code().expect("it was not killed"), said)
            }
            Mount::Kernel(mount) => {
                mount.unmount();
                (0, String::new())
            }
        }
    }

    /// Unmounts, runs the checker, and mounts again with empty caches.
    #[track_caller]
    pub(crate) fn remount(&mut self) {
        self.unmount();
        self.mount_with("");
    }

    /// Mounts an unmounted image with these options (`-o`).
    #[track_caller]
    pub(crate) fn mount_with(&mut self, options: &str) {
        assert!(self.mount.is_none());
        self.mount = Some(self.again(options));
    }

    /// Mounts an unmounted image read-only.
    #[track_caller]
    pub(crate) fn mount_read_only(&mut self) {
        assert!(self.mount.is_none());
        self.mount = Some(match self.wanted.driver {
            Driver::Own => Mount::Own(Mounting::new(&self.image).options("ro").start()),
            Driver::Kernel => {
                let format = self.wanted.format.kernel_name();
                Mount::Kernel(KernelMount::new(&self.image, &MountOptions::read_only(format)))
            }
        });
    }

    /// Simulates a crash: kills our server, or stops the kernel's driver without writing its log.
    /// The dead mount stays in place and answers with errors until [`Self::clear_away`], so that
    /// running programs do not access the directory below it.
    pub(crate) fn crash(&self) {
        match self.mount.as_ref().expect("it is mounted") {
            Mount::Own(mount) => mount.signal(Signal::KILL),
            Mount::Kernel(mount) => {
                run(tool("xfs_io").args(["-x", "-c", "shutdown"]).arg(mount.path()));
            }
        }
    }

    /// Removes a crashed mount.
    pub(crate) fn clear_away(&mut self) {
        match self.mount.take().expect("it is mounted") {
            Mount::Own(mount) => mount.kill(),
            Mount::Kernel(mount) => mount.unmount(),
        }
    }

    /// Unmounts and checks the image at the end of a test.
    #[track_caller]
    pub(crate) fn finish(mut self) {
        if self.mount.is_some() {
            self.unmount();
        }
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Wanted { format, driver, bytes, volatile } = self.wanted;
        let driver = match driver {
            Driver::Own => "our mount of",
            Driver::Kernel => "the kernel's mount of",
        };
        let loses = if volatile { ", on a disk that loses what is not flushed" } else { "" };
        write!(f, "{driver} {}, {} MiB{loses}", format.kernel_name(), bytes >> 20)
    }
}

/// Asserts that the checker finds an image sound. It may report that an extent tree has more nodes
/// than it needs: random writes leave such a tree on the kernel's mounts, too.
#[track_caller]
pub(crate) fn judge(image: &Path) {
    let Err(output) = testkit::verdict(image) else { return };
    let remarks = output.split_once("remarks:\n").and_then(|(_, rest)| rest.split_once("\nall:"));
    let is_sound = output.starts_with("exit status Some(0)")
        && remarks.is_some_and(|(remarks, _)| {
            remarks.lines().all(|line| line.contains(" extent tree (at level "))
        });
    assert!(is_sound, "{}: {output}", image.display());
}

/// Runs a test on a new place, unless this machine lacks a requirement. Then runs the checker.
#[track_caller]
pub(crate) fn prove(name: &str, wanted: Wanted, proof: impl FnOnce(&mut Place)) {
    if !testkit::satisfied(name, &wanted.needs()) {
        return;
    }
    let mut place = Place::new(wanted);
    proof(&mut place);
    place.finish();
}

/// Defines tests `ext4` and `xfs` in a module per name. Each runs the function of that name, which
/// takes `&mut Place`, by [`prove`]. With `with RUN; NAME = FUNCTION`, it passes FUNCTION to RUN
/// instead. Both paths are as seen from that module.
macro_rules! prove_on_both {
    (with $run:path; $($name:ident = $proof:path $(: $bytes:expr)?),+ $(,)?) => {$(
        mod $name {
            use crate::place::{Format, Wanted};

            fn on(format: Format) {
                #[allow(unused_mut)]
                let mut wanted = Wanted::new(format);
                $(wanted.bytes = $bytes;)?
                $run(module_path!(), wanted, $proof);
            }

            #[test]
            fn ext4() {
                on(Format::Ext);
            }

            #[test]
            fn xfs() {
                on(Format::Xfs);
            }
        }
    )+};
    ($($name:ident $(: $bytes:expr)?),+ $(,)?) => {
        $crate::place::prove_on_both!(with $crate::place::prove; $($name = super::$name $(: $bytes)?),+);
    };
}
pub(crate) use prove_on_both;

/// Returns whether a C compiler is available, which tests need for the [`probe`].
pub(crate) fn has_compiler(proof: &str) -> bool {
    testkit::satisfied(proof, &[Need::Tool("cc")])
}

/// Returns a program of the system in the C locale.
pub(crate) fn tool(name: &str) -> Command {
    testkit::command(name)
}

/// Runs a command that must succeed. Returns its standard output.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}{complaints}", output.status);
    said
}

/// Runs a shell line in a directory, which must succeed. Returns its output.
#[track_caller]
pub(crate) fn shell(directory: &Path, line: &str) -> String {
    run(tool("bash").args(["-euo", "pipefail", "-c", line]).current_dir(directory))
}
