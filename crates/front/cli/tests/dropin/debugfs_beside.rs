//! `debugfs` compared with the original: the same requests on copies of one image, created by the
//! original.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Read-only requests. Both programs print the same.
const LOOKS: &[&str] = &[
    "stat big",
    "stat etc/attributes",
    "stat fast",
    "stat slow",
    "stat null",
    "stat block",
    "stat fifo",
    "stat <2>",
    "stat <7>",
    "stat <8>",
    "stat <1>",
    "stat etc",
    "blocks big",
    "blocks slow",
    "bmap big 5",
    "bmap big 50000",
    "bmap hole 0",
    "imap big",
    "imap <800>",
    "ncheck 12 13 14",
    "ncheck 2 99",
    "icheck 1 300 301 5000",
    "ex big",
    "ex fragmented",
    "ex -n fragmented",
    "ex -l fragmented",
    "ex etc",
    "filefrag fragmented",
    "ls",
    "ls -l",
    "ls -p",
    "ls -d",
    "ls -c etc",
    "ls -l etc",
    "ls <2>",
    "ls -ld /",
    "htree indexed",
    "dx_hash foo",
    "dx_hash -h half_md4 foo",
    "dx_hash -h tea -s 01234567-89ab-cdef-0123-456789abcdef foo",
    "dirsearch etc attributes",
    "dirsearch etc nothing",
    "ea_list etc/attributes",
    "ea_list big",
    "ea_get etc/attributes user.a",
    "ea_get -x etc/attributes user.a",
    "ea_get -V etc/attributes user.a",
    "ea_get -V -x etc/attributes user.a",
    "testb 1",
    "testb 20000 3",
    "testi <12>",
    "testi <900>",
    "ffb 3 20000",
    "ffi",
    "pwd",
    "features",
    "stats",
    "stats -h",
    "params",
    "inode_dump big",
    "bd 1",
    "bd -f etc/attributes 0",
    "logdump",
    "logdump -a",
    "logdump -S",
    "cat etc/attributes",
    "cat <8>",
    "lsdel",
    "supported_features ext_attr",
];

/// Requests that fail, and a part of the message of both programs.
const FAILURES: &[(&str, &str)] = &[
    ("stat nothing", "nothing: File not found by ext2_lookup"),
    ("stat <99999999>", "<99999999>: File not found by ext2_lookup"),
    ("stat", "stat: Usage: "),
    ("ls big", "big: Ext2 inode is not a directory"),
    ("ls fast", "fast: Ext2 inode is not a directory"),
    ("ls -x", "ls: invalid option -- 'x'"),
    ("ex fast", "fast: does not uses extent block maps"),
    ("htree big", "htree: Not a directory"),
    ("htree lost+found", "htree: Not a hash-indexed directory"),
    ("cd big", "big: Ext2 inode is not a directory"),
    ("chroot nothing", "nothing: File not found by ext2_lookup"),
    ("ea_get big user.none", "Extended attribute key not found while getting extended attribute"),
    ("ncheck x", "ncheck: Invalid inode number - 'x'"),
    ("icheck x", "icheck: Bad block number - x"),
    ("testb 0", "testb: Invalid block number 0"),
    ("ffb x", "ffb: Bad count - x"),
    ("lcd /nonexistent", "while trying to change native directory to /nonexistent"),
    ("mkdir x", "mkdir: Filesystem opened read/only"),
    ("clri big", "clri: Filesystem opened read/only"),
    ("freeb 5", "freeb: Filesystem opened read/only"),
    ("sif", "sif: Usage: "),
    ("sparkle", "sparkle"),
    ("supported_features nothing", "Unknown feature: nothing"),
];

