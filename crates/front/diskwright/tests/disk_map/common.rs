//! Images, surveys of them, and a ledger with the use of each block.

use std::io::Read;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, FileDevice, MemoryDevice};
use diskwright::disk_map::Survey;
use ext4::Ext4;
use vfs::survey::{BlockUse, Extent, FileLayout, Sink, TellsLayout};
use xfs::Xfs;

macro_rules! golden {
    ($format:literal, $ending:literal: $($name:literal),* $(,)?) => {
        &[$((concat!($format, "/", $name),
            include_bytes!(concat!("../../../../formats/", $format, "/tests/golden/", $name, $ending)))),*]
    };
}

/// Golden images of both formats, compressed.
pub(crate) const GOLDEN: [&[(&str, &[u8])]; 2] = [
    golden!("ext4", ".img.gz":
        "ext2-rev0", "ext3", "ext4", "ext4-plain", "inline", "ea-inode", "casefold", "groups",
        "meta-bg", "deep-index", "deep-index-plain", "journal"),
    golden!("xfs", ".img.gz.gz":
        "default", "small-blocks", "plain", "large-directory-blocks", "v4", "v4-ftype", "shared"),
];

/// Decompresses gzip, also if it was applied twice.
pub(crate) fn unpack(packed: &[u8]) -> Vec<u8> {
    let mut bytes = packed.to_vec();
    while bytes.starts_with(b"\x1f\x8b") {
        let mut plain = Vec::new();
        let mut decoder = flate2::read::GzDecoder::new(&bytes[..]);
        decoder.read_to_end(&mut plain).expect("gzip of this repository");
        bytes = plain;
    }
    bytes
}

/// Opens an image of either format.
pub(crate) fn open(
    device: Arc<dyn BlockDevice>,
    norecovery: bool,
) -> vfs::Result<Box<dyn TellsLayout>> {
    let mut magic = [0; 4];
    device.read_at(0, &mut magic).map_err(vfs::Error::Device)?;
    if &magic == b"XFSB" {
        let options = xfs::OpenOptions { norecovery, ..Default::default() };
        return Ok(Box::new(Xfs::open(device, &options)?));
    }
    let options = ext4::OpenOptions { norecovery, ..Default::default() };
    Ok(Box::new(Ext4::open(device, &options)?))
}

pub(crate) fn open_bytes(bytes: &[u8]) -> vfs::Result<Box<dyn TellsLayout>> {
    open(Arc::new(MemoryDevice::from_bytes(bytes)), false)
}

pub(crate) fn open_file(path: &Path) -> Box<dyn TellsLayout> {
    let file = std::fs::File::open(path).expect("an image");
    let device = FileDevice::new(file).expect("an image");
    open(Arc::new(device), false).expect("an image that can be opened")
}

pub(crate) fn survey(fs: &dyn TellsLayout, cells: usize) -> Survey {
    let mut go_on = |_, _| ControlFlow::Continue(());
    Survey::take(fs, cells, &mut go_on).expect("a log that can be looked at")
}

/// Reported use of each block.
pub(crate) struct Ledger {
    pub(crate) kinds: Vec<Option<BlockUse>>,
    pub(crate) remarks: Vec<String>,
    pub(crate) files: Vec<FileLayout>,
    pub(crate) free_runs: Vec<(u64, u64)>,
    name: String,
    is_strict: bool,
}

impl Ledger {
    /// Creates the ledger of an image in which each block must be reported once.
    pub(crate) fn of(name: &str, fs: &dyn TellsLayout) -> Self {
        let ledger = Self::take(name, fs, true);
        let left = ledger.kinds.iter().position(Option::is_none);
        assert_eq!(left, None, "{name}: a block that nobody told of");
        assert!(ledger.remarks.is_empty(), "{name}: {:?}", ledger.remarks);
        ledger
    }

    /// Creates the ledger of an image that may be damaged.
    pub(crate) fn of_damaged(name: &str, fs: &dyn TellsLayout) -> Self {
        Self::take(name, fs, false)
    }

    fn take(name: &str, fs: &dyn TellsLayout, is_strict: bool) -> Self {
        let shape = fs.shape().expect("a log that can be looked at");
        let mut ledger = Self {
            kinds: vec![None; shape.blocks as usize],
            remarks: Vec::new(),
            files: Vec::new(),
            free_runs: Vec::new(),
            name: name.to_owned(),
            is_strict,
        };
        fs.tell_layout(&mut ledger);
        ledger
    }

    pub(crate) fn count(&self, kind: BlockUse) -> u64 {
        self.kinds.iter().filter(|found| **found == Some(kind)).count() as u64
    }
}

impl Sink for Ledger {
    fn extent(&mut self, extent: Extent) {
        let Extent { start, len, kind } = extent;
        assert!(len > 0, "{}: an empty run at {start}", self.name);
        if kind == BlockUse::Free {
            self.free_runs.push((start, len));
        }
        for block in start..start + len {
            let Some(place) = self.kinds.get_mut(block as usize) else {
                panic!("{}: block {block} of {kind:?} lies behind the end", self.name)
            };
            let before = place.replace(kind);
            assert!(
                before.is_none() || !self.is_strict,
                "{}: block {block} is {kind:?} after {before:?}",
                self.name
            );
        }
    }

    fn file(&mut self, file: FileLayout) {
        self.files.push(file);
    }

    fn remark(&mut self, remark: String) {
        self.remarks.push(remark);
    }

    fn progress(&mut self, done: u64, total: u64) -> ControlFlow<()> {
        assert!(done <= total);
        ControlFlow::Continue(())
    }
}

/// Checks the counts of a sound image: each block once, the reported number of free blocks, and the same totals with
/// any number of cells.
pub(crate) fn assert_right(name: &str, fs: &dyn TellsLayout) -> Survey {
    let ledger = Ledger::of(name, fs);
    let free = fs.statfs().expect("counts").blocks_free;
    assert_eq!(ledger.count(BlockUse::Free), free, "{name}: free blocks");
    let mut last = None;
    for cells in [1, 7, 4096, usize::MAX] {
        let survey = survey(fs, cells);
        let totals = survey.cells.totals();
        assert_eq!(totals.iter().sum::<u64>(), survey.shape.blocks, "{name}, {cells} cells");
        for (kind, total) in BlockUse::ALL.into_iter().zip(totals) {
            assert_eq!(total, ledger.count(kind), "{name}, {cells} cells: {kind:?}");
        }
        assert_eq!((survey.unknown, survey.twice), (0, 0), "{name}");
        assert_eq!(survey.remarks, [""; 0], "{name}");
        assert_eq!(survey.free.sum(), free, "{name}: free space in runs");
        assert_eq!(survey.free.count(), ledger.free_runs.len() as u64, "{name}");
        assert!(survey.is_complete);
        last = Some(survey);
    }
    last.expect("a survey")
}
