//! Shared code of the tests of file contents: images full of garbage, and a model of one file.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part")]

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, FileDevice};
use ext4::mkfs::{self, FeatureChange, InodeCount, Options, PreviousContents};
use ext4::{Ext4, OpenOptions};
use testkit::{KernelMount, MountOptions};
use vfs::{AllocateMode, Error, ExtentPlace, FileSystem, Ino, NewInode};

pub const MIB: u64 = 1 << 20;

/// Initial contents of every block that mkfs does not write. They must never become visible.
const GARBAGE: u8 = 0xee;

/// A kind of image and of files.
#[derive(Clone, Copy, Debug)]
pub struct FileParameters {
    pub block_size: u32,
    pub extents: bool,
}

pub const SHAPES: [FileParameters; 4] = [
    FileParameters { block_size: 1024, extents: true },
    FileParameters { block_size: 4096, extents: true },
    FileParameters { block_size: 1024, extents: false },
    FileParameters { block_size: 4096, extents: false },
];

impl FileParameters {
    /// Returns the maximum size of a file in bytes.
    pub fn size_max(self) -> u64 {
        let block = u64::from(self.block_size);
        if self.extents {
            return (u64::from(u32::MAX)) * block;
        }
        let pointers = block / 4;
        let blocks = 12 + pointers + pointers * pointers + pointers * pointers * pointers;
        blocks.min(u64::from(u32::MAX)) * block
    }
}

/// Creates an image of `size` bytes that contains garbage except for what mkfs writes.
pub fn make(path: &Path, size: u64, shape: FileParameters) -> Arc<FileDevice> {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path);
    let file = file.unwrap();
    let garbage = vec![GARBAGE; MIB as usize];
    for at in 0..size / MIB {
        file.write_all_at(&garbage, at * MIB).unwrap();
    }
    let features = if shape.extents {
        "-has_journal,-orphan_file"
    } else {
        "-has_journal,-orphan_file,-extents,-64bit"
    };
    let options = Options {
        block_size: Some(shape.block_size),
        features: FeatureChange::parse_list(features).unwrap(),
        inodes: InodeCount::Count(64),
        ..Options::new(size)
    };
    let device = Arc::new(FileDevice::new(file).unwrap());
    let layout = mkfs::plan(&options).unwrap();
    mkfs::format(&*device, &layout, PreviousContents::Unknown).unwrap();
    device
}

pub fn open(device: &Arc<FileDevice>) -> Ext4 {
    let device: Arc<dyn BlockDevice> = device.clone();
    Ext4::open_writable(device, &OpenOptions::default()).unwrap()
}

pub fn create(fs: &Ext4, name: &str) -> Ino {
    let new = NewInode { permissions: 0o644, ..NewInode::default() };
    fs.create(fs.root(), name.as_bytes(), &new).unwrap()
}

/// Asserts that e2fsck accepts an image. A tree that could be narrower is not damage: a tree filled in random order has
/// free space in its nodes, also in the kernel.
#[track_caller]
pub fn check(image: &Path) {
    let Err(verdict) = testkit::e2fsck_verdict(image) else { return };
    let remarks = verdict.split("\nall:\n").next().unwrap_or_default();
    let (status, remarks) = remarks.split_once('\n').unwrap_or((remarks, ""));
    let harmless = |line: &str| line.is_empty() || line.contains("could be narrower");
    assert!(status.contains("Some(0)") && remarks.lines().all(harmless), "{verdict}");
}

/// A change of a file.
#[derive(Clone, Debug)]
pub enum FileChange {
    Write { offset: u64, len: u64, seed: u8 },
    Truncate(u64),
    Allocate { offset: u64, len: u64, mode: AllocateMode },
}

/// Returns the bytes that [`FileChange::Write`] writes.
pub fn bytes_of(len: u64, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed) | 1).collect()
}

impl FileChange {
    pub fn apply(&self, fs: &dyn FileSystem, ino: Ino) -> Result<(), Error> {
        match *self {
            Self::Write { offset, len, seed } => fs.write(ino, offset, &bytes_of(len, seed), None),
            Self::Truncate(size) => fs.truncate(ino, size, None),
            Self::Allocate { offset, len, mode } => fs.allocate(ino, offset, len, mode),
        }
    }
}