/// Scripts that change the image, and paths whose `stat` is compared afterwards.
const SCRIPTS: &[(&str, &[&str])] = &[
    (
        "sif big mode 0100600\nsif big uid 70000\nsif big gid 0x11\nsif big atime @1600000001\nsif big ctime 0x65000000\n\
         sif big mtime 20300101\nsif big mtime_extra 0xfffffffc\nsif big crtime 0x1ffffffff\nsif big atime_extra 4\n\
         sif big version 0x100000002\nsif big flags 0x80080\nsif big size 0x49400\nsif big dtime 0\n",
        &["big"],
    ),
    (
        "sif etc ctime 0x65000000\nsif etc mtime_extra 0\nsif etc projid 7\nsif fifo links_count 1\nsif fifo i_mode 0140755\n\
         sif fast faddr 9\nsif null block[0] 0x501\nsif fifo mtime_lo 7\nsif fifo mtime_hi 3\nsif fifo extra_isize 28\n\
         sif fast generation 77\nsif fifo uid_hi 3\nsif fifo atime junk\nsif fifo mode 0x1ffff\nsif fifo foo 1\n",
        &["etc", "fifo", "fast", "null"],
    ),
    (
        "sif hole block[0] 0\nsif slow file_acl 0\nsif <12> mtime now_is_no_time\nsif hole blocks 0\nsif hole size_hi 1\n",
        &["hole", "slow"],
    ),
    (
        "mkdir dir\nmkdir dir/sub\nwrite host dir/file\ncd dir\nsymlink link target\nmknod pipe p\nmknod char c 5 1\n\
         mknod large b 300 4000\nln file other\nsif file links_count 2\nea_set file user.x q\\x41\\n\n\
         ea_set -f host file user.y\nea_set file user.z z\nea_rm file user.z\nmkdir sub\nwrite host file\nmkdir none/x\n",
        &[
            "dir",
            "dir/sub",
            "dir/file",
            "dir/link",
            "dir/pipe",
            "dir/char",
            "dir/large",
            "dir/other",
        ],
    ),
    (
        "write sparse sparse\nrm big\nrmdir empty\nrm nothing\nrm etc\nrmdir etc\nrmdir hole\n",
        &["sparse"],
    ),
    // A file gets another name by its inode.
    ("ln <12> renamed\nunlink big\nunlink nothing\n", &["renamed"]),
    ("ln etc moved\nunlink etc\n", &["moved", "moved/attributes"]),
    ("copy_inode hole fifo\nclri null\n", &["fifo", "null"]),
    ("punch big 5 10\nfallocate hole 2 3\nexpand_dir empty\n", &["big", "hole", "empty"]),
    ("freeb 30000\nsetb 30000\nfreeb 30000\nfreei <900>\nseti <901>\nfreei <901>\n", &[]),
    ("kill_file big\nundel <12> again\nunlink big\n", &["again"]),
    (
        "ssv hash_seed 01234567-89ab-cdef-0123-456789abcdef\nssv wtime 5\nssv errors 2\nssv mtime 20200101000000\n\
         ssv lastcheck @77\nssv mnt_count 3\nssv max_mnt_count -5\nssv volume_name lab\nssv last_mounted /x\n\
         ssv overhead_clusters 0x10\nssv kbytes_written 99\nssv r_blocks_count 77\nssv checkinterval 9\n\
         ssv def_resuid 4\nssv raid_stride 4\nssv first_ino 11\nssv state 1\nssv mkfs_time @1500000000\nssv foo 1\n\
         ssv errors junk\nssv uuid junk\nssv volume_name aaaaaaaaaaaaaaaaaaaaaaaaa\n",
        &[],
    ),
];

/// Lines of `stat` in which the programs may differ, because they depend on the allocation.
const CHOICES: [&str; 4] = ["Generation: ", "Inode checksum: ", "File ACL: ", "Inode: "];
/// Lines of `dumpe2fs -h` that also depend on it, or on the journal, which only one program uses.
const SUMS: [&str; 4] = ["Checksum: ", "Lifetime writes: ", "Journal ", "Last write time: "];

/// Runs a debugfs in a directory, with a request or with lines on standard input.
fn debugfs(command: &mut Command, dir: &Path, options: &[&str], lines: Option<&str>) -> Output {
    command.current_dir(dir).args(options).env("DEBUGFS_PAGER", "cat").env("TZ", "UTC");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.unwrap_or_default().as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn ours() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskwright"));
    command.args(["as", "debugfs"]);
    command
}

