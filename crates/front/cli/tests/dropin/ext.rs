//! Programs for ext2, ext3 and ext4: their effects and exit statuses.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use super::{contents, done, file, home, run};

#[test]
fn the_file_length_equals_that_of_the_original() {
    let home = home();
    let dir = home.path();
    file(dir, "image", 80 << 20);
    done(dir, "mkfs.ext4 -q image 64M");
    assert_eq!(fs::metadata(dir.join("image")).unwrap().len(), 80 << 20);
    // It grows to the end of its file. Shrinking truncates the file, as resize2fs does.
    assert!(done(dir, "resize2fs image").contains("81920 (1k) blocks"));
    assert!(done(dir, "resize2fs image").contains("Nothing to do"));
    assert!(done(dir, "resize2fs image 48M").contains("49152 (1k) blocks"));
    assert_eq!(fs::metadata(dir.join("image")).unwrap().len(), 48 << 20);
    // It grows past the end of the file, which is extended.
    assert!(done(dir, "resize2fs image 100M").contains("102400 (1k) blocks"));
    let least = done(dir, "resize2fs -P image");
    let least: u64 = least.rsplit(' ').next().unwrap().trim().parse().unwrap();
    assert!(least < 49152, "{least}");
    done(dir, "resize2fs -M image");
    let header = done(dir, "dumpe2fs -h image");
    let blocks = header.lines().find_map(|line| line.strip_prefix("Block count:")).unwrap();
    let blocks: u64 = blocks.trim().parse().unwrap();
    assert_eq!(fs::metadata(dir.join("image")).unwrap().len(), blocks * 1024);
    testkit::require!(Tool("e2fsck"));
    testkit::e2fsck(dir.join("image"));
}

#[test]
fn numbers_alone_count_kibibytes_or_blocks() {
    let home = home();
    let dir = home.path();
    done(dir, "mke2fs -q -t ext4 a 65536");
    assert_eq!(fs::metadata(dir.join("a")).unwrap().len(), 64 << 20);
    done(dir, "mke2fs -q -t ext4 -b 4096 b 16384");
    assert_eq!(fs::metadata(dir.join("b")).unwrap().len(), 64 << 20);
    done(dir, "mke2fs -q -t ext4 c 131072s");
    assert_eq!(fs::metadata(dir.join("c")).unwrap().len(), 64 << 20);
}

#[test]
fn a_check_ends_as_e2fsck_does() {
    let home = home();
    let dir = home.path();
    done(dir, "mkfs.ext4 -q -d tree image 64M");
    assert!(done(dir, "e2fsck -p image").contains("image: clean, "));
    assert!(done(dir, "fsck.ext4 -pvfD image").contains("image: clean, "));
    assert!(done(dir, "e2fsck -fn image").contains("image: clean, "));
    // A wrong count in the superblock is safe to repair.
    let device = File::options().read(true).write(true).open(dir.join("image")).unwrap();
    let mut bitmap = [0; 4];
    device.read_exact_at(&mut bitmap, 2048 + 4).unwrap();
    let block = u64::from(u32::from_le_bytes(bitmap)) * 1024;
    let mut byte = [0; 1];
    device.read_exact_at(&mut byte, block).unwrap();
    device.write_all_at(&[byte[0] ^ 0xff], block).unwrap();
    let look = run(dir, "e2fsck -fn image");
    assert_eq!(look.status, 4, "{look:?}");
    let ask = run(dir, "e2fsck -f image");
    assert_eq!(ask.status, 4, "{ask:?}");
    let repaired = run(dir, "e2fsck -fy image");
    assert_eq!(repaired.status, 1, "{repaired:?}");
    assert!(repaired.out.contains("FILE SYSTEM WAS MODIFIED"), "{repaired:?}");
    assert_eq!(run(dir, "e2fsck -fy image").status, 0);
    assert_eq!(contents(dir, "image", "/etc/hostname"), "box\n");
    testkit::require!(Tool("e2fsck"));
    testkit::e2fsck(dir.join("image"));
}

/// Returns the exit statuses of our e2fsck and of the original for a copy of an image.
fn statuses(dir: &std::path::Path, image: &str, options: &str) -> (i32, i32) {
    fs::copy(dir.join(image), dir.join("a")).unwrap();
    fs::copy(dir.join(image), dir.join("b")).unwrap();
    let ours = run(dir, &format!("e2fsck {options} a")).status;
    let mut theirs = testkit::command("e2fsck");
    let theirs = theirs.current_dir(dir).args(options.split_whitespace()).arg("b").output();
    (ours, theirs.unwrap().status.code().unwrap())
}

