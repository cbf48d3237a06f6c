//! Requests of programs by ioctl(2).

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::io::Errno;
use testkit::Need;

use crate::place::probe::{ioctl, ioctl_as, map_ids};
use crate::place::{Driver, Format, Place, has_compiler, prove_on_both, shell, tool};

const GETFSLABEL: u32 = 0x8100_9431;
const SETFSLABEL: u32 = 0x4100_9432;
/// Size of the buffer for a label, in bytes.
const ROOM: usize = 256;

/// An unknown ioctl number with input and output.
const UNKNOWN: u32 = 0xc010_ee77;

fn label_of(place: &Place) -> Vec<u8> {
    let mut room = ioctl(place.path(), GETFSLABEL, &[0xee; ROOM]).unwrap();
    assert_eq!(room.len(), ROOM);
    let end = room.iter().position(|&byte| byte == 0).unwrap();
    // The kernel's drivers do not clear the rest of the buffer behind the longest label.
    let rest = if place.driver() == Driver::Own { &room[end..] } else { &room[end..=end] };
    assert!(rest.iter().all(|&byte| byte == 0), "nothing comes after it");
    room.truncate(end);
    room
}

fn padded(label: &[u8]) -> Vec<u8> {
    let mut room = label.to_vec();
    room.resize(ROOM, 0);
    room
}

/// Returns the label in the superblock of a group of the image file. All tools use the copy in
/// group 1 if the first is lost.
fn label_in(place: &Place, group: u64) -> Vec<u8> {
    let image = File::open(place.image()).unwrap();
    let read = |offset: u64, len: usize| {
        let mut bytes = vec![0; len];
        image.read_exact_at(&mut bytes, offset).unwrap();
        bytes
    };
    let (offset, len) = match place.format() {
        Format::Ext if group == 0 => (1024 + 0x78, 16),
        // Groups of 32768 blocks.
        Format::Ext => (group * 32768 * 4096 + 0x78, 16),
        Format::Xfs => {
            let group_blocks = u32::from_be_bytes(read(84, 4).try_into().unwrap());
            (group * u64::from(group_blocks) * 4096 + 108, 12)
        }
    };
    read(offset, len).split(|&byte| byte == 0).next().unwrap().to_vec()
}

/// Programs try ioctls of other file systems and depend on the error.
fn commands_that_are_not_known_say_so(place: &mut Place) {
    if !has_compiler("commands_that_are_not_known_say_so") {
        return;
    }
    fs::write(place.join("file"), "contents").unwrap();
    for path in [place.join("file"), place.path().to_owned()] {
        assert_eq!(ioctl(&path, UNKNOWN, &[0; 16]), Err(Errno::NOTTY), "{path:?}");
    }
    assert_eq!(fs::read(place.join("file")).unwrap(), b"contents");
}

/// `xfs_io -c label` and similar: the superblock and its copies agree.
fn labels_are_read_and_changed(place: &mut Place) {
    if !has_compiler("labels_are_read_and_changed") {
        return;
    }
    let longest = if place.format() == Format::Xfs { 12 } else { 16 };
    assert_eq!(label_of(place), b"");
    let label = b"sixteen bytes it has"[..longest].to_vec();
    let mut too_long = label.clone();
    too_long.push(b'x');
    assert_eq!(ioctl(place.path(), SETFSLABEL, &padded(&too_long)), Err(Errno::INVAL));
    let denied = ioctl_as(1000, place.path(), SETFSLABEL, &padded(b"mine"));
    assert_eq!(denied, Err(Errno::PERM), "the superuser alone");
    assert_eq!(label_of(place), b"");
    ioctl(place.path(), SETFSLABEL, &padded(&label)).unwrap();
    assert_eq!(label_of(place), label);
    if place.driver() == Driver::Own {
        // While mounted, because `blkid` reads the device.
        assert_eq!(label_in(place, 0), label);
        assert_eq!(label_in(place, 1), label);
    }
    fs::write(place.join("file"), "later").unwrap();
    place.unmount();
    assert_eq!(label_in(place, 1), label);
    place.mount_read_only();
    assert_eq!(label_of(place), label);
    assert_eq!(ioctl(place.path(), SETFSLABEL, &padded(b"other")), Err(Errno::ROFS));
    place.unmount();
    place.mount_with("");
    ioctl(place.path(), SETFSLABEL, &padded(b"")).unwrap();
    place.unmount();
    assert_eq!(label_in(place, 1), b"");
    place.mount_with("");
    assert_eq!(label_of(place), b"");
}

