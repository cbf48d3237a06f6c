//! Encrypted directories are read with their keys. The image and the record of its contents are the kernel's.

use std::fs;
use std::path::Path;

use testkit::require;

use crate::mount::Mounting;
use crate::program::{fails, ok};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../formats/ext4/tests/golden/");

/// Writes the image, and files with its keys: `a` to `c`, and one that is not among its keys.
fn unpack(dir: &Path) {
    let output = testkit::command("gzip")
        .args(["-dc", &format!("{GOLDEN}fscrypt.img.gz")])
        .output()
        .unwrap();
    assert!(output.status.success());
    fs::write(dir.join("e.img"), output.stdout).unwrap();
    let keys = [
        ("a", "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"),
        ("b", "diskwright-fscrypt-key-32-bytes."),
        ("c", "sixteen-byte-key"),
        ("other", "this-is-a-key-of-another-image.."),
    ];
    for (name, key) in keys {
        fs::write(dir.join(name), key).unwrap();
    }
}

const KEYS: &str = "--fscrypt-key-file a --fscrypt-key-file b --fscrypt-key-file c";

#[test]
fn encrypted_files_are_read_with_their_keys() {
    let scratch = testkit::scratch();
    let dir = scratch.path();
    unpack(dir);
    for policy in ["v1-xts", "v1-cbc", "v2-units", "v2-cbc", "v2-adiantum-direct", "v2-fold"] {
        let small = ok(dir, &format!("cat e.img /{policy}/small {KEYS}"));
        assert_eq!(small, format!("hello from {policy}"));
        assert_eq!(ok(dir, &format!("cat e.img /{policy}/link {KEYS}")), small);
    }
    let long = ok(dir, &format!("ls -l e.img /v2-xts {KEYS}"));
    assert!(long.lines().any(|line| line.ends_with("link -> small")), "{long}");
    let found = ok(dir, &format!("find e.img /v2-lblk-32 --name deep {KEYS}"));
    assert_eq!(found.trim_end(), "/v2-lblk-32/sub/deep");
    ok(dir, &format!("extract e.img out --path /v2-xts {KEYS}"));
    let numbers: String = (1..=2700).map(|number| format!("{number}\n")).collect();
    assert_eq!(fs::read_to_string(dir.join("out/big")).unwrap(), numbers);
}

#[test]
fn a_missing_or_wrong_key_is_named() {
    let scratch = testkit::scratch();
    let dir = scratch.path();
    unpack(dir);
    let needed = "encrypted by the key with identifier 3f872b09427a09ff6d1b63a7f332d084";
    let said = fails(dir, "cat e.img /v2-xts/small", 3);
    assert!(said.contains(needed) && said.contains("--fscrypt-key-file FILE"), "{said}");
    let said = fails(dir, "cat e.img /v2-xts/small --fscrypt-key-file other", 3);
    assert!(said.contains(needed) && said.contains("the given key has identifier"), "{said}");
    assert!(!said.contains("this-is-a-key"), "{said}");
    let said = fails(dir, "cat e.img /v1-xts/small --fscrypt-key-file b", 3);
    assert!(said.contains("descriptor b009bdfb7e2c7fef"), "{said}");
    fs::write(dir.join("short"), "short").unwrap();
    let said = fails(dir, "cat e.img /plain/file --fscrypt-key-file short", 2);
    assert!(said.contains("16 to 64 bytes"), "{said}");
    let said = fails(dir, "cat e.img /plain/file --fscrypt-key-file missing", 2);
    assert!(said.contains("missing"), "{said}");
    let dump = ok(dir, "dump e.img inode /v2-units");
    assert!(dump.contains("padding 32, data units of 512 bytes, key identifier 3f87"), "{dump}");
}

#[test]
fn encrypted_directories_are_not_changed_with_their_key() {
    let scratch = testkit::scratch();
    let dir = scratch.path();
    unpack(dir);
    for line in ["mkdir e.img /v2-xts/new", "mv e.img /v2-xts/small /plain/small"] {
        let said = fails(dir, &format!("{line} {KEYS}"), 3);
        assert!(said.contains("can be read and removed, but not created or changed"), "{said}");
    }
    ok(dir, &format!("rm e.img /v2-xts/small {KEYS}"));
    assert!(!ok(dir, &format!("ls e.img /v2-xts {KEYS}")).contains("small"));
    testkit::judge(dir.join("e.img"));
}

#[test]
fn a_mount_reads_encrypted_directories_with_keys() {
    require!(Fuse);
    let scratch = testkit::scratch();
    let dir = scratch.path();
    unpack(dir);
    let keys = ["a", "b"].map(|key| format!("--fscrypt-key-file={}", dir.join(key).display()));
    let mounted = Mounting::new(&dir.join("e.img")).arguments(keys).start();
    let top = mounted.join("v2-xts");
    assert_eq!(fs::read_to_string(top.join("small")).unwrap(), "hello from v2-xts");
    assert_eq!(fs::read_link(top.join("link")).unwrap(), Path::new("small"));
    let big = fs::read_to_string(mounted.join("v2-adiantum-direct/big")).unwrap();
    assert_eq!(big.lines().count(), 2700);
    let refused = fs::write(top.join("small"), "new").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(126), "ENOKEY");
    // Without its key, a directory has the names of kernels.
    // An entry keeps its directory open, so only its name is kept.
    let mut entries = fs::read_dir(mounted.join("v2-cbc")).unwrap();
    let text = entries.next().unwrap().unwrap().file_name().into_string().unwrap();
    drop(entries);
    assert!(text.len() >= 32 && !text.contains('.'), "{text}");
    assert_eq!(mounted.unmount(), "");
}
