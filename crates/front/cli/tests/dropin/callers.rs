//! Command lines of image builders, compared with the original programs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::{contents, file, home, run_with};

/// Caller, size of the existing image file (0 for none), and command line. `{}` is the image.
const CALLS: [(&str, u64, &str); 15] = [
    ("buildroot", 0, "mkfs.ext4 -d tree -r 1 -N 0 -m 5 -L rootfs -I 256 -O ^64bit {} 64M"),
    ("buildroot, ext2", 0, "mkfs.ext2 -d tree -r 1 -N 0 -m 5 -L rootfs -O ^64bit {} 60M"),
    ("Repairer", 0, "mkfs.ext4 -F -r 1 -N 0 -d tree -L data {} 64M"),
    (
        "genimage",
        0,
        "mke2fs -t ext4 -I 256 -E root_owner=0:0,lazy_itable_init=0,lazy_journal_init=0 -d tree -L root {} 65536k",
    ),
    (
        "OpenEmbedded",
        64 << 20,
        "mkfs.ext4 -F -E hash_seed=86ca73ff-7379-40bd-a098-fcb03a6e719d {} -d tree",
    ),
    (
        "systemd",
        128 << 20,
        "mkfs.ext4 -L root -U 0a28e812-3747-40bc-8194-e08e509097d0 -I 256 -m 0 -E \
         nodiscard,lazy_itable_init=1,hash_seed=0a28e812-3747-40bc-8194-e08e509097d1 -b 4096 -T default -d tree -q {}",
    ),
    ("ubuntu-image", 0, "mkfs.ext4 -b 4096 -d tree -L writable {} 96M"),
    ("mkosi", 96 << 20, "mkfs.ext4 -I 256 -L root -M / -d tree {}"),
    ("vmdb2", 64 << 20, "mkfs.ext4 -L root -O ^large_dir -O ^metadata_csum_seed {}"),
    (
        "Android",
        0,
        "mke2fs -O ^has_journal -L system -N 4096 -I 256 -M /system -m 0 -U 0a28e812-3747-40bc-8194-e08e509097d0 -E \
         hash_seed=0a28e812-3747-40bc-8194-e08e509097d1 -t ext4 -b 4096 {} 16384",
    ),
    ("Android, with a journal", 0, "mke2fs -M /data -j -t ext4 -b 4096 {} 16384"),
    ("Kubernetes", 64 << 20, "mkfs.ext4 -F -m0 {}"),
    ("Kubernetes, large", 3 << 30, "mkfs.ext4 -F -m0 {}"),
    ("a small one", 0, "mke2fs -t ext3 -F -q {} 2048"),
    ("no journal", 0, "mke2fs -q -t ext4 -O ^has_journal,^orphan_file -d tree {} 32M"),
];

/// Configuration for both programs: that of e2fsprogs in Debian 12.
pub(super) const CONFIG: &str = "[defaults]\nbase_features = sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr\n\
        default_mntopts = acl,user_xattr\nenable_periodic_fsck = 0\nblocksize = 4096\ninode_size = 256\n\
        inode_ratio = 16384\n[fs_types]\next3 = {\nfeatures = has_journal\n}\next4 = {\nfeatures = \
        has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize\n}\nsmall = {\nblocksize = \
        1024\ninode_ratio = 4096\n}\nfloppy = {\nblocksize = 1024\ninode_ratio = 8192\n}\n";

/// Returns the fields of `dumpe2fs -h`, except random values and counts of free space.
fn header(image: &Path) -> BTreeMap<String, String> {
    let output = testkit::command("dumpe2fs").arg("-h").arg(image).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let wanted = [
        "Filesystem volume name",
        "Last mounted on",
        "Filesystem features",
        "Default mount options",
        "Filesystem state",
        "Inode count",
        "Block count",
        "Reserved block count",
        "Block size",
        "Blocks per group",
        "Inodes per group",
        "Flex block group size",
        "Inode size",
        "First block",
        "Total journal size",
    ];
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let lines = lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    lines.filter(|(name, _)| wanted.contains(&&**name)).collect()
}

#[test]
fn the_calls_of_builders_give_what_they_gave() {
    testkit::require!(Version("mke2fs", 1, 47), Tool("dumpe2fs"), Tool("e2fsck"));
    for (caller, bytes, line) in CALLS {
        let home = home();
        let dir = home.path();
        fs::write(dir.join("mke2fs.conf"), CONFIG).unwrap();
        for image in ["ours", "theirs"] {
            if bytes > 0 {
                file(dir, image, bytes);
            }
        }
        let ended = run_with(dir, &line.replace("{}", "ours"), &[("MKE2FS_CONFIG", "mke2fs.conf")]);
        assert_eq!(ended.status, 0, "{caller}: {ended:?}");
        let mut words = line.split_whitespace();
        let name = words.next().unwrap();
        let mut theirs = testkit::command("mke2fs");
        theirs.current_dir(dir).env("MKE2FS_CONFIG", "mke2fs.conf");
        if let Some(kind) = name.strip_prefix("mkfs.") {
            theirs.args(["-t", kind]);
        }
        let output = theirs
            .args(words.map(|word| if word == "{}" { "theirs" } else { word }))
            .output()
            .unwrap();
        assert!(output.status.success(), "{caller}: {output:?}");
        let (ours, theirs) = (dir.join("ours"), dir.join("theirs"));
        testkit::e2fsck(&ours);
        assert_eq!(header(&ours), header(&theirs), "{caller}");
        let length = |path: &Path| fs::metadata(path).unwrap().len();
        assert_eq!(length(&ours), length(&theirs), "{caller}");
        if line.contains("-d tree") {
            assert_eq!(contents(dir, "ours", "/etc/hostname"), "box\n", "{caller}");
            assert_eq!(contents(dir, "ours", "/etc/file-299"), "299", "{caller}");
        }
    }
}

#[test]
fn the_environment_makes_images_the_same() {
    let home = home();
    let dir = home.path();
    for (name, value) in
        [("SOURCE_DATE_EPOCH", "1600000000"), ("E2FSPROGS_FAKE_TIME", "1600000000")]
    {
        let make = |image: &str| {
            let line = format!("mkfs.ext4 -q -d tree {image} 64M");
            let ended = run_with(dir, &line, &[(name, value)]);
            assert_eq!(ended.status, 0, "{ended:?}");
            fs::read(dir.join(image)).unwrap()
        };
        assert!(make("a") == make("b"), "{name}");
    }
    let make = |image: &str| {
        assert_eq!(run_with(dir, &format!("mkfs.ext4 -q {image} 8M"), &[]).status, 0);
        fs::read(dir.join(image)).unwrap()
    };
    assert!(make("c") != make("d"), "two file systems have one UUID");
    let ended = run_with(dir, "mkfs.ext4 -q e 8M", &[("E2FSPROGS_FAKE_TIME", "soon")]);
    assert_eq!(ended.status, 1, "{ended:?}");
    assert!(ended.messages.contains("E2FSPROGS_FAKE_TIME"), "{ended:?}");
}
