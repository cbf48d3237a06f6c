//! Images to be damaged repeatedly, and the verdict of e2fsck on them.

use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::process::Stdio;

use ext4::format::address::{Block, FileBlock};
use ext4::{Ext4, OpenOptions};
use testkit::{Mke2fs, Sample, sample_tree};
use vfs::Ino;

use super::sound::settle;
pub(crate) use super::sound::settle as settled;
use crate::common::image::{device, golden};
use crate::common::layout::ImageStructures;

/// Remarks of e2fsck that the check need not report, with the reasons.
const EXPLAINED: &[(&str, &str)] = &[
    ("could be shorter", "an extent tree that takes a block more than it must is no damage"),
    ("could be narrower", "the same"),
    ("Optimizing directories", "the same of directories"),
    ("last mount time", "times are compared with the clock to the day, not to the second"),
    ("last write time", "the same"),
    ("i_file_acl_hi", "the high half of a field that a file system of 32 bits does not read"),
];

/// Part of an image, and its name in reports.
pub(crate) struct DamageTarget {
    pub(crate) name: String,
    pub(crate) range: Range<usize>,
    /// Inode that it belongs to, if it belongs to a file.
    pub(crate) ino: Option<u32>,
}

/// An image to be damaged repeatedly.
pub(crate) struct Victim {
    pub(crate) image: Vec<u8>,
    pub(crate) layout: ImageStructures,
    pub(crate) targets: Vec<DamageTarget>,
}

impl Victim {
    pub(crate) fn new(name: &str) -> Self {
        Self::of(golden(name))
    }

    pub(crate) fn of(image: Vec<u8>) -> Self {
        let layout = ImageStructures::of(&image);
        let mut targets = Vec::new();
        let mut add = |name: String, range: Range<usize>| {
            targets.push(DamageTarget { name, range, ino: None });
        };
        add("superblock".into(), 1024..2048);
        for group in layout.geometry.groups() {
            add(format!("descriptor {group}"), layout.descriptor_range(group));
            let desc = layout.groups[group.0 as usize];
            for (name, block) in
                [("block bitmap", desc.block_bitmap), ("inode bitmap", desc.inode_bitmap)]
            {
                let range = layout.block_range(block);
                add(format!("{name} {group}"), range.start..range.start + 32);
            }
        }
        for group in layout.geometry.groups().skip(1) {
            if let Some(block) = layout.geometry.superblock_of(group) {
                let start = layout.block_range(block).start;
                add(format!("backup in group {group}"), start..start + 1024);
            }
        }
        for (ino, block) in system_blocks(&image, &layout) {
            let start = layout.block_range(block).start;
            add(format!("a block of system inode {ino}"), start..start + 1024);
        }
        let inodes = layout
            .inodes
            .iter()
            .map(|&ino| (ino, format!("inode {}", ino.0), layout.slot_range(ino)));
        let structures = layout.structures.iter().map(|structure| {
            let name = format!("{:?} of inode {}", structure.kind, structure.ino.0);
            (structure.ino, name, layout.block_range(structure.block))
        });
        for (ino, name, range) in inodes.chain(structures) {
            targets.push(DamageTarget { name, range, ino: Some(ino.0 as u32) });
        }
        Self { image, layout, targets }
    }
}

/// Returns the first blocks of the journal, the quota files and the orphan file.
fn system_blocks(image: &[u8], layout: &ImageStructures) -> Vec<(u32, Block)> {
    let raw = &layout.sb.raw;
    let inodes = [
        raw.journal_inum,
        raw.usr_quota_inum,
        raw.grp_quota_inum,
        raw.prj_quota_inum,
        raw.orphan_file_inum,
    ];
    let options = OpenOptions { norecovery: true, ..OpenOptions::default() };
    let fs = Ext4::open(device(image), &options).expect("a sound image");
    let mut blocks = Vec::new();
    for ino in inodes.map(|ino| ino.get()).into_iter().filter(|ino| *ino != 0) {
        // The log after the journal's superblock is empty.
        let count = if ino == raw.journal_inum.get() { 1 } else { 6 };
        let run = |at| fs.block_run(Ino(ino.into()), FileBlock(at)).ok()?.start;
        blocks.extend((0..count).filter_map(run).map(|block| (ino, block)));
    }
    blocks
}

/// An image with one damage and its description.
pub(crate) struct DamagedImage {
    pub(crate) image: Vec<u8>,
    pub(crate) what: String,
    /// Inode that was damaged, if any.
    pub(crate) ino: Option<u32>,
}

