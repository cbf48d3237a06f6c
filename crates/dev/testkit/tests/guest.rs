//! The guest runs each job independently of earlier ones, and its checks can fail.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use testkit::guest::{self, Access, GuestJob, Kernel};
use testkit::{
    Ignore, Mke2fs, MkfsXfs, Tree, debugfs_write, differences, require, scratch, xfs_db_write,
};

const MIB: u64 = 1 << 20;

/// Runs a script on an image. The script must succeed.
#[track_caller]
fn changed(image: &Path, script: &str) -> String {
    let answer = guest::run(&GuestJob::new(format!("set -e\n{script}")).disk(image, false));
    assert!(answer.status == 0, "{}\n{}", answer.output, answer.log);
    answer.output
}

/// Creates an ext4 image with a directory and files by mke2fs. Returns its path and its tree.
fn ext4_image(folder: &Path) -> (std::path::PathBuf, Tree) {
    let (source, image) = (folder.join("source"), folder.join("image"));
    fs::create_dir_all(source.join("directory")).unwrap();
    fs::write(source.join("directory/file"), "contents").unwrap();
    let sparse = File::create(source.join("sparse")).unwrap();
    sparse.write_all_at(b"data", 64 << 10).unwrap();
    sparse.set_len(MIB).unwrap();
    symlink("directory/file", source.join("symlink")).unwrap();
    fs::hard_link(source.join("directory/file"), source.join("link")).unwrap();
    Mke2fs::new("ext4").populate(&source).create(&image, 16 * MIB);
    (image, Tree::of(&source))
}

#[test]
fn jobs_see_their_images_and_their_answers_come_back() {
    require!(Guest("EXT4_FS"), Tool("mke2fs"));
    let scratch = scratch();
    let images = ["one", "two"].map(|name| scratch.path().join(name));
    for image in &images {
        Mke2fs::new("ext4").create(image, 16 * MIB);
    }
    changed(&images[0], "mount $1 /mnt; echo from the guest >/mnt/file; umount /mnt");
    let job = GuestJob::new(
        "mount -o ro $2 /mnt; cat /mnt/file; umount /mnt; echo $#; echo oops >&2; exit 7",
    );
    let job = job.disk(&images[1], false).disk(&images[0], true);
    // Twice, because an image must be attachable again after it was detached.
    for _ in 0..2 {
        let begin = Instant::now();
        let answer = guest::run(&job);
        assert_eq!((answer.status, &*answer.output), (7, "from the guest\n2\noops\n"));
        assert!(answer.log.contains("EXT4-fs"), "{}", answer.log);
        eprintln!("a job took {:?}", begin.elapsed());
    }
    let refused = guest::run(&GuestJob::new("mount -o rw $1 /mnt").disk(&images[0], true));
    assert!(refused.status == 0 && refused.output.contains("read-only"), "{}", refused.output);
}

#[test]
fn a_panic_is_reported_and_the_next_job_runs() {
    require!(StableGuest("MAGIC_SYSRQ"));
    let panic =
        GuestJob::new("echo before; sleep 1; echo c >/proc/sysrq-trigger").on(Kernel::Stable);
    let failure = guest::attempt(&panic).unwrap_err();
    assert!(failure.reason.contains("ended during the job"), "{failure}");
    assert!(failure.output.contains("before"), "{failure}");
    assert!(failure.console.contains("Kernel panic"), "{failure}");
    assert_eq!(guest::run(&GuestJob::new("echo again").on(Kernel::Stable)).output, "again\n");
    // On the machine that is already running, because each start takes seconds.
    let hang =
        GuestJob { limit: Duration::from_secs(5), ..GuestJob::new("echo last words; sleep 9999") };
    let begin = Instant::now();
    let failure = guest::attempt(&hang.on(Kernel::Stable)).unwrap_err();
    assert!(failure.reason.contains("did not end within 5s"), "{failure}");
    assert_eq!(failure.output, "last words\n");
    assert!(begin.elapsed() < Duration::from_secs(120));
}

#[test]
fn missing_parts_of_the_guest_are_named() {
    require!(Guest("XFS_FS"));
    let reason = testkit::missing(testkit::Need::Guest("NO_SUCH_OPTION")).unwrap();
    assert_eq!(reason, "the guest's kernel (newest) is built without NO_SUCH_OPTION");
}