/// Model of one file, block by block. Bytes past its size are zeros.
#[derive(Clone)]
pub struct FileModel {
    pub shape: FileParameters,
    pub size: u64,
    /// `None` is an allocated block that was never written.
    pub blocks: BTreeMap<u64, Option<Box<[u8]>>>,
}

impl FileModel {
    pub fn new(shape: FileParameters) -> Self {
        Self { shape, size: 0, blocks: BTreeMap::new() }
    }

    fn block(&self) -> u64 {
        u64::from(self.shape.block_size)
    }

    /// Iterates over the blocks of a range, with the byte range in each.
    fn parts(
        &self,
        offset: u64,
        end: u64,
    ) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> + use<> {
        let block = self.block();
        (offset / block..end.div_ceil(block)).map(move |number| {
            let start = number * block;
            let (from, to) = (offset.max(start) - start, end.min(start + block) - start);
            (number, from as usize..to as usize)
        })
    }

    /// Changes a file and its model. Returns false if there was no space; then nothing may have changed.
    pub fn change_if_space(
        &mut self,
        fs: &dyn FileSystem,
        ino: Ino,
        change: &FileChange,
        context: &str,
    ) -> bool {
        let free = fs.statfs().unwrap().blocks_free;
        let result = change.apply(fs, ino);
        match &result {
            Ok(()) => self.apply(change),
            Err(Error::NoSpace) => {
                assert_eq!(fs.statfs().unwrap().blocks_free, free, "{context}");
            }
            Err(error) => panic!("{context}: {error}"),
        }
        self.assert_same(fs, ino, context);
        result.is_ok()
    }

    pub fn apply(&mut self, change: &FileChange) {
        match *change {
            FileChange::Write { offset, len, seed } => self.write(offset, &bytes_of(len, seed)),
            FileChange::Truncate(size) => self.truncate(size),
            FileChange::Allocate { offset, len, mode } => self.allocate(offset, offset + len, mode),
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let block_size = self.block() as usize;
        let end = offset + data.len() as u64;
        let mut done = 0;
        for (number, part) in self.parts(offset, end) {
            let place = self.blocks.entry(number).or_default();
            let bytes = place.get_or_insert_with(|| vec![0; block_size].into());
            let len = part.len();
            bytes[part].copy_from_slice(&data[done..done + len]);
            done += len;
        }
        self.size = self.size.max(end);
    }

    fn truncate(&mut self, size: u64) {
        let block = self.block();
        if size <= self.size {
            self.blocks.split_off(&size.div_ceil(block));
            if let Some(Some(bytes)) = self.blocks.get_mut(&(size / block)) {
                bytes[(size % block) as usize..].fill(0);
            }
        }
        self.size = size;
    }

    fn allocate(&mut self, offset: u64, end: u64, mode: AllocateMode) {
        let block = self.block();
        let shape = self.shape;
        let fresh = || (!shape.extents).then(|| vec![0; block as usize].into());
        let zeroes = matches!(mode, AllocateMode::Zero | AllocateMode::ZeroKeepSize);
        let punches = mode == AllocateMode::PunchHole;
        let cut = if punches && end >= self.size { end.next_multiple_of(block) } else { end };
        if punches {
            let gone = offset.div_ceil(block)..cut / block;
            self.blocks.retain(|number, _| !gone.contains(number));
        } else if zeroes && shape.extents {
            for number in offset.div_ceil(block)..end / block {
                self.blocks.insert(number, None);
            }
        }
        for (number, part) in self.parts(offset, end) {
            if !punches {
                self.blocks.entry(number).or_insert_with(fresh);
            }
            if (punches || zeroes)
                && let Some(Some(bytes)) = self.blocks.get_mut(&number)
            {
                bytes[part].fill(0);
            }
        }
        if matches!(mode, AllocateMode::Unwritten | AllocateMode::Zero) {
            self.size = self.size.max(end);
        }
    }

    /// Returns the runs of the file: start, end, and `d`, `u` or `h`.
    pub fn runs(&self) -> Vec<(u64, u64, char)> {
        let mut runs = Vec::new();
        let mut at = 0;
        let end = self.size.div_ceil(self.block());
        for (&number, contents) in self.blocks.range(..end) {
            push_run(&mut runs, at, number, 'h');
            let kind = if contents.is_some() { 'd' } else { 'u' };
            push_run(&mut runs, number, number + 1, kind);
            at = number + 1;
        }
        push_run(&mut runs, at, end, 'h');
        let bytes = |block: u64| (block * self.block()).min(self.size);
        runs.into_iter().map(|(from, to, kind)| (bytes(from), bytes(to), kind)).collect()
    }

    /// Reads a range.
    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let end = self.size.min(offset + len as u64);
        let mut all = Vec::new();
        if offset >= end {
            return all;
        }
        for (number, part) in self.parts(offset, end) {
            match self.blocks.get(&number) {
                Some(Some(bytes)) => all.extend_from_slice(&bytes[part]),
                _ => all.extend(part.map(|_| 0)),
            }
        }
        all
    }

