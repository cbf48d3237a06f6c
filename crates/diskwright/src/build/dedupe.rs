//! Contents that are in the image already: files with the same bytes, or blocks with the same bytes, share blocks.
//!
//! Contents are told apart by SHA-256 alone: nobody knows two that have the same. The thread that makes the files looks
//! each of them up before it gets blocks, so that the order of the source alone decides what is shared with what.
//!
//! Memory: [`ENTRY_BYTES`] for each file (for each distinct block with [`Dedupe::Blocks`]: of blocks of 4 KiB some 2 %
//! of the contents), in a table that may be half empty.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use sha2::{Digest, Sha256};
use source::{ContentFile, DataRun, Detached};
use vfs::Ino;

use super::{BuildError, Dedupe, identity};

/// Bytes that are read at once; a multiple of every block size.
const READ_BYTES: usize = 256 << 10;

/// A file system whose files can share blocks.
pub(super) trait ShareBlocks {
    /// Block size in bytes.
    fn block_size(&self) -> u64;

    /// Gives one file the blocks of another one.
    fn share(&self, from: (Ino, u64), to: (Ino, u64), len: u64) -> vfs::Result<()>;
}

type Sum = [u8; 32];

/// Bytes that a known file or block takes in the table.
const ENTRY_BYTES: usize = size_of::<(Sum, (Ino, u64))>();
const _: () = assert!(ENTRY_BYTES <= 48);

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Which bytes.
    pub(super) run: DataRun,
    /// Whose bytes are the same, and from where on; `None` if nobody's are.
    pub(super) same: Option<(Ino, u64)>,
}

/// A file that was looked at.
#[derive(Default)]
pub(super) struct Looked {
    /// All of its data, in order.
    pub(super) parts: Vec<Part>,
    /// What the parts that others have add to the sum over all contents.
    pub(super) contents: u64,
}

/// All contents so far.
pub(super) struct Known<'a> {
    device: &'a dyn ShareBlocks,
    unit: Dedupe,
    table: HashMap<Sum, (Ino, u64)>,
    buffer: Vec<u8>,
    shared_bytes: u64,
}

impl<'a> Known<'a> {
    pub(super) fn new(device: &'a dyn ShareBlocks, unit: Dedupe) -> Self {
        let buffer = vec![0; READ_BYTES];
        Self { device, unit, table: HashMap::new(), buffer, shared_bytes: 0 }
    }

    /// Bytes of contents that took no blocks of their own.
    pub(super) fn shared_bytes(&self) -> u64 {
        self.shared_bytes
    }

    /// Says of each part of a file whether somebody has the same; the rest is the file's from now on.
    pub(super) fn look(
        &mut self,
        ino: Ino,
        size: u64,
        runs: &[DataRun],
        body: &Detached,
    ) -> Result<Looked, BuildError> {
        let file = body.open()?;
        match self.unit {
            Dedupe::Files => self.look_at_file(ino, size, runs, &file),
            Dedupe::Blocks => self.look_at_blocks(ino, size, runs, &file),
        }
    }

    /// Gives a file the blocks of a part that somebody has. Whatever is not shared must have its blocks.
    pub(super) fn share(&mut self, ino: Ino, part: &Part) -> Result<(), BuildError> {
        match part.same {
            Some(same) => Ok(self.device.share(same, (ino, part.run.offset), part.run.len)?),
            None => Ok(()),
        }
    }

    fn look_at_file(
        &mut self,
        ino: Ino,
        size: u64,
        runs: &[DataRun],
        file: &ContentFile,
    ) -> Result<Looked, BuildError> {
        let mut whole = WholeFile::new(size);
        let mut contents = 0_u64;
        for run in runs {
            whole.begin(run);
            each_piece(file, *run, &mut self.buffer, |offset, bytes| {
                whole.add(bytes);
                contents = contents.wrapping_add(identity::contents_term(offset, bytes));
            })?;
        }
        Ok(match self.whole(ino, whole) {
            Some(part) => Looked { parts: vec![part], contents },
            None => {
                let parts = runs.iter().map(|run| Part { run: *run, same: None }).collect();
                Looked { parts, contents: 0 }
            }
        })
    }

    fn look_at_blocks(
        &mut self,
        ino: Ino,
        size: u64,
        runs: &[DataRun],
        file: &ContentFile,
    ) -> Result<Looked, BuildError> {
        let mut looked = Looked { parts: Vec::new(), contents: 0 };
        let mut buffer = std::mem::take(&mut self.buffer);
        for run in runs {
            each_piece(file, *run, &mut buffer, |offset, bytes| {
                self.split(ino, size, (offset, bytes), &mut looked);
            })?;
        }
        self.buffer = buffer;
        Ok(looked)
    }

    /// Whether files are looked at as a whole.
    pub(super) fn is_by_file(&self) -> bool {
        self.unit == Dedupe::Files
    }

