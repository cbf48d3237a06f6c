//! Contents of realtime files. The images were filled by Linux 7.2 (`golden/make-realtime`), whose checksums of the
//! files are those of [`expected`].

use std::sync::Arc;

use disk::{BlockDevice, JoinedDevice, MemoryDevice, OverlayDevice};
use vfs::{Error, FileSystem, Ino};
use xfs::format::checksum;
use xfs::format::superblock::{CRC_OFFSET, RawSuperblock, SUPERBLOCK_SIZE};
use xfs::{OpenOptions, Xfs};
use zerocopy::{FromBytes, IntoBytes};

use crate::common::image::unpack_device;

/// Images without and with realtime groups, each with its realtime device.
const IMAGES: [(&str, &[u8], &[u8]); 2] = [
    (
        "classic",
        include_bytes!("golden/realtime-classic.img.gz.gz"),
        include_bytes!("golden/realtime-classic.rt.gz.gz"),
    ),
    (
        "metadir",
        include_bytes!("golden/realtime-metadir.img.gz.gz"),
        include_bytes!("golden/realtime-metadir.rt.gz.gz"),
    ),
];

const MIB: usize = 1 << 20;

/// Returns the contents of the files.
fn expected() -> Vec<(&'static str, Vec<u8>)> {
    let long = (0..20).flat_map(|nth| std::iter::repeat_n(nth + 1, MIB)).collect();
    let mut many = vec![0; 120 * 65536 - 32768];
    for (nth, piece) in (1..).zip(many.chunks_mut(65536)) {
        piece[..32768].fill(nth);
    }
    let mut sparse = vec![0; 5 * MIB];
    sparse[..100 << 10].fill(7);
    sparse[4200 << 10..][..5000].fill(9);
    vec![("long", long), ("many", many), ("sparse", sparse)]
}

fn joined(image: Arc<dyn BlockDevice>, realtime: MemoryDevice) -> Arc<dyn BlockDevice> {
    Arc::new(JoinedDevice::new(image, None, Some(Arc::new(realtime))).unwrap())
}

fn open(device: Arc<dyn BlockDevice>) -> vfs::Result<Xfs> {
    Xfs::open(device, &OpenOptions::default())
}

fn file(fs: &Xfs, name: &str) -> Ino {
    let dir = fs.lookup(fs.root(), b"dir").unwrap();
    fs.lookup(dir, name.as_bytes()).unwrap()
}

fn read(fs: &Xfs, ino: Ino) -> vfs::Result<Vec<u8>> {
    let size = fs.attributes(ino)?.size as usize;
    // Reads that start and end within extents.
    let (mut bytes, mut at) = (vec![0xee; size], 0);
    for len in [1000, 70_000].into_iter().cycle() {
        let end = (at + len).min(size);
        at += fs.read(ino, at as u64, &mut bytes[at..end])?;
        if at == size {
            return Ok(bytes);
        }
    }
    unreachable!("the lengths repeat")
}

#[test]
fn realtime_files_are_read_from_their_device() {
    for (name, image, realtime) in IMAGES {
        let fs = open(joined(Arc::new(unpack_device(image)), unpack_device(realtime))).unwrap();
        for (file_name, bytes) in expected() {
            let found = read(&fs, file(&fs, file_name)).unwrap();
            assert!(found == bytes, "{name}: {file_name}");
        }
        let data = fs.lookup(fs.root(), b"data").unwrap();
        assert_eq!(read(&fs, data).unwrap(), vec![3; 50 << 10], "{name}");
        assert!(fs.write(data, 0, b"x", None).is_err(), "{name}");
    }
}

#[test]
fn without_their_device_realtime_files_are_only_listed() {
    for (name, image, _) in IMAGES {
        let fs = open(Arc::new(unpack_device(image))).unwrap();
        for (file_name, bytes) in expected() {
            let ino = file(&fs, file_name);
            assert_eq!(fs.attributes(ino).unwrap().size, bytes.len() as u64, "{name}");
            let error = read(&fs, ino).unwrap_err();
            assert!(matches!(error, Error::Unsupported(_)), "{name}: {error}");
            assert!(error.to_string().contains("--rt-device FILE"), "{name}: {error}");
        }
    }
}

#[test]
fn wrong_realtime_devices_are_refused() {
    let refused = |image: &'static [u8], realtime: MemoryDevice| {
        let opened = open(joined(Arc::new(unpack_device(image)), realtime));
        opened.err().expect("it is refused").to_string()
    };
    let [(_, classic, _), (_, metadir, realtime)] = IMAGES;
    let short = refused(classic, MemoryDevice::new(1 << 20));
    assert!(short.contains("1048576 bytes for a section of 50331648"), "{short}");
    let blank = refused(metadir, MemoryDevice::new(48 << 20));
    assert!(blank.contains("without a superblock"), "{blank}");
    let other = unpack_device(realtime);
    let mut block = vec![0; 4096];
    other.read_at(0, &mut block).unwrap();
    block[24..40].fill(0x77);
    other.write_at(0, &block).unwrap();
    let damaged = refused(metadir, other.fork());
    assert!(damaged.contains("realtime superblock") && damaged.contains("checksum"), "{damaged}");
    checksum::seal(&mut block, 4);
    other.write_at(0, &block).unwrap();
    let other = refused(metadir, other);
    assert!(other.contains(&"77".repeat(16)) && other.contains(&"5b".repeat(16)), "{other}");
    let none = crate::changing::TargetLayout::DEFAULT.make();
    let none = open(joined(Arc::new(none), MemoryDevice::new(48 << 20))).err().unwrap();
    assert!(none.to_string().contains("leave --rt-device out"), "{none}");
}

/// Changes the superblock of an image in memory.
fn with_superblock(
    image: &'static [u8],
    change: impl Fn(&mut RawSuperblock),
) -> Arc<dyn BlockDevice> {
    let device = OverlayDevice::new(Arc::new(unpack_device(image)));
    let mut sector = [0; 512];
    device.read_at(0, &mut sector).unwrap();
    let mut raw = RawSuperblock::read_from_prefix(&sector).unwrap().0;
    change(&mut raw);
    sector[..SUPERBLOCK_SIZE].copy_from_slice(raw.as_bytes());
    checksum::seal(&mut sector, CRC_OFFSET);
    device.write_at(0, &sector).unwrap();
    Arc::new(device)
}

#[test]
fn extents_outside_of_the_realtime_device_are_damage() {
    for (name, image, realtime) in IMAGES {
        let has_groups = name == "metadir";
        let damaged = with_superblock(image, |raw| {
            raw.rblocks = 1024.into();
            raw.rgcount = u32::from(has_groups).into();
        });
        let fs = open(joined(damaged, unpack_device(realtime))).unwrap();
        let error = read(&fs, file(&fs, "long")).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{name}: {error}");
        assert!(error.to_string().contains("realtime device"), "{name}: {error}");
    }
    // Numbers that contradict each other.
    let (_, image, realtime) = IMAGES[1];
    let changes: [fn(&mut RawSuperblock); 5] = [
        |raw| raw.rgextents = 0.into(),
        |raw| raw.rgcount = u32::MAX.into(),
        |raw| raw.rgblklog = 255,
        |raw| raw.rgblklog = 3,
        |raw| raw.rblocks = u64::MAX.into(),
    ];
    for change in changes {
        let opened = open(joined(with_superblock(image, change), unpack_device(realtime)));
        let error = opened.err().expect("it is refused");
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
    }
}
