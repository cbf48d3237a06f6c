//! Repair of quotas. Most tests make quota files. The guests' kernels count those of version 4.

use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use testkit::crash::read_image;
use testkit::guest::{self, GuestJob, Kernel};
use testkit::{MkfsXfs, effort, require, scratch};
use vfs::{FileSystem, Ino, NewInode};
use xfs::format::address::{AgBlock, AgNumber};
use xfs::format::bytes::{be16, put32, put64};
use xfs::format::checksum;
use xfs::format::geometry::Geometry;
use xfs::format::inode::seal_slot;
use xfs::format::log::dquot::{CRC_OFFSET as DQUOT_CRC, DQUOT_BLOCK_SIZE, MAGIC as DQUOT_MAGIC};
use xfs::format::metafile::MetafileType;
use xfs::format::quota::{self, QuotaKind, Resource};
use xfs::format::superblock::{CRC_OFFSET, RawSuperblock, Superblock};
use xfs::{OpenOptions, Xfs};
use zerocopy::FromBytes;

use super::quota_files;
use super::subject::repaired;
use crate::checking::findings;
use crate::common::image::{device, golden, unpack_device};
use crate::quotas::run::QuotaRun;

/// Returns an image with a quota file with zero counts, and the location of its block.
fn with_quotas() -> (MemoryDevice, u64) {
    let device = Arc::new(device(&golden("default")));
    let fs = Xfs::open_writable(device.clone(), &OpenOptions::default()).unwrap();
    let geometry = Geometry::new(fs.superblock());
    let (ino, at) = quota_files::add_file(&fs, &geometry.meta_uuid);
    fs.close().unwrap();
    quota_files::name_in_superblock(&device, ino);
    (device.fork(), at)
}

fn geometry(device: &MemoryDevice) -> Geometry {
    let mut sector = [0; 4096];
    device.read_at(0, &mut sector).unwrap();
    Geometry::new(&Superblock::parse(&sector, device.len()).unwrap())
}

/// Asserts that a repaired image has quotas that were counted.
#[track_caller]
fn assert_counted(device: &MemoryDevice, counted: u16, what: &str) {
    let mut sector = vec![0; 512];
    device.read_at(0, &mut sector).unwrap();
    assert_eq!(be16(&sector, 176) & counted, counted, "{what}");
    let found = findings(Arc::new(device.fork())).unwrap();
    assert!(found.is_empty(), "{what}: {found:#?}");
    testkit::show_image(device, testkit::xfs_repair_alone).unwrap();
}

#[test]
fn usage_is_counted_again() {
    require!(Tool("xfs_repair"));
    let (image, at) = with_quotas();
    // Wrong counts; an invalid quota, twice; a wrong checksum.
    for harm in
        [&[][..], &[0], &[DQUOT_BLOCK_SIZE, 7 * DQUOT_BLOCK_SIZE], &[3 * DQUOT_BLOCK_SIZE + 60]]
    {
        let damaged = image.fork();
        for byte in harm {
            damaged.write_at(at + *byte as u64, &[0xee; 2]).unwrap();
        }
        let outcome = repaired(damaged).unwrap();
        assert!(outcome.codes.iter().any(|code| code.starts_with("xfs-quota")), "{harm:?}");
        assert!(outcome.left.is_empty() && outcome.is_complete, "{harm:?}: {:?}", outcome.left);
        let mut block = vec![0; 4096];
        outcome.device.read_at(at, &mut block).unwrap();
        for quota in block.chunks_exact(DQUOT_BLOCK_SIZE) {
            assert_eq!(be16(quota, 0), DQUOT_MAGIC, "{harm:?}");
            checksum::check("quota", quota, DQUOT_CRC).unwrap();
        }
        let findings = findings(Arc::new(outcome.device.fork())).unwrap();
        assert!(findings.is_empty(), "{harm:?}: {findings:#?}");
        let mut sector = vec![0; 512];
        outcome.device.read_at(0, &mut sector).unwrap();
        assert_eq!(be16(&sector, 176), 1 | 2 | 4, "{harm:?}");
    }
}

/// `sb_qflags`: all kinds were counted.
const ALL_COUNTED: u16 = 0x4 | 0x100 | 0x400;

