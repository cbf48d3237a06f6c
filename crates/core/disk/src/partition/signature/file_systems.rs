//! File systems other than ext and XFS, and swap areas.

use std::io;
use vfs::hint::Advice;

use super::fat;
use super::probe::{Fields, Probe};
use super::row::At::Start;
use super::row::{ANYWHERE, Magic, SignatureRow, bare, of};
use super::{SignatureDetails, Usage};

const OTHERS: &str =
    "only ext2, ext3, ext4 and XFS are supported; mount it with the kernel's driver";

const fn fs(
    name: &'static str,
    what: &'static str,
    magics: &'static [Magic],
    details: super::row::PropertyReader,
) -> SignatureRow {
    SignatureRow {
        name,
        usage: Usage::FileSystem,
        what,
        advice: Advice::text(OTHERS),
        magics,
        details,
    }
}

pub(super) const ROWS: &[SignatureRow] = &[
    // Linux, mkswap(8) and include/linux/swap.h: the last ten bytes of the first page, whose size varies.
    SignatureRow {
        name: "swap",
        usage: Usage::Other,
        what: "swap areas",
        advice: Advice::text("they contain no files"),
        magics: &[
            (Start(4086), b"SWAPSPACE2"),
            (Start(8182), b"SWAPSPACE2"),
            (Start(16374), b"SWAPSPACE2"),
            (Start(32758), b"SWAPSPACE2"),
            (Start(65526), b"SWAPSPACE2"),
            (Start(4086), b"SWAP-SPACE"),
        ],
        details: swap,
    },
    SignatureRow {
        name: "swsuspend",
        usage: Usage::Other,
        what: "swap areas with a suspended system",
        advice: Advice::text("they contain no files"),
        magics: &[
            (Start(4086), b"S1SUSPEND"),
            (Start(4086), b"S2SUSPEND"),
            (Start(4086), b"ULSUSPEND"),
            (Start(4086), b"LINHIB0001"),
        ],
        details: bare,
    },
    // Microsoft, FAT: General Overview of On-Disk Format 1.03; exFAT file system specification.
    fs("vfat", "FAT file systems", &[(Start(510), &[0x55, 0xaa])], fat::fat),
    fs("exfat", "exFAT file systems", &[(Start(3), b"EXFAT   ")], fat::exfat),
    // Linux, Documentation/filesystems/ntfs3.rst; libfsntfs, NTFS format: the boot sector.
    fs("ntfs", "NTFS file systems", &[(Start(3), b"NTFS    ")], fat::ntfs),
    // btrfs wiki, On-disk format: the superblock at 64 KiB.
    fs("btrfs", "btrfs file systems", &[(Start(0x1_0040), b"_BHRfS_M")], btrfs),
    // Linux, Documentation/filesystems/f2fs.rst and include/linux/f2fs_fs.h.
    fs(
        "f2fs",
        "F2FS file systems",
        &[(Start(1024), &[0x10, 0x20, 0xf5, 0xf2]), (Start(5120), &[0x10, 0x20, 0xf5, 0xf2])],
        f2fs,
    ),
    // bcachefs: Principles of Operation; the superblock is in sector 8.
    fs(
        "bcachefs",
        "bcachefs file systems",
        &[(
            Start(4096 + 24),
            &[
                0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d,
                0xf7, 0xef,
            ],
        )],
        bcachefs,
    ),
    // ECMA-167 part 2: volume recognition sequence from byte 32768 on. A disc with both is UDF.
    fs("udf", "UDF file systems", &[ANYWHERE], udf),
    // ECMA-119, 8.4: the primary volume descriptor.
    fs(
        "iso9660",
        "ISO 9660 images",
        &[(Start(32769), b"CD001"), (Start(32777), b"CDROM")],
        iso9660,
    ),
    // SquashFS 4.0 format, by its documentation; little-endian since version 4.
    fs("squashfs", "SquashFS images", &[(Start(0), b"hsqs"), (Start(0), b"sqsh")], squashfs),
    // Linux, Documentation/filesystems/erofs.rst and fs/erofs/erofs_fs.h.
    fs("erofs", "EROFS images", &[(Start(1024), &[0xe2, 0xe1, 0xf5, 0xe0])], erofs),
    fs("cramfs", "cramfs images", &[(Start(0), &[0x45, 0x3d, 0xcd, 0x28])], bare),
    fs("romfs", "romfs images", &[(Start(0), b"-rom1fs-")], bare),
    // ReiserFS and Reiser4, by their progs' documentation.
    fs(
        "reiserfs",
        "ReiserFS file systems",
        &[
            (Start(65588), b"ReIsErFs"),
            (Start(65588), b"ReIsEr2Fs"),
            (Start(65588), b"ReIsEr3Fs"),
            (Start(8244), b"ReIsErFs"),
        ],
        reiserfs,
    ),
    fs("reiser4", "Reiser4 file systems", &[(Start(65536), b"ReIsEr4")], reiser4),
    // IBM, JFS Layout: the superblock at 32 KiB.
    fs("jfs", "JFS file systems", &[(Start(32768), b"JFS1")], jfs),
    // Apple, Technical Note TN1150 (HFS Plus), Inside Macintosh: Files (HFS), Apple File System Reference.
    fs("hfsplus", "HFS+ file systems", &[(Start(1024), b"H+"), (Start(1024), b"HX")], hfsplus),
    fs("hfs", "HFS file systems", &[(Start(1024), b"BD")], hfs),
    fs("apfs", "APFS containers", &[(Start(32), b"NXSB")], apfs),
    // Linux, Documentation/filesystems/nilfs2.rst and include/uapi/linux/nilfs2_ondisk.h.
    fs("nilfs2", "NILFS2 file systems", &[(Start(1030), &[0x34, 0x34])], nilfs2),
    // Linux, fs/ocfs2 documentation: the superblock is in the third block.
    fs(
        "ocfs2",
        "OCFS2 file systems",
        &[
            (Start(1024), b"OCFSV2"),
            (Start(2048), b"OCFSV2"),
            (Start(4096), b"OCFSV2"),
            (Start(8192), b"OCFSV2"),
        ],
        ocfs2,
    ),
    // Linux, include/uapi/linux/gfs2_ondisk.h: the superblock at 64 KiB.
    fs("gfs2", "GFS2 file systems", &[(Start(65536), &[0x01, 0x16, 0x19, 0x70])], gfs2),
    // VMFS, by the documentation of vmfs-tools.
    fs("VMFS", "VMFS file systems", &[(Start(2 << 20), &[0x5e, 0xf1, 0xab, 0x2f])], bare),
    SignatureRow {
        usage: Usage::Raid,
        ..fs(
            "VMFS_volume_member",
            "VMFS volumes",
            &[(Start(1 << 20), &[0x0d, 0xd0, 0x01, 0xc0])],
            bare,
        )
    },
    fs("ubi", "UBI volumes", &[(Start(0), b"UBI#\x01")], bare),
    fs("ubifs", "UBIFS images", &[(Start(0), &[0x31, 0x18, 0x10, 0x06])], bare),
    fs(
        "befs",
        "BeFS file systems",
        &[(Start(544), b"BFS1"), (Start(544), b"1SFB"), (Start(32), b"BFS1")],
        bare,
    ),
    fs(
        "ufs",
        "UFS file systems",
        // FreeBSD, fs(5): superblocks of UFS1 at 8 KiB and of UFS2 at 64 KiB, the magic number at byte 1372.
        &[
            (Start(8192 + 1372), &[0x54, 0x19, 0x01, 0x00]),
            (Start(65536 + 1372), &[0x19, 0x01, 0x54, 0x19]),
        ],
        bare,
    ),
    // Logs of XFS on their own device begin with a record header.
    SignatureRow {
        usage: Usage::Other,
        advice: Advice::text("pass it with --log when opening the file system"),
        ..fs(
            "xfs_external_log",
            "external logs of XFS",
            &[(Start(0), &[0xfe, 0xed, 0xba, 0xbe])],
            xfs_log,
        )
    },
];

