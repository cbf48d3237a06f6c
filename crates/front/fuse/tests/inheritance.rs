//! Inheritance of new files, and side effects of changed attributes, compared with the kernel's own ext4: by requests,
//! and through a mount.

use crate::common;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use common::{Caller, NewImage, S_IFREG, mounted};
use fuse::Options;
use linux::abi::{self, ROOT_ID, SetattrIn};
use nix::sched::CloneFlags;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Uid, XattrFlags};
use testkit::{KernelMount, Mke2fs, MountOptions, require};
use vfs::{FileSystem, Ino};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const CAPABILITY: &str = "security.capability";

/// The group of directories with set-group-id.
const GROUP: u32 = 60;

const NO_ID: u32 = u32::MAX;

/// Access control lists: tags, permissions and IDs.
const LISTS: [&[(u16, u16, u32)]; 9] = [
    &[(1, 7, NO_ID), (4, 5, NO_ID), (32, 0, NO_ID)],
    &[(1, 7, NO_ID), (4, 7, NO_ID), (32, 7, NO_ID)],
    &[(1, 0, NO_ID), (4, 0, NO_ID), (32, 0, NO_ID)],
    &[(1, 6, NO_ID), (4, 7, NO_ID), (16, 5, NO_ID), (32, 4, NO_ID)],
    &[(1, 7, NO_ID), (4, 1, NO_ID), (16, 0, NO_ID), (32, 7, NO_ID)],
    &[(1, 7, NO_ID), (2, 7, 1000), (4, 5, NO_ID), (16, 7, NO_ID), (32, 0, NO_ID)],
    &[(1, 5, NO_ID), (4, 1, NO_ID), (8, 6, 50), (16, 6, NO_ID), (32, 5, NO_ID)],
    &[
        (1, 7, NO_ID),
        (2, 1, 3),
        (2, 7, 4),
        (4, 7, NO_ID),
        (8, 3, 0),
        (16, 3, NO_ID),
        (32, 7, NO_ID),
    ],
    &[
        (1, 7, NO_ID),
        (2, 7, 9),
        (2, 3, 8),
        (2, 1, 2),
        (4, 0, NO_ID),
        (16, 7, NO_ID),
        (32, 7, NO_ID),
    ],
];

const UMASKS: [u32; 5] = [0, 0o022, 0o077, 0o777, 0o137];
const FILE_MODES: [u32; 7] = [0o666, 0o644, 0o600, 0o777, 0o6755, 0o1240, 0];
const DIR_MODES: [u32; 5] = [0o777, 0o755, 0o700, 0o1777, 0o070];
const CHANGED_MODES: [u32; 5] = [0o640, 0o777, 0, 0o4711, 0o1027];

fn value(list: &[(u16, u16, u32)]) -> Vec<u8> {
    let entry = |&(tag, permissions, id): &(u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    [vec![2, 0, 0, 0], list.iter().flat_map(entry).collect()].concat()
}

/// Resulting attributes of an inode.
#[derive(Debug, PartialEq, Eq)]
struct InheritedAttributes {
    mode: u32,
    owner: (u32, u32),
    access: Option<Vec<u8>>,
    default: Option<Vec<u8>>,
    has_capabilities: bool,
}

/// A place where files are created and changed.
trait FileCreator {
    type Node: Clone;
    fn root(&self) -> Self::Node;
    fn make(&self, dir: &Self::Node, name: &str, mode: u32, umask: u32) -> Self::Node;
    fn set_attribute(&self, node: &Self::Node, name: &str, value: &[u8]);
    fn chmod(&self, node: &Self::Node, mode: u32);
    fn chown(&self, node: &Self::Node, uid: Option<u32>, gid: Option<u32>);
    /// By the superuser or another user.
    fn truncate(&self, node: &Self::Node, by_root: bool);
    fn found(&self, node: &Self::Node) -> InheritedAttributes;
}

/// Gives this thread a separate umask, because other tests create files at the same time with that of the process.
fn take_own_umask() {
    nix::sched::unshare(CloneFlags::CLONE_FS).unwrap();
}

/// A mount by any server.
struct ServedMount {
    root: PathBuf,
}

impl ServedMount {
    fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
        let mut value = vec![0; 4096];
        let len = rustix::fs::lgetxattr(path, name, &mut value[..]).ok()?;
        value.truncate(len);
        Some(value)
    }
}

impl FileCreator for ServedMount {
    type Node = PathBuf;

    fn root(&self) -> PathBuf {
        self.root.clone()
    }

    fn make(&self, dir: &PathBuf, name: &str, mode: u32, umask: u32) -> PathBuf {
        let path = dir.join(name);
        let permissions = Mode::from_raw_mode(mode & 0o7777);
        take_own_umask();
        let before = rustix::process::umask(Mode::from_raw_mode(umask));
        let made = match FileType::from_raw_mode(mode) {
            FileType::Directory => rustix::fs::mkdirat(CWD, &path, permissions),
            FileType::Symlink => rustix::fs::symlink("target", &path),
            file_type => rustix::fs::mknodat(CWD, &path, file_type, permissions, 0),
        };
        rustix::process::umask(before);
        made.unwrap();
        path
    }

