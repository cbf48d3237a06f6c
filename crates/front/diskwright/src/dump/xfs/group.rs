//! Headers of an allocation group: AGF, AGI and AGFL.

use vfs::{Corruption, Error as FsError};
use xfs::format::address::AgNumber;
use xfs::format::ag::{self, RawAgf, RawAgfl, RawAgi};
use xfs::format::checksum;
use zerocopy::FromBytes;

use super::{Dump, Fields, Source};
use crate::text::uuid_text;

/// Null inode or block number.
const NULL: u32 = u32::MAX;

impl Source {
    pub(super) fn headers(&self, number: u32) -> vfs::Result<Dump> {
        let geometry = self.geometry();
        if number >= geometry.ag_count {
            return Err(FsError::Invalid("no such group; the superblock has the number of groups"));
        }
        let ag = AgNumber(number);
        let mut dump = Dump::default();
        dump.fields.add("group", number);
        dump.fields.add("first_block", u64::from(number) * u64::from(geometry.ag_blocks));
        dump.fields.add("blocks", geometry.ag_len(ag));
        self.agf(ag, &mut dump)?;
        self.agi(ag, &mut dump)?;
        self.agfl(ag, &mut dump)?;
        Ok(dump)
    }

    /// Returns the bytes of a header sector.
    fn header(&self, ag: AgNumber, sector: u32) -> vfs::Result<Vec<u8>> {
        self.bytes(self.fs.header_byte(ag, sector), self.geometry().sector_size())
    }

    /// Checks the magic number, checksum and group number.
    fn check(&self, header: &Header<'_>, fields: &mut Fields, dump: &mut Dump) {
        let Header { name, bytes, ag, .. } = *header;
        let mut problem = |damage: Corruption| dump.problem(damage.in_group(ag.0.into()));
        if header.magic.0 != header.magic.1 {
            let wrong = Corruption::new(name, "wrong magic number");
            let hex = |magic| format!("{magic:#010x}");
            problem(wrong.mismatch(hex(header.magic.0), hex(header.magic.1)));
        }
        if header.seqno != ag.0 {
            problem(
                Corruption::new(name, "it belongs to another group").mismatch(ag, header.seqno),
            );
        }
        match checksum::check(name, bytes, header.crc_offset) {
            _ if !self.has_crc() => fields.add("checksum_state", "none"),
            Ok(()) => fields.add("checksum_state", "right"),
            Err(damage) => {
                fields.add("checksum_state", "wrong");
                problem(damage);
            }
        }
    }

    fn agf(&self, ag: AgNumber, dump: &mut Dump) -> vfs::Result<()> {
        let bytes = self.header(ag, ag::AGF_SECTOR)?;
        let Ok((raw, _)) = RawAgf::read_from_prefix(&bytes) else { return Ok(()) };
        let mut fields = Fields::default();
        fields.hex("magicnum", raw.magicnum.get());
        fields.add("versionnum", raw.versionnum);
        fields.add("seqno", raw.seqno);
        fields.add("length", raw.length);
        let trees = ["bno", "cnt", "rmap"].iter().zip(raw.roots.iter().zip(&raw.levels));
        fields.add("roots", trees.map(|(tree, root)| root_text(tree, root)).collect::<Vec<_>>());
        fields.add("flfirst", raw.flfirst);
        fields.add("fllast", raw.fllast);
        fields.add("flcount", raw.flcount);
        fields.add("freeblks", raw.freeblks);
        fields.add("longest", raw.longest);
        fields.add("btreeblks", raw.btreeblks);
        if self.has_crc() {
            fields.add("uuid", uuid_text(&raw.uuid));
            fields.add("rmap_blocks", raw.rmap_blocks);
            fields.add("refcount_blocks", raw.refcount_blocks);
            fields.add("refcount_root", raw.refcount_root);
            fields.add("refcount_level", raw.refcount_level);
            fields.hex("lsn", raw.lsn.get());
            fields.hex("crc", u32::from_le_bytes(raw.crc));
        }
        let header = Header {
            name: "AGF",
            bytes: &bytes,
            ag,
            magic: (ag::AGF_MAGIC, raw.magicnum.get()),
            seqno: raw.seqno.get(),
            crc_offset: std::mem::offset_of!(RawAgf, crc),
        };
        self.check(&header, &mut fields, dump);
        dump.fields.add("agf", fields);
        Ok(())
    }

