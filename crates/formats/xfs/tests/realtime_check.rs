//! The check of the realtime section, compared with `xfs_repair -n -r`.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use testkit::crash::write_image;
use testkit::require;
use vfs::Ino;
use xfs::format::checksum;
use xfs::format::extent::Extent;
use xfs::format::geometry::Geometry;
use xfs::format::inode::{CRC_OFFSET, Fork, Inode, flags};
use xfs::format::superblock::{
    CRC_OFFSET as SUPERBLOCK_CRC_OFFSET, RawSuperblock, SUPERBLOCK_SIZE, Superblock,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::checking::findings;
use crate::common::image::unpack_device;
use crate::common::layout::Layout;

const IMAGE: &[u8] = include_bytes!("golden/realtime-classic.img.gz.gz");
const REALTIME: &[u8] = include_bytes!("golden/realtime-classic.rt.gz.gz");

/// An image with a realtime section, and the places of its structures.
pub(crate) struct RealtimeImage {
    pub(crate) image: MemoryDevice,
    pub(crate) geometry: Geometry,
    pub(crate) superblock: RawSuperblock,
    pub(crate) bytes: Vec<u8>,
}

impl RealtimeImage {
    fn new() -> Self {
        Self::of(IMAGE)
    }

    pub(crate) fn of(packed: &'static [u8]) -> Self {
        let image = unpack_device(packed);
        let mut bytes = vec![0; image.len() as usize];
        image.read_at(0, &mut bytes).unwrap();
        let sb = Superblock::parse(&bytes, image.len()).unwrap();
        let geometry = Geometry::new(&sb);
        Self { image, geometry, superblock: sb.raw, bytes }
    }

    /// Returns the byte offset of an inode.
    pub(crate) fn slot(&self, ino: Ino) -> usize {
        let (ag, ag_ino) = self.geometry.split_ino(ino).unwrap();
        let (block, offset) = self.geometry.inode_place(ag_ino);
        self.geometry.byte_of(self.geometry.block_of(ag, block)) as usize + offset
    }

    pub(crate) fn inode(&self, ino: Ino) -> Inode {
        let slot = self.slot(ino);
        Inode::from_slot(&self.bytes[slot..slot + self.geometry.inode_size()])
    }

    /// Returns the byte offset of the first block of an inode.
    fn contents(&self, ino: u64) -> usize {
        let extent = Extent::parse(self.inode(Ino(ino)).fork(Fork::Data));
        self.geometry.byte_of(self.geometry.device_block(extent.start)) as usize
    }

    fn bitmap(&self) -> usize {
        self.contents(self.superblock.rbmino.get())
    }

    fn summary(&self) -> usize {
        self.contents(self.superblock.rsumino.get())
    }

    /// Returns the realtime files whose extents are in a list.
    pub(crate) fn listed_files(&self) -> Vec<Ino> {
        let layout = Layout::of(&self.bytes);
        let mut files = layout.inodes;
        files.retain(|ino| {
            let inode = self.inode(*ino);
            let (count, list) = (inode.extents(Fork::Data), inode.fork(Fork::Data));
            inode.flags() & flags::REALTIME != 0 && count > 0 && count * 16 <= list.len() as u64
        });
        files
    }

    /// Returns a copy of the image after `change`.
    pub(crate) fn changed(&self, change: impl FnOnce(&mut [u8])) -> MemoryDevice {
        let mut bytes = self.bytes.clone();
        change(&mut bytes);
        let copy = self.image.fork();
        for at in (0..bytes.len()).step_by(4096) {
            if bytes[at..at + 4096] != self.bytes[at..at + 4096] {
                copy.write_at(at as u64, &bytes[at..at + 4096]).unwrap();
            }
        }
        copy
    }

    /// Returns a copy with another first extent of a file.
    pub(crate) fn with_extent(&self, ino: Ino, change: impl FnOnce(&mut Extent)) -> MemoryDevice {
        let slot = self.slot(ino);
        let size = self.geometry.inode_size();
        self.changed(|bytes| {
            let slot = &mut bytes[slot..slot + size];
            let mut inode = Inode::from_slot(slot);
            let mut extent = Extent::parse(inode.fork(Fork::Data));
            change(&mut extent);
            extent.put(inode.fork_mut(Fork::Data));
            slot.copy_from_slice(inode.as_bytes());
            checksum::seal(slot, CRC_OFFSET);
        })
    }

    /// Returns a copy with another superblock.
    pub(crate) fn with_superblock(&self, change: impl FnOnce(&mut RawSuperblock)) -> MemoryDevice {
        let size = usize::from(self.superblock.sectsize.get());
        self.changed(|bytes| {
            let mut raw = RawSuperblock::read_from_bytes(&bytes[..SUPERBLOCK_SIZE]).unwrap();
            change(&mut raw);
            bytes[..SUPERBLOCK_SIZE].copy_from_slice(raw.as_bytes());
            checksum::seal(&mut bytes[..size], SUPERBLOCK_CRC_OFFSET);
        })
    }
}

/// Returns the codes of the findings.
pub(crate) fn codes(image: &MemoryDevice) -> BTreeSet<&'static str> {
    let found = findings(Arc::new(image.fork())).unwrap();
    found.iter().map(|finding| finding.code.name).collect()
}

/// Returns whether `xfs_repair -n -r` accepts the image.
pub(crate) fn is_accepted(image: &MemoryDevice, realtime: &Path) -> bool {
    let folder = testkit::scratch();
    let path = folder.path().join("image");
    write_image(image, &path).unwrap();
    let mut command = testkit::command("xfs_repair");
    command.args(["-n", "-f", "-P", "-r"]).arg(realtime).arg(&path);
    command.output().unwrap().status.success()
}