fn theirs() -> Command {
    testkit::command("debugfs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Creates an image with the original programs: files of all types, a fragmented one, and an
/// indexed directory.
fn make(dir: &Path, options: &[&str]) {
    let tree = dir.join("tree");
    fs::create_dir_all(tree.join("etc")).unwrap();
    fs::create_dir_all(tree.join("empty")).unwrap();
    fs::write(tree.join("big"), (0..300_000_u32).map(|n| (n % 251) as u8 + 1).collect::<Vec<_>>())
        .unwrap();
    fs::write(tree.join("etc/attributes"), "hello\n").unwrap();
    std::os::unix::fs::symlink("etc/attributes", tree.join("fast")).unwrap();
    std::os::unix::fs::symlink("x".repeat(100), tree.join("slow")).unwrap();
    for number in 0..60 {
        fs::write(tree.join(format!("etc/file-with-a-long-name-{number}")), "").unwrap();
    }
    fs::File::create(tree.join("hole")).unwrap().set_len(5000).unwrap();
    fs::write(dir.join("host"), "from the host\n").unwrap();
    let mut sparse = vec![0; 20_000];
    sparse[9_000] = 1;
    fs::write(dir.join("sparse"), sparse).unwrap();
    let mut mke2fs = testkit::command("mke2fs");
    let made = mke2fs.current_dir(dir).args(["-q", "-F", "-b", "1024", "-N", "1024"]).args(options);
    assert!(made.args(["-d", "tree", "image", "32M"]).status().unwrap().success());
    let mut script = String::from(
        "mknod null c 1 3\nmknod block b 300 4000\nmknod fifo p\nea_set etc/attributes user.a hello\n\
         ea_set etc/attributes user.b \\001\\377\nmkdir indexed\ncd indexed\n",
    );
    for number in 0..60 {
        script += &format!("symlink link-with-a-long-name-{number} x\n");
    }
    script += "cd /\nwrite host fragmented\n";
    for number in 0..200 {
        script += &format!("fallocate fragmented {0} {0}\n", number * 2 + 3);
    }
    debugfs(&mut theirs(), dir, &["-w", "image"], Some(&script));
    // Creates the index of large directories.
    testkit::command("e2fsck").current_dir(dir).args(["-fyD", "image"]).output().unwrap();
}

#[test]
fn requests_that_look_print_the_same_as_the_original() {
    testkit::require!(Tool("debugfs"), Tool("mke2fs"), Tool("e2fsck"));
    for options in
        [&["-t", "ext4"][..], &["-t", "ext2"], &["-t", "ext4", "-I", "128", "-O", "^metadata_csum"]]
    {
        let home = testkit::scratch();
        let dir = home.path();
        make(dir, options);
        for request in LOOKS {
            let run = |mut command: Command| {
                let output = debugfs(&mut command, dir, &["-R", request, "image"], None);
                // The original's first line on standard error is its version.
                (output.status.code(), text(&output.stdout), text(&output.stderr))
            };
            let (ours, theirs) = (run(ours()), run(theirs()));
            let lines =
                |text: &str| text.lines().map(str::trim_end).map(str::to_owned).collect::<Vec<_>>();
            // The original reports a missing checksum in an index of ext2, and dumps the index
            // nevertheless.
            let is_remark =
                |line: &&str| line.is_empty() || line.starts_with("htree_dump_int_block: ");
            if theirs.2.lines().skip(1).any(|line| !is_remark(&line)) {
                assert!(!ours.2.is_empty(), "{options:?} {request}: {theirs:?}");
                continue;
            }
            assert_eq!(lines(&ours.1), lines(&theirs.1), "{options:?} {request}: {}", ours.2);
            assert_eq!(ours.0, theirs.0, "{request}");
        }
    }
}

#[test]
fn requests_that_fail_say_what_the_original_says() {
    testkit::require!(Tool("debugfs"), Tool("mke2fs"), Tool("e2fsck"));
    let home = testkit::scratch();
    let dir = home.path();
    make(dir, &["-t", "ext4"]);
    for (request, phrase) in FAILURES {
        for (whose, mut command) in [("ours", ours()), ("theirs", theirs())] {
            let output = debugfs(&mut command, dir, &["-R", request, "image"], None);
            // Usage lines of some requests go to standard output.
            let said = text(&output.stderr) + &text(&output.stdout);
            assert!(said.contains(phrase), "{whose}: {request}: {said}");
        }
    }
}

#[test]
fn scripts_leave_the_same_fields_as_the_original() {
    testkit::require!(Tool("debugfs"), Tool("mke2fs"), Tool("e2fsck"), Tool("dumpe2fs"));
    let home = testkit::scratch();
    let dir = home.path();
    make(dir, &["-t", "ext4"]);
    for (script, paths) in SCRIPTS {
        let script = format!("set_current_time @1700000000\n{script}");
        let run = |name: &str, mut command: Command| {
            // A sequence seed needs directories without an index.
            let source = if script.contains("hash_seed") { plain(dir) } else { dir.join("image") };
            fs::copy(source, dir.join(name)).unwrap();
            debugfs(&mut command, dir, &["-w", "-f", "-", name], Some(&script))
        };
        let (by_us, by_them) = (run("ours", ours()), run("theirs", theirs()));
        assert_eq!(by_us.status.code(), by_them.status.code(), "{script}: {by_us:?}");
        assert!(!text(&by_us.stderr).contains("not supported"), "{script}: {by_us:?}");
        for path in *paths {
            let stat = |name: &str| {
                let request = format!("stat {path}");
                let found = debugfs(&mut theirs(), dir, &["-R", &request, name], None);
                fields(&text(&found.stdout), &CHOICES)
            };
            assert_eq!(stat("ours"), stat("theirs"), "{script}{path}: {by_us:?}");
        }
        let header = |name: &str| {
            let shown =
                testkit::command("dumpe2fs").current_dir(dir).args(["-h", name]).output().unwrap();
            fields(&text(&shown.stdout), &SUMS)
        };
        assert_eq!(header("ours"), header("theirs"), "{script}");
        let check = |name: &str| {
            let checked =
                testkit::command("e2fsck").current_dir(dir).args(["-fn", name]).output().unwrap();
            (checked.status.code(), text(&checked.stdout))
        };
        if check("theirs").0 == Some(0) {
            assert_eq!(check("ours").0, Some(0), "{script}: {}", check("ours").1);
        }
    }
}

/// Returns a small image without an indexed directory.
fn plain(dir: &Path) -> std::path::PathBuf {
    let image = dir.join("plain");
    if !image.exists() {
        let mut mke2fs = testkit::command("mke2fs");
        mke2fs.current_dir(dir).args(["-q", "-F", "-t", "ext4", "plain", "16M"]).status().unwrap();
    }
    image
}

/// Returns the lines that must be equal for both programs, without block numbers.
fn fields(text: &str, except: &[&str]) -> Vec<String> {
    let lines = text
        .lines()
        .take_while(|line| !line.starts_with("EXTENTS:") && !line.starts_with("BLOCKS:"));
    let kept = lines.filter(|line| !except.iter().any(|prefix| line.starts_with(prefix)));
    let inode_type =
        text.lines().find_map(|line| line.split_once("   Type: ").map(|(_, rest)| rest));
    kept.chain(inode_type).map(str::to_owned).collect()
}

/// File contents, and names that are not UTF-8, are copied as bytes.
#[test]
fn trees_are_copied_with_names_that_are_not_utf_8() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;
    testkit::require!(Tool("debugfs"), Tool("mke2fs"));
    let home = testkit::scratch();
    let dir = home.path();
    let name = OsStr::from_bytes(b"\xfcber \xff");
    fs::create_dir_all(dir.join("tree").join(name)).unwrap();
    fs::write(dir.join("tree").join(name).join(name), "contents\n").unwrap();
    std::os::unix::fs::symlink(name, dir.join("tree/link")).unwrap();
    let mut mke2fs = testkit::command("mke2fs");
    mke2fs
        .current_dir(dir)
        .args(["-q", "-F", "-t", "ext4", "-d", "tree", "image", "16M"])
        .status()
        .unwrap();
    let script = "sif / mtime @1500000000\nrdump / out\nls -p\n";
    let output = debugfs(&mut ours(), dir, &["-w", "-f", "-", "image"], Some(script));
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.windows(8).any(|part| part == b"\xfcber \xff//"), "{output:?}");
    assert_eq!(fs::read(dir.join("out").join(name).join(name)).unwrap(), b"contents\n");
    assert_eq!(fs::read_link(dir.join("out/link")).unwrap(), Path::new(name));
    assert_eq!(fs::metadata(dir.join("out")).unwrap().mtime(), 1_500_000_000);
    // A request may contain such a name, too.
    let request = OsStr::from_bytes(b"stat \"\xfcber \xff\"");
    let mut command = ours();
    command.arg("-R").arg(request);
    let output = debugfs(&mut command, dir, &["image"], None);
    assert!(text(&output.stdout).contains("Type: directory"), "{output:?}");
}

