//! `extract --salvage`: extraction from damaged images.

use std::fs;

use crate::check::common::{FORMATS, ends, image, run, sound_and_damaged, write};

#[test]
fn files_are_extracted_without_a_superblock() {
    // With a superblock copy.
    for options in ["--fs ext4 --size 300M", FORMATS[1]] {
        let home = image(options);
        let path = home.path().join("a.img");
        // The first block, in both formats.
        write(&path, 0, &[0; 4096]);
        let before = fs::read(&path).unwrap();
        let said = run(home.path(), "extract --salvage a.img out");
        assert_eq!(said.status, 1, "{}{}", said.out, said.messages);
        let file = fs::read_to_string(home.path().join("out/dir/file")).unwrap();
        assert_eq!(file, "contents");
        assert!(said.messages.contains("superblock"), "{}", said.messages);
        assert!(fs::read(&path).unwrap() == before, "it was changed");
    }
}

#[test]
fn a_valid_image_is_extracted_normally() {
    for options in FORMATS {
        let home = sound_and_damaged(options);
        ends(home.path(), "extract --salvage a.img out", 0);
        assert_eq!(fs::read_to_string(home.path().join("out/dir/file")).unwrap(), "contents");
        let said = run(home.path(), "extract --salvage bad.img out.tar");
        assert_eq!(said.status, 1, "{}", said.messages);
        assert!(said.messages.contains("/dir/file"), "{}", said.messages);
    }
}

#[test]
fn the_requested_superblock_copy_is_used() {
    let home = image("--fs ext4 --size 300M");
    let path = home.path().join("a.img");
    // The first block of the second group contains a copy.
    let all = fs::read(&path).unwrap();
    let has_copy = |place: &(usize, usize)| all[place.0 * place.1 + 0x38..][..2] == [0x53, 0xef];
    let (block, bytes) = [(8193, 1024), (32768, 4096)].into_iter().find(has_copy).expect("a copy");
    write(&path, 0, &[0; 4096]);
    for place in [format!("{block}"), format!("{block}:{bytes}")] {
        let checked = run(home.path(), &format!("check --superblock {place} a.img"));
        assert_eq!(checked.status, 1, "{}{}", checked.out, checked.messages);
        assert!(checked.out.contains("ext4-superblock"), "{}", checked.out);
        let said =
            run(home.path(), &format!("extract --salvage --superblock {place} --force a.img out"));
        assert_eq!(said.status, 1, "{}{}", said.out, said.messages);
        let file = fs::read_to_string(home.path().join("out/dir/file")).unwrap();
        assert_eq!(file, "contents");
    }
    ends(home.path(), &format!("repair --plan --superblock {} a.img", block + 1), 3);
    for wrong in [
        "repair --plan --superblock first a.img".into(),
        format!("extract --superblock {block} a.img x"),
    ] {
        let said = run(home.path(), &wrong);
        assert_eq!(said.status, 2, "{wrong}: {}", said.messages);
    }
    for _ in 0..2 {
        let said = run(home.path(), &format!("repair --yes --superblock {block} a.img"));
        assert_eq!(said.status, 0, "{}{}", said.out, said.messages);
    }
    ends(home.path(), "check a.img", 0);
}
