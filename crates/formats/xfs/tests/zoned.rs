//! Zoned realtime sections, internal and on another device. The images were filled by Linux 7.2 (`golden/make-zoned`).

use std::sync::Arc;

use disk::{BlockDevice, JoinedDevice, MemoryDevice};
use operations::repair::{Staging, make_plan};
use testkit::crash::write_image;
use testkit::guest::{self, GuestJob};
use testkit::require;
use vfs::check::{Finding, Silent};
use vfs::{Error, FileSystem, Ino};
use xfs::format::checksum;
use xfs::format::inode::CRC_OFFSET;
use xfs::format::metafile::MetafileType;
use xfs::repair::Repair;
use xfs::{OpenOptions, Xfs};

use crate::checking::findings;
use crate::common::image::unpack_device;
use crate::common::layout::Layout;
use crate::realtime_check::RealtimeImage;

const EXTERNAL: (&[u8], &[u8]) = (
    include_bytes!("golden/zoned-external.img.gz.gz"),
    include_bytes!("golden/zoned-external.rt.gz.gz"),
);
const INTERNAL: &[u8] = include_bytes!("golden/zoned-internal.img.gz.gz");

const MIB: usize = 1 << 20;

/// Byte offsets in an inode: `di_used_blocks`, and the length of the first record of a reverse map.
const USED_BLOCKS: usize = 128;
const FIRST_RECORD_LEN: usize = 176 + 4 + 4;

/// Returns the contents of the files.
fn expected() -> Vec<(&'static str, Vec<u8>)> {
    let mut long: Vec<u8> = (0..20).flat_map(|nth| std::iter::repeat_n(nth + 1, MIB)).collect();
    long[MIB..][..64 << 10].fill(1);
    let mut many = vec![0; 120 * 65536 - 32768];
    for (nth, piece) in (1..).zip(many.chunks_mut(65536)) {
        piece[..32768].fill(nth);
    }
    let mut sparse = vec![0; 5 * MIB];
    sparse[..100 << 10].fill(7);
    sparse[4200 << 10..][..5000].fill(9);
    vec![("long", long), ("many", many), ("sparse", sparse)]
}

fn external() -> Arc<dyn BlockDevice> {
    let [image, zones] = [EXTERNAL.0, EXTERNAL.1].map(|packed| Arc::new(unpack_device(packed)));
    Arc::new(JoinedDevice::new(image, None, Some(zones)).unwrap())
}

fn internal() -> Arc<dyn BlockDevice> {
    Arc::new(unpack_device(INTERNAL))
}

fn open(device: Arc<dyn BlockDevice>) -> Xfs {
    Xfs::open(device, &OpenOptions::default()).unwrap()
}

fn file(fs: &Xfs, name: &str) -> Ino {
    let dir = fs.lookup(fs.root(), b"dir").unwrap();
    fs.lookup(dir, name.as_bytes()).unwrap()
}

fn read(fs: &Xfs, ino: Ino) -> Vec<u8> {
    let mut bytes = vec![0xee; fs.attributes(ino).unwrap().size as usize];
    let mut at = 0;
    while at < bytes.len() {
        at += fs.read(ino, at as u64, &mut bytes[at..]).unwrap();
    }
    bytes
}

#[test]
fn files_in_zones_are_read_and_no_change_is_made() {
    for (name, device) in [("external", external()), ("internal", internal())] {
        let fs = open(device.clone());
        for (file_name, bytes) in expected() {
            assert!(read(&fs, file(&fs, file_name)) == bytes, "{name}: {file_name}");
        }
        assert!(fs.write(file(&fs, "long"), 0, b"x", None).is_err(), "{name}");
        let refused = Xfs::open_writable(device, &OpenOptions::default()).err().unwrap();
        assert!(matches!(refused, Error::Unsupported(_)), "{name}: {refused}");
        assert!(refused.to_string().contains("zoned realtime device"), "{name}: {refused}");
    }
    // The zones of the other image are on their own device.
    let fs = open(Arc::new(unpack_device(EXTERNAL.0)));
    let refused = fs.read(file(&fs, "long"), 0, &mut [0; 10]).unwrap_err();
    assert!(refused.to_string().contains("--rt-device FILE"), "{refused}");
}

#[test]
fn wrong_places_of_zones_are_refused() {
    let subject = RealtimeImage::of(INTERNAL);
    for start in [1, 16383, 16384 + 20000, u64::MAX] {
        let image = Arc::new(subject.with_superblock(|raw| raw.rtstart = start.into()));
        let refused = Xfs::open(image, &OpenOptions::default()).err().unwrap();
        assert!(refused.to_string().contains("rtstart"), "{start}: {refused}");
    }
    let zones = Some(Arc::new(unpack_device(EXTERNAL.1)) as Arc<dyn BlockDevice>);
    let joined = JoinedDevice::new(internal(), None, zones).unwrap();
    let refused = Xfs::open(Arc::new(joined), &OpenOptions::default()).err().unwrap();
    assert!(refused.to_string().contains("leave --rt-device out"), "{refused}");
}

