//! The parts of a sample tree, one directory each.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::FileType;

use crate::sample::Maker;

/// Maximum length of a target that the kernel follows, in bytes: `PATH_MAX` without its terminating zero.
const SYMLINK_BYTES_MAX: usize = 4095;

/// Last second that ext4 can store: 34 bits counted from -2^31.
const EXT4_SECOND_MAX: i64 = (1 << 34) - (1 << 31) - 1;

/// Creates all parts.
pub(crate) fn make_all(maker: &mut Maker) {
    types(maker);
    modes(maker);
    owners(maker);
    times(maker);
    hard_links(maker);
    symlinks(maker);
    sizes(maker);
    holes(maker);
    names(maker);
    xattrs(maker);
    acls(maker);
    wide(maker);
    deep(maker);
}

fn types(maker: &mut Maker) {
    maker.directory("types");
    maker.file("types/file", 100);
    maker.file("types/empty-file", 0);
    maker.directory("types/empty-directory");
    maker.symlink("types/symlink", "file");
    maker.symlink("types/dangling", "/no/such/file");
    maker.special("types/fifo", FileType::Fifo, (0, 0));
    maker.special("types/socket", FileType::Socket, (0, 0));
    // Both encodings of device numbers: 8-bit parts fit the old one, larger parts need the new one.
    let (major_max, minor_max) = maker.sample.device_max;
    let devices =
        [("null", 1, 3), ("wide", major_max, minor_max), ("minor", 8, 256), ("major", 256, 0)];
    for (name, major, minor) in devices {
        let device = (major, minor);
        maker.special(&format!("types/char-{name}"), FileType::CharacterDevice, device);
        maker.special(&format!("types/block-{name}"), FileType::BlockDevice, device);
    }
}

fn modes(maker: &mut Maker) {
    maker.directory("modes");
    let files = [0o000, 0o001, 0o200, 0o444, 0o600, 0o755, 0o777, 0o2755, 0o4755, 0o6711, 0o7777];
    for mode in maker.readable(files) {
        let path = format!("modes/file-{mode:04o}");
        maker.file(&path, 10);
        maker.mode(&path, mode);
    }
    let directories = [0o000, 0o500, 0o700, 0o1777, 0o2775, 0o7777];
    for mode in maker.readable(directories) {
        let path = format!("modes/directory-{mode:04o}");
        maker.directory(&path);
        maker.mode(&path, mode);
    }
}

fn owners(maker: &mut Maker) {
    maker.directory("owners");
    // The lower and upper 16 bits are stored separately. 2^32 - 1 means "no change" and is not a valid owner.
    let ids = [(0, 0), (1000, 100), (65535, 65536), (65536, 0x1_2345), (u32::MAX - 1, 0x8000_0000)];
    for (uid, gid) in ids {
        let path = format!("owners/file-{uid}-{gid}");
        maker.file(&path, 1);
        maker.owner(&path, uid, gid);
    }
    maker.directory("owners/directory");
    maker.owner("owners/directory", 70_000, 80_000);
    maker.symlink("owners/symlink", "directory");
    maker.owner("owners/symlink", 90_000, 5);
}

fn times(maker: &mut Maker) {
    maker.directory("times");
    let narrow = [0, 1, -1, i64::from(i32::MIN), i64::from(i32::MAX)].map(|second| (second, 0));
    let wide = [
        (-1, 999_999_999),
        (i64::from(i32::MIN), 1),
        (0, 1),
        (1 << 31, 500_000_000),
        ((1 << 32) - 1, 123_456_789),
        (1 << 32, 0),
        (EXT4_SECOND_MAX, 999_999_999),
    ];
    let wide = if maker.sample.wide_times { &wide[..] } else { &[] };
    for &(second, nanosecond) in narrow.iter().chain(wide) {
        let path = format!("times/{second}.{nanosecond:09}");
        maker.file(&path, 0);
        maker.time(&path, second, nanosecond);
    }
    maker.directory("times/directory");
    maker.time("times/directory", -86_400, 0);
}