    fn set_attribute(&self, path: &PathBuf, name: &str, value: &[u8]) {
        rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
    }

    fn chmod(&self, path: &PathBuf, mode: u32) {
        rustix::fs::chmod(path, Mode::from_raw_mode(mode)).unwrap();
    }

    fn chown(&self, path: &PathBuf, uid: Option<u32>, gid: Option<u32>) {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        rustix::fs::chownat(CWD, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }

    fn truncate(&self, path: &PathBuf, by_root: bool) {
        let mut command = testkit::command("setpriv");
        if !by_root {
            command.args(["--reuid=1000", "--regid=1000", "--clear-groups"]);
        }
        assert!(command.args(["truncate", "-s", "5"]).arg(path).status().unwrap().success());
    }

    fn found(&self, path: &PathBuf) -> InheritedAttributes {
        let metadata = path.symlink_metadata().unwrap();
        InheritedAttributes {
            mode: metadata.mode(),
            owner: (metadata.uid(), metadata.gid()),
            access: Self::attribute(path, ACCESS),
            default: Self::attribute(path, DEFAULT),
            has_capabilities: Self::attribute(path, CAPABILITY).is_some(),
        }
    }
}

struct Ours<'a> {
    fs: &'a dyn FileSystem,
    caller: Caller<'a>,
}

impl Ours<'_> {
    fn setattr(&self, node: u64, args: SetattrIn) {
        self.caller.setattr(node, args).unwrap();
    }
}

impl FileCreator for Ours<'_> {
    type Node = u64;

    fn root(&self) -> u64 {
        ROOT_ID
    }

    fn make(&self, &dir: &u64, name: &str, mode: u32, umask: u32) -> u64 {
        let made = match FileType::from_raw_mode(mode) {
            FileType::Directory => {
                let args = abi::MkdirIn { mode, umask };
                self.caller.entry(dir, linux::Operation::Mkdir { args, name: name.as_bytes() })
            }
            FileType::Symlink => self.caller.symlink(dir, name, "target"),
            _ => {
                let args = abi::MknodIn { mode, umask, ..abi::MknodIn::default() };
                self.caller.entry(dir, linux::Operation::Mknod { args, name: name.as_bytes() })
            }
        };
        made.unwrap().nodeid
    }

    fn set_attribute(&self, &node: &u64, name: &str, value: &[u8]) {
        self.fs.set_xattr(Ino(node), name.as_bytes(), value).unwrap();
    }

    fn chmod(&self, &node: &u64, mode: u32) {
        self.setattr(node, SetattrIn { valid: abi::FATTR_MODE, mode, ..SetattrIn::default() });
    }

    fn chown(&self, &node: &u64, uid: Option<u32>, gid: Option<u32>) {
        let valid = uid.map_or(0, |_| abi::FATTR_UID) | gid.map_or(0, |_| abi::FATTR_GID);
        let (uid, gid) = (uid.unwrap_or(0), gid.unwrap_or(0));
        self.setattr(node, SetattrIn { valid, uid, gid, ..SetattrIn::default() });
    }

    fn truncate(&self, &node: &u64, by_root: bool) {
        // The request of the kernel for a caller without `CAP_FSETID`.
        let valid = abi::FATTR_SIZE | if by_root { 0 } else { abi::FATTR_KILL_SUIDGID };
        self.setattr(node, SetattrIn { valid, size: 5, ..SetattrIn::default() });
    }

    fn found(&self, &node: &u64) -> InheritedAttributes {
        let attr = self.caller.attr(node).unwrap();
        let attribute = |name: &str| self.fs.get_xattr(Ino(node), name.as_bytes()).ok();
        InheritedAttributes {
            mode: attr.mode,
            owner: (attr.uid, attr.gid),
            access: attribute(ACCESS),
            default: attribute(DEFAULT),
            has_capabilities: attribute(CAPABILITY).is_some(),
        }
    }
}

/// Creates inodes of all kinds in directories with all lists, and changes their modes. Returns the results by case
/// name.
fn inherit(side: &impl FileCreator) -> Vec<(String, InheritedAttributes)> {
    let mut all = Vec::new();
    let lists = [None].into_iter().chain(LISTS.into_iter().map(Some));
    for (number, list) in lists.enumerate() {
        for passes_group in [false, true] {
            let name = format!("d{number}{}", if passes_group { "g" } else { "" });
            let dir = side.make(&side.root(), &name, 0o040_755, 0);
            if passes_group {
                side.chown(&dir, None, Some(GROUP));
                side.chmod(&dir, 0o2775);
            }
            if let Some(list) = list {
                side.set_attribute(&dir, DEFAULT, &value(list));
            }
            for umask in UMASKS {
                fill(side, &dir, (&name, umask), &mut all);
            }
        }
    }
    all
}