#[test]
fn lost_copies_of_the_superblock_are_no_damage_and_come_back() {
    testkit::require!(Tool("e2fsck"), Version("mke2fs", 1, 47), Tool("e2image"));
    let home = home();
    let dir = home.path();
    testkit::Mke2fs::new("ext4")
        .arguments(["-b", "1024"])
        .populate(&dir.join("tree"))
        .create(&dir.join("whole"), 80 << 20);
    // e2image copies only used blocks, and no superblock copies.
    let mut copy = testkit::command("e2image");
    let copied = copy.current_dir(dir).args(["-ra", "whole", "bare"]).output().unwrap();
    assert!(copied.status.success(), "{copied:?}");
    for options in ["-fn", "-fp", "-fy", "-n", "-p", "-y", "-fa"] {
        assert_eq!(statuses(dir, "bare", options), (0, 0), "{options}");
    }
    fs::copy(dir.join("bare"), dir.join("preened")).unwrap();
    done(dir, "e2fsck -fp preened");
    let mut header = [0; 2];
    let preened = File::open(dir.join("preened")).unwrap();
    preened.read_exact_at(&mut header, 8193 * 1024 + 56).unwrap();
    assert_eq!(header, [0x53, 0xef], "the copy in group 1 is written again");
    // Other faults count.
    let device = File::options().write(true).open(dir.join("bare")).unwrap();
    device.write_all_at(&[0xff; 4], 1024 + 16).unwrap();
    drop(device);
    assert_eq!(run(dir, "e2fsck -fn bare").status, 4);
    for size in ["40M", "120M"] {
        fs::copy(dir.join("preened"), dir.join("resized")).unwrap();
        done(dir, &format!("resize2fs resized {size}"));
        testkit::e2fsck(dir.join("resized"));
    }
}

#[test]
fn resize2fs_takes_images_without_copies_of_the_superblock() {
    testkit::require!(Tool("e2fsck"), Version("mke2fs", 1, 47), Tool("e2image"));
    let home = home();
    let dir = home.path();
    testkit::Mke2fs::new("ext4").arguments(["-b", "1024"]).create(&dir.join("whole"), 80 << 20);
    let mut copy = testkit::command("e2image");
    let copied = copy.current_dir(dir).args(["-ra", "whole", "bare"]).output().unwrap();
    assert!(copied.status.success(), "{copied:?}");
    for size in ["40M", "120M"] {
        fs::copy(dir.join("bare"), dir.join("resized")).unwrap();
        done(dir, &format!("resize2fs resized {size}"));
        testkit::e2fsck(dir.join("resized"));
    }
}

/// Parses lines of `-C 3` as libblockdev does.
fn completion(dir: &std::path::Path, program: &[&str]) -> Vec<(u32, u64, u64, String)> {
    let words = program.join(" ");
    let line = format!("{words} -fn -C 3 image 3>lines >/dev/null 2>&1");
    let ended = std::process::Command::new("sh").current_dir(dir).args(["-c", &line]).status();
    assert!(ended.unwrap().success(), "{line}");
    let text = fs::read_to_string(dir.join("lines")).unwrap();
    let parsed = |line: &str| {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let [pass, at, max, device] = words[..] else { panic!("{line:?}") };
        (pass.parse().unwrap(), at.parse().unwrap(), max.parse().unwrap(), device.to_owned())
    };
    text.lines().map(parsed).collect()
}

#[test]
fn progress_lines_have_the_form_of_the_original() {
    testkit::require!(Tool("e2fsck"), Version("mke2fs", 1, 47), Tool("sh"));
    let home = home();
    let dir = home.path();
    testkit::Mke2fs::new("ext4").arguments(["-b", "1024"]).create(&dir.join("image"), 80 << 20);
    let ours = completion(dir, &[env!("CARGO_BIN_EXE_diskwright"), "as", "e2fsck"]);
    let theirs = completion(dir, &["e2fsck"]);
    let shape = |lines: &[(u32, u64, u64, String)]| {
        let mut passes: Vec<u32> = lines.iter().map(|(pass, ..)| *pass).collect();
        assert!(passes.is_sorted(), "{passes:?}");
        passes.dedup();
        for pass in &passes {
            let of_pass: Vec<_> = lines.iter().filter(|line| line.0 == *pass).collect();
            let (first, last) = (of_pass[0], of_pass[of_pass.len() - 1]);
            assert_eq!(first.1, 0, "{of_pass:?}");
            assert_eq!(last.1, last.2, "{of_pass:?}");
            assert!(of_pass.iter().all(|line| line.3 == "image"), "{of_pass:?}");
        }
        passes
    };
    assert_eq!(shape(&ours), shape(&theirs));
    assert_eq!(run(dir, "e2fsck -fn -C 77 image").status, 8);
    assert_eq!(run(dir, "e2fsck -fn -C 0 image").status, 0);
}

#[test]
fn a_replayed_journal_alone_has_the_status_of_the_original() {
    testkit::require!(Tool("e2fsck"), Version("mke2fs", 1, 47), Root);
    let home = home();
    let dir = home.path();
    testkit::Mke2fs::new("ext4").create(&dir.join("image"), 64 << 20);
    let options = testkit::MountOptions::read_write("ext4");
    let mount = testkit::KernelMount::new(dir.join("image"), &options);
    fs::create_dir(mount.path().join("made")).unwrap();
    File::open(mount.path().join("made")).unwrap().sync_all().unwrap();
    fs::copy(dir.join("image"), dir.join("pending")).unwrap();
    mount.unmount();
    for options in ["-p", "-a", "-y", "-n", "-fp", "-fy", "-y -E journal_only"] {
        let (ours, theirs) = statuses(dir, "pending", options);
        assert_eq!(ours, theirs, "{options}");
    }
}

