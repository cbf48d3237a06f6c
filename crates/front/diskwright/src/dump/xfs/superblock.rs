//! The superblock.

use disk::BlockDevice;
use vfs::{Corruption, Error};
use xfs::format::features::Incompat;
use xfs::format::superblock::{RawSuperblock, Superblock};
use zerocopy::FromBytes;

use super::{Dump, Fields};
use crate::dump::bytes::bytes_text;
use crate::text::uuid_text;

/// Maximum sector size in bytes, which is the maximum that the checksum covers.
const SECTOR_SIZE_MAX: u64 = 32 << 10;

/// Dumps the superblock, even if it is damaged.
pub(in crate::dump) fn dump(device: &dyn BlockDevice) -> vfs::Result<Dump> {
    let mut bytes = vec![0; device.len().min(SECTOR_SIZE_MAX) as usize];
    device.read_at(0, &mut bytes).map_err(Error::Device)?;
    let Ok((raw, _)) = RawSuperblock::read_from_prefix(&bytes) else {
        return Err(Corruption::new("superblock", "the image is too short for one").into());
    };
    let mut dump = Dump::default();
    sizes(&raw, &mut dump.fields);
    counts(&raw, &mut dump.fields);
    features(&raw, &mut dump.fields);
    special_files(&raw, &mut dump.fields);
    match Superblock::parse(&bytes, device.len()) {
        Ok(sb) if sb.features.crc() => dump.fields.add("checksum_state", "right"),
        Ok(_) => dump.fields.add("checksum_state", "none"),
        Err(error) => dump.problem(error),
    }
    Ok(dump)
}

fn sizes(raw: &RawSuperblock, fields: &mut Fields) {
    fields.hex("magicnum", raw.magicnum.get());
    fields.add("blocksize", raw.blocksize);
    fields.add("dblocks", raw.dblocks);
    fields.add("rblocks", raw.rblocks);
    fields.add("rextents", raw.rextents);
    fields.add("uuid", uuid_text(&raw.uuid));
    fields.add("meta_uuid", uuid_text(&raw.meta_uuid));
    let label_len = raw.fname.iter().position(|&byte| byte == 0).unwrap_or(raw.fname.len());
    fields.add("fname", bytes_text(&raw.fname[..label_len]));
    fields.add("agblocks", raw.agblocks);
    fields.add("agcount", raw.agcount);
    fields.add("sectsize", raw.sectsize);
    fields.add("inodesize", raw.inodesize);
    fields.add("inopblock", raw.inopblock);
    fields.add("agblklog", raw.agblklog);
    fields.add("dirblklog", raw.dirblklog);
    fields.add("inoalignmt", raw.inoalignmt);
    fields.add("spino_align", raw.spino_align);
    fields.add("unit", raw.unit);
    fields.add("width", raw.width);
    fields.add("imax_pct", raw.imax_pct);
    fields.add("logstart", raw.logstart);
    fields.add("logblocks", raw.logblocks);
    fields.add("logsectsize", raw.logsectsize);
    fields.add("logsunit", raw.logsunit);
}

fn counts(raw: &RawSuperblock, fields: &mut Fields) {
    fields.add("inprogress", raw.inprogress);
    fields.add("icount", raw.icount);
    fields.add("ifree", raw.ifree);
    fields.add("fdblocks", raw.fdblocks);
    fields.add("frextents", raw.frextents);
    fields.hex("lsn", raw.lsn.get());
    fields.hex("crc", u32::from_le_bytes(raw.crc));
}

fn features(raw: &RawSuperblock, fields: &mut Fields) {
    fields.hex("versionnum", raw.versionnum.get());
    fields.hex("features2", raw.features2.get());
    fields.hex("bad_features2", raw.bad_features2.get());
    fields.hex("features_compat", raw.features_compat.get());
    fields.hex("features_ro_compat", raw.features_ro_compat.get());
    fields.hex("features_incompat", raw.features_incompat.get());
    fields.hex("features_log_incompat", raw.features_log_incompat.get());
    let names = raw.features().names().into_iter().flat_map(|(_, names)| names);
    fields.add("features", names.collect::<Vec<_>>());
}

fn special_files(raw: &RawSuperblock, fields: &mut Fields) {
    fields.add("rootino", raw.rootino);
    fields.add("rbmino", raw.rbmino);
    fields.add("rsumino", raw.rsumino);
    fields.add("uquotino", raw.uquotino);
    fields.add("gquotino", raw.gquotino);
    fields.add("pquotino", raw.pquotino);
    if raw.features().incompat(Incompat::METADIR) {
        fields.add("metadirino", raw.metadirino);
        fields.add("rgcount", raw.rgcount);
        fields.add("rgextents", raw.rgextents);
        fields.add("rgblklog", raw.rgblklog);
    }
    fields.hex("qflags", raw.qflags.get());
    fields.hex("flags", raw.flags);
}