fn fill<S: FileCreator>(
    side: &S,
    dir: &S::Node,
    case: (&str, u32),
    all: &mut Vec<(String, InheritedAttributes)>,
) {
    let files = FILE_MODES.map(|mode| S_IFREG | mode);
    let others = [0o010_666, 0o140_777, 0o120_777];
    let dirs = DIR_MODES.map(|mode| 0o040_000 | mode);
    let (dir_name, umask) = case;
    for mode in files.into_iter().chain(others).chain(dirs) {
        let name = format!("{mode:o}-{umask:o}");
        let node = side.make(dir, &name, mode, umask);
        all.push((format!("{dir_name}/{name}"), side.found(&node)));
        if mode == S_IFREG | 0o666 || mode == 0o040_777 {
            for changed in CHANGED_MODES {
                side.chmod(&node, changed);
                all.push((format!("{dir_name}/{name} {changed:o}"), side.found(&node)));
            }
        }
    }
}

/// Changes owners and sizes of files with set-id bits and capabilities.
fn lose_privileges(side: &impl FileCreator) -> Vec<(String, InheritedAttributes)> {
    let mut all = Vec::new();
    // Version 2, effective, one permitted capability.
    let capability = [vec![1, 0, 0, 2, 1], vec![0; 15]].concat();
    for bits in (0..8).flat_map(|set| (0..8).map(move |run| (set, run))) {
        let mode = bits.0 << 9 | 0o666 | bits.1 & 1 | (bits.1 & 2) << 2 | (bits.1 & 4) << 4;
        for (case, is_file) in (0..4).map(|case| (case, true)).chain([(0, false), (1, false)]) {
            let kind = if is_file { S_IFREG } else { 0o040_000 };
            let name = format!("{mode:o}-{case}-{is_file}");
            let node = side.make(&side.root(), &name, kind | 0o600, 0);
            side.chown(&node, Some(1000), Some(1000));
            side.chmod(&node, mode);
            if is_file {
                side.set_attribute(&node, CAPABILITY, &capability);
            }
            match case {
                0 => side.chown(&node, Some(5), None),
                1 => side.chown(&node, None, Some(1000)),
                _ => side.truncate(&node, case == 2),
            }
            all.push((name, side.found(&node)));
        }
    }
    all
}

/// Runs a function on a kernel mount of ext4.
fn by_kernel(
    act: impl Fn(&ServedMount) -> Vec<(String, InheritedAttributes)>,
) -> Vec<(String, InheritedAttributes)> {
    let folder = testkit::scratch();
    let image = folder.path().join("image");
    Mke2fs::new("ext4").inode_count(4096).create(&image, 64 << 20);
    let mount = KernelMount::new(&image, &MountOptions::read_write("ext4"));
    act(&ServedMount { root: mount.path().to_owned() })
}

/// Checks that both formats behave like the kernel.
fn compare(
    expected: &[(String, InheritedAttributes)],
    act: impl Fn(&Ours<'_>) -> Vec<(String, InheritedAttributes)>,
) {
    for image in [NewImage::ext4(), NewImage::xfs()] {
        let ours = Ours { fs: image.fs(), caller: Caller::new(&image) };
        assert_same(image.name, &act(&ours), expected);
        drop(ours);
        image.judge();
    }
}

/// Checks the same through our mounts.
fn compare_mounted(
    expected: &[(String, InheritedAttributes)],
    act: impl Fn(&ServedMount) -> Vec<(String, InheritedAttributes)>,
) {
    for image in [NewImage::ext4(), NewImage::xfs()] {
        mounted(&image, Options::default(), |path| {
            let found = act(&ServedMount { root: path.to_owned() });
            assert_same(image.name, &found, expected);
        });
        image.judge();
    }
}

fn assert_same(
    name: &str,
    found: &[(String, InheritedAttributes)],
    expected: &[(String, InheritedAttributes)],
) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn new_inodes_are_as_the_kernel_makes_them() {
    require!(Tool("mke2fs"), Mount("ext4"), Fuse);
    let expected = by_kernel(inherit);
    assert!(expected.iter().any(|(_, found)| found.access.is_some()));
    compare(&expected, |ours| inherit(ours));
    compare_mounted(&expected, inherit);
}

#[test]
fn privileges_go_as_the_kernel_takes_them() {
    require!(Tool("mke2fs"), Tool("setpriv"), Mount("ext4"), Fuse);
    let expected = by_kernel(lose_privileges);
    assert!(expected.iter().any(|(_, found)| found.mode & 0o6000 != 0));
    compare(&expected, |ours| lose_privileges(ours));
    compare_mounted(&expected, lose_privileges);
}
