//! Files of suboptions that `mkfs.xfs -c makecfg=FILE` writes, for `-c defaults=FILE` and `options=FILE`: features, and
//! sizes that do not depend on that of the device.

use std::fmt::Write as _;
use std::path::Path;

use xfs::format::quota::QuotaKind;

use super::args::Args;
use crate::failure::{Ended, Failure, STATUSES};

/// Features of each section in the order of the original, and whether they are on by default.
const METADATA: [(&str, bool); 7] = [
    ("crc", true),
    ("finobt", true),
    ("rmapbt", true),
    ("reflink", true),
    ("inobtcount", true),
    ("bigtime", true),
    ("metadir", false),
];
const INODES: [&str; 3] = ["sparse", "nrext64", "exchange"];
/// Suboptions of quotas that are enforced, and of those that are not.
const QUOTAS: [(QuotaKind, &str, &str); 3] = [
    (QuotaKind::User, "uquota", "uqnoenforce"),
    (QuotaKind::Group, "gquota", "gqnoenforce"),
    (QuotaKind::Project, "pquota", "pqnoenforce"),
];

/// Writes the file instead of a file system. An existing file is replaced.
pub(super) fn write(args: &Args, file: &Path) -> Ended {
    std::fs::write(file, text(args)?)
        .map_err(|e| STATUSES.failed(format_args!("{}: {e}", file.display())))?;
    Ok(0)
}

/// Returns the contents of the file.
fn text(args: &Args) -> Result<String, Failure> {
    // Writing to a string cannot fail.
    let mut text = "[block]\n".to_owned();
    if args.block_size.is_some() {
        let _ = writeln!(text, "size={}", args.block_bytes());
    }
    text += "\n[metadata]\n";
    for (name, is_usual) in METADATA {
        let _ = writeln!(text, "{name}={}", bit(args, name, is_usual));
    }
    if let Some(autofsck) = args.autofsck() {
        let _ = writeln!(text, "autofsck={}", autofsck.value());
    }
    for (kind, enforced, accounted) in QUOTAS {
        if args.quota_flags & kind.accounted() != 0 {
            let is_enforced = args.quota_flags & kind.enforced() != 0;
            let _ = writeln!(text, "{}=1", if is_enforced { enforced } else { accounted });
        }
    }
    text += "\n[data]\n\n[inode]\n";
    for name in INODES {
        let _ = writeln!(text, "{name}={}", bit(args, name, true));
    }
    add_size(&mut text, "size", args.inode_size()?);
    text += "\n[log]\n\n[naming]\n";
    let version = if args.is_named("ascii-ci") { "ci" } else { "2" };
    let parent = bit(args, "parent", true);
    let _ = writeln!(text, "parent={parent}\nftype=1\nversion={version}");
    add_size(&mut text, "size", args.dir_block_size);
    text += "\n[realtime]\n";
    add_size(&mut text, "extsize", args.realtime_extent_bytes()?);
    Ok(text)
}

fn add_size(text: &mut String, name: &str, bytes: Option<u32>) {
    if let Some(bytes) = bytes {
        let _ = writeln!(text, "{name}={bytes}");
    }
}

/// Returns whether the file system would have a feature, as a digit.
fn bit(args: &Args, name: &str, is_usual: bool) -> u8 {
    // A realtime section without groups has neither reverse map nor shared blocks, and counts of inode blocks need finobt.
    let is_possible = match name {
        "rmapbt" | "reflink" => args.realtime_device.is_none() || args.is_named("metadir"),
        "inobtcount" => args.is_on("finobt"),
        _ => true,
    };
    let is_on = if is_usual { args.is_on(name) } else { args.is_named(name) };
    u8::from(is_on && is_possible)
}
