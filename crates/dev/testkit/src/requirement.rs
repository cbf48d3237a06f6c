//! Needs of the tests: every program and every part of the kernel, with minimum version, reason and source.

/// Major and minor version.
pub(crate) type Version = (u32, u32);

/// Programs of one package.
pub(crate) struct Package {
    pub(crate) programs: &'static [&'static str],
    /// Minimum version, and the reason.
    pub(crate) oldest: Option<Oldest>,
    /// Instructions for the installation.
    pub(crate) install: &'static str,
}

/// A minimum version.
#[derive(Clone, Copy)]
pub(crate) struct Oldest {
    pub(crate) version: Version,
    /// The reason for it.
    pub(crate) why: &'static str,
}

/// Options that print a program's version. Some programs print it on standard error, or with an error.
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
    // In the same packages, but they do not print their own version.
    debian(
        &["tune2fs", "resize2fs", "e2image", "e2undo", "filefrag", "chattr", "lsattr"],
        "scripts/install-tools installs e2fsprogs",
    ),
    debian(&["fuse2fs"], "scripts/install-tools installs fuse2fs"),
    debian(&["mount", "umount", "losetup"], "scripts/install-tools installs mount"),
    debian(&["partclone.extfs", "partclone.xfs"], "scripts/install-tools installs partclone"),
    debian(&["fls", "mactime"], "scripts/install-tools installs sleuthkit"),
    debian(&["extundelete"], "scripts/install-tools installs extundelete"),
    debian(&["ddrescue"], "scripts/install-tools installs gddrescue"),
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
    debian(&["nfs-ls", "nfs-cat", "nfs-cp"], "scripts/install-tools installs libnfs-utils"),
    debian(&["litmus"], "scripts/install-tools installs litmus"),
    debian(&["cadaver"], "scripts/install-tools installs cadaver"),
    debian(&["rclone"], "scripts/install-tools installs rclone"),
    debian(&["mount.davfs"], "scripts/install-tools installs davfs2"),
    debian(&["curl"], "scripts/install-tools installs curl"),
    debian(&["simg2img"], "scripts/install-tools installs android-sdk-libsparse-utils"),
    debian(&["veritysetup"], "scripts/install-tools installs cryptsetup-bin"),
    debian(&["fsverity"], "scripts/install-tools installs fsverity"),
    debian(&["strace"], "scripts/install-tools installs strace"),
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

/// Returns a package without a minimum version.
const fn debian(programs: &'static [&'static str], install: &'static str) -> Package {
    Package { programs, oldest: None, install }
}

/// Returns the package of a program, if it is in the table.
pub(crate) fn package(program: &str) -> Option<&'static Package> {
    PACKAGES.iter().find(|package| package.programs.contains(&program))
}

/// Returns whether the table contains a program.
pub fn is_known_program(program: &str) -> bool {
    package(program).is_some()
}

/// Returns the minimum kernel version for a driver.
pub(crate) fn kernel(driver: &str) -> Option<Oldest> {
    let (version, why) = match driver {
        "ext4" => ((5, 15), "older ones do not know the orphan file"),
        "xfs" => ((6, 10), "older ones do not mount images with parent pointers"),
        "fuse" => ((5, 14), "older ones speak a protocol before 7.34"),
        _ => return None,
    };
    Some(Oldest { version, why })
}

/// Capabilities of root that containers may lack, by number and name.
pub(crate) const RIGHTS: [(u32, &str); 2] = [(21, "CAP_SYS_ADMIN"), (27, "CAP_MKNOD")];