/// Checks whether the first sector is the boot sector of a file system, which has the signature of a master boot
/// record.
pub(super) fn has_boot_sector(probe: &Probe<'_>) -> io::Result<bool> {
    let first = probe.fields(0, 512)?;
    let has_name = first.has(3, b"NTFS    ") || first.has(3, b"EXFAT   ");
    Ok(has_name || fat::fat(probe, 510)?.is_some())
}

fn plain(uuid: Option<String>, label: Option<Vec<u8>>) -> SignatureDetails {
    SignatureDetails { uuid, label, ..SignatureDetails::default() }
}

fn block(details: SignatureDetails, size: u64) -> SignatureDetails {
    SignatureDetails { block_size: Some(size), ..details }
}

/// Returns a power of two from an on-disk field, or `None` if it is too large.
fn shifted(bits: u32, max: u32) -> Option<u64> {
    (bits <= max).then(|| 1 << bits)
}

fn swap(probe: &Probe<'_>, at: u64) -> io::Result<Option<SignatureDetails>> {
    let is_old = probe.fields(at, 10)?.has(0, b"SWAP-SPACE");
    of(probe, 1024, 128, |raw| {
        if is_old {
            return Some(SignatureDetails {
                version: Some("0".into()),
                ..SignatureDetails::default()
            });
        }
        // Version 1, in either byte order, with at least one page.
        let is_v1 = raw.le32(0) == 1 || raw.be32(0) == 1;
        (is_v1 && raw.le32(4) != 0).then(|| SignatureDetails {
            version: Some("1".into()),
            ..plain(raw.uuid(12), raw.text(28, 16))
        })
    })
}