/// An ID-mapped mount over ours, as in containers: new files belong to their creator.
fn mounts_of_a_mount_can_map_ids(place: &mut Place) {
    if !has_compiler("mounts_of_a_mount_can_map_ids") {
        return;
    }
    let tools = ["setpriv", "setfattr", "getfattr"].map(Need::Tool);
    let needs = [&[Need::Kernel(6, 12), Need::UserNamespace], &tools[..]].concat();
    if !testkit::satisfied("mounts that map ids", &needs) {
        return;
    }
    if place.driver() == Driver::Own {
        place.unmount();
        place.mount_with("idmap");
    }
    let view = tempfile::tempdir_in(place.home()).unwrap();
    let shown = |path: &str| fs::metadata(view.path().join(path)).unwrap();
    let stored = |path: &str| fs::metadata(place.join(path)).unwrap();
    fs::create_dir(place.join("open")).unwrap();
    fs::write(place.join("file"), "contents").unwrap();
    shell(place.path(), "chmod 1777 open; chown 5:6 file; setfattr -n trusted.own -v 1 file");
    map_ids(place.path(), view.path(), 10_000, 10_000);
    assert_eq!((shown("file").uid(), shown("file").gid()), (10_005, 10_006));
    let line = "mkdir open/dir; echo new > open/file; ln -s file open/link; mknod open/fifo p; mv open/file open/moved";
    let as_user = |uid: u32, line: &str| {
        let mut command = tool("setpriv");
        command.args([format!("--reuid={uid}"), format!("--regid={uid}")]);
        command.args(["--clear-groups", "bash", "-euc", line]).current_dir(view.path());
        command.output().unwrap().status.success()
    };
    assert!(as_user(10_007, line));
    for name in ["open/dir", "open/moved", "open/fifo"] {
        assert_eq!((stored(name).uid(), stored(name).gid()), (7, 7), "{name}");
        assert_eq!((shown(name).uid(), shown(name).gid()), (10_007, 10_007), "{name}");
    }
    // Users without a mapped ID cannot create or own files.
    assert!(!as_user(7, "echo mine > open/other"));
    assert!(!as_user(7, "rm open/moved"));
    assert!(!place.join("open/other").exists());
    assert!(as_user(10_005, "chmod 600 file; echo more >> file"));
    assert_eq!(stored("file").mode() & 0o7777, 0o600);
    shell(view.path(), "chown 10008:10009 file");
    assert_eq!((stored("file").uid(), stored("file").gid()), (8, 9));
    // The caller is known, though the kernel does not send it.
    let listed = shell(place.path(), "getfattr -m - --absolute-names file");
    assert!(listed.contains("trusted.own"), "{listed}");
    assert!(!as_user(10_008, "getfattr -m - file | grep trusted"));
    shell(place.path(), "chmod 6755 file; fallocate -l 9999 file");
    assert_eq!(stored("file").mode() & 0o7777, 0o6755, "the superuser keeps them");
    rustix::mount::unmount(view.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
}

/// `FITRIM`, and its input: first byte, length, and minimum length of an extent.
const FITRIM: u32 = 0xc018_5879;

fn trim(place: &Place, range: [u64; 3]) -> Result<(), Errno> {
    let bytes: Vec<_> = range.into_iter().flat_map(u64::to_ne_bytes).collect();
    ioctl(place.path(), FITRIM, &bytes).map(drop)
}

/// Kernel mounts reject a length below a block, too.
fn trims_cover_at_least_a_block(place: &mut Place) {
    if !has_compiler("trims_cover_at_least_a_block") {
        return;
    }
    for len in [0, 1, 4095] {
        assert_eq!(trim(place, [0, len, 0]), Err(Errno::INVAL), "{len}");
    }
    assert_eq!(trim(place, [0, 4096, 0]), Ok(()));
    assert_eq!(trim(place, [0, u64::MAX, 0]), Ok(()));
    assert_eq!(trim(place, [1 << 40, 4096, 0]), Err(Errno::INVAL));
}

prove_on_both!(
    trims_cover_at_least_a_block,
    commands_that_are_not_known_say_so,
    labels_are_read_and_changed,
    mounts_of_a_mount_can_map_ids,
);