    fn agi(&self, ag: AgNumber, dump: &mut Dump) -> vfs::Result<()> {
        let bytes = self.header(ag, ag::AGI_SECTOR)?;
        let Ok((raw, _)) = RawAgi::read_from_prefix(&bytes) else { return Ok(()) };
        let mut fields = Fields::default();
        fields.hex("magicnum", raw.magicnum.get());
        fields.add("versionnum", raw.versionnum);
        fields.add("seqno", raw.seqno);
        fields.add("length", raw.length);
        fields.add("count", raw.count);
        fields.add("root", raw.root);
        fields.add("level", raw.level);
        fields.add("freecount", raw.freecount);
        fields.add("newino", raw.newino);
        fields.add("dirino", raw.dirino);
        let heads = raw.unlinked.iter().enumerate().filter(|(_, head)| head.get() != NULL);
        let heads = heads.map(|(bucket, head)| format!("{bucket}:{head}"));
        fields.add("unlinked", heads.collect::<Vec<_>>());
        if self.has_crc() {
            fields.add("uuid", uuid_text(&raw.uuid));
            fields.hex("crc", u32::from_le_bytes(raw.crc));
            fields.hex("lsn", raw.lsn.get());
            fields.add("free_root", raw.free_root);
            fields.add("free_level", raw.free_level);
            fields.add("iblocks", raw.iblocks);
            fields.add("fblocks", raw.fblocks);
        }
        let header = Header {
            name: "AGI",
            bytes: &bytes,
            ag,
            magic: (ag::AGI_MAGIC, raw.magicnum.get()),
            seqno: raw.seqno.get(),
            crc_offset: std::mem::offset_of!(RawAgi, crc),
        };
        self.check(&header, &mut fields, dump);
        dump.fields.add("agi", fields);
        Ok(())
    }

    fn agfl(&self, ag: AgNumber, dump: &mut Dump) -> vfs::Result<()> {
        let bytes = self.header(ag, ag::AGFL_SECTOR)?;
        let mut fields = Fields::default();
        let mut list = &bytes[..];
        if self.has_crc() {
            let Ok((raw, rest)) = RawAgfl::read_from_prefix(&bytes) else { return Ok(()) };
            list = rest;
            fields.hex("magicnum", raw.magicnum.get());
            fields.add("seqno", raw.seqno);
            fields.add("uuid", uuid_text(&raw.uuid));
            fields.hex("lsn", raw.lsn.get());
            fields.hex("crc", u32::from_le_bytes(raw.crc));
            let header = Header {
                name: "AGFL",
                bytes: &bytes,
                ag,
                magic: (ag::AGFL_MAGIC, raw.magicnum.get()),
                seqno: raw.seqno.get(),
                crc_offset: std::mem::offset_of!(RawAgfl, crc),
            };
            self.check(&header, &mut fields, dump);
        }
        let (words, _) = list.as_chunks::<4>();
        let words = words.iter().map(|word| u32::from_be_bytes(*word)).enumerate();
        // Unused slots contain stale values or null.
        let words = words.filter(|(_, block)| *block != NULL && *block != 0);
        let words = words.map(|(slot, block)| format!("{slot}:{block}"));
        fields.add("bno", words.collect::<Vec<_>>());
        dump.fields.add("agfl", fields);
        Ok(())
    }
}

/// Values of a header to check.
struct Header<'a> {
    name: &'static str,
    bytes: &'a [u8],
    ag: AgNumber,
    /// Expected and actual magic number.
    magic: (u32, u32),
    seqno: u32,
    crc_offset: usize,
}

fn root_text(
    tree: &str,
    (root, levels): (&zerocopy::big_endian::U32, &zerocopy::big_endian::U32),
) -> String {
    format!("{tree}:{root}/{levels}")
}