/// Returns an image of the guest's kernel, without and with a metadata directory, and owners in several blocks.
fn of_kernels() -> Vec<(&'static str, MemoryDevice)> {
    let packed = [
        ("plain", &include_bytes!("../golden/quota-log.img.gz.gz")[..]),
        ("metadir", include_bytes!("../golden/metadir-quota.img.gz.gz")),
    ];
    let make = |(name, packed): (&'static str, &'static [u8])| {
        let device = Arc::new(unpack_device(packed));
        let mut run =
            QuotaRun::new(Xfs::open_writable(device.clone(), &OpenOptions::default()).unwrap(), 3);
        run.steps(150);
        run.fs.close().unwrap();
        (name, device.fork())
    };
    packed.map(make).into()
}

/// Returns the places of all blocks of records of a kind on the device.
fn record_blocks(device: &MemoryDevice, kind: QuotaKind) -> Vec<u64> {
    let log = crate::changing::TargetLayout::log_of(device);
    let mut block = vec![0; 4096];
    let is_of_kind = |at: &u64| {
        device.read_at(*at, &mut block).unwrap();
        block[..2] == DQUOT_MAGIC.to_be_bytes() && block[3] & 7 == kind.number()
    };
    let all = (0..device.len() / 4096).map(|nth| nth * 4096).filter(|at| !log.contains(at));
    all.filter(is_of_kind).collect()
}

/// Changes a record on disk, and seals it.
fn edit_record(device: &MemoryDevice, at: u64, change: impl FnOnce(&mut [u8])) {
    let mut record = vec![0; DQUOT_BLOCK_SIZE];
    device.read_at(at, &mut record).unwrap();
    change(&mut record);
    checksum::seal(&mut record, DQUOT_CRC);
    device.write_at(at, &record).unwrap();
}

