//! `make_ext4fs` and `e2fsdroid`, as called by OpenWrt and the Android build.

use std::fs;
use std::path::Path;

use diskwright::fs::Image;

use super::{contents, done, file, home, run};

/// Creates a tree like that of the system partition, with the lists that the Android build writes.
fn system(dir: &Path) {
    fs::create_dir_all(dir.join("system/bin")).unwrap();
    fs::write(dir.join("system/bin/sh"), vec![7; 9000]).unwrap();
    fs::write(dir.join("system/bin/ping"), "ping\n").unwrap();
    fs::write(dir.join("system/build.prop"), "ro.x=1\n").unwrap();
    std::os::unix::fs::symlink("sh", dir.join("system/bin/link")).unwrap();
    fs::write(
        dir.join("fs_config"),
        "system 0 0 755 selabel=u:object_r:system_file:s0 capabilities=0x0\n\
         system/bin 0 2000 751 capabilities=0x0\n\
         system/bin/sh 0 2000 755 capabilities=0x0\n\
         system/bin/link 0 2000 777 capabilities=0x0\n\
         system/bin/ping 1000 2000 750 capabilities=0x2000\n\
         system/build.prop 0 0 600\n",
    )
    .unwrap();
    fs::write(
        dir.join("file_contexts"),
        "/system(/.*)?  u:object_r:system_file:s0\n/system/bin/sh  u:object_r:shell_exec:s0\n",
    )
    .unwrap();
}

fn is_as_listed(image: &Path) {
    let image = Image::open(image).unwrap();
    for (path, uid, gid, permissions) in [
        ("/", 0, 0, 0o755),
        ("/bin", 0, 2000, 0o751),
        ("/bin/sh", 0, 2000, 0o755),
        ("/bin/ping", 1000, 2000, 0o750),
        ("/build.prop", 0, 0, 0o600),
    ] {
        let metadata = image.metadata(path).unwrap();
        let found = (metadata.uid(), metadata.gid(), metadata.permissions() & 0o7777);
        assert_eq!(found, (uid, gid, permissions), "{path}");
        assert_eq!(metadata.mtime().sec, 1_230_768_000, "{path}");
    }
    let label = |path: &str| image.get_xattr(path, "security.selinux").unwrap().unwrap();
    assert_eq!(label("/bin/sh"), b"u:object_r:shell_exec:s0\0");
    assert_eq!(label("/bin"), b"u:object_r:system_file:s0\0");
    assert_eq!(label("/"), b"u:object_r:system_file:s0\0");
    let capability = image.get_xattr("/bin/ping", "security.capability").unwrap().unwrap();
    assert_eq!(capability[..8], [1, 0, 0, 2, 0, 0x20, 0, 0]);
    assert_eq!(image.get_xattr("/bin/sh", "security.capability").unwrap(), None);
}

/// Asserts that each regular file's data is in the blocks that its line lists.
fn blocks_hold(list: &Path, image: &Path, root: &Path) {
    let bytes = fs::read(image).unwrap();
    let text = fs::read_to_string(list).unwrap();
    assert_eq!(text.lines().count(), 3, "{text}");
    for line in text.lines() {
        let mut words = line.split(' ');
        let path = words.next().unwrap().strip_prefix("/system/").unwrap();
        let expected = fs::read(root.join(path)).unwrap();
        let mut found = Vec::new();
        for range in words {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
            found.extend_from_slice(&bytes[first * 4096..(last + 1) * 4096]);
        }
        assert_eq!(found[..expected.len()], expected, "{line}");
        assert!(found[expected.len()..].iter().all(|byte| *byte == 0), "{line}");
    }
}

#[test]
fn make_ext4fs_is_called_as_openwrt_calls_it() {
    let home = home();
    let dir = home.path();
    let line = "make_ext4fs -L rootfs -l 67108864 -b 4096 -m 0 -J -T 1600000000 {} tree/";
    done(dir, &line.replace("{}", "image"));
    assert_eq!(contents(dir, "image", "/etc/file-299"), "299");
    assert_eq!(fs::metadata(dir.join("image")).unwrap().len(), 64 << 20);
    let image = Image::open(dir.join("image")).unwrap();
    for path in ["/", "/etc", "/etc/hostname", "/lost+found"] {
        let metadata = image.metadata(path).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (0, 0), "{path}");
        assert_eq!(metadata.mtime().sec, 1_600_000_000, "{path}");
    }
    let shown = done(dir, "dumpe2fs -h image");
    for text in [
        "rootfs\n",
        "ext_attr resize_inode filetype extent sparse_super large_file uninit_bg\n",
        "Block size:               4096\n",
        "Reserved block count:     0\n",
    ] {
        assert!(shown.contains(text), "{text} is not in {shown}");
    }
    // The same tree produces the same bytes, also later.
    done(dir, &line.replace("{}", "again"));
    assert!(fs::read(dir.join("image")).unwrap() == fs::read(dir.join("again")).unwrap());
    // With a journal, a given number of inodes, and reserved blocks.
    done(dir, "make_ext4fs -l 64M -b 1024 -i 6000 -m 5 -j 4096 other tree");
    let shown = done(dir, "dumpe2fs -h other");
    assert!(shown.contains("has_journal") && shown.contains("Block size:               1024\n"));
    let inodes = shown.lines().find_map(|line| line.strip_prefix("Inode count:")).unwrap();
    assert!((6000..6200).contains(&inodes.trim().parse::<u32>().unwrap()), "{inodes}");
    assert!(shown.contains("Reserved block count:     3276\n"), "{shown}");
    // An empty image with the size of its file.
    file(dir, "empty", 16 << 20);
    done(dir, "make_ext4fs -u empty");
    testkit::require!(Tool("e2fsck"));
    for image in ["image", "other", "empty"] {
        testkit::e2fsck(dir.join(image));
    }
}