/// On a full file system the message contains the text that callers search for, and no part of the
/// file is kept.
#[test]
fn a_full_image_says_could_not_allocate() {
    testkit::require!(Tool("debugfs"), Tool("e2fsck"));
    let home = testkit::scratch();
    let dir = home.path();
    super::done(dir, "mkfs.ext4 -q -N 16 image 2M");
    fs::write(dir.join("host"), vec![1; 4 << 20]).unwrap();
    let script = "write host host\n".to_owned()
        + &(0..8).map(|number| format!("mkdir d{number}\n")).collect::<String>();
    let output = debugfs(&mut ours(), dir, &["-w", "-f", "-", "image"], Some(&script));
    let said = text(&output.stderr);
    assert!(said.contains("write: Could not allocate block in ext2 filesystem"), "{said}");
    assert!(said.contains("mkdir: Could not allocate inode in ext2 filesystem"), "{said}");
    assert!(!testkit::debugfs(&dir.join("image"), "ls /").contains("host"));
    testkit::e2fsck(dir.join("image"));
    fs::create_dir_all(dir.join("tree")).unwrap();
    fs::write(dir.join("tree/host"), vec![1; 4 << 20]).unwrap();
    for (line, phrase) in [
        ("mkfs.ext4 -q -d tree full 2M", "Could not allocate block in ext2 filesystem"),
        ("mkfs.ext4 -q -N 8 -d many full 8M", "Could not allocate inode in ext2 filesystem"),
    ] {
        fs::create_dir_all(dir.join("many")).unwrap();
        (0..40).for_each(|n| fs::write(dir.join(format!("many/{n}")), "").unwrap());
        let ended = super::run(dir, line);
        assert!(ended.status == 1 && ended.messages.contains(phrase), "{line}: {ended:?}");
        assert!(!ended.messages.contains("--size"), "{line}: {ended:?}");
    }
}