/// Loses a block, replaces it by another one, or fills it with random bytes.
pub(crate) fn damage_block(image: &mut [u8], size: usize, random: &mut fastrand::Rng) {
    let blocks = image.len() / size;
    let (one, two) = (random.usize(..blocks) * size, random.usize(..blocks) * size);
    match random.u8(..3) {
        0 => image[one..one + size].fill(0),
        1 => image.copy_within(one..one + size, two),
        _ => image[one..one + size].fill_with(|| random.u8(..)),
    }
}

/// Damages a field of one of the targets. One case in four keeps its wrong checksum.
pub(crate) fn damage(victim: &Victim, random: &mut fastrand::Rng) -> DamagedImage {
    let target = &victim.targets[random.usize(..victim.targets.len())];
    let width = *random.choice(&[1_usize, 2, 4]).expect("some");
    // Most fields are near the start.
    let len = if random.bool() { target.range.len().min(160) } else { target.range.len() };
    let offset = random.usize(..len / width) * width;
    let at = target.range.start + offset;
    let mut image = victim.image.clone();
    let field = &mut image[at..at + width];
    let mut word = [0; 4];
    word[..width].copy_from_slice(field);
    let old = u32::from_le_bytes(word);
    let new = match random.u8(..6) {
        0 => 0,
        1 => u32::MAX,
        2 => old.wrapping_add(1),
        3 => old.wrapping_sub(1),
        4 => old ^ 1 << random.usize(..width * 8),
        _ => random.u32(..),
    };
    field.copy_from_slice(&new.to_le_bytes()[..width]);
    let repaired = random.u8(..4) != 0;
    if repaired {
        victim.layout.seal(&mut image);
    }
    let sealed = if repaired { "repaired" } else { "not repaired" };
    DamagedImage {
        image,
        what: format!("{} byte {offset:#x}: {old:#x} to {new:#x}, {sealed}", target.name),
        ino: target.ino,
    }
}

/// Maximum number of bytes to read of e2fsck's output: on some images it restarts again and again without end.
const REMARKS_MAX: u64 = 1 << 20;

/// Returns the remarks of e2fsck; `None` if it finds nothing.
pub(crate) fn judge(image: &[u8]) -> Option<String> {
    testkit::show_bytes(image, judge_file)
}

fn judge_file(place: &Path) -> Option<String> {
    let mut command = testkit::command("e2fsck");
    command.arg("-fn").arg(place).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("e2fsck");
    let mut text = Vec::new();
    // If e2fsck continues to write, closing the pipe ends it.
    let stdout = child.stdout.take().expect("a pipe");
    stdout.take(REMARKS_MAX).read_to_end(&mut text).expect("what e2fsck says");
    let status = child.wait().expect("its end");
    (status.code() != Some(0)).then(|| String::from_utf8_lossy(&text).into_owned())
}

pub(crate) fn is_explained(text: &str) -> bool {
    let is_noise = |line: &str| {
        line.is_empty()
            || line.starts_with("Pass ")
            || line.contains("***")
            || line.contains(" files (")
            || line.contains("Fix? no")
            || EXPLAINED.iter().any(|(words, _)| line.contains(words))
    };
    text.lines().all(is_noise)
}

/// Returns images with features that the golden ones lack, created by mke2fs.
pub(crate) fn made(work: &Path) -> Vec<(&'static str, Vec<u8>)> {
    let kinds: [(&str, &[&str]); 5] = [
        ("quota", &["-O", "quota,project,^has_journal"]),
        ("sparse_super2", &["-O", "sparse_super2,^has_journal,^resize_inode", "-g", "1024"]),
        ("resize_inode", &["-O", "^has_journal,^flex_bg", "-g", "1024"]),
        ("bigalloc", &["-O", "bigalloc,^has_journal,^resize_inode", "-C", "4096"]),
        ("journal", &["-O", "orphan_file", "-J", "size=1"]),
    ];
    let tree = work.join("tree");
    std::fs::create_dir(&tree).unwrap();
    sample_tree(&tree, &Sample { wide_names: 300, ..Sample::for_block_size(1024) });
    let image = work.join("made");
    let make = |(name, arguments): (&'static str, &[&str])| {
        let mke2fs = Mke2fs::new("ext4").block_size(1024).inode_count(2048);
        mke2fs.arguments(arguments.iter().copied()).populate(&tree).create(&image, 24 << 20);
        settle(&image);
        (name, std::fs::read(&image).unwrap())
    };
    kinds.into_iter().map(make).collect()
}