#[test]
fn a_tree_is_shown_as_it_is_and_differs_when_an_inode_does() {
    require!(Guest("EXT4_FS"), GuestTree, Tool("mke2fs"), Tool("debugfs"));
    let scratch = scratch();
    let (image, tree) = ext4_image(scratch.path());
    let ignore = Ignore { nanoseconds: true, root: true, ..Ignore::default() };
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let shown = guest::shown(&image, Kernel::Newest, access, "").unwrap();
        assert_eq!(differences(&tree, &shown, &ignore), [""; 0]);
    }
    debugfs_write(&image, "sif /directory/file uid 77");
    let shown = guest::shown(&image, Kernel::Newest, Access::ReadOnly, "").unwrap();
    let found = differences(&tree, &shown, &ignore);
    assert!(found.len() == 2 && found[0].contains("owner"), "{found:?}");
}

#[test]
fn kernels_refuse_an_image_with_a_damaged_extent_tree() {
    require!(Guest("EXT4_FS"), StableGuest("EXT4_FS"), Tool("mke2fs"), Tool("debugfs"));
    let scratch = scratch();
    let (image, _) = ext4_image(scratch.path());
    let kernels = [Kernel::Newest, Kernel::Stable];
    for kernel in kernels {
        guest::accepts(&image, kernel, Access::ReadOnly).unwrap();
        guest::accepts(&image, kernel, Access::ReadWrite).unwrap();
    }
    // Clears the magic number of the extent tree's root.
    debugfs_write(&image, "sif /directory/file block[0] 0");
    for kernel in kernels {
        let refused = guest::accepts(&image, kernel, Access::ReadOnly).unwrap_err();
        assert!(refused.contains("magic"), "{refused}");
    }
}

#[test]
fn scrub_finds_a_wrong_number_of_links() {
    require!(Guest("XFS_ONLINE_SCRUB"), Tool("mkfs.xfs"), Tool("xfs_db"));
    let scratch = scratch();
    let image = scratch.path().join("image");
    MkfsXfs::default().create(&image, 64 * MIB);
    let number = changed(
        &image,
        "mount $1 /mnt; mkdir /mnt/a; echo x >/mnt/a/file; stat -c %i /mnt/a/file; umount /mnt",
    );
    guest::scrub(&image).unwrap();
    let sound = scratch.path().join("sound");
    testkit::copy_image(&image, &sound);
    let inode = format!("inode {}", number.trim());
    xfs_db_write(&image, &[&inode, "write -d core.nlinkv2 7"]);
    let found = guest::scrub(&image).unwrap_err();
    assert!(found.contains("link count"), "{found}");
    let found = guest::accepts_all(&[sound, image], Kernel::Newest).unwrap_err();
    let (_, of_image) = found.split_once("image: image").expect(&found);
    assert!(of_image.contains("link count"), "{found}");
}

#[test]
fn quotas_are_reported_by_user() {
    require!(Guest("XFS_QUOTA"), Guest("QUOTA"), Tool("mkfs.xfs"), Tool("mke2fs"));
    let scratch = scratch();
    let image = scratch.path().join("image");
    let fill =
        "for n in 1 2 3; do head -c 8192 /dev/zero >/mnt/$n; chown 1000 /mnt/$n; done; umount /mnt";
    MkfsXfs::default().create(&image, 64 * MIB);
    changed(&image, &format!("mount $1 /mnt; {fill}"));
    let report = guest::quota_report(&image, Kernel::Newest).unwrap();
    assert!(report.contains(&(1000, 24, 3)), "{report:?}");
    // A mount without quotas invalidates the usage, so the kernel counts again, and finds one file less.
    changed(&image, "mount $1 /mnt; rm /mnt/3; umount /mnt");
    let report = guest::quota_report(&image, Kernel::Newest).unwrap();
    assert!(report.contains(&(1000, 16, 2)), "{report:?}");

    Mke2fs::new("ext4").features("quota").create(&image, 32 * MIB);
    changed(&image, &format!("mount $1 /mnt; {fill}"));
    let report = guest::quota_report(&image, Kernel::Newest).unwrap();
    assert!(report.contains(&(1000, 24, 3)), "{report:?}");
}

