//! `blkid` and `xfs_admin`.

use std::fs;

use super::{done, file, home, run};

const UUID: &str = "0a28e812-3747-40bc-8194-e08e509097d0";

#[test]
fn blkid_prints_the_output_of_the_original() {
    let home = home();
    let dir = home.path();
    done(dir, &format!("mkfs.ext4 -q -L root -U {UUID} a 16M"));
    done(dir, &format!("mkfs.ext2 -q -U {UUID} b 16M"));
    done(dir, &format!("mkfs.xfs -q -L data -m uuid={UUID} -d size=320m c"));
    assert_eq!(done(dir, "blkid -p -s TYPE -s PTTYPE -o export a"), "DEVNAME=a\nTYPE=ext4\n");
    assert_eq!(done(dir, "blkid -o value -s UUID a"), format!("{UUID}\n"));
    assert_eq!(done(dir, "blkid -o device a c"), "a\nc\n");
    assert_eq!(run(dir, "blkid -p -n xfs a").status, 2);
    // The property is missing, but others exist: a file system must not be created there.
    assert_eq!(run(dir, "blkid -p -s PTTYPE a").status, 0);
    testkit::require!(Tool("blkid"));
    for options in
        ["", "-p", "-o export", "-p -o export", "-o value", "-p -o udev", "-p -n noxfs,nobtrfs"]
    {
        for images in ["a", "b", "c", "a b c"] {
            let line = format!("blkid {options} {images}");
            let mut theirs = testkit::command("blkid");
            theirs.current_dir(dir).args(["-c", "/dev/null"]);
            let output = theirs.args(line.split_whitespace().skip(1)).output().unwrap();
            let ours = run(dir, &line);
            assert_eq!(Some(ours.status), output.status.code(), "{line}");
            let theirs = String::from_utf8(output.stdout).unwrap();
            // Newer versions report sizes, too.
            let wanted = |text: &str| {
                let words = text.split_inclusive(['\n', ' ']);
                words
                    .filter(|word| {
                        !word.contains("FSSIZE")
                            && !word.contains("FSLASTBLOCK")
                            && !word.contains("FSBLOCKSIZE")
                    })
                    .collect::<String>()
            };
            assert_eq!(ours.out, wanted(&theirs), "{line}");
        }
    }
}

#[test]
fn blkid_reports_no_contents_as_empty() {
    let home = home();
    let dir = home.path();
    file(dir, "empty", 4 << 20);
    let ended = run(dir, "blkid -p empty");
    assert_eq!((ended.status, &*ended.out, &*ended.messages), (2, "", ""));
    // Text, half a superblock of btrfs, half a volume of RAID at the end.
    for (place, mark) in
        [(12345, &b"text"[..]), (0x10040, b"_BHRfS_M"), ((4 << 20) - 4096, b"\xfc\x4e\x2b\xa9")]
    {
        let mut bytes = vec![0; 4 << 20];
        bytes[place..place + mark.len()].copy_from_slice(mark);
        fs::write(dir.join("other"), bytes).unwrap();
        let ended = run(dir, "blkid -p other");
        assert_eq!(ended.status, 8, "{place}: {ended:?}");
        assert!(ended.messages.contains("the blkid of the system"), "{ended:?}");
    }
    for (line, status) in [
        ("blkid", 4),
        ("blkid -x a", 4),
        ("blkid -L root", 4),
        ("blkid nowhere", 2),
        ("blkid -V", 0),
    ] {
        let ended = run(dir, line);
        assert_eq!(ended.status, status, "{line}: {ended:?}");
    }
}