#[test]
fn the_requested_superblock_copy_is_used() {
    testkit::require!(Tool("e2fsck"), Tool("mke2fs"));
    let home = home();
    let dir = home.path();
    let image = dir.join("image");
    let made = testkit::Mke2fs::new("ext4").arguments(["-b", "1024", "-g", "1024"]);
    made.populate(&dir.join("tree")).create(&image, 16 << 20);
    for options in ["-b 1025 -B 1024", "-b 3073"] {
        let device = File::options().write(true).open(&image).unwrap();
        device.write_all_at(&[0; 2048], 0).unwrap();
        for wrong in ["-b 1026", "-b 1025 -B 4096"] {
            assert_eq!(run(dir, &format!("e2fsck -fy {wrong} image")).status, 8, "{wrong}");
        }
        assert_eq!(run(dir, &format!("e2fsck -fn {options} image")).status, 4, "{options}");
        let repaired = run(dir, &format!("e2fsck -fy {options} image"));
        assert_eq!(repaired.status, 1, "{options}: {repaired:?}");
        assert_eq!(run(dir, &format!("e2fsck -fy {options} image")).status, 0, "{options}");
        assert_eq!(contents(dir, "image", "/etc/hostname"), "box\n");
        testkit::e2fsck(&image);
    }
}

#[test]
fn files_that_are_not_images_give_the_status_of_the_original() {
    let home = home();
    let dir = home.path();
    file(dir, "zeros", 1 << 20);
    for (line, status) in [
        ("e2fsck -n nothing", 8),
        ("e2fsck -n zeros", 8),
        ("e2fsck", 16),
        ("e2fsck -n -y zeros", 16),
        ("e2fsck -w zeros", 16),
        ("resize2fs zeros", 1),
        ("resize2fs", 1),
        ("dumpe2fs -h zeros", 1),
        ("mke2fs", 1),
        ("mke2fs nothing", 1),
        ("mke2fs a b c", 1),
        ("mke2fs -b 3000 a 8M", 1),
        ("mke2fs -m 51 a 8M", 1),
        ("mke2fs -O sparkles a 8M", 1),
        ("mke2fs -t ext5 a 8M", 1),
        ("mke2fs -E sparkles a 8M", 1),
        ("mke2fs -d nothing a 8M", 1),
        ("mke2fs -d tree a 1M", 1),
        ("mke2fs -N 5 -t ext4 -d tree a 32M", 1),
    ] {
        let ended = run(dir, line);
        assert_eq!(ended.status, status, "{line}: {ended:?}");
        assert!(!ended.messages.is_empty(), "{line}");
    }
    assert!(!dir.join("a").exists() && !dir.join("nothing").exists());
}

#[test]
fn the_superblock_is_shown_as_dumpe2fs_shows_it() {
    testkit::require!(Tool("dumpe2fs"));
    let home = home();
    let dir = home.path();
    for (number, line) in [
        "mkfs.ext4 -q -L name -m 1.5 -d tree {} 64M",
        "mkfs.ext2 -q {} 8M",
        "mke2fs -q -t ext4 -b 4096 -U clear {} 200M",
    ]
    .iter()
    .enumerate()
    {
        let image = format!("image-{number}");
        done(dir, &line.replace("{}", &image));
        let ours = done(dir, &format!("dumpe2fs -h {image}"));
        let mut theirs = testkit::command("dumpe2fs");
        theirs.current_dir(dir).env("TZ", "UTC").args(["-h", &image]);
        let theirs = String::from_utf8(theirs.output().unwrap().stdout).unwrap();
        let theirs = theirs.lines().collect::<Vec<_>>();
        for line in ours.lines().filter(|line| !line.is_empty()) {
            let is_there = theirs.iter().any(|known| known.trim_end() == line.trim_end());
            assert!(is_there, "{line:?} is not in {theirs:#?}");
        }
        let label = done(dir, &format!("e2label {image}"));
        assert_eq!(label.trim(), if number == 0 { "name" } else { "" });
    }
}

#[test]
fn the_root_directory_is_as_it_was_asked_for() {
    let home = home();
    let dir = home.path();
    done(dir, "mkfs.ext4 -q -E root_owner=7:8,root_perms=0711 image 16M");
    let image = diskwright::fs::Image::open(dir.join("image")).unwrap();
    let root = image.metadata("/").unwrap();
    assert_eq!((root.uid(), root.gid(), root.permissions() & 0o7777), (7, 8, 0o711));
    assert!(image.exists("/lost+found").unwrap());
}
