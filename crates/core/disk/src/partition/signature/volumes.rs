//! Members of RAIDs and volume groups, and encrypted volumes.

use std::io;
use vfs::hint::{Advice, Hint};

use super::probe::{Probe, uuid};
use super::row::At::{End, Start};
use super::row::{ANYWHERE, SignatureRow, bare, of};
use super::{SignatureDetails, Usage};

const OPEN_LUKS: &str = "open it with: cryptsetup open IMAGE NAME; then read /dev/mapper/NAME";
const OPEN_MD: &str = "assemble it with: mdadm --assemble";
const OPEN_LVM: &str = "activate it with: losetup and vgchange -ay; then read the logical volume";

/// `MD_SB_MAGIC` in little-endian order.
const MD: &[u8] = &[0xfc, 0x4e, 0x2b, 0xa9];
/// Each ZFS label has 256 KiB. Uberblocks are in its second half, at least 1 KiB apart.
const ZFS_LABEL_BYTES: u64 = 256 << 10;
const ZFS_UBERBLOCK: [u8; 8] = 0x00ba_b10c_u64.to_le_bytes();

pub(super) const ROWS: &[SignatureRow] = &[
    // Linux, Documentation/admin-guide/md.rst and md(4); include/uapi/linux/raid/md_p.h has the fields.
    SignatureRow {
        name: "linux_raid_member",
        usage: Usage::Raid,
        what: "Linux software RAID members",
        advice: Advice::text(OPEN_MD),
        magics: &[(Start(0), MD), (Start(4096), MD)],
        details: md_1,
    },
    SignatureRow {
        name: "linux_raid_member",
        usage: Usage::Raid,
        what: "Linux software RAID members",
        advice: Advice::text(OPEN_MD),
        // 1.0 is 8 to 12 KiB before the end, at a multiple of 4 KiB; 0.90 is 64 to 128 KiB before it.
        magics: &[ANYWHERE],
        details: md_at_end,
    },
    // lvm2, doc/pvs format: a label in one of the first four sectors.
    SignatureRow {
        name: "LVM2_member",
        usage: Usage::Raid,
        what: "LVM2 physical volumes",
        advice: Advice::text(OPEN_LVM),
        magics: &[
            (Start(512), b"LABELONE"),
            (Start(0), b"LABELONE"),
            (Start(1024), b"LABELONE"),
            (Start(1536), b"LABELONE"),
        ],
        details: lvm2,
    },
    SignatureRow {
        name: "LVM1_member",
        usage: Usage::Raid,
        what: "LVM1 physical volumes",
        advice: Advice::text(OPEN_LVM),
        magics: &[(Start(0), b"HM\x01\0"), (Start(0), b"HM\x02\0")],
        details: bare,
    },
    // LUKS On-Disk Format Specification 1.2.3, and LUKS2 On-Disk Format Specification 1.1.
    SignatureRow {
        name: "crypto_LUKS",
        usage: Usage::Crypto,
        what: "LUKS encrypted volumes",
        advice: Advice::text(OPEN_LUKS),
        magics: &[(Start(0), b"LUKS\xba\xbe")],
        details: luks,
    },
    SignatureRow {
        name: "crypto_LUKS",
        usage: Usage::Crypto,
        what: "LUKS2 encrypted volumes without a valid primary header",
        advice: Advice::text("restore the header with: cryptsetup repair"),
        // Places of the second header, in the LUKS2 specification.
        magics: &[
            (Start(0x4000), b"SKUL\xba\xbe"),
            (Start(0x8000), b"SKUL\xba\xbe"),
            (Start(0x1_0000), b"SKUL\xba\xbe"),
            (Start(0x2_0000), b"SKUL\xba\xbe"),
            (Start(0x4_0000), b"SKUL\xba\xbe"),
        ],
        details: luks,
    },
    // libbde, BitLocker Drive Encryption format: the OEM name of the boot sector.
    SignatureRow {
        name: "BitLocker",
        usage: Usage::Crypto,
        what: "BitLocker volumes",
        advice: Advice::text("open it with: cryptsetup open --type bitlk IMAGE NAME"),
        magics: &[(Start(3), b"-FVE-FS-")],
        details: bare,
    },
    // Linux, Documentation/admin-guide/device-mapper/dm-integrity.rst and verity.rst.
    SignatureRow {
        name: "DM_integrity",
        usage: Usage::Crypto,
        what: "dm-integrity volumes",
        advice: Advice::text("open it with: integritysetup open IMAGE NAME"),
        magics: &[(Start(0), b"integrt\0")],
        details: bare,
    },
    SignatureRow {
        name: "DM_verity_hash",
        usage: Usage::Crypto,
        what: "dm-verity hash trees",
        advice: Advice::text("the file system is on the data device"),
        magics: &[(Start(0), b"verity\0\0")],
        details: bare,
    },
    // OpenZFS, ZFS On-Disk Specification, chapter 1: labels and uberblocks.
    SignatureRow {
        name: "zfs_member",
        usage: Usage::FileSystem,
        what: "ZFS pool members",
        advice: Advice::text("import the pool with: zpool import"),
        magics: &[ANYWHERE],
        details: zfs,
    },
    // DRBD, drbd_int.h's description of the metadata block: internal metadata are at the end.
    SignatureRow {
        name: "drbd",
        usage: Usage::Raid,
        what: "DRBD devices",
        advice: Advice::text("read it through its DRBD device"),
        magics: &[
            (End(4096 - 60), &[0x83, 0x74, 0x02, 0x6b]),
            (End(4096 - 60), &[0x83, 0x74, 0x02, 0x6d]),
        ],
        details: bare,
    },
    // SNIA, Common RAID Disk Data Format 2.0: the anchor header in the last sector.
    SignatureRow {
        name: "ddf_raid_member",
        usage: Usage::Raid,
        what: "DDF RAID members",
        advice: Advice::text(OPEN_MD),
        magics: &[(End(512), &[0xde, 0x11, 0xde, 0x11])],
        details: bare,
    },
    // mdadm(8), external metadata of Intel: in the sector before the last one.
    SignatureRow {
        name: "isw_raid_member",
        usage: Usage::Raid,
        what: "Intel RAID members",
        advice: Advice::text(OPEN_MD),
        magics: &[(End(1024), b"Intel Raid ISM Cfg Sig. ")],
        details: bare,
    },
    // Linux, drivers/md/bcache's on-disk format in include/uapi/linux/bcache.h.
    SignatureRow {
        name: "bcache",
        usage: Usage::Other,
        what: "bcache devices",
        advice: Advice::before(
            "register it with the kernel; the data of a backing device starts at byte 8192, so try ",
            Hint::Offset(8192),
        ),
        magics: &[(
            Start(4096 + 24),
            &[
                0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba,
                0x6d, 0x81,
            ],
        )],
        details: bcache,
    },
];

