//! Disk images and archives. libblkid does not detect these, so their names are those of file(1) or of the format.

use std::io;
use vfs::hint::{Advice, Hint};

use super::probe::Probe;
use super::row::At::{End, Start};
use super::row::{Magic, SignatureRow, bare, of};
use super::{SignatureDetails, Usage};

const CONVERT: &str = "convert it with: qemu-img convert -O raw";

const fn image(
    name: &'static str,
    what: &'static str,
    advice: &'static str,
    magics: &'static [Magic],
) -> SignatureRow {
    advised(name, what, Advice::text(advice), magics)
}

const fn advised(
    name: &'static str,
    what: &'static str,
    advice: Advice,
    magics: &'static [Magic],
) -> SignatureRow {
    SignatureRow { name, usage: Usage::Container, what, advice, magics, details: bare }
}

const fn archive(
    name: &'static str,
    advice: &'static str,
    magics: &'static [Magic],
) -> SignatureRow {
    image(name, "compressed images", advice, magics)
}

pub(super) const ROWS: &[SignatureRow] = &[
    // QEMU, docs/interop/qcow2.rst, qed_spec.rst and parallels.rst.
    image("qcow2", "qcow2 images", CONVERT, &[(Start(0), b"QFI\xfb")]),
    image("qed", "QED images", CONVERT, &[(Start(0), b"QED\0")]),
    image(
        "parallels",
        "Parallels disk images",
        CONVERT,
        &[(Start(0), b"WithoutFreeSpace"), (Start(0), b"WithouFreSpacExt")],
    ),
    // VMware, Virtual Disk Format 5.0: sparse extents, and text descriptors; COWD is the format of ESX.
    image(
        "vmdk",
        "VMDK images",
        CONVERT,
        &[(Start(0), b"KDMV"), (Start(0), b"COWD"), (Start(0), b"# Disk DescriptorFile")],
    ),
    // Microsoft, Virtual Hard Disk Image Format Specification and MS-VHDX. Dynamic disks have a copy of the footer first.
    image("vhd", "VHD images", CONVERT, &[(Start(0), b"conectix")]),
    image("vhdx", "VHDX images", CONVERT, &[(Start(0), b"vhdxfile")]),
    // VirtualBox, VDI Core: the signature follows 64 bytes of text.
    image("vdi", "VDI images", CONVERT, &[(Start(64), &[0x7f, 0x10, 0xda, 0xbe])]),
    // libewf, Expert Witness Compression Format, versions 1 and 2, and logical evidence.
    image(
        "ewf",
        "E01 (EWF) images",
        "convert it with: ewfexport -f raw",
        &[
            (Start(0), b"EVF\x09\x0d\x0a\xff\0"),
            (Start(0), b"EVF2\x0d\x0a\x81\0"),
            (Start(0), b"LVF\x09\x0d\x0a\xff\0"),
        ],
    ),
    image(
        "aff4",
        "AFF images",
        "convert it with: affconvert -r",
        &[(Start(0), b"AFF10\x0d\x0a\0")],
    ),
    // Android, system/core/libsparse/sparse_format.h: magic number 0xed26ff3a, version 1.0.
    image(
        "android-sparse",
        "Android sparse images",
        "convert it with: simg2img IMAGE RAW",
        &[(Start(0), &[0x3a, 0xff, 0x26, 0xed, 1, 0])],
    ),
    // partclone, docs/IMAGE_FORMATS.
    image(
        "partclone",
        "partclone images",
        "restore it with: partclone.restore -C -s IMAGE -O RAW",
        &[(Start(0), b"partclone-image\0")],
    ),
    // IETF RFC 1952, RFC 8878, the .xz file format 1.2.0, bzip2's manual, the LZ4 frame format, lzip's manual, lzop.
    archive("gzip", "decompress it with: gunzip", &[(Start(0), b"\x1f\x8b\x08")]),
    archive("zstd", "decompress it with: unzstd", &[(Start(0), b"\x28\xb5\x2f\xfd")]),
    archive("xz", "decompress it with: unxz", &[(Start(0), b"\xfd7zXZ\0")]),
    SignatureRow {
        details: bzip2,
        ..archive("bzip2", "decompress it with: bunzip2", &[(Start(0), b"BZh")])
    },
    archive(
        "lz4",
        "decompress it with: lz4 -d",
        &[(Start(0), b"\x04\x22\x4d\x18"), (Start(0), b"\x02\x21\x4c\x18")],
    ),
    archive("lzip", "decompress it with: lzip -d", &[(Start(0), b"LZIP\x01")]),
    archive("lzop", "decompress it with: lzop -d", &[(Start(0), b"\x89LZO\0\x0d\x0a\x1a\x0a")]),
    archive("compress", "decompress it with: gunzip", &[(Start(0), b"\x1f\x9d")]),
    // PKWARE APPNOTE 6.3, and the 7z format of the LZMA SDK.
    archive("zip", "extract it with: unzip", &[(Start(0), b"PK\x03\x04")]),
    archive("7z", "extract it with: 7z x", &[(Start(0), b"7z\xbc\xaf\x27\x1c")]),
    archive("rar", "extract it with: unrar x", &[(Start(0), b"Rar!\x1a\x07")]),
    // IEEE Std 1003.1, pax: ustar and GNU's form of it.
    image(
        "tar",
        "tar archives",
        "extract it with: tar -xf; or build an image of it with: diskwright build ARCHIVE IMAGE",
        &[(Start(257), b"ustar\0"), (Start(257), b"ustar ")],
    ),
    // Apple UDIF: a trailer of 512 bytes.
    image(
        "dmg",
        "Apple disk images (dmg)",
        "convert it with: dmg2img or qemu-img convert -O raw",
        &[(End(512), b"koly\0\0\0\x04")],
    ),
    // A fixed VHD is a raw disk with a footer. Detected contents take precedence.
    advised(
        "vhd",
        "fixed VHD images",
        Advice::before("the disk starts at byte 0; ", Hint::ChoosePart),
        &[(End(512), b"conectix")],
    ),
];

fn bzip2(probe: &Probe<'_>, at: u64) -> io::Result<Option<SignatureDetails>> {
    // A compression level, and the first digits of pi.
    of(probe, at, 10, |raw| {
        let is_level = matches!(raw.byte(3), b'1'..=b'9');
        (is_level && raw.has(4, b"\x31\x41\x59\x26\x53\x59")).then(SignatureDetails::default)
    })
}
