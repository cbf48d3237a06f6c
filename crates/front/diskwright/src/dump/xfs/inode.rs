//! Inodes: fields, mappings, extended attributes and parents.

use vfs::{Error as FsError, FileSystem, FileType, Ino};
use xfs::format::address::FileBlock;
use xfs::format::checksum;
use xfs::format::inode::{self, Fork, ForkFormat, Inode, Time, flags, flags2};

use super::{Dump, Fields, Source};
use crate::dump::bytes::bytes_text;
use crate::dump::xattrs::add_xattrs;
use crate::text::{rfc3339, type_word};

/// Maximum number of extents in the output.
const RUNS_MAX: usize = 10_000;

/// Names of `di_flags`.
const FLAG_NAMES: [(u16, &str); 14] = [
    (flags::REALTIME, "REALTIME"),
    (flags::PREALLOC, "PREALLOC"),
    (1 << 2, "NEWRTBM"),
    (flags::IMMUTABLE, "IMMUTABLE"),
    (flags::APPEND, "APPEND"),
    (1 << 5, "SYNC"),
    (1 << 6, "NOATIME"),
    (1 << 7, "NODUMP"),
    (1 << 8, "RTINHERIT"),
    (flags::PROJINHERIT, "PROJINHERIT"),
    (1 << 10, "NOSYMLINKS"),
    (1 << 11, "EXTSIZE"),
    (1 << 12, "EXTSZINHERIT"),
    (1 << 13, "NODEFRAG"),
];
/// Names of `di_flags2`.
const FLAG2_NAMES: [(u64, &str); 6] = [
    (1, "DAX"),
    (flags2::REFLINK, "REFLINK"),
    (1 << 2, "COWEXTSIZE"),
    (flags2::BIGTIME, "BIGTIME"),
    (flags2::NREXT64, "NREXT64"),
    (flags2::METADATA, "METADATA"),
];

impl Source {
    pub(super) fn inode_fields(&self, ino: Ino) -> vfs::Result<Dump> {
        let byte = self.fs.inode_byte(ino);
        let byte = byte.ok_or(FsError::Invalid("invalid inode number for this image"))?;
        let slot = self.bytes(byte, self.geometry().inode_size())?;
        let mut dump = Dump::default();
        dump.fields.add("inode", ino.0);
        dump.fields.add("block", byte >> self.geometry().block_log);
        dump.fields.add("offset", byte & (self.geometry().block_size() as u64 - 1));
        let core = Inode::from_slot(&slot);
        self.fixed_fields(&core, &mut dump.fields);
        let crc = checksum::check("inode", &slot, inode::CRC_OFFSET);
        let state = match (self.has_crc(), crc) {
            (false, _) => "none",
            (true, Ok(())) => "right",
            (true, Err(_)) => "wrong",
        };
        dump.fields.add("checksum_state", state);
        if let Err(damage) = inode::verify_slot(self.geometry(), ino, &slot) {
            dump.problem(damage);
        }
        if core.mode() != 0 {
            self.data_fork(ino, &core, &mut dump);
            self.attr_fork(ino, &core, &mut dump);
            self.parents(ino, &mut dump);
        }
        Ok(dump)
    }

    fn fixed_fields(&self, inode: &Inode, fields: &mut Fields) {
        fields.add("mode", format!("{:#o}", inode.mode()));
        fields.add("type", inode.file_type().map_or("none", type_word));
        fields.add("nlink", inode.nlink());
        if inode.is_metadata() {
            fields.add("metatype", inode.metafile_type().name());
        }
        fields.add("uid", inode.uid());
        fields.add("gid", inode.gid());
        fields.add("projid", inode.projid());
        fields.add("size", inode.size());
        fields.add("nblocks", inode.nblocks());
        fields.add("gen", inode.generation());
        let names = FLAG_NAMES.iter().filter(|(flag, _)| inode.flags() & flag != 0);
        fields.add("flags", names.map(|&(_, name)| name).collect::<Vec<_>>());
        let names = FLAG2_NAMES.iter().filter(|(flag, _)| inode.flags2() & flag != 0);
        fields.add("flags2", names.map(|&(_, name)| name).collect::<Vec<_>>());
        if inode.next_unlinked() != u32::MAX {
            fields.add("next_unlinked", inode.next_unlinked());
        }
        let times = [
            ("atime", Time::Access),
            ("mtime", Time::Modify),
            ("ctime", Time::Change),
            ("crtime", Time::Create),
        ];
        for (name, which) in times {
            if let Some(time) = inode.time(which) {
                fields.add(name, rfc3339(time));
            }
        }
    }

