//! Directories, block by block.

use std::collections::HashSet;

use ext4::format::address::FileBlock;
use ext4::format::inode::{Inode, flags};
use ext4::format::{dirent, htree};
use vfs::{Error as FsError, FileSystem, Ino};

use super::{Dump, DumpValue, Fields, Source};
use crate::dump::bytes::bytes_text;
use crate::text::type_word;

/// Maximum number of directory blocks in the output.
const BLOCKS_MAX: u64 = 100_000;

/// Type of a directory block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Leaf,
    Root,
    DumpValue,
}

impl Source {
    pub(super) fn directory_blocks(&self, ino: Ino) -> vfs::Result<Dump> {
        let (_, _, slot) = self.slot(ino)?;
        let inode = Inode::from_slot(&slot);
        if !inode.is_dir() {
            return Err(FsError::NotADirectory);
        }
        let mut dump = Dump::default();
        dump.fields.add("inode", ino.0);
        dump.fields.add("size", inode.size());
        dump.fields.add("indexed", inode.has_flag(flags::INDEX));
        if inode.has_flag(flags::INLINE_DATA) {
            self.inline_entries(ino, &mut dump)?;
            return Ok(dump);
        }
        let nodes = self.index_nodes(ino, &inode, &mut dump);
        let blocks = inode.size().div_ceil(self.geometry().block_size().into());
        let mut list = Vec::new();
        for at in 0..blocks.min(BLOCKS_MAX) as u32 {
            let role = match () {
                () if at == 0 && inode.has_flag(flags::INDEX) => Role::Root,
                () if nodes.contains(&at) => Role::DumpValue,
                () => Role::Leaf,
            };
            match self.directory_block(ino, at) {
                Ok(Some((block, bytes))) => {
                    let seed = self.seed_of(ino, inode.generation());
                    list.push(self.block_fields(ino, (at, block), &bytes, role, seed, &mut dump));
                }
                Ok(None) => dump.problem(format!("file block {at} is a hole")),
                Err(error) => dump.problem(error),
            }
        }
        if blocks > BLOCKS_MAX {
            dump.problem(format!("only the first {BLOCKS_MAX} of {blocks} blocks are shown"));
        }
        dump.fields.add("blocks", list);
        Ok(dump)
    }

    fn directory_block(&self, ino: Ino, at: u32) -> vfs::Result<Option<(u64, Vec<u8>)>> {
        let run = self.fs.block_run(ino, FileBlock(at))?;
        let Some(start) = run.start else { return Ok(None) };
        Ok(Some((start.0, self.bytes(start)?)))
    }

    fn inline_entries(&self, ino: Ino, dump: &mut Dump) -> vfs::Result<()> {
        let mut entries = Vec::new();
        self.fs.readdir(ino, vfs::Cookie::default(), &mut |entry| {
            let mut fields = Fields::default();
            fields.add("inode", entry.ino.0);
            fields.add("name", bytes_text(entry.name));
            entries.push(fields);
            std::ops::ControlFlow::Continue(())
        })?;
        dump.fields.add("inline_entries", entries);
        Ok(())
    }

    /// Returns the file blocks of index nodes below the root.
    fn index_nodes(&self, ino: Ino, inode: &Inode, dump: &mut Dump) -> HashSet<u32> {
        let mut nodes = HashSet::new();
        if !inode.has_flag(flags::INDEX) {
            return nodes;
        }
        let Ok(Some((_, root))) = self.directory_block(ino, 0) else { return nodes };
        let levels = htree::root_info(&root).indirect_levels.min(htree::LEVELS_MAX_LARGE);
        let mut parents = vec![(htree::IndexKind::Root, root)];
        for _ in 0..levels {
            let mut children = Vec::new();
            for (place, bytes) in &parents {
                let index = htree::Index::new(bytes, *place);
                for FileBlock(block) in (0..index.count()).map(|at| index.block(at)) {
                    if !nodes.insert(block) {
                        dump.problem(format!("file block {block} is in the index twice"));
                        continue;
                    }
                    if let Ok(Some((_, bytes))) = self.directory_block(ino, block) {
                        children.push((htree::IndexKind::Node, bytes));
                    }
                }
            }
            parents = children;
        }
        nodes
    }

    fn block_fields(
        &self,
        ino: Ino,
        (at, block): (u32, u64),
        bytes: &[u8],
        role: Role,
        seed: Option<u32>,
        dump: &mut Dump,
    ) -> Fields {
        let mut fields = Fields::default();
        fields.add("file_block", at);
        fields.add("block", block);
        let verified = match role {
            Role::Leaf => {
                fields.add("kind", "leaf");
                fields.add("entries", self.entries(bytes));
                dirent::verify(bytes, self.sb().inodes_count, seed)
            }
            Role::Root => {
                let info = htree::root_info(bytes);
                fields.add("kind", "dx_root");
                fields.add("hash_version", info.hash_version);
                fields.add("indirect_levels", info.indirect_levels);
                fields.add("dx_entries", dx_entries(bytes, htree::IndexKind::Root));
                htree::verify(bytes, htree::IndexKind::Root, seed)
            }
            Role::DumpValue => {
                fields.add("kind", "dx_node");
                fields.add("dx_entries", dx_entries(bytes, htree::IndexKind::Node));
                htree::verify(bytes, htree::IndexKind::Node, seed)
            }
        };
        match verified {
            Ok(()) => fields.add("checksum", if seed.is_some() { "right" } else { "none" }),
            Err(damage) => dump.problem(damage.of_inode(ino.0).at_block(block)),
        }
        fields
    }

    fn entries(&self, block: &[u8]) -> Vec<DumpValue> {
        let record = |record: dirent::DirRecord<'_>| {
            let mut fields = Fields::default();
            fields.add("offset", record.offset as u64);
            fields.add("rec_len", record.rec_len as u64);
            fields.add("inode", record.inode);
            if self.has_filetype() {
                let file_type = dirent::file_type_from_code(record.file_type);
                fields.add("type", file_type.map_or("unknown", type_word));
            }
            fields.add("name", bytes_text(record.name));
            DumpValue::Fields(fields)
        };
        dirent::entries(block).map(record).collect()
    }
}

fn dx_entries(block: &[u8], place: htree::IndexKind) -> Vec<Fields> {
    let index = htree::Index::new(block, place);
    let entry = |at| {
        let mut fields = Fields::default();
        fields.hex("hash", index.hash(at));
        fields.add("file_block", index.block(at).0);
        fields
    };
    (0..index.count()).map(entry).collect()
}
