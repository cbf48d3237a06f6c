use proptest::prelude::*;
use rustix::fs::{XattrFlags, setxattr};
use testkit::{KernelMount, Mke2fs, MountOptions, require};
use vfs::acl::{NO_ID, VERSION};

use super::*;

/// Creates a value from tags, permissions and IDs.
fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

const USER_OBJ: (u16, u16, u32) = (0x01, 7, NO_ID);
const GROUP_OBJ: (u16, u16, u32) = (0x04, 5, NO_ID);
const MASK: (u16, u16, u32) = (0x10, 6, NO_ID);
const OTHER: (u16, u16, u32) = (0x20, 1, NO_ID);

#[test]
fn the_mask_stands_for_the_group() {
    let minimal = parse(&value(&[USER_OBJ, GROUP_OBJ, OTHER])).unwrap();
    assert!(minimal.is_minimal());
    assert_eq!(minimal.mode(), 0o751);
    let named = [USER_OBJ, (2, 7, 1000), (2, 0, 10), GROUP_OBJ, (8, 3, 5), MASK, OTHER];
    let mut acl = parse(&value(&named)).unwrap();
    assert!(!acl.is_minimal());
    assert_eq!(acl.mode(), 0o761);
    acl.restrict(0o532);
    assert_eq!(acl.mode(), 0o520);
    acl.set_mode(0o4612);
    assert_eq!(acl.mode(), 0o612);
    let mut changed = named;
    (changed[0].1, changed[5].1, changed[6].1) = (6, 1, 2);
    assert_eq!(acl.to_bytes(), value(&changed));
}

#[test]
fn a_mask_without_named_entries_is_valid() {
    let mut acl = parse(&value(&[USER_OBJ, GROUP_OBJ, MASK, OTHER])).unwrap();
    assert!(!acl.is_minimal());
    acl.set_mode(0o040);
    let changed = [(1, 0, NO_ID), GROUP_OBJ, (0x10, 4, NO_ID), (0x20, 0, NO_ID)];
    assert_eq!(acl.to_bytes(), value(&changed));
}

#[test]
fn malformed_lists_are_refused() {
    let named = (2, 4, 7);
    for entries in [
        &[][..],
        &[USER_OBJ, GROUP_OBJ],
        &[GROUP_OBJ, OTHER],
        &[USER_OBJ, OTHER],
        &[USER_OBJ, USER_OBJ, GROUP_OBJ, OTHER],
        &[USER_OBJ, GROUP_OBJ, OTHER, OTHER],
        &[USER_OBJ, GROUP_OBJ, MASK, MASK, OTHER],
        &[USER_OBJ, OTHER, GROUP_OBJ],
        &[USER_OBJ, named, GROUP_OBJ, OTHER],
        &[USER_OBJ, GROUP_OBJ, named, MASK, OTHER],
        &[USER_OBJ, (2, 4, NO_ID), GROUP_OBJ, MASK, OTHER],
        &[USER_OBJ, named, (2, 1, 9), (2, 6, 7), GROUP_OBJ, MASK, OTHER],
        &[USER_OBJ, (2, 8, 7), GROUP_OBJ, MASK, OTHER],
        &[USER_OBJ, (3, 4, 7), GROUP_OBJ, MASK, OTHER],
        &[USER_OBJ, (0, 4, 7), GROUP_OBJ, MASK, OTHER],
    ] {
        assert_eq!(parse(&value(entries)), Err(Errno::INVAL), "{entries:?}");
    }
    let mut bytes = value(&[USER_OBJ, GROUP_OBJ, OTHER]);
    bytes.push(0);
    assert_eq!(parse(&bytes), Err(Errno::INVAL));
    assert_eq!(parse(&[2, 0, 0]), Err(Errno::INVAL));
    bytes[0] = 1;
    assert_eq!(parse(&bytes), Err(Errno::OPNOTSUPP));
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_harm(
        tags in proptest::collection::vec((0..6_u8, 0..9_u16, 0..3_u32), 0..12),
        mode in 0..0o1000_u16,
    ) {
        let entries: Vec<_> =
            tags.into_iter().map(|(tag, perm, id)| (1_u16 << tag, perm, id)).collect();
        if let Ok(mut acl) = parse(&value(&entries)) {
            prop_assert_eq!(parse(&acl.to_bytes()), Ok(acl.clone()));
            let before = acl.mode();
            acl.restrict(mode);
            prop_assert_eq!(acl.mode(), before & mode);
            acl.set_mode(mode);
            prop_assert_eq!(acl.mode(), mode);
        }
    }
}

/// Returns lists that are valid or almost valid: with an entry added, removed, moved or changed.
fn lists_near_valid_ones() -> Vec<Vec<(u16, u16, u32)>> {
    let named = (2, 4, 7);
    let group = (8, 1, 0);
    let valid = [
        vec![USER_OBJ, GROUP_OBJ, OTHER],
        vec![USER_OBJ, GROUP_OBJ, MASK, OTHER],
        vec![USER_OBJ, named, GROUP_OBJ, MASK, OTHER],
        vec![USER_OBJ, named, (2, 7, 3), GROUP_OBJ, (8, 7, 9), group, MASK, OTHER],
    ];
    let strange = [(2, 4, NO_ID), (2, 8, 6), (8, 0o17, 6), (0, 4, 6), (3, 4, 6), (64, 4, 6)];
    let known = [USER_OBJ, (2, 0, 11), GROUP_OBJ, (8, 0, 11), MASK, OTHER];
    let mut all = Vec::new();
    for list in valid {
        for at in 0..list.len() {
            all.push([&list[..at], &list[at + 1..]].concat());
            for entry in known.into_iter().chain(strange) {
                all.push([&list[..at], &[entry], &list[at..]].concat());
                all.push([&list[..at], &[entry], &list[at + 1..]].concat());
            }
            // An ID in an entry without a name.
            let mut other_id = list.clone();
            other_id[at].2 = 12;
            all.push(other_id);
        }
        all.push(list);
    }
    all
}

#[test]
fn the_kernel_takes_the_same_lists() {
    require!(Tool("mke2fs"), Mount("ext4"));
    let folder = testkit::scratch();
    let image = folder.path().join("image");
    Mke2fs::new("ext4").create(&image, 16 << 20);
    let mount = KernelMount::new(&image, &MountOptions::read_write("ext4"));
    let file = mount.path().join("file");
    std::fs::write(&file, "").unwrap();
    let lists = lists_near_valid_ones();
    let mut taken = 0;
    for list in lists.iter().filter(|list| !list.is_empty()) {
        let value = value(list);
        let kernels = setxattr(&file, "system.posix_acl_access", &value, XattrFlags::empty());
        assert_eq!(parse(&value).map(drop), kernels, "{list:?}");
        taken += usize::from(kernels.is_ok());
    }
    assert!(taken > 10 && taken < lists.len() / 2, "{taken} of {}", lists.len());
}