#[test]
fn names_are_found_in_folded_case() {
    require!(Guest("UNICODE"), Tool("mke2fs"));
    let scratch = scratch();
    let image = scratch.path().join("image");
    Mke2fs::new("ext4").features("casefold").create(&image, 16 * MIB);
    let fill = "mkdir /mnt/folded /mnt/exact; chattr +F /mnt/folded; touch /mnt/folded/Ärger /mnt/exact/Ärger";
    changed(&image, &format!("mount $1 /mnt; {fill}; umount /mnt"));
    let found = |name: &str| guest::finds_folded(&image, Kernel::Newest, name).unwrap();
    assert!(found("folded/ÄRGER") && found("exact/Ärger"));
    assert!(!found("exact/ÄRGER") && !found("folded/Arger"));
}

#[test]
fn encrypted_files_are_read_with_the_right_key_only() {
    require!(Guest("FS_ENCRYPTION"), Tool("mke2fs"));
    let scratch = scratch();
    let image = scratch.path().join("image");
    Mke2fs::new("ext4").features("encrypt").create(&image, 16 * MIB);
    let key = "5a".repeat(64);
    let raw = "printf '%64s' '' | tr ' ' Z";
    let id = changed(
        &image,
        &format!(
            "mount $1 /mnt; id=$({raw} | xfs_io -c add_enckey /mnt | grep -oE '[0-9a-f]{{32}}')\n\
             mkdir /mnt/secret; xfs_io -c \"set_encpolicy -v 2 $id\" /mnt/secret\n\
             echo hidden >/mnt/secret/file; umount /mnt; echo $id"
        ),
    );
    assert_eq!(id.trim().len(), 32, "{id}");
    let read = |key: &str| guest::reads_encrypted(&image, Kernel::Newest, key, "secret/file");
    assert_eq!(read(&key).unwrap(), "hidden\n");
    assert!(read(&"5b".repeat(64)).unwrap_err().contains("No such file"));
}

/// Tests that the guest has an NFS client and reaches this machine's loopback. The server is tested elsewhere.
#[test]
fn the_guest_reaches_servers_on_the_loopback() {
    require!(Guest("NFS_V4"), Guest("NFS_V3"));
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let answer = std::thread::scope(|scope| {
        scope.spawn(|| server.accept().unwrap().0.write_all(b"hello").unwrap());
        guest::tcp(port)
    });
    assert_eq!(answer.unwrap(), "hello");
    drop(server);
    for version in ["3", "4.2"] {
        let refused = guest::nfs(port, version, "/", "ls").unwrap_err();
        assert!(refused.contains("refused") || refused.contains("timed out"), "{refused}");
    }
}

#[test]
fn a_crash_leaves_a_log_that_a_mount_replays() {
    require!(Guest("XFS_FS"), GuestTree, Tool("mke2fs"), Tool("mkfs.xfs"));
    let scratch = scratch();
    let image = scratch.path().join("image");
    let load = "mkdir $M/a; echo kept >$M/a/file; sync; echo lost >$M/later";
    for format in ["ext4", "xfs"] {
        match format {
            "ext4" => Mke2fs::new("ext4").create(&image, 32 * MIB),
            _ => MkfsXfs::default().create(&image, 64 * MIB),
        }
        guest::crash(&image, Kernel::Newest, load, false);
        let before = fs::read(&image).unwrap();
        let shown = guest::shown(&image, Kernel::Stable, Access::ReadWrite, "").unwrap();
        assert_eq!(shown.node("a/file").size, 5, "{format}");
        assert!(!shown.nodes.contains_key(b"later".as_slice()), "{format}");
        // The log must have needed a replay.
        assert!(before != fs::read(&image).unwrap(), "{format}");
    }
    let damage = OpenOptions::new().write(true).open(&image).unwrap();
    damage.write_all_at(&[0; 512], 0).unwrap();
    assert!(
        guest::attempt(&GuestJob::new("mount -t xfs $1 /mnt").disk(&image, false)).unwrap().status
            != 0
    );
}