fn btrfs(probe: &Probe<'_>, _: u64) -> io::Result<Option<SignatureDetails>> {
    of(probe, 0x1_0000, 1024, |raw| {
        // The superblock contains its own offset and its sector size.
        let sector = u64::from(raw.le32(0x90));
        (raw.le64(48) == 0x1_0000).then(|| {
            let details = plain(raw.uuid(32), raw.text(0x12b, 256));
            SignatureDetails { uuid_sub: raw.uuid(0x10b), ..block(details, sector) }
        })
    })
}

fn f2fs(probe: &Probe<'_>, at: u64) -> io::Result<Option<SignatureDetails>> {
    of(probe, at, 1280, |raw| {
        let size = shifted(raw.le32(16), 16)?;
        let version = format!("{}.{}", raw.le16(4), raw.le16(6));
        let details = block(plain(raw.uuid(108), raw.utf16(124, 512)), size);
        Some(SignatureDetails { version: Some(version), ..details })
    })
}

fn bcachefs(probe: &Probe<'_>, at: u64) -> io::Result<Option<SignatureDetails>> {
    of(probe, at - 24, 256, |raw| Some(plain(raw.uuid(56), raw.text(72, 32))))
}

fn udf(probe: &Probe<'_>, _: u64) -> io::Result<Option<SignatureDetails>> {
    // Descriptors are one sector apart, which has at least 2048 bytes. 16 are enough in practice.
    for sector in [2048, 4096] {
        for index in 0..16 {
            let at = 32768 + index * sector;
            let name = probe.fields(at, 8)?;
            if name.has(1, b"NSR02") || name.has(1, b"NSR03") {
                return Ok(Some(SignatureDetails {
                    place: Some((at + 1, 5)),
                    ..SignatureDetails::default()
                }));
            }
            let is_other =
                [&b"BEA01"[..], b"CD001", b"BOOT2", b"CDW02"].iter().any(|n| name.has(1, n));
            if !is_other {
                break;
            }
        }
    }
    Ok(None)
}

fn iso9660(probe: &Probe<'_>, _: u64) -> io::Result<Option<SignatureDetails>> {
    of(probe, 32768, 2048, |raw| {
        // The time of modification or of creation serves as UUID.
        let time = [830, 813].into_iter().find_map(|at| {
            let digits = raw.text(at, 16).filter(|text| text.iter().all(u8::is_ascii_digit))?;
            let text = String::from_utf8(digits).ok().filter(|text| text.len() == 16)?;
            let is_set = text.bytes().any(|digit| digit != b'0');
            is_set.then(|| {
                let parts = [0..4, 4..6, 6..8, 8..10, 10..12, 12..14, 14..16];
                parts.map(|range| text[range].to_owned()).join("-")
            })
        });
        let size = u64::from(raw.le16(128));
        Some(block(plain(time, raw.padded(40, 32)), if size == 0 { 2048 } else { size }))
    })
}

fn squashfs(probe: &Probe<'_>, at: u64) -> io::Result<Option<SignatureDetails>> {
    of(probe, at, 96, |raw| {
        let (major, minor) = match raw.has(0, b"hsqs") {
            true => (raw.le16(28), raw.le16(30)),
            false => (raw.be16(28), raw.be16(30)),
        };
        let version = Some(format!("{major}.{minor}"));
        (1..=4)
            .contains(&major)
            .then(|| SignatureDetails { version, ..SignatureDetails::default() })
    })
}

