//! The check of realtime groups, compared with `xfs_repair -n -r`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{BlockDevice, JoinedDevice, MemoryDevice};
use operations::repair::{Staging, make_plan, write_in_place};
use testkit::crash::write_image;
use testkit::require;
use vfs::Ino;
use vfs::check::Silent;
use xfs::format::checksum;
use xfs::format::inode::{CRC_OFFSET, Inode};
use xfs::format::metafile::MetafileType;
use xfs::repair::Repair;

use crate::checking::findings;
use crate::common::image::unpack_device;
use crate::common::layout::Layout;
use crate::realtime_check::{RealtimeImage, codes, is_accepted};

/// Images of Linux 7.2 (`golden/make-realtime`, `golden/make-rtgroups`): realtime extents of two blocks, and shared blocks
/// in trees of several levels.
pub(crate) const IMAGES: [(&[u8], &[u8]); 2] = [
    (
        include_bytes!("golden/realtime-metadir.img.gz.gz"),
        include_bytes!("golden/realtime-metadir.rt.gz.gz"),
    ),
    (
        include_bytes!("golden/realtime-shared.img.gz.gz"),
        include_bytes!("golden/realtime-shared.rt.gz.gz"),
    ),
];
pub(crate) const SHARED: (&[u8], &[u8]) = IMAGES[1];

pub(crate) const BLOCK: usize = 4096;

fn realtime_in(folder: &Path, packed: &'static [u8]) -> PathBuf {
    let path = folder.join("realtime");
    write_image(&unpack_device(packed), &path).unwrap();
    path
}

/// Returns the byte offsets of the blocks with a magic number, and the offset of their checksum.
pub(crate) fn blocks(subject: &RealtimeImage, magic: &[u8; 4]) -> Vec<(usize, usize)> {
    let crc_at = if [b"BMPZ", b"SUMY"].contains(&magic) { 4 } else { 64 };
    let starts = (0..subject.bytes.len()).step_by(BLOCK);
    let is_one = |at: &usize| {
        subject.bytes[*at..].starts_with(magic)
            && checksum::check("block", &subject.bytes[*at..*at + BLOCK], crc_at).is_ok()
    };
    starts.filter(is_one).map(|at| (at, crc_at)).collect()
}

/// Returns the inodes of the metadata directory that have a type.
fn metafiles(subject: &RealtimeImage, wanted: MetafileType) -> Vec<Ino> {
    let mut inodes = Layout::of(&subject.bytes).inodes;
    inodes.retain(|ino| subject.inode(*ino).metafile_type() == wanted);
    inodes
}

/// Returns a copy with a changed byte of a block, whose checksum is valid.
pub(crate) fn with_block(
    subject: &RealtimeImage,
    (start, crc_at): (usize, usize),
    at: usize,
) -> MemoryDevice {
    subject.changed(|bytes| {
        bytes[start + at] ^= 1;
        checksum::seal(&mut bytes[start..start + BLOCK], crc_at);
    })
}

/// Returns a copy with a changed inode.
fn with_inode(subject: &RealtimeImage, ino: Ino, change: impl FnOnce(&mut Inode)) -> MemoryDevice {
    let (slot, size) = (subject.slot(ino), subject.geometry.inode_size());
    subject.changed(|bytes| {
        let slot = &mut bytes[slot..slot + size];
        let mut inode = Inode::from_slot(slot);
        change(&mut inode);
        slot.copy_from_slice(inode.as_bytes());
        checksum::seal(slot, CRC_OFFSET);
    })
}

#[test]
fn valid_groups_have_no_findings() {
    require!(Tool("xfs_repair"));
    for (image, realtime) in IMAGES {
        let subject = RealtimeImage::of(image);
        let found = findings(Arc::new(subject.image.fork())).unwrap();
        assert!(found.is_empty(), "{found:#?}");
        let device = Arc::new(unpack_device(realtime));
        let joined = JoinedDevice::new(Arc::new(subject.image.fork()), None, Some(device));
        let found = findings(Arc::new(joined.unwrap())).unwrap();
        assert!(found.is_empty(), "{found:#?}");
        let folder = testkit::scratch();
        assert!(is_accepted(&subject.image, &realtime_in(folder.path(), realtime)));
    }
}

