//! Inodes: fields, mappings and extended attributes.

use ext4::format::address::FileBlock;
use ext4::format::inode::{self, Inode, Time, flags};
use vfs::{Error as FsError, FileSystem, FileType, Ino};

use super::{Dump, Fields, Source};
use crate::dump::bytes::bytes_text;
use crate::dump::xattrs::add_xattrs;
use crate::text::{hex, rfc3339, type_word};

/// Maximum number of extents in the output.
const RUNS_MAX: usize = 10_000;

/// Names of `i_flags`.
const FLAG_NAMES: [(u32, &str); 22] = [
    (0x1, "SECRM"),
    (0x2, "UNRM"),
    (0x4, "COMPR"),
    (0x8, "SYNC"),
    (0x10, "IMMUTABLE"),
    (flags::APPEND, "APPEND"),
    (0x40, "NODUMP"),
    (0x80, "NOATIME"),
    (flags::ENCRYPT, "ENCRYPT"),
    (flags::INDEX, "INDEX"),
    (0x2000, "IMAGIC"),
    (0x4000, "JOURNAL_DATA"),
    (0x8000, "NOTAIL"),
    (0x1_0000, "DIRSYNC"),
    (flags::TOPDIR, "TOPDIR"),
    (flags::HUGE_FILE, "HUGE_FILE"),
    (flags::EXTENTS, "EXTENTS"),
    (flags::VERITY, "VERITY"),
    (flags::EA_INODE, "EA_INODE"),
    (flags::INLINE_DATA, "INLINE_DATA"),
    (0x2000_0000, "PROJINHERIT"),
    (flags::CASEFOLD, "CASEFOLD"),
];

impl Source {
    /// Returns an inode's raw bytes with its block and offset.
    pub(super) fn slot(&self, ino: Ino) -> vfs::Result<(u64, usize, Vec<u8>)> {
        let missing = FsError::Invalid("no such inode; the superblock has the number of inodes");
        let (group, index) = self.geometry().place_of(ino).ok_or(missing)?;
        let (descriptor, damage) = self.descriptor(group)?;
        let Some(descriptor) = descriptor else {
            let problem = damage.unwrap_or_default();
            return Err(vfs::Corruption::new("group descriptor", problem).into());
        };
        let (block, offset) = self.geometry().inode_position(descriptor.inode_table, index);
        let bytes = self.bytes(block)?;
        let slot = bytes.get(offset..offset + usize::from(self.sb().inode_size));
        Ok((block.0, offset, slot.unwrap_or_default().to_vec()))
    }

    pub(super) fn inode_fields(&self, ino: Ino) -> vfs::Result<Dump> {
        let (block, offset, slot) = self.slot(ino)?;
        let inode = Inode::from_slot(&slot);
        let mut dump = Dump::default();
        dump.fields.add("inode", ino.0);
        dump.fields.add("block", block);
        dump.fields.add("offset", offset as u64);
        self.fixed_fields(&inode, &mut dump.fields);
        self.checksum(ino, &inode, &slot, &mut dump);
        self.contents(ino, &inode, &mut dump);
        match self.fs.encryption_policy(ino) {
            Ok(Some(policy)) => dump.fields.add("encryption_policy", policy),
            // A free inode has no policy.
            Ok(None) | Err(FsError::NotFound) => {}
            Err(error) => dump.problem(error),
        }
        if let Err(error) = add_xattrs(&self.fs, ino, &mut dump.fields) {
            match error {
                // A free inode has no attributes.
                FsError::NotFound => {}
                error => dump.problem(error),
            }
        }
        Ok(dump)
    }

    fn fixed_fields(&self, inode: &Inode, fields: &mut Fields) {
        fields.add("mode", format!("{:#o}", inode.mode()));
        fields.add("type", inode.file_type().map_or("none", type_word));
        fields.add("links_count", inode.links_count());
        fields.add("uid", inode.uid());
        fields.add("gid", inode.gid());
        fields.add("size", inode.size());
        fields.add("blocks_512", inode.blocks_512(self.geometry().block_size()));
        let names = FLAG_NAMES.iter().filter(|(flag, _)| inode.has_flag(*flag));
        fields.hex("flags", inode.flags());
        fields.add("flag_names", names.map(|&(_, name)| name).collect::<Vec<_>>());
        fields.add("generation", inode.generation());
        fields.add("dtime", inode.dtime());
        fields.add("file_acl", inode.file_acl());
        fields.add("extra_isize", inode.extra_isize());
        fields.add("atime", rfc3339(inode.time(Time::Access)));
        fields.add("ctime", rfc3339(inode.time(Time::Change)));
        fields.add("mtime", rfc3339(inode.time(Time::Modify)));
        if let Some(crtime) = inode.crtime() {
            fields.add("crtime", rfc3339(crtime));
        }
    }

    fn checksum(&self, ino: Ino, inode: &Inode, slot: &[u8], dump: &mut Dump) {
        let is_empty = slot.iter().all(|&byte| byte == 0);
        let Some(seed) = self.seed_of(ino, inode.generation()).filter(|_| !is_empty) else {
            dump.fields.add("checksum_state", "none");
            return;
        };
        let (computed, stored) = inode::slot_checksums(seed, slot);
        dump.fields.hex("checksum", stored);
        dump.fields.add("checksum_state", if computed == stored { "right" } else { "wrong" });
        if computed != stored {
            dump.problem(vfs::Corruption::checksum("inode", computed, stored).of_inode(ino.0));
        }
    }

    /// Adds the contents of `i_block`.
    fn contents(&self, ino: Ino, inode: &Inode, dump: &mut Dump) {
        dump.fields.add("i_block", hex(inode.i_block()));
        match inode.file_type() {
            None => return,
            Some(FileType::CharDevice | FileType::BlockDevice) => {
                let device = inode.device();
                dump.fields.add("major", device.major);
                dump.fields.add("minor", device.minor);
                return;
            }
            Some(FileType::Fifo | FileType::Socket) => return,
            Some(FileType::Symlink) => match self.fs.readlink(ino) {
                Ok(target) => dump.fields.add("target", bytes_text(&target)),
                Err(error) => dump.problem(error),
            },
            Some(FileType::Regular | FileType::Directory) => {}
        }
        let is_mapped = inode.blocks_512(self.geometry().block_size()) > 0;
        if inode.has_flag(flags::INLINE_DATA) || !is_mapped {
            return;
        }
        let mut runs = Vec::new();
        if let Err(error) = self.runs(ino, inode.size(), &mut runs) {
            dump.problem(error);
        }
        dump.fields.add("runs", runs);
    }

    /// Adds the mapped extents of an inode, without holes.
    fn runs(&self, ino: Ino, size: u64, runs: &mut Vec<Fields>) -> vfs::Result<()> {
        let blocks = size.div_ceil(self.geometry().block_size().into());
        let mut at = 0;
        while at < blocks && runs.len() < RUNS_MAX {
            let Ok(first) = u32::try_from(at) else { break };
            let run = self.fs.block_run(ino, FileBlock(first))?;
            if let Some(start) = run.start {
                let mut fields = Fields::default();
                fields.add("file_block", first);
                fields.add("len", run.len);
                fields.add("block", start.0);
                fields.add("unwritten", run.unwritten);
                runs.push(fields);
            }
            at += run.len.max(1);
        }
        Ok(())
    }
}