    /// Compares the map of a file with the model.
    pub fn compare_map(&self, fs: &dyn FileSystem, ino: Ino) -> Result<(), String> {
        let size = fs.attributes(ino).map_err(|e| e.to_string())?.size;
        if size != self.size {
            return Err(format!("size {size}, not {}", self.size));
        }
        let mut runs = Vec::new();
        let listed = fs.extent_map(ino, 0, u64::MAX, &mut |run| {
            let kind = match run.place {
                ExtentPlace::Device(_) => 'd',
                ExtentPlace::Unwritten(_) => 'u',
                ExtentPlace::Hole => 'h',
                ExtentPlace::Inline => 'i',
            };
            push_run(&mut runs, run.offset, run.offset + run.len, kind);
            ControlFlow::Continue(())
        });
        listed.map_err(|e| e.to_string())?;
        let expected = self.runs();
        if runs == expected { Ok(()) } else { Err(format!("map {runs:?}, not {expected:?}")) }
    }

    /// Compares contents with the model, except deep inside holes. `read` fills a buffer.
    pub fn compare_contents(
        &self,
        mut read: impl FnMut(u64, &mut [u8]) -> usize,
    ) -> Result<(), String> {
        for (from, to, kind) in self.runs() {
            let mut at = from;
            while at < to {
                let len = (to - at).min(64 << 10);
                let mut buf = vec![GARBAGE; len as usize];
                let read_len = read(at, &mut buf);
                let expected = self.read(at, len as usize);
                if buf[..read_len] != expected[..] {
                    let bad = buf.iter().zip(&expected).position(|(a, b)| a != b);
                    return Err(format!("contents differ from {at} + {bad:?} on ({kind})"));
                }
                // Compare only the start and the end of a hole.
                at += len;
                if kind == 'h' && to > at + len {
                    at = to - len;
                }
            }
        }
        Ok(())
    }

    /// Compares map and contents of a file with the model.
    #[track_caller]
    pub fn assert_same(&self, fs: &dyn FileSystem, ino: Ino, context: &str) {
        let map = self.compare_map(fs, ino);
        map.unwrap_or_else(|problem| panic!("{context}: {problem}"));
        let same = self.compare_contents(|at, buf| fs.read(ino, at, buf).unwrap());
        same.unwrap_or_else(|problem| panic!("{context}: {problem}"));
    }

    /// Compares the contents of a file with the model through the kernel, if mounts are possible.
    #[track_caller]
    pub fn assert_same_in_kernel(&self, image: &Path, name: &str) {
        let fs_type = "ext4";
        if testkit::missing(testkit::Need::Mount(fs_type)).is_some() {
            return;
        }
        let mount = KernelMount::new(image, &MountOptions::read_only(fs_type));
        let file = File::open(mount.path().join(name)).unwrap();
        assert_eq!(file.metadata().unwrap().len(), self.size);
        let read = |at, buf: &mut [u8]| {
            let mut done = 0;
            while done < buf.len() {
                match file.read_at(&mut buf[done..], at + done as u64).unwrap() {
                    0 => break,
                    len => done += len,
                }
            }
            done
        };
        self.compare_contents(read).unwrap_or_else(|problem| panic!("in the kernel: {problem}"));
        drop(file);
        mount.unmount();
    }
}

fn push_run(runs: &mut Vec<(u64, u64, char)>, from: u64, to: u64, kind: char) {
    if from >= to {
        return;
    }
    match runs.last_mut() {
        Some((_, end, last)) if *last == kind && *end == from => *end = to,
        _ => runs.push((from, to, kind)),
    }
}
