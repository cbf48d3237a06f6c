//! Damaged and hostile layers: precise errors, bounded work, and nothing written.

use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use diskwright_layers::{Access, LayerOptions, Member, containers, luks, lvm, resolve};

use crate::common::{bytes, device, digest, member, open_bytes, refused, with_passphrase};

#[test]
fn the_second_luks_header_serves_if_the_first_is_damaged() {
    let whole = bytes("luks-two");
    let expected = digest(&*open_bytes(&whole, &with_passphrase()).unwrap().device);
    let mut damaged = whole.clone();
    damaged[4200] ^= 1;
    let stack = open_bytes(&damaged, &with_passphrase()).unwrap();
    assert_eq!(digest(&*stack.device), expected);
    // Without its magic number, too.
    damaged[..16384].fill(0);
    let stack = open_bytes(&damaged, &with_passphrase()).unwrap();
    assert_eq!(digest(&*stack.device), expected);
    let mut both = whole;
    both[4200] ^= 1;
    both[16384 + 4200] ^= 1;
    let said = refused(open_bytes(&both, &with_passphrase()));
    assert_eq!(said, "damaged LUKS header at byte 0: its sha256 checksum is wrong");
}

#[test]
fn hostile_luks_parameters_are_refused_before_the_work() {
    let mut one = bytes("luks-one");
    one[212..216].copy_from_slice(&u32::MAX.to_be_bytes());
    let said = refused(open_bytes(&one, &with_passphrase()));
    assert!(said.contains("4294967295 iterations"), "{said}");
    let mut one = bytes("luks-one");
    one[252..256].copy_from_slice(&u32::MAX.to_be_bytes());
    let said = refused(open_bytes(&one, &with_passphrase()));
    assert!(said.starts_with("damaged LUKS key slot"), "{said}");
    let mut one = bytes("luks-one");
    one[8..12].copy_from_slice(b"cast");
    let said = refused(open_bytes(&one, &with_passphrase()));
    assert!(
        said.contains("the cipher \"cast-xts-plain64\" is not supported; open it with"),
        "{said}"
    );
    let truncated = &bytes("luks-two")[..300_000];
    let said = refused(open_bytes(truncated, &with_passphrase()));
    assert!(said.starts_with("damaged LUKS volume at byte 1048576"), "{said}");
}

#[test]
fn lvm_metadata_that_is_cut_short_is_found_elsewhere_or_reported() {
    let mut first = bytes("lvm-pv1");
    // The newest text is somewhere in the first metadata area.
    first[4096 + 512..1 << 20].fill(0);
    let options = LayerOptions::new().volume("vg/lin");
    let said = refused(open_bytes(&first, &options));
    assert!(
        said.starts_with("damaged LVM metadata at byte ") && said.contains("checksum"),
        "{said}"
    );
    let mut label = bytes("lvm-pv1");
    label[512 + 40] ^= 1;
    let said = refused(open_bytes(&label, &options));
    assert!(said.starts_with("damaged LVM label at byte 512: checksum"), "{said}");
    let mut area = bytes("lvm-pv1");
    area[4096 + 30] ^= 1;
    let said = refused(open_bytes(&area, &options));
    assert!(said.starts_with("damaged LVM metadata area header at byte 4096: checksum"), "{said}");
    let said = refused(open_bytes(&bytes("lvm-pv1")[..2 << 20], &options));
    assert!(said.contains("vg/lin") && said.contains("a member with 2097152 bytes"), "{said}");
}

#[test]
fn volumes_that_refer_to_each_other_end_in_an_error() {
    let text = br#"vg { id = "g" seqno = 1 extent_size = 8
        logical_volumes {
            a { id = "a" status = ["VISIBLE"] segment1 { start_extent = 0 extent_count = 1 type = "mirror"
                mirrors = ["b", 0, "b", 0, "b", 0, "a", 0] } }
            b { id = "b" status = ["VISIBLE"] segment1 { start_extent = 0 extent_count = 1 type = "raid1"
                raids = ["a", "a", "b", "a", "a", "b"] } } } }"#;
    let group = lvm::group::parse(text).unwrap();
    let group = lvm::OpenGroup { devices: Vec::new(), group };
    for volume in &group.group.logical {
        let said = group.open(volume).err().unwrap().to_string();
        assert!(said.contains("refer to each other") || said.contains("segments"), "{said}");
    }
    for (text, problem) in [
        (&b"vg { extent_size = 0 }"[..], "extent_size is 0"),
        (b"a { } b { }", "2 volume groups, expected one"),
        (b"vg { extent_size = 36028797018963968 }", "extent_size is 36028797018963968 sectors"),
    ] {
        assert_eq!(lvm::group::parse(text).unwrap_err(), problem);
    }
}