/// Returns the inodes of the reverse maps of zones, in their order.
fn maps(subject: &RealtimeImage) -> Vec<Ino> {
    let mut inodes = Layout::of(&subject.bytes[..64 * MIB]).inodes;
    inodes.retain(|ino| subject.inode(*ino).metafile_type() == MetafileType::RtRmap);
    inodes
}

/// Returns a copy with a 32-bit number of an inode increased by one.
fn with_number(subject: &RealtimeImage, ino: Ino, at: usize) -> MemoryDevice {
    let (slot, size) = (subject.slot(ino), subject.geometry.inode_size());
    subject.changed(|bytes| {
        let slot = &mut bytes[slot..slot + size];
        let number = u32::from_be_bytes(slot[at..at + 4].try_into().unwrap());
        slot[at..at + 4].copy_from_slice(&(number + 1).to_be_bytes());
        checksum::seal(slot, CRC_OFFSET);
    })
}

/// Returns whether `xfs_repair -n` accepts an image with internal zones.
fn is_accepted(image: &MemoryDevice) -> bool {
    let folder = testkit::scratch();
    let path = folder.path().join("image");
    write_image(image, &path).unwrap();
    testkit::command("xfs_repair").args(["-n", "-f"]).arg(&path).output().unwrap().status.success()
}

#[test]
fn counters_and_reverse_maps_of_zones_are_checked() {
    require!(Tool("xfs_repair"));
    for device in [external(), internal()] {
        let found = findings(device).unwrap();
        assert!(found.is_empty(), "{found:#?}");
    }
    let subject = RealtimeImage::of(INTERNAL);
    assert!(is_accepted(&subject.image));
    let maps = maps(&subject);
    assert_eq!(maps.len(), 12);
    let found_in = |image: &MemoryDevice| findings(Arc::new(image.fork())).unwrap();
    let has = |found: &[Finding], field: &str| {
        found.iter().any(|it| it.code.name == "xfs-realtime-rmap" && it.place.field == Some(field))
    };
    for zone in [0, 1, 5] {
        let wrong = with_number(&subject, maps[zone], USED_BLOCKS);
        let found = found_in(&wrong);
        assert!(found.len() == 1 && has(&found, "di_used_blocks"), "{zone}: {found:#?}");
        // xfs_repair does not compare the counter.
        let staging = Arc::new(Staging::new(Arc::new(wrong)));
        let refused = make_plan(&Repair::default(), &staging, &Silent).err().unwrap();
        assert!(refused.to_string().contains("zoned realtime device"), "{zone}: {refused}");
    }
    let wrong = with_number(&subject, maps[1], FIRST_RECORD_LEN);
    let found = found_in(&wrong);
    assert!(found.iter().any(|it| it.code.name == "xfs-realtime-rmap"), "{found:#?}");
}

/// The guest's kernel reads what this program reads.
#[test]
fn the_guest_reads_the_same_files_in_zones() {
    require!(Guest("XFS_RT"));
    let folder = testkit::scratch();
    let write = |name: &str, packed: &'static [u8]| {
        let path = folder.path().join(name);
        write_image(&unpack_device(packed), &path).unwrap();
        path
    };
    let images =
        [write("image", EXTERNAL.0), write("zones", EXTERNAL.1), write("internal", INTERNAL)];
    let script = "set -e\n\
        mount -t xfs -o ro,rtdev=$2 $1 /mnt; cat /mnt/dir/*; umount /mnt\n\
        mount -t xfs -o ro $3 /mnt; cat /mnt/dir/*; umount /mnt\n";
    let script = script.replace("cat /mnt/dir/*", "cat /mnt/dir/* | md5sum");
    let job = images.iter().fold(GuestJob::new(script), |job, image| job.disk(image, false));
    let answer = guest::run(&job);
    let bytes: Vec<u8> = expected().into_iter().flat_map(|(_, bytes)| bytes).collect();
    let sum = folder.path().join("expected");
    std::fs::write(&sum, bytes).unwrap();
    let sum = testkit::command("md5sum").arg(&sum).output().unwrap().stdout;
    let sum = String::from_utf8(sum).unwrap();
    let sum = sum.split_whitespace().next().unwrap();
    assert_eq!(answer.output.matches(sum).count(), 2, "{}\n{}", answer.output, answer.log);
}