fn erofs(probe: &Probe<'_>, at: u64) -> io::Result<Option<SignatureDetails>> {
    of(probe, at, 128, |raw| {
        let size = shifted(raw.byte(12).into(), 16)?;
        Some(block(plain(raw.uuid(48), raw.text(64, 16)), size))
    })
}

fn reiserfs(probe: &Probe<'_>, at: u64) -> io::Result<Option<SignatureDetails>> {
    of(probe, at - 52, 256, |raw| {
        let version = match (raw.has(52, b"ReIsEr2Fs"), raw.has(52, b"ReIsEr3Fs")) {
            (true, _) => "3.6",
            (_, true) => "JR",
            _ => "3.5",
        };
        let details = block(plain(raw.uuid(84), raw.text(100, 16)), raw.le16(44).into());
        Some(SignatureDetails { version: Some(version.into()), ..details })
    })
}

fn reiser4(probe: &Probe<'_>, at: u64) -> io::Result<Option<SignatureDetails>> {
    of(probe, at, 64, |raw| Some(plain(raw.uuid(20), raw.text(36, 16))))
}

fn jfs(probe: &Probe<'_>, at: u64) -> io::Result<Option<SignatureDetails>> {
    of(probe, at, 256, |raw| {
        let (size, bits) = (raw.le32(16), u32::from(raw.le16(20)));
        (shifted(bits, 16)? == u64::from(size))
            .then(|| block(plain(raw.uuid(136), raw.text(152, 16)), size.into()))
    })
}

fn hfsplus(probe: &Probe<'_>, at: u64) -> io::Result<Option<SignatureDetails>> {
    of(probe, at, 512, |raw| {
        let size = raw.be32(40);
        let is_known = matches!(raw.be16(2), 4 | 5) && size >= 512 && size.is_power_of_two();
        is_known.then(|| block(SignatureDetails::default(), size.into()))
    })
}

fn hfs(probe: &Probe<'_>, at: u64) -> io::Result<Option<SignatureDetails>> {
    of(probe, at, 162, |raw| {
        // The size of an allocation block, and a name of 1 to 27 bytes.
        let (size, len) = (raw.be32(20), raw.byte(36));
        let is_known = size > 0 && size.is_multiple_of(512) && (1..=27).contains(&len);
        is_known.then(|| block(plain(None, raw.text(37, len.into())), 512))
    })
}

fn apfs(probe: &Probe<'_>, at: u64) -> io::Result<Option<SignatureDetails>> {
    of(probe, at - 32, 128, |raw| {
        // An object of type 1 with the number 1.
        let (size, is_super) = (raw.le32(36), raw.le16(24) == 1 && raw.le64(8) == 1);
        is_super.then(|| block(plain(raw.uuid(72), None), size.into()))
    })
}

fn nilfs2(probe: &Probe<'_>, at: u64) -> io::Result<Option<SignatureDetails>> {
    of(probe, at - 6, 1024, |raw: &Fields| {
        let (size, bytes) = (shifted(raw.le32(20).checked_add(10)?, 16)?, raw.le16(8));
        // A magic number of two bytes is weak, so the superblock's length and revision are checked, too.
        (raw.le32(0) == 2 && (200..=1024).contains(&bytes)).then(|| {
            let details = block(plain(raw.uuid(152), raw.text(168, 80)), size);
            SignatureDetails { version: Some(raw.le32(0).to_string()), ..details }
        })
    })
}

fn ocfs2(probe: &Probe<'_>, at: u64) -> io::Result<Option<SignatureDetails>> {
    // The identifier, the label and the UUID are in the part of the inode that has the superblock's fields.
    of(probe, at, 512, |raw| {
        let size = shifted(raw.le32(0xc0 + 24), 16)?;
        (size * 2 == at).then(|| block(plain(raw.uuid(0xc0 + 144), raw.text(0xc0 + 80, 64)), size))
    })
}

fn gfs2(probe: &Probe<'_>, at: u64) -> io::Result<Option<SignatureDetails>> {
    of(probe, at, 512, |raw| {
        // A metadata header of type 1 (superblock), and the format's number.
        let is_super = raw.be32(4) == 1 && (1800..1900).contains(&raw.be32(24));
        is_super.then(|| block(plain(raw.uuid(256), None), raw.be32(36).into()))
    })
}

fn xfs_log(probe: &Probe<'_>, at: u64) -> io::Result<Option<SignatureDetails>> {
    of(probe, at, 512, |raw| matches!(raw.be32(8), 1 | 2).then(SignatureDetails::default))
}