#[test]
fn each_damage_of_groups_has_its_finding() {
    require!(Tool("xfs_repair"));
    let subject = RealtimeImage::of(SHARED.0);
    let [bitmaps, summaries, maps, counts] =
        [b"BMPZ", b"SUMY", b"MAPR", b"RCNT"].map(|magic| blocks(&subject, magic));
    assert!(bitmaps.len() >= 3 && summaries.len() >= 3, "{bitmaps:?} {summaries:?}");
    assert!(maps.len() > 10 && !counts.is_empty(), "{maps:?} {counts:?}");
    let files = subject.listed_files();
    let start = |ino: Ino| {
        let inode = subject.inode(ino);
        xfs::format::extent::Extent::parse(inode.fork(xfs::format::inode::Fork::Data)).start
    };
    let plain: Vec<Ino> = files.iter().copied().filter(|ino| start(*ino).0 != 0).collect();
    let [rmap, bitmap] =
        [MetafileType::RtRmap, MetafileType::RtBitmap].map(|of| metafiles(&subject, of)[0]);
    // A leaf of a reverse map starts with its records after 72 bytes.
    let leaf = maps.iter().copied().find(|(at, _)| subject.bytes[at + 5] == 0).unwrap();
    let cases = [
        ("xfs-realtime-bitmap", with_block(&subject, bitmaps[0], 51)),
        ("xfs-realtime-summary", with_block(&subject, summaries[1], 51)),
        ("xfs-realtime-header", with_block(&subject, bitmaps[0], 15)),
        ("xfs-realtime-header", with_block(&subject, summaries[0], 23)),
        ("xfs-realtime-header", with_block(&subject, bitmaps[0], 3)),
        // The owner, and the logical block of a record.
        ("xfs-realtime-rmap", with_block(&subject, leaf, 72 + 24 + 15)),
        ("xfs-realtime-rmap", with_block(&subject, leaf, 72 + 24 + 23)),
        ("xfs-rtrmapbt-block", with_block(&subject, leaf, 3)),
        ("xfs-rtrmapbt-block", with_block(&subject, leaf, 63)),
        ("xfs-realtime-refcount", with_block(&subject, counts[0], 72 + 11)),
        ("xfs-superblock-counts", subject.with_superblock(|raw| raw.frextents = 7.into())),
        ("xfs-superblock-field", subject.with_superblock(|raw| raw.rextents = 3071.into())),
        ("xfs-superblock-field", subject.with_superblock(|raw| raw.rbmblocks = 2.into())),
        ("xfs-superblock-field", subject.with_superblock(|raw| raw.rextslog = 5)),
        ("xfs-inode", subject.with_extent(plain[0], |extent| extent.start.0 = 1 << 40)),
        ("xfs-realtime-rmap", subject.with_extent(plain[0], |extent| extent.start.0 += 1)),
        ("xfs-inode-field", with_inode(&subject, bitmap, |inode| inode.set_size(8192))),
        ("xfs-metadir-file", with_inode(&subject, rmap, |inode| inode.set_projid(7))),
        ("xfs-inode", with_inode(&subject, rmap, |inode| inode.as_mut_bytes()[5] = 2)),
    ];
    let folder = testkit::scratch();
    let realtime = realtime_in(folder.path(), SHARED.1);
    for (nth, (code, image)) in cases.into_iter().enumerate() {
        let found = codes(&image);
        assert!(found.contains(code), "case {nth}: {code} is not in {found:?}");
        assert!(!is_accepted(&image, &realtime), "case {nth}: xfs_repair accepts {code}");
    }
}

#[test]
fn the_superblock_of_the_device_is_checked() {
    let damaged = |at: usize, is_sealed: bool| {
        let realtime = unpack_device(SHARED.1);
        let mut block = vec![0; BLOCK];
        realtime.read_at(0, &mut block).unwrap();
        block[at] ^= 1;
        if is_sealed {
            checksum::seal(&mut block, 4);
        }
        realtime.write_at(0, &block).unwrap();
        let image = Arc::new(unpack_device(SHARED.0));
        let joined = JoinedDevice::new(image, None, Some(Arc::new(realtime))).unwrap();
        findings(Arc::new(joined)).unwrap()
    };
    for (at, is_sealed) in [(0, true), (8, true), (13, true), (24, true), (41, true), (100, false)]
    {
        let found = damaged(at, is_sealed);
        assert_eq!(found.len(), 1, "byte {at}: {found:#?}");
        assert_eq!(found[0].code.name, "xfs-realtime-superblock", "byte {at}");
    }
}

