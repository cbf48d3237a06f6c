//! An image with a file whose blocks the tests journal.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use disk::{BlockDevice, FileDevice};
use ext4::format::features::Incompat;
use ext4::format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use ext4::log::{Journal, JournalMap};
use tempfile::TempDir;
use testkit::{Mke2fs, debugfs, scratch};
use zerocopy::{FromBytes, IntoBytes};

/// Number of blocks of the file `data`.
pub(crate) const DATA_BLOCKS: usize = 64;

/// Options of mke2fs that change the journal's format.
pub(crate) struct Config {
    pub(crate) fs_type: &'static str,
    pub(crate) block_size: u32,
    pub(crate) features: &'static str,
}

pub(crate) const CONFIGS: [Config; 7] = [
    Config { fs_type: "ext4", block_size: 4096, features: "" },
    Config { fs_type: "ext4", block_size: 1024, features: "" },
    Config { fs_type: "ext4", block_size: 1024, features: "^64bit" },
    Config { fs_type: "ext4", block_size: 4096, features: "^metadata_csum" },
    Config { fs_type: "ext4", block_size: 2048, features: "^metadata_csum,^64bit" },
    Config { fs_type: "ext4", block_size: 4096, features: "fast_commit" },
    Config { fs_type: "ext3", block_size: 1024, features: "" },
];

/// An image in a file.
pub(crate) struct JournalImage {
    directory: TempDir,
    pub(crate) path: PathBuf,
    pub(crate) block_size: usize,
    /// The blocks of `data`.
    pub(crate) blocks: Vec<u64>,
}

impl JournalImage {
    pub(crate) fn new(config: &Config) -> Self {
        let directory = scratch();
        let source = directory.path().join("source");
        fs::create_dir(&source).unwrap();
        let block_size = config.block_size as usize;
        let data: Vec<u8> =
            (0..DATA_BLOCKS * block_size).map(|i| (1 + i / block_size) as u8).collect();
        fs::write(source.join("data"), data).unwrap();
        let path = directory.path().join("image");
        let mut options =
            Mke2fs::new(config.fs_type).block_size(config.block_size).populate(&source);
        if !config.features.is_empty() {
            options = options.features(config.features);
        }
        options.arguments(["-J", "size=4"]).create(&path, 32 << 20);
        let listed = debugfs(&path, "blocks data");
        let numbers = listed.split_whitespace().filter_map(|word| word.parse().ok());
        let mut blocks: Vec<u64> = numbers.collect();
        if config.fs_type == "ext3" {
            // Pointer blocks are listed too; the contents distinguish them.
            let image = fs::read(&path).unwrap();
            blocks.retain(|&b| {
                let bytes = &image[b as usize * block_size..][..block_size];
                bytes.iter().all(|byte| byte == &bytes[0])
            });
        }
        assert_eq!(blocks.len(), DATA_BLOCKS);
        Self { directory, path, block_size, blocks }
    }

    /// Copies the image for another checker.
    pub(crate) fn copy(&self, name: &str) -> PathBuf {
        let to = self.directory.path().join(name);
        copy(&self.path, &to);
        to
    }

    pub(crate) fn device(&self) -> Arc<dyn BlockDevice> {
        device(&self.path)
    }

    /// Returns our journal of the image, and sets the recovery flag.
    pub(crate) fn journal(&self) -> Journal {
        set_needs_recovery(&self.path);
        let device = self.device();
        let sb = superblock(&*device);
        let map = JournalMap::read(&*device, &sb).unwrap().unwrap();
        Journal::open(device, map, &sb, None).unwrap()
    }

    /// Logs images as a checkpoint.
    pub(crate) fn append(
        &self,
        journal: &Journal,
        sequence: u64,
        freed: &[u64],
        images: &[(u64, Vec<u8>)],
    ) {
        journal
            .append(sequence, freed, |image| {
                images.iter().try_for_each(|(block, bytes)| image(*block, bytes))
            })
            .unwrap();
    }

    /// Returns a block's contents generated from a number.
    pub(crate) fn pattern(&self, number: u64) -> Vec<u8> {
        let words = (0..self.block_size as u64 / 8).map(|i| i * 0x9e37_79b9 + number);
        words.flat_map(u64::to_le_bytes).collect()
    }

    /// Returns the initial contents of a block of `data`.
    pub(crate) fn original(&self, index: usize) -> Vec<u8> {
        vec![1 + index as u8; self.block_size]
    }
}

pub(crate) fn device(path: &Path) -> Arc<dyn BlockDevice> {
    let file = File::options().read(true).write(true).open(path).unwrap();
    Arc::new(FileDevice::new(file).unwrap())
}

pub(crate) fn superblock(device: &dyn BlockDevice) -> Superblock {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).unwrap();
    Superblock::parse(&bytes, device.len()).unwrap()
}

pub(crate) fn read_block(path: &Path, block: u64, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    device(path).read_at(block * size as u64, &mut bytes).unwrap();
    bytes
}

/// Changes the superblock of an image in memory, including its checksum.
pub(crate) fn edit_superblock(image: &mut [u8], edit: impl FnOnce(&mut RawSuperblock)) {
    let bytes = &mut image[SUPERBLOCK_OFFSET as usize..][..SUPERBLOCK_SIZE];
    let mut raw = RawSuperblock::read_from_bytes(bytes).unwrap();
    edit(&mut raw);
    raw.seal();
    bytes.copy_from_slice(raw.as_bytes());
}

pub(crate) fn mark(raw: &mut RawSuperblock) {
    let mut features = raw.features();
    features.incompat |= Incompat::RECOVER;
    raw.set_features(&features);
}

fn set_needs_recovery(path: &Path) {
    let device = device(path);
    let mut bytes = vec![0; 2048];
    device.read_at(0, &mut bytes).unwrap();
    edit_superblock(&mut bytes, mark);
    device.write_at(0, &bytes).unwrap();
}

pub(crate) fn needs_recovery(path: &Path) -> bool {
    superblock(&*device(path)).features.incompat(Incompat::RECOVER)
}

/// Copies an image without its holes.
pub(crate) fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("--sparse=always").args([from, to]).status().unwrap();
    assert!(done.success());
}

/// Lets e2fsck replay the journal without repairs.
pub(crate) fn e2fsck_replay(path: &Path) {
    let output =
        testkit::command("e2fsck").args(["-fy", "-E", "journal_only"]).arg(path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{text}");
    assert!(text.contains("recovering journal"), "{text}");
}

/// Runs debugfs commands with write access, and returns the output.
pub(crate) fn debugfs_script(path: &Path, script: &str) -> String {
    let file = path.with_extension("script");
    fs::write(&file, script).unwrap();
    let output =
        testkit::command("debugfs").args(["-w", "-f"]).args([&file, path]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