fn md_1(probe: &Probe<'_>, at: u64) -> io::Result<Option<SignatureDetails>> {
    let super_offset = at / 512;
    of(probe, at, 256, |raw| {
        // The superblock contains its own offset.
        (raw.le32(4) == 1 && raw.le64(144) == super_offset).then(|| SignatureDetails {
            version: Some(match at {
                0 => "1.1".into(),
                4096 => "1.2".into(),
                _ => "1.0".into(),
            }),
            label: raw.text(32, 32),
            uuid: Some(uuid(raw.array(16))),
            uuid_sub: Some(uuid(raw.array(168))),
            // Only level 1 has contiguous data.
            data: (raw.le32(72) == 1).then(|| raw.le64(128).saturating_mul(512)),
            ..SignatureDetails::default()
        })
    })
}

fn md_at_end(probe: &Probe<'_>, _: u64) -> io::Result<Option<SignatureDetails>> {
    let sectors = probe.len() / 512;
    if let Some(at) = sectors.checked_sub(16).map(|sector| (sector & !7) * 512)
        && at > 4096
        && probe.fields(at, 4)?.has(0, MD)
        && let Some(details) = md_1(probe, at)?
    {
        return Ok(Some(SignatureDetails { place: Some((at, 4)), ..details }));
    }
    let Some(at) = (probe.len() & !0xffff).checked_sub(0x1_0000) else { return Ok(None) };
    of(probe, at, 128, |raw| {
        let is_version_0 = raw.has(0, MD) && raw.le32(4) == 0;
        is_version_0.then(|| {
            let words = [20, 52, 56, 60].map(|at| raw.le32(at).to_be_bytes());
            let mut id = [0; 16];
            id.as_chunks_mut::<4>().0.copy_from_slice(&words);
            let version = format!("0.{}.{}", raw.le32(8), raw.le32(12));
            let place = Some((at, 4));
            SignatureDetails {
                version: Some(version),
                uuid: Some(uuid(id)),
                place,
                ..SignatureDetails::default()
            }
        })
    })
}