/// Damage of records: name, and change of the first record of a block.
type Harm = (&'static str, fn(&mut [u8]));

const HARMS: [Harm; 8] = [
    ("usage", |record| put64(record, 40, 77_777)),
    ("realtime usage", |record| put64(record, 88, 5)),
    ("identifier", |record| put32(record, 4, 3)),
    ("version", |record| record[2] = 7),
    ("an unknown bit of the type", |record| record[3] |= 0x20),
    ("magic", |record| record[0] ^= 1),
    ("UUID", |record| record[125] ^= 1),
    ("a soft limit without a grace time", |record| put64(record, 16, 1)),
];

/// Every damage of records is repaired without a count by kernels, and limits stay if they can be read.
#[test]
fn damaged_records_of_kernels_are_rewritten() {
    require!(Tool("xfs_repair"));
    for (image_name, image) in of_kernels() {
        for kind in QuotaKind::ALL {
            let places = record_blocks(&image, kind);
            assert!(places.len() > 1, "{image_name}");
            for (name, harm) in effort(&HARMS[..4], &HARMS[..], &HARMS[..]) {
                let damaged = image.fork();
                // The record of identifier 0, which has no grace time, and that of identifier 1.
                edit_record(&damaged, places[0] + DQUOT_BLOCK_SIZE as u64, |record| {
                    put64(record, 24, 1234);
                    harm(record);
                });
                let what = format!("{image_name}, {kind:?}, {name}");
                let outcome = repaired(damaged).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert!(outcome.left.is_empty(), "{what}: {:#?}", outcome.left);
                assert_counted(&outcome.device, ALL_COUNTED, &what);
                let mut record = vec![0; DQUOT_BLOCK_SIZE];
                let place = places[0] + DQUOT_BLOCK_SIZE as u64;
                outcome.device.read_at(place, &mut record).unwrap();
                let is_kept = !["identifier", "magic"].contains(name);
                let limit = quota::read(&record, Resource::Inodes).hard;
                assert_eq!(limit, if is_kept { 1234 } else { 0 }, "{what}");
            }
        }
    }
}

/// Owners lost their records: the file ends before them, or does not exist.
#[test]
fn lost_records_and_files_are_made_again() {
    const NEXTENTS: usize = 24;
    const NBLOCKS: usize = 64;
    require!(Tool("xfs_repair"));
    for (name, image) in of_kernels() {
        let fs = Xfs::open(Arc::new(image.fork()), &OpenOptions::default()).unwrap();
        let is_metadir = name == "metadir";
        let user = match is_metadir {
            true => crate::metadir::of_type(&image, MetafileType::UserQuota),
            false => Ino(fs.superblock().raw.uquotino.get()),
        };
        drop(fs);
        // All blocks are lost.
        let empty = image.fork();
        edit_slot(&empty, user, |slot| {
            assert_eq!(slot[5], 2, "a list of extents");
            put64(slot, NEXTENTS, 0);
            put64(slot, NBLOCKS, 0);
        });
        // The inode is lost.
        let lost = image.fork();
        edit_slot(&lost, user, |slot| slot[2..4].fill(0));
        for (damage, image) in [("blocks", empty), ("inode", lost)] {
            let what = format!("{name}: {damage}");
            let outcome = repaired(image).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert!(outcome.left.is_empty(), "{what}: {:#?}", outcome.left);
            assert_counted(&outcome.device, ALL_COUNTED, &what);
        }
    }
}

/// The guest's kernel need not count after a repair.
#[test]
fn the_guest_need_not_count_after_a_repair() {
    require!(Guest("XFS_QUOTA"), Tool("xfs_repair"));
    for (name, image) in of_kernels() {
        for kind in QuotaKind::ALL {
            for place in record_blocks(&image, kind) {
                edit_record(&image, place + DQUOT_BLOCK_SIZE as u64, |record| {
                    put64(record, 40, 99);
                });
                edit_record(&image, place, |record| record[0] ^= 0xff);
            }
        }
        let outcome = repaired(image).unwrap();
        assert_counted(&outcome.device, ALL_COUNTED, name);
        let device = Arc::new(outcome.device.fork());
        let fs = Xfs::open(device.clone(), &OpenOptions::default()).unwrap();
        let expected = crate::quotas::usage(&fs);
        drop(fs);
        let home = scratch();
        let path = home.path().join("image");
        testkit::crash::write_image(&device, &path).unwrap();
        assert_eq!(crate::quotas::guest::reported(&path, 4096), expected, "{name}");
        guest::scrub(&path).unwrap();
    }
}

/// Kernels store the quota files only in the first superblock.
#[test]
fn copies_of_the_superblock_name_no_files_of_quotas() {
    testkit::require!(Tool("xfs_repair"));
    const SHARED_VN: u64 = 179;
    let (image, _) = with_quotas();
    let is_of_copy = |finding: &vfs::check::Finding| finding.code.name == "xfs-superblock-copy";
    assert!(!findings(Arc::new(image.fork())).unwrap().iter().any(is_of_copy), "no copy is wrong");
    let geometry = geometry(&image);
    let copy = geometry.byte_of(geometry.block_of(AgNumber(1), AgBlock(0)));
    let seal = |device: &MemoryDevice| {
        let mut sector = [0; 512];
        device.read_at(copy, &mut sector).unwrap();
        checksum::seal(&mut sector, CRC_OFFSET);
        device.write_at(copy, &sector).unwrap();
    };
    // A field that must be zero; then quotas, which copies made by mkfs never have.
    const UQUOTINO: u64 = 160;
    const QFLAGS: u64 = 176;
    for (at, bytes) in
        [(SHARED_VN, &[64][..]), (UQUOTINO, &[0, 0, 0, 0, 0, 0, 0, 131]), (QFLAGS, &[0, 7])]
    {
        let damaged = image.fork();
        damaged.write_at(copy + at, bytes).unwrap();
        seal(&damaged);
        let outcome = repaired(damaged).unwrap();
        assert!(outcome.codes.contains(&"xfs-superblock-copy"), "{at}: {:?}", outcome.codes);
        assert!(outcome.left.is_empty() && outcome.is_complete, "{at}: {:?}", outcome.left);
        let mut sector = [0; 512];
        outcome.device.read_at(copy, &mut sector).unwrap();
        let raw = RawSuperblock::read_from_prefix(&sector).unwrap().0;
        assert_eq!((raw.uquotino.get(), raw.qflags.get()), (0, 0), "{at}");
        let complaint = testkit::show_image(&outcome.device, testkit::xfs_repair_alone);
        let complaint = complaint.err().unwrap_or_default();
        assert!(!complaint.contains("superblock 1"), "{at}: {complaint}");
    }
}

/// Changes an inode on disk.
fn edit_slot(device: &MemoryDevice, ino: Ino, change: impl FnOnce(&mut [u8])) {
    let geometry = geometry(device);
    let (ag, ag_ino) = geometry.split_ino(ino).unwrap();
    let (block, at) = geometry.inode_place(ag_ino);
    let byte = geometry.byte_of(geometry.block_of(ag, block)) + at as u64;
    let mut slot = vec![0; geometry.inode_size()];
    device.read_at(byte, &mut slot).unwrap();
    change(&mut slot);
    seal_slot(&mut slot);
    device.write_at(byte, &slot).unwrap();
}

/// A quota file is in no directory, so all its parent pointers are wrong.
#[test]
fn quota_files_lose_parent_pointers() {
    const NLINK: usize = 16;
    const SIZE: usize = 56;
    const FORK: usize = 176;
    let device = Arc::new(device(&golden("default")));
    let fs = Xfs::open_writable(device.clone(), &OpenOptions::default()).unwrap();
    let (ino, _) = quota_files::add_file(&fs, &Geometry::new(fs.superblock()).meta_uuid);
    let dir = fs.mkdir(fs.root(), b"sub", &NewInode::default()).unwrap();
    fs.link(ino, dir, b"quotas", None).unwrap();
    fs.unlink(fs.root(), b"quotas", None).unwrap();
    fs.close().unwrap();
    let device = device.fork();
    quota_files::name_in_superblock(&device, ino);
    edit_slot(&device, ino, |slot| put32(slot, NLINK, 1));
    // The shortform directory becomes empty: a header, and the parent.
    edit_slot(&device, dir, |slot| {
        assert_eq!(slot[FORK], 1);
        slot[FORK] = 0;
        put64(slot, SIZE, 6);
    });
    let outcome = repaired(device).unwrap();
    assert!(outcome.codes.contains(&"xfs-parent-stale"), "{:?}", outcome.codes);
    assert!(outcome.left.is_empty() && outcome.is_complete, "{:?}", outcome.left);
    let fs = Xfs::open(Arc::new(outcome.device), &OpenOptions::default()).unwrap();
    assert_eq!(fs.attributes(ino).unwrap().links, 1);
    fs.parents(ino, &mut |dir, _| panic!("a parent pointer to {dir}")).unwrap();
}

/// Quotas of version 4: one file is for groups or projects, and records have no checksum.
#[test]
fn quotas_of_version_4_are_compared() {
    const USER_1000: [u8; 8] = [0x44, 0x51, 1, 1, 0, 0, 3, 0xe8];
    const BLOCKS: u64 = 40;
    require!(StableGuest("XFS_SUPPORT_V4"), Tool("mkfs.xfs"), Tool("xfs_repair"));
    let kinds = ["uquota,gquota", "uquota,pquota", "pqnoenforce,uqnoenforce"];
    for options in effort(&kinds[..0], &kinds[..1], &kinds[..]) {
        let home = scratch();
        let path = home.path().join("image");
        MkfsXfs::default().options("-m crc=0 -n ftype=1").create(&path, 64 << 20);
        let script = format!(
            "set -e\nmkdir -p /mnt/image\nmount -t xfs -o nouuid,{options} $1 /mnt/image\n\
             cd /mnt/image\nmkdir dir\nxfs_io -r -c 'chproj 42' -c 'chattr +P' dir\n\
             for n in $(seq 70); do head -c $((n * 900)) /dev/zero >dir/$n; \
             chown $((n % 3 * 500)):$((n % 4)) dir/$n; done\ncd /\numount /mnt/image"
        );
        let answer = guest::run(&GuestJob::new(script).on(Kernel::Stable).disk(&path, false));
        assert!(answer.status == 0, "{}\n{}", answer.output, answer.log);
        let image = read_image(&path).unwrap();
        let found = findings(Arc::new(image.fork())).unwrap();
        assert!(found.is_empty(), "{options}: {found:#?}");
        let bytes = std::fs::read(&path).unwrap();
        let record = (0..bytes.len()).step_by(8).find(|at| bytes[*at..].starts_with(&USER_1000));
        let count = record.unwrap() as u64 + BLOCKS;
        image.write_at(count, &77_777_u64.to_be_bytes()).unwrap();
        let outcome = repaired(image).unwrap();
        assert_eq!(outcome.codes, ["xfs-quota-counts"], "{options}");
        assert!(outcome.left.is_empty() && outcome.is_complete, "{options}");
        testkit::show_image(&outcome.device, testkit::xfs_repair_alone).unwrap();
        // The counted bits of users, and of groups or projects.
        let mut flags = [0; 2];
        outcome.device.read_at(176, &mut flags).unwrap();
        assert_eq!(u16::from_be_bytes(flags) & (0x4 | 0x20), 0, "{options}");
    }
}
