//! What the tests need of a machine: every program and every part of the kernel, from which version on, why,
//! and where it comes from. This is the one place that says so.

/// Major and minor version.
pub(crate) type Version = (u32, u32);

/// Programs that come together.
pub(crate) struct Package {
    pub(crate) programs: &'static [&'static str],
    /// The oldest version that will do, and why.
    pub(crate) oldest: Option<Oldest>,
    /// Where they come from, as what a reader is to do.
    pub(crate) install: &'static str,
}

/// A least version.
#[derive(Clone, Copy)]
pub(crate) struct Oldest {
    pub(crate) version: Version,
    /// What no older one can.
    pub(crate) why: &'static str,
}

/// Options that make programs tell their version. Some print it on standard error, or with a complaint.
pub(crate) const VERSION_FLAGS: [&str; 2] = ["-V", "--version"];

const BY_XFSPROGS: &str = "scripts/install-xfsprogs installs one under target/tools";
const BY_SUITES: &str = "scripts/install-suites installs one under target/tools";

const PACKAGES: &[Package] = &[
    Package {
        programs: &["mkfs.xfs", "xfs_repair", "xfs_db", "xfs_io", "xfs_scrub", "xfs_logprint"],
        oldest: Some(Oldest {
            version: (6, 17),
            why: "older ones know neither parent pointers nor what images have by default, \
                  or do not copy directories",
        }),
        install: BY_XFSPROGS,
    },
    Package {
        programs: &["xfsprogs-6.1/bin/mkfs.xfs", "xfsprogs-5.10/bin/mkfs.xfs"],
        oldest: None,
        install: BY_XFSPROGS,
    },
    Package {
        programs: &["mke2fs", "e2fsck", "debugfs", "dumpe2fs"],
        oldest: Some(Oldest { version: (1, 47), why: "older ones do not know the orphan file" }),
        install: "scripts/install-tools installs e2fsprogs",
    },
    // They are in the same packages, but do not tell their version alone.
    debian(
        &["tune2fs", "resize2fs", "e2image", "filefrag", "chattr", "lsattr"],
        "scripts/install-tools installs e2fsprogs",
    ),
    debian(&["fuse2fs"], "scripts/install-tools installs fuse2fs"),
    debian(&["mount", "umount", "losetup"], "scripts/install-tools installs mount"),
    debian(&["partx"], "scripts/install-tools installs util-linux"),
    debian(&["sfdisk"], "scripts/install-tools installs fdisk"),
    debian(&["fusermount3"], "scripts/install-tools installs fuse3"),
    debian(&["python3"], "scripts/install-tools installs python3"),
    debian(&["sqlite3"], "scripts/install-tools installs sqlite3"),
    debian(&["getfattr", "setfattr"], "scripts/install-tools installs attr"),
    debian(&["fakeroot"], "scripts/install-tools installs fakeroot"),
    debian(&["genimage"], "scripts/install-tools installs genimage"),
    debian(&["man"], "scripts/install-tools installs man-db"),
    debian(&["blkid"], "it is a part of util-linux"),
    debian(&["getfacl", "setfacl"], "scripts/install-tools installs acl"),
    debian(&["setcap"], "scripts/install-tools installs libcap2-bin"),
    debian(&["matchpathcon"], "scripts/install-tools installs selinux-utils"),
    debian(&["bsdtar"], "scripts/install-tools installs libarchive-tools"),
    debian(&["mtree"], "scripts/install-tools installs mtree-netbsd"),
    debian(&["tar"], "scripts/install-tools installs GNU tar"),
    debian(&["gzip"], "scripts/install-tools installs gzip"),
    debian(&["zstd"], "scripts/install-tools installs zstd"),
    debian(&["qemu-img", "qemu-io", "qemu-nbd"], "scripts/install-tools installs qemu-utils"),
    debian(&["simg2img"], "scripts/install-tools installs android-sdk-libsparse-utils"),
    debian(&["veritysetup"], "scripts/install-tools installs cryptsetup-bin"),
    debian(&["fsverity"], "scripts/install-tools installs fsverity"),
    debian(&["git"], "scripts/install-tools installs git"),
    debian(&["fs_mark"], "scripts/install-tools installs fsmark"),
    debian(&["chromium"], "scripts/install-tools installs chromium"),
    debian(&["setpriv", "unshare", "fstrim"], "it is a part of util-linux"),
    debian(&["sh", "bash", "cp", "rm", "diff", "touch", "sync", "sleep"], "every Debian has it"),
    debian(&["xz"], "scripts/install-tools installs xz-utils"),
    debian(&["bzip2"], "scripts/install-tools installs bzip2"),
    debian(&["ldd"], "it is a part of libc-bin"),
    debian(&["cargo"], "rustup installs it"),
    debian(&["python3"], "it is Debian's package python3"),
    debian(&["cc"], "scripts/install-tools installs gcc"),
    debian(&["pjdfstest", "fsx"], BY_SUITES),
];

/// Programs of which every version that is around will do.
const fn debian(programs: &'static [&'static str], install: &'static str) -> Package {
    Package { programs, oldest: None, install }
}

/// What a test needs that names a program; `None` for one that is not in the table.
pub(crate) fn package(program: &str) -> Option<&'static Package> {
    PACKAGES.iter().find(|package| package.programs.contains(&program))
}

/// Whether the table of what tests need of a machine has a program.
pub fn is_known_program(program: &str) -> bool {
    package(program).is_some()
}

/// The oldest kernel whose driver of this name will do.
pub(crate) fn kernel(driver: &str) -> Option<Oldest> {
    let (version, why) = match driver {
        "ext4" => ((5, 15), "older ones do not know the orphan file"),
        "xfs" => ((6, 10), "older ones do not mount images with parent pointers"),
        "fuse" => ((5, 14), "older ones speak a protocol before 7.34"),
        _ => return None,
    };
    Some(Oldest { version, why })
}

/// Rights of root that containers leave out, by number and name.
pub(crate) const RIGHTS: [(u32, &str); 2] = [(21, "CAP_SYS_ADMIN"), (27, "CAP_MKNOD")];
