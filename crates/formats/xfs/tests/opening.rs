//! Requirements for opening images.

use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, FileDevice, MemoryDevice};
use testkit::{MkfsXfs, require, scratch, xfs_db_write};
use vfs::{Error, FileSystem};
use xfs::format::checksum;
use xfs::format::superblock::{CRC_OFFSET, RawSuperblock, SUPERBLOCK_SIZE};
use xfs::{CACHE_BYTES_DEFAULT, OpenOptions, Xfs};
use zerocopy::{FromBytes, IntoBytes};

const MIB: u64 = 1 << 20;

fn device(image: &Path) -> Arc<FileDevice> {
    let file = std::fs::File::options().read(true).write(true).open(image).unwrap();
    Arc::new(FileDevice::new(file).unwrap())
}

fn open(image: &Path) -> vfs::Result<Xfs> {
    Xfs::open(device(image), &OpenOptions::default())
}

#[test]
fn read_only_features_can_be_read() {
    require!(Tool("mkfs.xfs"));
    let home = scratch();
    let (image, realtime) = (home.path().join("image"), home.path().join("realtime"));
    std::fs::File::create(&realtime).unwrap().set_len(300 * MIB).unwrap();
    let with_realtime = format!("-r rtdev={}", realtime.display());
    for (options, reason) in [("-m crc=0", "version 4"), (with_realtime.as_str(), "realtime")] {
        MkfsXfs::default().options(options).create(&image, 300 * MIB);
        let fs = open(&image).unwrap_or_else(|error| panic!("{options}: {error}"));
        fs.attributes(fs.root()).unwrap_or_else(|error| panic!("{options}: {error}"));
        let before = std::fs::read(&image).unwrap();
        let refused = Xfs::open_in_progress(device(&image), CACHE_BYTES_DEFAULT).err().unwrap();
        assert!(matches!(refused, Error::Unsupported(_)), "{options}: {refused}");
        assert!(refused.to_string().contains(reason), "{options}: {refused}");
        assert!(std::fs::read(&image).unwrap() == before, "{options}: it was changed");
    }
}

#[test]
fn images_marked_as_damaged_are_refused() {
    require!(Tool("mkfs.xfs"), Tool("xfs_db"));
    let home = scratch();
    let image = home.path().join("image");
    MkfsXfs::default().create(&image, 64 * MIB);
    // 0xeb is the default.
    xfs_db_write(&image, &["sb 0", "write features_incompat 0xfb"]);
    let refused = open(&image).err().unwrap();
    assert!(matches!(refused, Error::Unsupported(_)), "{refused}");
    assert!(refused.to_string().contains("diskwright repair"), "{refused}");
}

#[test]
fn unknown_features_are_refused_or_only_read() {
    require!(Tool("mkfs.xfs"));
    let home = scratch();
    let image = home.path().join("image");
    MkfsXfs::default().create(&image, 64 * MIB);
    edit_superblock(&image, |raw| raw.features_ro_compat = 0x8000_000f.into());
    open(&image).unwrap();
    let refused = Xfs::open_in_progress(device(&image), CACHE_BYTES_DEFAULT).err().unwrap();
    assert!(refused.to_string().contains("0x80000000"), "{refused}");
    edit_superblock(&image, |raw| raw.features_incompat = 0x8000_00eb.into());
    let refused = open(&image).err().unwrap();
    assert!(refused.to_string().contains("0x80000000"), "{refused}");
}

/// Changes the first superblock. xfs_db refuses to write superblocks that it considers invalid.
fn edit_superblock(image: &Path, change: impl FnOnce(&mut RawSuperblock)) {
    let device = device(image);
    let mut sector = [0; 512];
    device.read_at(0, &mut sector).unwrap();
    let mut raw = RawSuperblock::read_from_prefix(&sector).unwrap().0;
    change(&mut raw);
    sector[..SUPERBLOCK_SIZE].copy_from_slice(raw.as_bytes());
    checksum::seal(&mut sector, CRC_OFFSET);
    device.write_at(0, &sector).unwrap();
}

#[test]
fn gaps_between_zones_old_directories_and_too_many_groups_are_refused() {
    require!(Tool("mkfs.xfs"));
    let home = scratch();
    let image = home.path().join("image");
    let assert_refused = |options: &str, change: fn(&mut RawSuperblock), reason: &str| {
        MkfsXfs::default().options(options).create(&image, 300 * MIB);
        edit_superblock(&image, change);
        let refused = open(&image).err().unwrap();
        assert!(matches!(refused, Error::Unsupported(_)), "{refused}");
        assert!(refused.to_string().contains(reason), "{refused}");
    };
    // In addition to the default features.
    assert_refused("", |raw| raw.features_incompat = 0x6eb.into(), "gaps between the zones");
    let without_dirv2 = |raw: &mut RawSuperblock| {
        raw.versionnum = (raw.versionnum.get() & !0x2000).into();
    };
    assert_refused("-m crc=0", without_dirv2, "version 1 directories");
    let with_many_groups = |raw: &mut RawSuperblock| {
        raw.agcount = ((1 << 20) + 1).into();
        raw.dblocks = (u64::from(raw.agblocks.get()) * ((1 << 20) + 1)).into();
    };
    assert_refused("", with_many_groups, "1048577 allocation groups");
}

#[test]
fn a_copy_is_found_for_any_damage_of_the_first_superblock() {
    require!(Tool("mkfs.xfs"));
    let home = scratch();
    let image = home.path().join("image");
    for options in ["", "-d agcount=7", "-s size=4096", "-b size=1024 -d agcount=2", "-b size=64k"]
    {
        MkfsXfs::default().options(options).create(&image, 400 * MIB);
        assert!(!xfs::has_superblock_copy(&*device(&image)), "{options}: none is needed");
        for len in [4, 512, 64 << 10] {
            device(&image).write_at(0, &vec![0; len]).unwrap();
            assert!(xfs::has_superblock_copy(&*device(&image)), "{options}: {len} bytes");
        }
    }
    assert!(!xfs::has_superblock_copy(&MemoryDevice::new(400 * MIB)));
    assert!(!xfs::has_superblock_copy(&MemoryDevice::new(0)));
}
