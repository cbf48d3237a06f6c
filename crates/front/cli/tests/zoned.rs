//! Commands on XFS images with a zoned realtime section, which Linux 7.2 filled. Kernels alone write them.

use std::fs;
use std::path::Path;

use serde_json::Value;
use testkit::{require, scratch};

use crate::mount::{Point, unmount_when_free};
use crate::program::run;
use crate::realtime_device::{ok, unpack};

const FILES: [(&str, &[u8]); 3] = [
    ("internal.img", include_bytes!("../../../formats/xfs/tests/golden/zoned-internal.img.gz.gz")),
    ("external.img", include_bytes!("../../../formats/xfs/tests/golden/zoned-external.img.gz.gz")),
    ("external.rt", include_bytes!("../../../formats/xfs/tests/golden/zoned-external.rt.gz.gz")),
];
/// Images with the option for their realtime device and its start on the data device.
const IMAGES: [(&str, &str, &str, u64); 2] =
    [("internal", "", "internal", 16384), ("external", "--rt-device external.rt", "external", 0)];
/// Blocks of the zones, and the free ones that a read-only mount of Linux 7.2 shows (`statfs`).
const BLOCKS: u64 = 49152;
const BLOCKS_FREE: u64 = 43045;

fn unpack_all(dir: &Path) {
    for (name, bytes) in FILES {
        let once = dir.join("once");
        unpack(bytes, &once);
        unpack(&fs::read(once).unwrap(), &dir.join(name));
    }
}

fn long() -> Vec<u8> {
    let mut long: Vec<u8> = (0..20).flat_map(|nth| std::iter::repeat_n(nth + 1, 1 << 20)).collect();
    long[1 << 20..][..64 << 10].fill(1);
    long
}

#[test]
fn commands_read_images_with_zones() {
    require!(Tool("gzip"), Tool("xfs_repair"));
    let dir = scratch();
    let dir = dir.path();
    unpack_all(dir);
    for (name, device, ..) in IMAGES {
        let image = format!("{name}.img");
        let before = fs::read(dir.join(&image)).unwrap();
        assert!(ok(dir, &format!("cat {image} /dir/long {device}")) == long(), "{name}");
        ok(dir, &format!("check {image} {device}"));
        ok(dir, &format!("extract {image} {name} {device}"));
        assert!(fs::read(dir.join(name).join("dir/long")).unwrap() == long(), "{name}");
        ok(dir, &format!("diff {image} {name} {device} --ignore times,owner,xattrs,flags,links"));
        // The map leaves the realtime device out and says so. It knows the owner of every block.
        let map = String::from_utf8(ok(dir, &format!("map {image} {device}"))).unwrap();
        assert!(map.contains("16,384 blocks") && map.contains("Not shown: data on"), "{map}");
        ok(dir, &format!("convert {image} {name}-copy.img {device} --size 300M"));
        testkit::xfs_repair(dir.join(format!("{name}-copy.img")));
        assert!(ok(dir, &format!("cat {name}-copy.img /dir/long")) == long(), "{name}");
        for change in ["rm", "mkdir"] {
            let output = run(dir, &format!("{change} {image} /dir/new {device}"));
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(3), "{said}");
            assert!(said.contains("zoned realtime device"), "{said}");
        }
        assert!(fs::read(dir.join(&image)).unwrap() == before, "{name}");
    }
}

/// `info` and mounts show the free space of a kernel's read-only mount.
#[test]
fn free_space_of_zones_is_shown() {
    require!(Tool("gzip"), Fuse);
    let dir = scratch();
    let dir = dir.path();
    unpack_all(dir);
    for (name, device, place, start) in IMAGES {
        let info = ok(dir, &format!("info {name}.img {device} --json"));
        let info: Value = serde_json::from_slice(&info).unwrap();
        // The data section has its own count.
        assert!(info["blocks_free"].as_u64().unwrap() > 10_000, "{info}");
        let text = String::from_utf8(ok(dir, &format!("info {name}.img {device}"))).unwrap();
        let free = text.lines().find(|line| line.trim_start().starts_with("free blocks:"));
        assert!(free.is_some_and(|line| line.ends_with(&BLOCKS_FREE.to_string())), "{text}");
        let lines = String::from_utf8(ok(dir, &format!("as xfs_info {name}.img"))).unwrap();
        assert!(lines.contains(&format!("realtime ={place} ")), "{lines}");
        assert!(lines.contains(&format!("zoned=1      start={start} reserved=0")), "{lines}");

        let point = Point::new();
        let to = point.path().to_str().unwrap();
        let option = device.replace("--rt-device ", ",rtdev=");
        ok(dir, &format!("mount {name}.img {to} -o ro{option}"));
        let found = rustix::fs::statvfs(point.path()).unwrap();
        let read = fs::read(point.path().join("dir/long")).unwrap();
        assert!(unmount_when_free(point.path()).status.success());
        assert_eq!(
            (found.f_blocks, found.f_bfree, found.f_bavail),
            (BLOCKS, BLOCKS_FREE, BLOCKS_FREE)
        );
        assert!(read == long(), "{name}");
    }
}