#[test]
fn androids_build_makes_images_of_the_system() {
    let home = home();
    let dir = home.path();
    system(dir);
    let lists = "-T 1230768000 -C fs_config -S file_contexts -a /system";
    // Older builds.
    done(dir, &format!("make_ext4fs {lists} -l 64M -B blocks image system"));
    is_as_listed(&dir.join("image"));
    blocks_hold(&dir.join("blocks"), &dir.join("image"), &dir.join("system"));
    // Newer builds, raw and sparse.
    let make = "mke2fs -q -t ext4 -b 4096 -O ^has_journal -L system -M /system -N 4096 -I 256 -m 0 \
                -U 0a28e812-3747-40bc-8194-e08e509097d0 -E ";
    let seed = "hash_seed=0a28e812-3747-40bc-8194-e08e509097d1";
    done(dir, &format!("{make}{seed} raw 16384"));
    done(dir, &format!("{make}android_sparse,{seed} sparse 16384"));
    done(dir, &format!("e2fsdroid {lists} -p product -B raw.blocks -f system -e raw"));
    done(dir, &format!("e2fsdroid {lists} -B sparse.blocks -f system sparse"));
    is_as_listed(&dir.join("raw"));
    blocks_hold(&dir.join("raw.blocks"), &dir.join("raw"), &dir.join("system"));
    assert_eq!(
        fs::read(dir.join("raw.blocks")).unwrap(),
        fs::read(dir.join("sparse.blocks")).unwrap()
    );
    assert_eq!(fs::read(dir.join("sparse")).unwrap()[..4], 0xed26_ff3a_u32.to_le_bytes());
    let shown = done(dir, "dumpe2fs -h raw");
    for text in [
        "Last mounted on:          /system\n",
        "0a28e812-3747-40bc-8194-e08e509097d0\n",
        "Directory Hash Seed:      0a28e812-3747-40bc-8194-e08e509097d1\n",
        "Inode count:              4096\n",
        "Reserved block count:     0\n",
        "Block count:              16384\n",
    ] {
        assert!(shown.contains(text), "{text} is not in {shown}");
    }
    assert!(!shown.contains("has_journal"), "{shown}");
    // Existing contents are kept.
    let again = run(dir, &format!("e2fsdroid {lists} -f system -e raw"));
    assert!(again.status == 1 && again.messages.contains("mke2fs"), "{again:?}");
    let again = run(dir, &format!("e2fsdroid {lists} -f system sparse"));
    assert!(again.status == 1 && again.messages.contains("mke2fs"), "{again:?}");
    testkit::require!(Tool("e2fsck"));
    testkit::e2fsck(dir.join("image"));
    testkit::e2fsck(dir.join("raw"));
    testkit::require!(Tool("simg2img"));
    let mut command = testkit::command("simg2img");
    assert!(command.current_dir(dir).args(["sparse", "unpacked"]).status().unwrap().success());
    assert!(fs::read(dir.join("unpacked")).unwrap() == fs::read(dir.join("raw")).unwrap());
}

#[test]
fn unsupported_options_are_refused() {
    let home = home();
    let dir = home.path();
    system(dir);
    done(dir, "mke2fs -q -t ext4 -b 4096 raw 16M");
    fs::write(dir.join("few"), "system 0 0 755\n").unwrap();
    fs::write(dir.join("torn"), [&0xed26_ff3a_u32.to_le_bytes()[..], &[1; 30]].concat()).unwrap();
    let before = fs::read(dir.join("raw")).unwrap();
    for (line, expected) in [
        ("make_ext4fs", "image"),
        ("make_ext4fs new tree", "-l"),
        ("make_ext4fs -l 1M new tree", ""),
        ("make_ext4fs -l 64M new nothing", "nothing"),
        ("make_ext4fs -l 64M new tree more", "more"),
        ("make_ext4fs -l 64Q new tree", "-l"),
        ("make_ext4fs -l 64M -a /system new system", "-C"),
        ("make_ext4fs -l 64M -a system -C few new system", "/system/b"),
        ("e2fsdroid raw", "-f"),
        ("e2fsdroid -f system -S file_contexts raw", "-C"),
        ("e2fsdroid -f system -a system -C few raw", "/system/b"),
        ("e2fsdroid -f system nothing", "nothing"),
        ("e2fsdroid -f system torn", "torn"),
    ] {
        let ended = run(dir, line);
        assert_eq!(ended.status, 1, "{line}: {ended:?}");
        assert!(ended.messages.contains(expected), "{line}: {ended:?}");
        assert!(!dir.join("new").exists(), "{line}");
    }
    assert!(fs::read(dir.join("raw")).unwrap() == before);
}