fn hard_links(maker: &mut Maker) {
    maker.directory("links");
    maker.directory("links/other");
    maker.file("links/original", 5000);
    maker.hard_link("links/original", "links/second");
    maker.hard_link("links/original", "links/other/third");
    maker.special("links/fifo", FileType::Fifo, (0, 0));
    maker.hard_link("links/fifo", "links/other/fifo");
    maker.symlink("links/symlink", "original");
    maker.hard_link("links/symlink", "links/other/symlink");
    maker.file("links/many-000", 1);
    for number in 1..200 {
        maker.hard_link("links/many-000", &format!("links/many-{number:03}"));
    }
}

fn symlinks(maker: &mut Maker) {
    maker.directory("symlinks");
    let block = maker.sample.block_size as usize;
    let longest = SYMLINK_BYTES_MAX.min(block - 1).min(maker.sample.symlink_bytes_max);
    // Up to 59 bytes fit into the inode itself; 60 and more need a block.
    for length in [1, 59, 60, 61, 255, 1000, longest - 1, longest] {
        // Slashes divide the target, because a path component has at most 255 bytes.
        let target: Vec<u8> = (0..length)
            .map(|at| if at % 200 == 199 { b'/' } else { b'a' + (at % 26) as u8 })
            .collect();
        maker.symlink(format!("symlinks/of-{length}"), OsStr::from_bytes(&target));
    }
    maker.symlink("symlinks/any-bytes", OsStr::from_bytes(b"\xff\xfe\n\x01/\x80"));
}

fn sizes(maker: &mut Maker) {
    maker.directory("sizes");
    let block = u64::from(maker.sample.block_size);
    // The inline area of an inode has 60 bytes. After it, sizes around 12 direct blocks and the first indirect blocks.
    let edges = [60, 160, block, 2 * block, 12 * block, (12 + block / 4) * block, 1 << 20];
    for size in edges.iter().flat_map(|&edge| [edge - 1, edge, edge + 1]) {
        maker.file(format!("sizes/{size}"), size);
    }
}

fn holes(maker: &mut Maker) {
    const MIB: u64 = 1 << 20;
    maker.directory("holes");
    maker.sparse_file("holes/only", MIB, &[]);
    maker.sparse_file("holes/only-odd-size", 5000, &[]);
    maker.sparse_file("holes/head", MIB, &[(MIB / 2, MIB / 2)]);
    maker.sparse_file("holes/middle", MIB, &[(0, 65536), (MIB - 65536, 65536)]);
    maker.sparse_file("holes/tail", MIB, &[(0, 65536)]);
    maker.sparse_file("holes/tail-odd-size", MIB + 17, &[(8192, 4096)]);
    // More pieces than the four extents of an inode, and than one extent block of 1 KiB.
    let comb: Vec<_> = (0..500).map(|tooth| (tooth * 8192, 4096)).collect();
    maker.sparse_file("holes/comb", 500 * 8192, &comb);
    if maker.sample.huge_sparse {
        let size = 5 << 30;
        let data = [(0, 4096), (3 << 30, 8192), ((1 << 32) - 4096, 8192), (size - 4096, 4096)];
        maker.sparse_file("holes/huge", size, &data);
    }
}

fn names(maker: &mut Maker) {
    maker.directory("names");
    let directory = PathBuf::from("names");
    let every_byte: Vec<u8> = (1..=255).filter(|&byte| byte != b'/').collect();
    let samples: [&[u8]; 14] = [
        b"a",
        b" ",
        b"...",
        b"-rf",
        b"new\nline",
        b"back\\slash",
        b"\x01\x7f",
        b"\xff\xfe\x80",
        "caf\u{e9}".as_bytes(),
        "cafe\u{301}".as_bytes(),
        "\u{65e5}\u{672c}\u{8a9e}".as_bytes(),
        &every_byte,
        &[b'x'; 255],
        &[0xc3; 255],
    ];
    for name in samples {
        maker.file(directory.join(OsStr::from_bytes(name)), 3);
    }
    for length in 1..=255 {
        let random = &mut maker.random;
        let name: Vec<u8> = (0..length).map(|_| random.u8(0x80..)).collect();
        let name = [b"n", &name[..length - 1]].concat();
        let path = directory.join(OsStr::from_bytes(&name));
        maker.file(path, 0);
    }
}

