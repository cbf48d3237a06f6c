//! Fast commits that no kernel wrote.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use disk::FileDevice;
use testkit::{Mke2fs, e2fsck, require, scratch};
use vfs::Ino;

use crate::format::address::{Block, FileBlock};
use crate::format::extent::Extent;
use crate::format::jbd2::{FastCommitEntry, FastCommitTag};
use crate::{Ext4, OpenOptions};

fn open(path: &Path) -> Ext4 {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let options = OpenOptions { cache_bytes: 8 << 20, ..OpenOptions::default() };
    Ext4::open_writable(Arc::new(FileDevice::new(file).unwrap()), &options).unwrap()
}

/// Returns a tag with numbers that are often plausible.
fn random_tag(random: &mut fastrand::Rng) -> FastCommitTag {
    let ino = |random: &mut fastrand::Rng| match random.u8(..8) {
        0 => Ino(random.u32(..).into()),
        1 => Ino(2),
        _ => Ino(random.u64(8..24)),
    };
    let entry = |random: &mut fastrand::Rng| FastCommitEntry {
        parent: if random.bool() { Ino(2) } else { ino(random) },
        ino: ino(random),
        name: match random.u8(..8) {
            0 => b"..".as_slice().into(),
            1 => b"lost+found".as_slice().into(),
            number => format!("file{number}").into_bytes().into(),
        },
    };
    match random.u8(..6) {
        0 => FastCommitTag::AddRange {
            ino: ino(random),
            extent: Extent {
                block: FileBlock(random.u32(..40)),
                len: random.u32(1..20),
                start: Block(if random.bool() {
                    random.u64(..40_000)
                } else {
                    random.u64(9000..9100)
                }),
                unwritten: random.bool(),
            },
        },
        1 => FastCommitTag::DelRange {
            ino: ino(random),
            block: FileBlock(random.u32(..20)),
            len: if random.bool() { random.u32(..30) } else { u32::MAX },
        },
        2 => FastCommitTag::Create(entry(random)),
        3 => FastCommitTag::Link(entry(random)),
        4 => FastCommitTag::Unlink(entry(random)),
        _ => {
            let mut raw = vec![0; [128, 160, 256][random.usize(..3)]];
            raw[..2].copy_from_slice(&[0xa4, [0x81, 0x41, 0xa1, 0x00][random.usize(..4)]]);
            raw[0x1a] = random.u8(..3);
            raw[0x22] = [0, 8][random.usize(..2)];
            raw[0x64] = random.u8(..2);
            if raw.len() > 128 {
                raw[0x80] = [32, 28, 200][random.usize(..3)];
            }
            FastCommitTag::Inode { ino: ino(random), raw: raw.into() }
        }
    }
}

/// Creates an image with some files.
fn image(directory: &Path) -> std::path::PathBuf {
    let source = directory.join("source");
    fs::create_dir_all(source.join("dir")).unwrap();
    for number in 0..8 {
        fs::write(source.join(format!("file{number}")), vec![number; 9000]).unwrap();
    }
    let path = directory.join("image");
    Mke2fs::new("ext4").block_size(1024).populate(&source).create(&path, 32 << 20);
    path
}

#[test]
fn fast_commits_are_applied_completely_or_not_at_all() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let directory = scratch();
    let path = image(directory.path());
    let mut random = fastrand::Rng::with_seed(3);
    let poison = FastCommitTag::DelRange { ino: Ino(7), block: FileBlock(0), len: 1 };
    for _ in 0..10 {
        let fs = open(&path);
        let mut tags = Vec::new();
        for _ in 0..150 {
            tags.push(random_tag(&mut random));
            tags.push(poison.clone());
            let error = fs.apply_fast_commits(&tags, None).unwrap_err().to_string();
            tags.pop();
            // Keep only tags that can be applied, so that the invalid one follows more and more changes.
            if !error.contains("reserved inode") || !error.contains("inode 7") {
                tags.pop();
            }
        }
        assert!(tags.len() > 20, "{}", tags.len());
        fs.close().unwrap();
        e2fsck(&path);
    }
}

/// A kernel creates and removes a file while another one is synced. The fast commit then contains the file's inode and
/// the removal of its name.
#[test]
fn a_file_created_and_removed_leaves_a_free_inode() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let directory = scratch();
    let path = image(directory.path());
    let ino = Ino(40);
    let mut raw = vec![0; 160];
    raw[..2].copy_from_slice(&0x81a4_u16.to_le_bytes());
    raw[0x1a] = 1;
    raw[0x20..0x24].copy_from_slice(&0x8_0000_u32.to_le_bytes());
    raw[0x64..0x68].copy_from_slice(&0x1234_5678_u32.to_le_bytes());
    raw[0x80] = 32;
    let entry = FastCommitEntry { parent: Ino(2), ino, name: b"new".as_slice().into() };
    let tags = [
        FastCommitTag::Inode { ino, raw: raw.into() },
        FastCommitTag::Create(entry.clone()),
        FastCommitTag::Unlink(entry),
    ];
    let fs = open(&path);
    fs.apply_fast_commits(&tags, None).unwrap();
    fs.close().unwrap();
    e2fsck(&path);
}