fn realtime_in(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("realtime");
    write_image(&unpack_device(REALTIME), &path).unwrap();
    path
}

#[test]
fn a_valid_section_has_no_findings() {
    require!(Tool("xfs_repair"));
    let subject = RealtimeImage::new();
    let found = findings(Arc::new(subject.image.fork())).unwrap();
    assert!(found.is_empty(), "{found:#?}");
    let folder = testkit::scratch();
    assert!(is_accepted(&subject.image, &realtime_in(folder.path())));
    let joined = disk::JoinedDevice::new(
        Arc::new(subject.image.fork()),
        None,
        Some(Arc::new(unpack_device(REALTIME))),
    );
    let found = findings(Arc::new(joined.unwrap())).unwrap();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn each_damage_of_the_section_has_its_finding() {
    require!(Tool("xfs_repair"));
    let subject = RealtimeImage::new();
    let (bitmap, summary) = (subject.bitmap(), subject.summary());
    let files = subject.listed_files();
    let [first, second] = [files[0], files[1]];
    let start = Extent::parse(subject.inode(first).fork(Fork::Data)).start;
    let extents = subject.superblock.rextents.get() as usize;
    let cases = [
        // The first extent is in use, and the last one is free.
        ("xfs-realtime-bitmap", subject.changed(|bytes| bytes[bitmap] ^= 1)),
        ("xfs-realtime-lost", subject.changed(|bytes| bytes[bitmap + extents / 8 - 1] ^= 0x80)),
        ("xfs-realtime-bitmap", subject.changed(|bytes| bytes[bitmap + extents / 8] ^= 1)),
        ("xfs-realtime-summary", subject.changed(|bytes| bytes[summary] ^= 1)),
        ("xfs-realtime-summary", subject.changed(|bytes| bytes[summary + 4000] ^= 1)),
        ("xfs-superblock-counts", subject.with_superblock(|raw| raw.frextents = 7.into())),
        ("xfs-superblock-field", subject.with_superblock(|raw| raw.rextents = 3071.into())),
        ("xfs-superblock-field", subject.with_superblock(|raw| raw.rbmblocks = 2.into())),
        ("xfs-superblock-field", subject.with_superblock(|raw| raw.rextslog = 12)),
        ("xfs-realtime-twice", subject.with_extent(second, |extent| extent.start = start)),
        ("xfs-inode", subject.with_extent(second, |extent| extent.start.0 = 1 << 40)),
        ("xfs-realtime-alignment", subject.with_extent(second, |extent| extent.start.0 += 1)),
    ];
    let folder = testkit::scratch();
    let realtime = realtime_in(folder.path());
    for (nth, (code, image)) in cases.into_iter().enumerate() {
        let found = codes(&image);
        assert!(found.contains(code), "case {nth}: {code} is not in {found:?}");
        assert!(!is_accepted(&image, &realtime), "case {nth}: xfs_repair accepts {code}");
    }
}

#[test]
fn sizes_of_the_files_are_checked() {
    require!(Tool("xfs_repair"));
    let subject = RealtimeImage::new();
    let folder = testkit::scratch();
    let realtime = realtime_in(folder.path());
    for ino in [subject.superblock.rbmino, subject.superblock.rsumino] {
        let slot = subject.slot(Ino(ino.get()));
        let size = subject.geometry.inode_size();
        let image = subject.changed(|bytes| {
            let slot = &mut bytes[slot..slot + size];
            slot[56..64].copy_from_slice(&8192_u64.to_be_bytes());
            checksum::seal(slot, CRC_OFFSET);
        });
        let found = codes(&image);
        assert!(found.contains("xfs-inode-field"), "{found:?}");
        assert!(!is_accepted(&image, &realtime));
    }
    // Without blocks, the file cannot be read.
    let ino = Ino(subject.superblock.rbmino.get());
    let image = subject.with_extent(ino, |extent| extent.offset.0 = 1);
    let found = codes(&image);
    assert!(found.contains("xfs-realtime-file"), "{found:?}");
}

/// Random changes of words of the bitmap, the summary and the inodes of the section.
#[test]
fn everything_that_xfs_repair_finds_is_found() {
    require!(Tool("xfs_repair"));
    let subject = RealtimeImage::new();
    let folder = testkit::scratch();
    let realtime = realtime_in(folder.path());
    let mut random = fastrand::Rng::with_seed(44);
    let size = subject.geometry.inode_size();
    let files = subject.listed_files();
    let inos = [subject.superblock.rbmino.get(), subject.superblock.rsumino.get()].map(Ino);
    let slots: Vec<usize> = files.iter().chain(&inos).map(|ino| subject.slot(*ino)).collect();
    let (bitmap, summary) = (subject.bitmap(), subject.summary());
    for _ in 0..testkit::effort(40, 40, 10_000) {
        let in_inode = random.bool();
        let start = match in_inode {
            true => slots[random.usize(..slots.len())],
            false => [bitmap, summary][random.usize(..2)],
        };
        let at = start + if in_inode { random.usize(..240) } else { random.usize(..4096) };
        let bit = random.u32(..8);
        let image = subject.changed(|bytes| {
            bytes[at] ^= 1 << bit;
            if in_inode {
                checksum::seal(&mut bytes[start..start + size], CRC_OFFSET);
            }
        });
        if codes(&image).is_empty() {
            let is_sound = is_accepted(&image, &realtime);
            assert!(
                is_sound,
                "only xfs_repair finds bit {bit} of byte {} of {start:#x}",
                at - start
            );
        }
    }
}
