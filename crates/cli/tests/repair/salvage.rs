//! `extract --salvage`: taking out what is left.

use std::fs;

use crate::check::common::{FORMATS, ends, image, run, sound_and_damaged, write};

#[test]
fn an_image_without_its_superblock_gives_its_files() {
    // With a copy of the superblock.
    for options in ["--fs ext4 --size 300M", FORMATS[1]] {
        let home = image(options);
        let path = home.path().join("a.img");
        // The first block, of both formats.
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
fn a_sound_image_is_extracted_as_ever() {
    for options in FORMATS {
        let home = sound_and_damaged(options);
        ends(home.path(), "extract --salvage a.img out", 0);
        assert_eq!(fs::read_to_string(home.path().join("out/dir/file")).unwrap(), "contents");
        let said = run(home.path(), "extract --salvage bad.img out.tar");
        assert_eq!(said.status, 1, "{}", said.messages);
        assert!(said.messages.contains("/dir/file"), "{}", said.messages);
    }
}