/// Random changes of the files of groups and of their inodes.
#[test]
fn everything_that_xfs_repair_finds_in_groups_is_found() {
    require!(Tool("xfs_repair"));
    let subject = RealtimeImage::of(SHARED.0);
    let folder = testkit::scratch();
    let realtime = realtime_in(folder.path(), SHARED.1);
    let mut random = fastrand::Rng::with_seed(45);
    let size = subject.geometry.inode_size();
    let of_type = MetafileType::ALL[5..].iter().flat_map(|of| metafiles(&subject, *of));
    let slots: Vec<usize> =
        subject.listed_files().into_iter().chain(of_type).map(|ino| subject.slot(ino)).collect();
    let kinds = [b"BMPZ", b"SUMY", b"MAPR", b"RCNT"].map(|magic| blocks(&subject, magic));
    for _ in 0..testkit::effort(40, 50, 10_000) {
        let in_inode = random.u8(..3) == 0;
        let (start, len, crc_at) = if in_inode {
            (slots[random.usize(..slots.len())], size, CRC_OFFSET)
        } else {
            let kind = &kinds[random.usize(..4)];
            let (start, crc_at) = kind[random.usize(..kind.len())];
            (start, BLOCK, crc_at)
        };
        let at = match random.bool() {
            true => random.usize(..240),
            false => random.usize(..len),
        };
        let bit = random.u32(..8);
        let image = subject.changed(|bytes| {
            bytes[start + at] ^= 1 << bit;
            checksum::seal(&mut bytes[start..start + len], crc_at);
        });
        if codes(&image).is_empty() {
            let is_sound = is_accepted(&image, &realtime);
            assert!(is_sound, "only xfs_repair finds bit {bit} of byte {at} of {start:#x}");
        }
    }
}

#[test]
fn damaged_space_of_groups_is_rebuilt() {
    require!(Tool("xfs_repair"));
    let subject = RealtimeImage::of(SHARED.0);
    let folder = testkit::scratch();
    let realtime = realtime_in(folder.path(), SHARED.1);
    let mut random = fastrand::Rng::with_seed(46);
    let [bitmaps, summaries] = [b"BMPZ", b"SUMY"].map(|magic| blocks(&subject, magic));
    let all: Vec<_> = bitmaps.into_iter().chain(summaries).collect();
    for round in 0..testkit::effort(4, 6, 300) {
        let image = subject.changed(|bytes| {
            for _ in 0..random.usize(1..4) {
                let (start, crc_at) = all[random.usize(..all.len())];
                for _ in 0..random.usize(1..20) {
                    bytes[start + random.usize(..300)] = random.u8(..);
                }
                if random.bool() {
                    checksum::seal(&mut bytes[start..start + BLOCK], crc_at);
                }
            }
            // The free space of the first group, which has blocks of the maps of realtime files: agf_freeblks, or the
            // checksum of the tree.
            if round % 2 == 0 {
                bytes[512 + 56] ^= 1;
                checksum::seal(&mut bytes[512..1024], 216);
            } else {
                bytes[BLOCK + 52] ^= 1;
            }
        });
        assert!(!codes(&image).is_empty(), "round {round}");
        let device = Arc::new(unpack_device(SHARED.1));
        let joined = JoinedDevice::new(Arc::new(image.fork()), None, Some(device)).unwrap();
        let joined: Arc<dyn BlockDevice> = Arc::new(joined);
        let staging = Arc::new(Staging::new(joined.clone()));
        let plan = make_plan(&Repair::default(), &staging, &Silent).unwrap();
        assert!(plan.left.is_empty(), "round {round}: {:?}", plan.left);
        let fixed = MemoryDevice::new(joined.len());
        image.for_each_part(|at, bytes| fixed.write_at(at, bytes)).unwrap();
        write_in_place(&fixed, &plan.steps, &mut |_, _| true).unwrap();
        let found = findings(Arc::new(fixed.fork())).unwrap();
        assert!(found.is_empty(), "round {round}: {found:#?}");
        assert!(is_accepted(&fixed, &realtime), "round {round}");
    }
}