fn xattrs(maker: &mut Maker) {
    maker.directory("xattrs");
    let largest = maker.sample.xattr_bytes_max;
    for size in [0, 1, 3, 4, 20, 60, largest - 1, largest] {
        let path = format!("xattrs/value-of-{size}");
        maker.file(&path, 10);
        let value: Vec<u8> = (0..size).map(|_| maker.random.u8(..)).collect();
        maker.xattr(&path, b"user.value", &value);
    }
    maker.file("xattrs/many", 10);
    for number in 0..maker.sample.block_size / 128 {
        let name = format!("user.many-{number:02}");
        maker.xattr("xattrs/many", name.as_bytes(), &number.to_le_bytes());
    }
    maker.file("xattrs/long-name", 10);
    let name = [b"user.".as_slice(), &[b'n'; 250]].concat();
    maker.xattr("xattrs/long-name", &name, b"value");
    maker.directory("xattrs/directory");
    maker.xattr("xattrs/directory", b"user.of directory", b"\0\xff");
    // Inodes with equal attributes may share a block.
    for number in 0..5 {
        let path = format!("xattrs/shared-{number}");
        maker.file(&path, 10);
        maker.xattr(&path, b"user.shared", &vec![b's'; largest / 2]);
    }
    namespaces(maker);
}

fn namespaces(maker: &mut Maker) {
    maker.file("xattrs/namespaces", 10);
    maker.xattr("xattrs/namespaces", b"user.a", b"1");
    maker.xattr("xattrs/namespaces", b"trusted.b", b"2");
    maker.xattr("xattrs/namespaces", b"trusted.overlay.opaque", b"y");
    maker.symlink("xattrs/symlink", "namespaces");
    maker.xattr("xattrs/symlink", b"trusted.c", b"3");
    maker.file("xattrs/capable", 10);
    // `struct vfs_cap_data` of linux/capability.h, revision 2 with the effective bit:
    // CAP_NET_BIND_SERVICE (bit 10) permitted, nothing inheritable, all little-endian.
    let words: [u32; 5] = [0x0200_0001, 1 << 10, 0, 0, 0];
    let bytes = words.map(u32::to_le_bytes).concat();
    maker.xattr("xattrs/capable", b"security.capability", &bytes);
}

fn acls(maker: &mut Maker) {
    maker.directory("acls");
    let access = acl(&[
        (USER_OBJ, 6, NO_ID),
        (USER, 7, 1000),
        (USER, 4, 70_000),
        (GROUP_OBJ, 4, NO_ID),
        (GROUP, 5, 100),
        (MASK, 7, NO_ID),
        (OTHER, 0, NO_ID),
    ]);
    maker.file("acls/file", 10);
    maker.xattr("acls/file", b"system.posix_acl_access", &access);
    maker.directory("acls/directory");
    let default =
        acl(&[(USER_OBJ, 7, NO_ID), (GROUP_OBJ, 5, NO_ID), (MASK, 5, NO_ID), (OTHER, 0, NO_ID)]);
    maker.xattr("acls/directory", b"system.posix_acl_access", &access);
    maker.xattr("acls/directory", b"system.posix_acl_default", &default);
}

// Tags of linux/posix_acl.h, and the id of entries without a name.
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NO_ID: u32 = u32::MAX;

/// Returns the value that `setfacl` passes to `setxattr`: version 2 of linux/posix_acl_xattr.h.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn wide(maker: &mut Maker) {
    maker.directory("wide");
    for number in 0..maker.sample.wide_names {
        let padding = maker.random.usize(0..40);
        let path = format!("wide/{number:06}-{:a<padding$}", "");
        match number % 100 {
            0 => maker.directory(path),
            1 => maker.symlink(path, "000000"),
            _ => maker.file(path, 0),
        }
    }
}

fn deep(maker: &mut Maker) {
    let mut path = PathBuf::from("deep");
    maker.directory(&path);
    for level in 0..maker.sample.depth {
        path.push(format!("level-{level:03}"));
        maker.directory(&path);
        maker.file(path.join("file"), 1);
    }
}