#[test]
fn md_superblocks_are_verified() {
    let mut five = bytes("md-five-0");
    five[4096 + 72] = 9;
    let said = refused(open_bytes(&five, &LayerOptions::new()));
    assert!(said.starts_with("damaged md superblock at byte 4096: checksum"), "{said}");
    let said = refused(open_bytes(&bytes("md-one-0")[..2 << 20], &LayerOptions::new()));
    assert!(said.contains("on a device of 2097152 bytes"), "{said}");
    let mut old = bytes("md-fivers-2");
    let at = old.len() - 65536;
    old[at + 40] ^= 1;
    let said = refused(open_bytes(&old, &LayerOptions::new()));
    assert!(said.contains(&format!("damaged md superblock at byte {at}")), "{said}");
    // The same image twice is one member.
    let twice = resolve(
        member("md-zero-0"),
        vec![member("md-zero-0")],
        &LayerOptions::new(),
        None,
        Access::Read,
    );
    assert!(refused(twice).contains("needs its members number 1"));
}

/// Damages bytes at random and reads everything that still opens.
#[test]
fn random_damage_never_panics() {
    let mut random = fastrand::Rng::with_seed(7);
    for name in ["lvm-pv2", "md-five-0", "luks-sectors"] {
        let whole = bytes(name);
        for _ in 0..40 {
            let mut damaged = whole.clone();
            for _ in 0..random.usize(1..20) {
                let at = random.usize(0..8192);
                damaged[at] = random.u8(..);
            }
            // The key derivation of this image is cheap.
            let _ = open_bytes(&damaged, &with_passphrase()).map(|stack| digest(&*stack.device));
        }
    }
}

#[test]
fn random_headers_of_containers_never_panic() {
    let mut random = fastrand::Rng::with_seed(9);
    let magics: [(usize, &[u8]); 5] = [
        (0, b"KDMV\x01\0\0\0"),
        (0, b"conectix"),
        (0, b"vhdxfile"),
        (64, b"\x7f\x10\xda\xbe\x01\0\x01\0"),
        (0, b"\x3a\xff\x26\xed\x01\0\0\0\x1c\0\x0c\0"),
    ];
    for round in 0..2000 {
        let (at, magic) = magics[round % magics.len()];
        let mut file: Vec<u8> =
            (0..8192).map(|_| random.u8(..) & random.u8(..) & random.u8(..)).collect();
        file[at..at + magic.len()].copy_from_slice(magic);
        let file = device(&file);
        if let Ok(Some(found)) = containers::open(&file) {
            let mut part = [0; 4096];
            for offset in [0, 12_345, found.device.len().saturating_sub(4096)] {
                let _ = found.device.read_at(offset, &mut part);
            }
        }
    }
    assert!(luks::header1::parse(&[0; 592]).is_err());
}

#[test]
fn a_vmdk_whose_tables_point_into_each_other_is_read_in_bounded_time() {
    let mut file = vec![0; 65536];
    file[..4].copy_from_slice(b"KDMV");
    for (at, value) in [(4, 1_u64), (12, 1 << 40), (20, 128), (56, 1)] {
        file[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    file[8..12].copy_from_slice(&3_u32.to_le_bytes());
    file[44..48].copy_from_slice(&512_u32.to_le_bytes());
    // The grain directory is its own grain table, and its grains.
    file[512..1024].copy_from_slice(&[1, 0, 0, 0].repeat(128));
    let file: Arc<dyn BlockDevice> = device(&file);
    let found = containers::open(&file).unwrap().unwrap();
    assert_eq!((found.format, found.device.len()), ("VMDK", 1 << 49));
    let mut part = vec![0; 4096];
    found.device.read_at(0, &mut part).unwrap();
    assert_eq!(part[..512], [1, 0, 0, 0].repeat(128)[..]);
    assert!(found.device.read_at(1 << 48, &mut part).is_err(), "its table is past the end");
    assert!(found.device.write_at(0, &part).is_err());
    let said = containers::open(&(Arc::new(MemoryDevice::new(100)) as Arc<dyn BlockDevice>));
    assert!(said.unwrap().is_none());
    let image = Member::new("image", file);
    let opened = resolve(image, Vec::new(), &LayerOptions::new(), None, Access::Read);
    assert!(opened.unwrap().layers.is_empty(), "containers are opened before other layers");
}