    fn data_fork(&self, ino: Ino, inode: &Inode, dump: &mut Dump) {
        let format = inode.format();
        dump.fields.add("format", format_word(format));
        match inode.file_type() {
            Some(FileType::CharDevice | FileType::BlockDevice) => {
                dump.fields.add("major", inode.device().major);
                dump.fields.add("minor", inode.device().minor);
            }
            Some(FileType::Symlink) => match self.fs.readlink(ino) {
                Ok(target) => dump.fields.add("target", bytes_text(&target)),
                Err(error) => dump.problem(error),
            },
            _ => {}
        }
        self.fork(ino, inode, Fork::Data, ("nextents", "runs"), dump);
    }

    fn attr_fork(&self, ino: Ino, inode: &Inode, dump: &mut Dump) {
        dump.fields.add("forkoff", inode.forkoff_bytes() as u64);
        let Some(format) = inode.attr_format().filter(|_| inode.has_attr_fork()) else { return };
        dump.fields.add("aformat", format_word(format));
        self.fork(ino, inode, Fork::Attr, ("anextents", "attr_runs"), dump);
        if let Err(error) = add_xattrs(&self.fs, ino, &mut dump.fields) {
            dump.problem(error);
        }
    }

    /// Adds the bytes of a fork, or its extents.
    fn fork(
        &self,
        ino: Ino,
        inode: &Inode,
        fork: Fork,
        (count, runs): (&'static str, &'static str),
        dump: &mut Dump,
    ) {
        if !matches!(inode.fork_format(fork), ForkFormat::Extents | ForkFormat::Btree) {
            return;
        }
        dump.fields.add(count, inode.extents(fork));
        let mut list = Vec::new();
        if let Err(error) = self.runs(ino, fork, &mut list) {
            dump.problem(error);
        }
        dump.fields.add(runs, list);
    }

    /// Adds the mapped extents of a fork, without holes.
    fn runs(&self, ino: Ino, fork: Fork, runs: &mut Vec<Fields>) -> vfs::Result<()> {
        let mut at = 0;
        // Limit of a hole and an extent per step, so that the loop always ends.
        for _ in 0..2 * RUNS_MAX {
            if at >= FileBlock::END.0 {
                break;
            }
            let run = self.fs.block_run(ino, fork, FileBlock(at))?;
            if let Some(start) = run.start {
                let mut fields = Fields::default();
                fields.add("file_block", at);
                fields.add("len", run.len);
                fields.add("block", start.0);
                fields.add("unwritten", run.unwritten);
                runs.push(fields);
            }
            at = at.saturating_add(run.len.max(1));
        }
        Ok(())
    }

    fn parents(&self, ino: Ino, dump: &mut Dump) {
        let mut list = Vec::new();
        let known = self.fs.parents(ino, &mut |dir, name| {
            let mut parent = Fields::default();
            parent.add("inode", dir.0);
            parent.add("name", bytes_text(name));
            list.push(parent);
        });
        match known {
            Ok(true) => dump.fields.add("parents", list),
            Ok(false) => {}
            Err(error) => dump.problem(error),
        }
    }
}

fn format_word(format: ForkFormat) -> &'static str {
    match format {
        ForkFormat::Device => "device",
        ForkFormat::Local => "local",
        ForkFormat::Extents => "extents",
        ForkFormat::Btree => "btree",
        ForkFormat::MetaBtree => "metadata btree",
    }
}
