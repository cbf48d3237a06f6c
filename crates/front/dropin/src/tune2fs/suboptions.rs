//! Suboptions of `-E`, `-J` and `-Q`.

use ext4::format::superblock::STATE_ERROR;

use super::{Args, name};
use crate::failure::{Failure, STATUSES};
use crate::journal_device;
use crate::lists::{self, ListItem};
use crate::mke2fs::{TEST_FILE_SYSTEM, fast_commit_bytes, place};

/// `s_encoding_flags`: reject invalid names.
const ENCODING_STRICT: u16 = 1;
/// Maximum update interval of the MMP block in seconds.
const MMP_INTERVAL_MAX: u16 = 300;
/// Unit of `-J size` in bytes.
const MIB: u64 = 1 << 20;

/// Parses `-J`. A size or a device requests a journal; as in the original, the others describe that of `-j`.
pub(super) fn journal(args: &mut Args, list: &str) -> Result<(), Failure> {
    for item in lists::items(list, 'J', STATUSES) {
        match item.name {
            "size" => {
                let bytes = |text: &str| {
                    let mib = text.parse::<u64>().ok().and_then(|mib| mib.checked_mul(MIB));
                    mib.ok_or_else(|| "write a number of MiB".to_owned())
                };
                args.request.journal.bytes = Some(item.by(bytes)?);
                args.add_journal();
            }
            "device" => {
                args.journal_device = Some(journal_device::path(item.text()?));
                args.add_journal();
            }
            "location" => args.request.journal.position = Some(item.by(place)?),
            "fast_commit_size" => {
                args.request.journal.fast_commit_bytes = Some(item.by(fast_commit_bytes)?);
            }
            _ => return Err(item.unknown()),
        }
    }
    Ok(())
}

/// Parses `-Q`: quota types to enable, or with `^` to disable.
pub(super) fn quota(args: &mut Args, list: &str) -> Result<(), Failure> {
    for item in lists::items(list, 'Q', STATUSES) {
        let (kind, is_on) = item.name.strip_prefix('^').map_or((item.name, true), |k| (k, false));
        let at = ["usrquota", "grpquota", "prjquota"].iter().position(|known| *known == kind);
        args.request.quotas[at.ok_or_else(|| item.unknown())?] = Some(is_on);
    }
    Ok(())
}

/// Parses the hash version of new directories.
fn hash_version(text: &str) -> Result<u8, String> {
    let names = ["legacy", "half_md4", "tea"];
    let found = (0..).zip(names).find(|(_, name)| *name == text);
    found.map(|(version, _)| version).ok_or_else(|| "write legacy, half_md4 or tea".into())
}

/// Parses one item of `-E`.
pub(super) fn extended(args: &mut Args, item: &ListItem<'_>) -> Result<(), Failure> {
    let number = |text: &str| text.parse::<u32>().map_err(|_| "write a number".to_owned());
    match item.name {
        "stride" => {
            let blocks =
                u16::try_from(item.by(number)?).map_err(|_| item.wrong("must be at most 65535"))?;
            args.add(move |raw| raw.raid_stride = blocks.into());
        }
        "stripe_width" | "stripe-width" => {
            let blocks = item.by(number)?;
            args.add(move |raw| raw.raid_stripe_width = blocks.into());
        }
        "mount_opts" => {
            let options = name::<64>(item.text()?.as_bytes());
            args.add(move |raw| raw.mount_opts = options);
        }
        "hash_alg" => {
            let version = item.by(hash_version)?;
            args.add(move |raw| raw.def_hash_version = version);
        }
        "test_fs" | "^test_fs" => {
            let is_on = item.name == "test_fs";
            args.add(move |raw| {
                let others = raw.flags.get() & !TEST_FILE_SYSTEM;
                raw.flags = (others | if is_on { TEST_FILE_SYSTEM } else { 0 }).into();
            });
        }
        "force_fsck" => {
            args.add(|raw| raw.state = (raw.state.get() | STATE_ERROR).into());
        }
        "mmp_update_interval" => {
            let seconds = item.by(number)?;
            let most = u32::from(MMP_INTERVAL_MAX);
            if seconds > most {
                return Err(item.wrong(&format!("must be at most {most} seconds")));
            }
            // 0 selects the default interval.
            let seconds = if seconds == 0 { 5 } else { seconds as u16 };
            args.add(move |raw| raw.mmp_interval = seconds.into());
        }
        "clear_mmp" => args.request.clears_mmp = true,
        "orphan_file_size" => {
            let blocks = item.by(number)?;
            args.request.orphan_blocks = Some(blocks.into());
        }
        "encoding" => {
            let is_utf8 = matches!(item.text()?, "utf8" | "utf8-12.1");
            if !is_utf8 {
                return Err(item.wrong("must be utf8"));
            }
            args.request.encoding_flags.get_or_insert(0);
        }
        "encoding_flags" => {
            let flags = match item.text()? {
                "strict" => ENCODING_STRICT,
                "nostrict" | "^strict" => 0,
                _ => return Err(item.wrong("must be strict or nostrict")),
            };
            args.request.encoding_flags = Some(flags);
        }
        "revision" => return Err(item.refused("it can be set only at creation")),
        _ => return Err(item.unknown()),
    }
    Ok(())
}
