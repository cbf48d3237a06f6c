//! The superblock.

use disk::BlockDevice;
use ext4::format::superblock::{
    RawSuperblock, STATE_ERROR, STATE_VALID, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};
use vfs::{Corruption, Error, Timestamp};
use zerocopy::FromBytes;

use super::{Dump, Fields};
use crate::text::uuid_text;
use crate::text::{hex, rfc3339};

/// Dumps the superblock, even if it is damaged.
pub(in crate::dump) fn dump(device: &dyn BlockDevice) -> vfs::Result<Dump> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    if device.len() < SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
        return Err(Corruption::new("superblock", "the image is too short for one").into());
    }
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).map_err(Error::Device)?;
    let mut dump = Dump::default();
    if let Ok(raw) = RawSuperblock::read_from_bytes(&bytes) {
        sizes(&raw, &mut dump.fields);
        state(&raw, &mut dump.fields);
        features(&raw, &mut dump.fields);
        special_files(&raw, &mut dump.fields);
        errors(&raw, &mut dump.fields);
    }
    match Superblock::parse(&bytes, device.len()) {
        Ok(sb) if sb.features.metadata_csum() => dump.fields.add("checksum_state", "right"),
        Ok(_) => dump.fields.add("checksum_state", "none"),
        Err(error) => dump.problem(error),
    }
    Ok(dump)
}

fn sizes(raw: &RawSuperblock, fields: &mut Fields) {
    fields.hex("magic", raw.magic.get());
    fields.add("inodes_count", raw.inodes_count);
    fields.add("blocks_count_lo", raw.blocks_count_lo);
    fields.add("blocks_count_hi", raw.blocks_count_hi);
    fields.add("r_blocks_count", raw.reserved_blocks());
    fields.add("free_blocks_count", raw.free_blocks());
    fields.add("free_inodes_count", raw.free_inodes_count);
    fields.add("first_data_block", raw.first_data_block);
    fields.add("log_block_size", raw.log_block_size);
    fields.add("log_cluster_size", raw.log_cluster_size);
    fields.add("blocks_per_group", raw.blocks_per_group);
    fields.add("clusters_per_group", raw.clusters_per_group);
    fields.add("inodes_per_group", raw.inodes_per_group);
    fields.add("inode_size", raw.inode_size);
    fields.add("min_extra_isize", raw.min_extra_isize);
    fields.add("want_extra_isize", raw.want_extra_isize);
    fields.add("desc_size", raw.desc_size);
    fields.add("reserved_gdt_blocks", raw.reserved_gdt_blocks);
    fields.add("first_meta_bg", raw.first_meta_bg);
    fields.add("log_groups_per_flex", raw.log_groups_per_flex);
    fields.add("overhead_clusters", raw.overhead_clusters);
    fields.add("raid_stride", raw.raid_stride);
    fields.add("raid_stripe_width", raw.raid_stripe_width);
}

fn state(raw: &RawSuperblock, fields: &mut Fields) {
    let time = |low: u32, high: u8| {
        rfc3339(Timestamp { sec: i64::from(high) << 32 | i64::from(low), nsec: 0 })
    };
    let state = raw.state.get();
    let names = [(STATE_VALID, "valid"), (STATE_ERROR, "error"), (4, "orphans")];
    let names = names.into_iter().filter(|(bit, _)| state & bit != 0).map(|(_, name)| name);
    fields.add("state", names.collect::<Vec<&str>>());
    fields.add("mkfs_time", time(raw.mkfs_time.get(), raw.mkfs_time_hi));
    fields.add("mtime", time(raw.mtime.get(), raw.mtime_hi));
    fields.add("wtime", time(raw.wtime.get(), raw.wtime_hi));
    fields.add("lastcheck", time(raw.lastcheck.get(), raw.lastcheck_hi));
    fields.add("checkinterval", raw.checkinterval);
    fields.add("mnt_count", raw.mnt_count);
    fields.add("max_mnt_count", u64::from(raw.max_mnt_count.get()));
    fields.add("errors", raw.errors);
    fields.add("creator_os", raw.creator_os);
    fields.add("rev_level", raw.rev_level);
    fields.add("minor_rev_level", raw.minor_rev_level);
    fields.add("def_resuid", raw.def_resuid);
    fields.add("def_resgid", raw.def_resgid);
    fields.add("uuid", uuid_text(&raw.uuid));
    fields.add("volume_name", text(&raw.volume_name));
    fields.add("last_mounted", text(&raw.last_mounted));
    fields.add("kbytes_written", raw.kbytes_written);
}

fn features(raw: &RawSuperblock, fields: &mut Fields) {
    fields.hex("feature_compat", raw.feature_compat.get());
    fields.hex("feature_incompat", raw.feature_incompat.get());
    fields.hex("feature_ro_compat", raw.feature_ro_compat.get());
    fields.add("features", raw.features().names());
    fields.hex("default_mount_opts", raw.default_mount_opts.get());
    fields.hex("flags", raw.flags.get());
    fields.add("def_hash_version", raw.def_hash_version);
    fields.add("hash_seed", uuid_text(&raw.hash_seed));
    fields.add("encoding", raw.encoding);
    fields.hex("encoding_flags", raw.encoding_flags.get());
    fields.add("checksum_type", raw.checksum_type);
    fields.hex("checksum_seed", raw.checksum_seed.get());
    fields.hex("checksum", raw.checksum.get());
}

fn special_files(raw: &RawSuperblock, fields: &mut Fields) {
    fields.add("first_ino", raw.first_ino);
    fields.add("journal_inum", raw.journal_inum);
    fields.add("journal_dev", raw.journal_dev);
    fields.add("journal_uuid", uuid_text(&raw.journal_uuid));
    fields.add("jnl_backup_type", raw.jnl_backup_type);
    fields.add("last_orphan", raw.last_orphan);
    fields.add("orphan_file_inum", raw.orphan_file_inum);
    fields.add("lpf_ino", raw.lpf_ino);
    fields.add("usr_quota_inum", raw.usr_quota_inum);
    fields.add("grp_quota_inum", raw.grp_quota_inum);
    fields.add("prj_quota_inum", raw.prj_quota_inum);
    fields.add("mmp_block", raw.mmp_block);
    fields.add("mmp_interval", raw.mmp_interval);
    fields.add("backup_bgs", raw.backup_bgs.to_vec());
}

fn errors(raw: &RawSuperblock, fields: &mut Fields) {
    fields.add("error_count", raw.error_count);
    if raw.error_count == 0 {
        return;
    }
    fields.add("first_error_ino", raw.first_error_ino);
    fields.add("first_error_block", raw.first_error_block);
    fields.add("first_error_func", text(&raw.first_error_func));
    fields.add("last_error_ino", raw.last_error_ino);
    fields.add("last_error_block", raw.last_error_block);
    fields.add("last_error_func", text(&raw.last_error_func));
}

/// Returns text up to a NUL, or hexadecimal digits if it is not UTF-8.
fn text(bytes: &[u8]) -> String {
    let len = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    std::str::from_utf8(&bytes[..len]).map_or_else(|_| hex(&bytes[..len]), str::to_owned)
}