fn lvm2(probe: &Probe<'_>, at: u64) -> io::Result<Option<SignatureDetails>> {
    of(probe, at, 512, |raw| {
        // A label contains its own sector, the offset of the next header, and its type.
        if raw.le64(8) != at / 512 || !raw.has(24, b"LVM2 001") {
            return None;
        }
        let id = raw.text(raw.le32(20) as usize, 32).filter(|id| id.len() == 32 && id.is_ascii());
        let uuid = id.map(|id| {
            let mut text = String::new();
            for (index, byte) in id.into_iter().enumerate() {
                if matches!(index, 6 | 10 | 14 | 18 | 22 | 26) {
                    text.push('-');
                }
                text.push(char::from(byte));
            }
            text
        });
        Some(SignatureDetails {
            version: Some("LVM2 001".into()),
            uuid,
            ..SignatureDetails::default()
        })
    })
}

fn luks(probe: &Probe<'_>, at: u64) -> io::Result<Option<SignatureDetails>> {
    // The second header is used only if the first one is missing.
    let is_whole = probe.fields(0, 6)?.has(0, b"LUKS\xba\xbe");
    of(probe, at, 512, |raw| {
        let version = raw.be16(6);
        let uuid = raw.text(168, 40).and_then(|text| String::from_utf8(text).ok());
        let mut details = SignatureDetails {
            version: Some(version.to_string()),
            uuid,
            ..SignatureDetails::default()
        };
        match version {
            _ if at > 0 && is_whole => return None,
            1 if at == 0 => {}
            2 => {
                details.label = raw.text(24, 48);
                details.more.extend(raw.text(208, 48).map(|text| ("SUBSYSTEM", text)));
            }
            _ => return None,
        }
        Some(details)
    })
}

fn zfs(probe: &Probe<'_>, _: u64) -> io::Result<Option<SignatureDetails>> {
    let end = (probe.len() & !(ZFS_LABEL_BYTES - 1)).saturating_sub(2 * ZFS_LABEL_BYTES);
    for label in [0, ZFS_LABEL_BYTES, end] {
        let ring = probe.fields(label + ZFS_LABEL_BYTES / 2, ZFS_LABEL_BYTES / 2)?;
        let big = 0x00ba_b10c_u64.to_be_bytes();
        let is_uberblock = |slot: &usize| {
            let at = slot * 1024;
            (ring.has(at, &ZFS_UBERBLOCK) || ring.has(at, &big)) && !ring.has(at + 8, &[0; 8])
        };
        if let Some(slot) = (0..128).find(is_uberblock) {
            let at = label + ZFS_LABEL_BYTES / 2 + slot as u64 * 1024;
            return Ok(Some(SignatureDetails {
                place: Some((at, 8)),
                ..SignatureDetails::default()
            }));
        }
    }
    Ok(None)
}

fn bcache(probe: &Probe<'_>, at: u64) -> io::Result<Option<SignatureDetails>> {
    let start = at - 24;
    of(probe, start, 256, |raw| {
        // The superblock contains its own sector. Only versions 1 and 4 are backing devices.
        (raw.le64(8) == start / 512).then(|| SignatureDetails {
            uuid: raw.uuid(40),
            label: raw.text(72, 32),
            data: matches!(raw.le64(16), 1 | 4).then_some(8192),
            ..SignatureDetails::default()
        })
    })
}
