//! Locations of images, and concurrent users of them.

use std::fs::{self, File};

use serde_json::json;

use crate::disk;

use super::common::{
    FORMATS, build, count, ends, image, list, object, run, sound_and_damaged, write,
};

#[test]
fn an_image_in_use_is_refused() {
    for options in FORMATS {
        let home = image(options);
        let writer = File::open(home.path().join("a.img")).unwrap();
        writer.try_lock().unwrap();
        let refused = run(home.path(), "check a.img");
        assert_eq!(refused.status, 4, "{}", refused.messages);
        let said = refused.messages;
        assert!(
            said.contains("in use by another program") && said.contains("--norecovery"),
            "{said}"
        );
        ends(home.path(), "check --norecovery a.img", 0);
        writer.unlock().unwrap();
        // Readers do not exclude each other.
        writer.try_lock_shared().unwrap();
        ends(home.path(), "check a.img", 0);
    }
}

#[test]
fn a_partition_is_checked() {
    for options in FORMATS {
        let home = sound_and_damaged(options);
        for (name, status) in [("a.img", 0), ("bad.img", 1)] {
            let part = fs::read(home.path().join(name)).unwrap();
            disk::with_partition(&home.path().join("disk"), &part);
            let alone = object(home.path(), &format!("check --json {name}"), status);
            for place in ["--partition 1", "--offset 1M"] {
                let report = object(home.path(), &format!("check --json {place} disk"), status);
                // Data behind the image is not part of it.
                if place == "--partition 1" {
                    assert_eq!(report["summary"], alone["summary"], "{report}");
                }
                assert_eq!(report["kinds"], alone["kinds"], "{report}");
            }
            let whole = run(home.path(), "check disk");
            assert_eq!(whole.status, 3, "{}", whole.messages);
            assert!(whole.messages.contains("choose one with --partition"), "{}", whole.messages);
        }
    }
}

#[test]
fn an_image_without_a_superblock_is_recognised_by_other_structures() {
    for (options, start, len) in [
        // The second group contains a copy.
        ("--fs ext4 --size 300M", 0, 4096),
        // The other headers of the first group are intact.
        (FORMATS[1], 0, 512),
        // The copies in other groups are intact.
        (FORMATS[1], 0, 4096),
        ("--fs xfs --small --size 140M --ag-count 7", 0, 65536),
    ] {
        let home = image(options);
        write(&home.path().join("a.img"), start, &vec![0; len]);
        let report = object(home.path(), "check --json a.img", 1);
        let format = if options.contains("xfs") { "xfs" } else { "ext4" };
        assert_eq!(report["format"], format, "{options}: {report}");
        assert!(report["counts"]["unusable"].as_u64().unwrap() > 0, "{options}: {report}");
        assert!(count(&report) > 0 && !list(&report, "kinds").is_empty(), "{report}");
    }
}

#[test]
fn unknown_formats_and_features_are_not_checked() {
    let home = image(FORMATS[0]);
    for (what, contents, advice) in [
        ("zeros", vec![0; 1 << 20], "starts with zeros only"),
        ("text", b"hello".into(), "neither an"),
    ] {
        fs::write(home.path().join(what), contents).unwrap();
        let refused = run(home.path(), &format!("check {what}"));
        assert_eq!((refused.status, refused.messages.contains(advice)), (3, true), "{what}");
    }
    // The highest of the 32 incompatible feature bits.
    build(home.path(), "b.img", "--features ^metadata_csum");
    let image = home.path().join("b.img");
    write(&image, 1024 + 0x63, &[0x80]);
    let refused = run(home.path(), "check --json b.img");
    assert_eq!(refused.status, 3, "{}", refused.messages);
    let report: serde_json::Value = serde_json::from_str(&refused.out).unwrap();
    assert_eq!((&report["type"], &report["status"]), (&json!("error"), &json!(3)), "{report}");
    assert!(refused.messages.contains("unsupported"), "{}", refused.messages);
}
