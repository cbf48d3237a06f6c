//! Partition tables.

use std::io;
use vfs::hint::{Advice, Hint};

use super::probe::{Fields, Probe};
use super::row::At::Start;
use super::row::{SignatureRow, bare, of};
use super::{SignatureDetails, Usage, file_systems};
use crate::partition::mbr;

pub(super) const ROWS: &[SignatureRow] = &[
    // UEFI specification, chapter 5: the header is in the second logical block.
    SignatureRow {
        name: "gpt",
        usage: Usage::Table,
        what: "disks with a partition table (GPT)",
        advice: Advice::hint(Hint::ChoosePartition),
        magics: &[(Start(512), b"EFI PART"), (Start(4096), b"EFI PART")],
        details: gpt,
    },
    // UEFI specification, chapter 5.2: legacy master boot records.
    SignatureRow {
        name: "dos",
        usage: Usage::Table,
        what: "disks with a partition table (MBR)",
        advice: Advice::hint(Hint::ChoosePartition),
        magics: &[(Start(510), &[0x55, 0xaa])],
        details: dos,
    },
    // Inside Macintosh: Devices, chapter 3: a driver descriptor, and the partition map in the second block.
    SignatureRow {
        name: "mac",
        usage: Usage::Table,
        what: "disks with an Apple partition map",
        advice: Advice::hint(Hint::ChooseStart),
        magics: &[(Start(512), b"PM\0\0")],
        details: mac,
    },
    // Linux, block/partitions/sun.c and sgi.c describe the labels that their vendors documented.
    SignatureRow {
        name: "sun",
        usage: Usage::Table,
        what: "disks with a Sun label",
        advice: Advice::hint(Hint::ChooseStart),
        magics: &[(Start(508), &[0xda, 0xbe])],
        details: sun,
    },
    SignatureRow {
        name: "sgi",
        usage: Usage::Table,
        what: "disks with an SGI volume header",
        advice: Advice::hint(Hint::ChooseStart),
        magics: &[(Start(0), &[0x0b, 0xe5, 0xa9, 0x41])],
        details: bare,
    },
    // FreeBSD, bsdlabel(5): the label is in the second sector.
    SignatureRow {
        name: "bsd",
        usage: Usage::Table,
        what: "disks with a BSD label",
        advice: Advice::hint(Hint::ChooseStart),
        magics: &[(Start(512), &[0x57, 0x45, 0x56, 0x82])],
        details: bsd,
    },
];

fn with_uuid(uuid: String) -> SignatureDetails {
    SignatureDetails { uuid: Some(uuid), ..SignatureDetails::default() }
}

fn gpt(probe: &Probe<'_>, at: u64) -> io::Result<Option<SignatureDetails>> {
    let protective = probe.fields(0, 512)?;
    if !protective.has(510, &[0x55, 0xaa]) {
        return Ok(None);
    }
    of(probe, at, 92, |raw| (raw.le64(24) == 1).then(|| with_uuid(guid(raw, 56))))
}

/// A GUID, whose first three fields are little-endian.
fn guid(raw: &Fields, at: usize) -> String {
    let mut bytes: [u8; 16] = raw.array(at);
    bytes[..4].reverse();
    bytes[4..6].reverse();
    bytes[6..8].reverse();
    super::probe::uuid(bytes)
}

fn dos(probe: &Probe<'_>, _: u64) -> io::Result<Option<SignatureDetails>> {
    let Some(sector) = probe.bytes(0, mbr::SECTOR_BYTES as u64)? else { return Ok(None) };
    let Some(entries) = mbr::parse(&sector) else { return Ok(None) };
    // Boot sectors of file systems end with the same signature. A protective entry belongs to a GPT.
    if file_systems::has_boot_sector(probe)? || entries.iter().any(mbr::MbrEntry::is_protective) {
        return Ok(None);
    }
    let id = u32::from_le_bytes([sector[440], sector[441], sector[442], sector[443]]);
    let uuid = (id != 0).then(|| format!("{id:08x}"));
    Ok(Some(SignatureDetails { uuid, ..SignatureDetails::default() }))
}

fn mac(probe: &Probe<'_>, at: u64) -> io::Result<Option<SignatureDetails>> {
    let is_described = probe.fields(0, 4)?.has(0, b"ER");
    let entries = probe.fields(at, 8)?.be32(4);
    Ok((is_described && (1..=256).contains(&entries)).then(SignatureDetails::default))
}

fn sun(probe: &Probe<'_>, _: u64) -> io::Result<Option<SignatureDetails>> {
    // The exclusive or of all 16-bit words of the label, including its checksum, is zero.
    let label = probe.fields(0, 512)?;
    let sum = (0..256).fold(0, |sum, word| sum ^ label.be16(word * 2));
    Ok((sum == 0).then(SignatureDetails::default))
}

fn bsd(probe: &Probe<'_>, at: u64) -> io::Result<Option<SignatureDetails>> {
    // The magic number is repeated at byte 132 of the label.
    of(probe, at, 148, |raw| (raw.le32(132) == 0x8256_4557).then(SignatureDetails::default))
}