#[test]
fn xfs_admin_shows_and_sets_what_it_can() {
    let home = home();
    let dir = home.path();
    done(dir, &format!("mkfs.xfs -q -L data -m uuid={UUID} -d size=320m image"));
    assert_eq!(done(dir, "xfs_admin -l image"), "label = \"data\"\n");
    assert_eq!(done(dir, "xfs_admin -u image"), format!("UUID = {UUID}\n"));
    assert_eq!(done(dir, "xfs_admin -L other image"), "new label = \"other\"\n");
    assert_eq!(done(dir, "xfs_admin -lu image"), format!("label = \"other\"\nUUID = {UUID}\n"));
    done(dir, "xfs_admin -L -- image");
    assert_eq!(done(dir, "xfs_admin -l image"), "label = \"\"\n");
    for option in ["-e", "-j", "-p", "-c 0"] {
        let ended = run(dir, &format!("xfs_admin {option} image"));
        assert_eq!(ended.status, 1, "{option}: {ended:?}");
        assert!(ended.messages.contains("not supported"), "{option}: {ended:?}");
    }
    done(dir, "mkfs.ext4 -q ext4 8M");
    for (line, expected) in [
        ("xfs_admin image", "-l, -u, -L, -U or -O"),
        ("xfs_admin -U something image", "-U"),
        ("xfs_admin -l ext4", "not XFS"),
        ("xfs_admin -L muchtoolongforit image", "12"),
    ] {
        let ended = run(dir, line);
        assert!(ended.status == 1 && ended.messages.contains(expected), "{line}: {ended:?}");
    }
    testkit::require!(Tool("xfs_repair"));
    testkit::xfs_repair(dir.join("image"));
}

#[test]
fn xfs_admin_adds_features() {
    testkit::require!(Tool("xfs_repair"));
    let home = home();
    let dir = home.path();
    let old = "-m bigtime=0,inobtcount=0 -i nrext64=0,exchange=0";
    done(dir, &format!("mkfs.xfs -q {old} -d size=320m -p tree image"));
    for word in ["bigtime=0", "parent=1", "finobt=1", "bigtime=1,other=1"] {
        let ended = run(dir, &format!("xfs_admin -O {word} image"));
        assert!(ended.status != 0 && ended.messages.contains(word.split('=').next().unwrap()));
    }
    done(dir, "xfs_admin -O bigtime=1,inobtcount=1 -O nrext64=1,exchange=1 image");
    let info = done(dir, "xfs_info image");
    for feature in ["bigtime=1", "inobtcount=1", "nrext64=1", "exchange=1"] {
        assert!(info.contains(feature), "{feature}: {info}");
    }
    assert_eq!(super::contents(dir, "image", "/etc/file-17"), "17");
    testkit::xfs_repair(dir.join("image"));
}

#[test]
fn xfs_admin_gives_another_uuid() {
    const OTHER: &str = "11111111-2222-3333-4444-555555555555";
    testkit::require!(Tool("xfs_repair"));
    let home = home();
    let dir = home.path();
    done(dir, &format!("mkfs.xfs -q -m uuid={UUID} -d size=320m -p tree image"));
    let judge = |uuid: &str, has_other: bool| {
        assert_eq!(done(dir, "xfs_admin -u image"), format!("UUID = {uuid}\n"));
        assert_eq!(done(dir, "blkid -o value -s UUID image").trim(), uuid);
        assert_eq!(super::contents(dir, "image", "/etc/file-17"), "17");
        let info = diskwright::Image::open(dir.join("image"));
        let features = format!("{:?}", info.unwrap().info().unwrap().features());
        assert_eq!(features.contains("meta-uuid"), has_other, "{features}");
        testkit::xfs_repair(dir.join("image"));
    };
    assert_eq!(done(dir, &format!("xfs_admin -U {OTHER} image")), format!("new UUID = {OTHER}\n"));
    judge(OTHER, true);
    // The writer continues, and its data can be read.
    let image = diskwright::fs::Image::open_writable(dir.join("image")).unwrap();
    image.write("/new", "new").unwrap();
    image.close().unwrap();
    judge(OTHER, true);
    let said = done(dir, "xfs_admin -U generate image");
    let made = said.trim().strip_prefix("new UUID = ").unwrap().to_owned();
    assert!(made != OTHER && made != UUID);
    judge(&made, true);
    done(dir, "xfs_admin -U restore image");
    judge(UUID, false);
    assert_eq!(super::contents(dir, "image", "/new"), "new");
}