    /// The part that is all of a file which was read as a whole, if somebody has the same; else it is the first of
    /// its kind.
    pub(super) fn whole(&mut self, ino: Ino, file: WholeFile) -> Option<Part> {
        let WholeFile { hash, size, data_len } = file;
        let same = known_or_new(&mut self.table, hash.finalize().into(), (ino, 0))?;
        self.shared_bytes += data_len;
        // With its holes: runs may end within blocks.
        Some(Part { run: DataRun { offset: 0, len: size }, same: Some(same) })
    }

    /// Adds the parts that some bytes of a file are, which begin at an offset.
    pub(super) fn split(
        &mut self,
        ino: Ino,
        size: u64,
        (offset, bytes): (u64, &[u8]),
        looked: &mut Looked,
    ) {
        let block_size = self.device.block_size();
        for (at, block) in blocks_in(offset, bytes, block_size) {
            let len = block.len() as u64;
            let is_whole = at.is_multiple_of(block_size) && (len == block_size || at + len == size);
            let sum = || Sha256::digest(block).into();
            let same = is_whole.then(|| known_or_new(&mut self.table, sum(), (ino, at))).flatten();
            if same.is_some() {
                self.shared_bytes += len;
                looked.contents = looked.contents.wrapping_add(identity::contents_term(at, block));
            }
            add(&mut looked.parts, at, len, same);
        }
    }
}

/// A file whose bytes are read in order, to be looked up as a whole.
pub(super) struct WholeFile {
    hash: Sha256,
    size: u64,
    data_len: u64,
}

impl WholeFile {
    pub(super) fn new(size: u64) -> Self {
        let mut hash = Sha256::new();
        hash.update(size.to_le_bytes());
        Self { hash, size, data_len: 0 }
    }

    /// Begins a run of data.
    pub(super) fn begin(&mut self, run: &DataRun) {
        self.hash.update(run.offset.to_le_bytes());
        self.hash.update(run.len.to_le_bytes());
        self.data_len += run.len;
    }

    /// Adds the next bytes of it.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
    }
}

/// Where the first contents of this sum are; `place`, from now on, if there are none.
fn known_or_new(
    table: &mut HashMap<Sum, (Ino, u64)>,
    sum: Sum,
    place: (Ino, u64),
) -> Option<(Ino, u64)> {
    match table.entry(sum) {
        Entry::Occupied(known) => Some(*known.get()),
        Entry::Vacant(new) => {
            new.insert(place);
            None
        }
    }
}

/// Reads a run in pieces that end where blocks do.
fn each_piece(
    file: &ContentFile,
    run: DataRun,
    buffer: &mut [u8],
    mut each: impl FnMut(u64, &[u8]),
) -> Result<(), BuildError> {
    let (mut at, end) = (run.offset, run.offset + run.len);
    while at < end {
        let room = buffer.len() as u64 - at % buffer.len() as u64;
        let piece = &mut buffer[..room.min(end - at) as usize];
        file.read_at(at, piece)?;
        each(at, piece);
        at += piece.len() as u64;
    }
    Ok(())
}

/// The blocks that some bytes lie in, each with its first byte in the file; those at the ends may be parts of blocks.
fn blocks_in(offset: u64, bytes: &[u8], block_size: u64) -> impl Iterator<Item = (u64, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let at = offset + (bytes.len() - rest.len()) as u64;
        let len = (block_size - at % block_size).min(rest.len() as u64);
        let (block, more) = rest.split_at(len as usize);
        rest = more;
        (len > 0).then_some((at, block))
    })
}

/// Adds a part, which may go on where the last one ends.
fn add(parts: &mut Vec<Part>, offset: u64, len: u64, same: Option<(Ino, u64)>) {
    if let Some(last) = parts.last_mut()
        && last.run.offset + last.run.len == offset
    {
        let expected = last.same.map(|(ino, at)| (ino, at + last.run.len));
        // A part of a block is not followed by anything in the file that it is from.
        if expected == same {
            last.run.len += len;
            return;
        }
    }
    parts.push(Part { run: DataRun { offset, len }, same });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_cut_where_blocks_end() {
        let bytes = [0; 10_000];
        let cut = |offset| {
            blocks_in(offset, &bytes, 4096).map(|(at, block)| (at, block.len())).collect::<Vec<_>>()
        };
        assert_eq!(cut(0), [(0, 4096), (4096, 4096), (8192, 1808)]);
        assert_eq!(cut(4000), [(4000, 96), (4096, 4096), (8192, 4096), (12_288, 1712)]);
    }

    #[test]
    fn parts_that_go_on_are_one() {
        let mut parts = Vec::new();
        let from = |at| Some((Ino(7), at));
        for (at, same) in
            [(0, None), (1, None), (2, from(10)), (3, from(11)), (4, from(13)), (5, None)]
        {
            add(&mut parts, at * 4096, 4096, same.map(|(ino, at): (Ino, u64)| (ino, at * 4096)));
        }
        let found: Vec<_> = parts.iter().map(|part| (part.run.len / 4096, part.same)).collect();
        let expected = [(2, None), (2, from(10 * 4096)), (1, from(13 * 4096)), (1, None)];
        assert_eq!(found, expected);
    }
}
