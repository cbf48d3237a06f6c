//! The program on real images: its own, and those of mke2fs and the kernel.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use testkit::{Ignore, Mke2fs, Sample, Tree, assert_same, judge, sample_tree, scratch};

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskwright"));
    command.env_remove("SOURCE_DATE_EPOCH");
    command
}

fn run(arguments: &[&str]) -> Output {
    program().args(arguments).output().unwrap()
}

/// Runs the program, which must succeed. Returns its standard output.
#[track_caller]
fn output(arguments: &[&str]) -> String {
    let output = run(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Creates the sample tree.
fn sample(dir: &Path) -> Tree {
    fs::create_dir(dir).unwrap();
    sample_tree(dir, &Sample { wide_names: 1000, ..Sample::for_xfs() });
    Tree::of(dir)
}

#[test]
fn a_tree_goes_into_an_image_and_comes_back() {
    testkit::require!(Root, Tool("e2fsck"), Tool("xfs_repair"));
    for format in ["ext4", "xfs"] {
        there_and_back(format);
    }
}

fn there_and_back(format: &str) {
    let scratch = scratch();
    let [source, image, to, archive, again, back] =
        ["source", "a.img", "to", "a.tar", "b.img", "back"].map(|name| scratch.path().join(name));
    let expected = sample(&source);
    output(&["build", "--fs", format, text(&source), text(&image)]);
    judge(&image);
    output(&["extract", text(&image), text(&to)]);
    assert_same(&expected, &Tree::of(&to), &Ignore::default());

    // An archive loses only the sockets.
    let made = run(&["extract", text(&image), text(&archive)]);
    assert_eq!(made.status.code(), Some(1), "{}", String::from_utf8_lossy(&made.stderr));
    output(&["build", "--fs", format, text(&archive), text(&again)]);
    judge(&again);
    output(&["extract", text(&again), text(&back)]);
    let mut expected = expected;
    expected.nodes.retain(|_, node| node.kind != testkit::NodeKind::Socket);
    assert_same(&expected, &Tree::of(&back), &Ignore::default());
}

#[test]
fn an_image_of_mke2fs_comes_out_as_it_went_in() {
    testkit::require!(Root, Tool("mke2fs"), Mount("ext4"));
    let scratch = scratch();
    for (name, features, block_size) in
        [("default", "extent", 4096), ("ext2", "^extent,^64bit,^has_journal", 1024)]
    {
        let [source, image, to] =
            ["source", "img", "to"].map(|kind| scratch.path().join(format!("{name}.{kind}")));
        fs::create_dir(&source).unwrap();
        let sample =
            Sample { wide_names: 500, huge_sparse: false, ..Sample::for_block_size(block_size) };
        let mke2fs = Mke2fs::new("ext4").block_size(block_size).features(features);
        mke2fs.create(&image, 256 << 20);
        testkit::populate_with_kernel(&image, "ext4", |root| {
            sample_tree(root, &sample);
        });
        let mounted = testkit::KernelMount::new(&image, &testkit::MountOptions::read_only("ext4"));
        let expected = Tree::of(mounted.path());
        mounted.unmount();
        output(&["extract", text(&image), text(&to)]);
        let ignore = Ignore { lost_found: false, ..Ignore::default() };
        assert_same(&expected, &Tree::of(&to), &ignore);
    }
}

/// Creates an image with a few files.
fn small(scratch: &Path) -> std::path::PathBuf {
    let (source, image) = (scratch.join("small"), scratch.join("small.img"));
    fs::create_dir_all(source.join("etc/conf.d")).unwrap();
    fs::write(source.join("etc/motd"), "hello\n").unwrap();
    fs::write(source.join("large"), vec![b'x'; 3 << 20]).unwrap();
    std::os::unix::fs::symlink("etc/motd", source.join("link")).unwrap();
    output(&["build", text(&source), text(&image), "--label", "small\u{1b}", "--owner", "5:6"]);
    image
}

#[test]
fn commands_read_what_is_there() {
    let scratch = scratch();
    let image = small(scratch.path());
    let image = text(&image);
    assert_eq!(output(&["ls", image, "/"]), "etc\nlarge\nlink\nlost+found\n");
    assert_eq!(output(&["cat", image, "link", "/etc/motd"]), "hello\nhello\n");
    assert_eq!(
        output(&["find", image, "--type", "d,l"]),
        "/\n/etc\n/etc/conf.d\n/link\n/lost+found\n"
    );
    assert_eq!(output(&["find", image, "/etc", "-0"]), "/etc\0/etc/conf.d\0/etc/motd\0");
    assert!(output(&["ls", "-l", image, "etc/motd"]).starts_with("-rw-r--r-- 1 5 6 6 "));
    let info = output(&["info", image]);
    assert!(info.contains("ext4") && info.contains("small") && !info.contains('\u{1b}'), "{info}");
    let info: serde_json::Value =
        serde_json::from_str(&output(&["info", image, "--json"])).unwrap();
    assert_eq!(info["block_size"], 4096);
    for (arguments, status) in [
        (["cat", image, "/etc"], 1),
        (["cat", image, "/nothing"], 1),
        (["cat", image, "/link/x"], 1),
        (["ls", image, "/nothing"], 1),
        (["find", image, "/nothing"], 1),
    ] {
        assert_eq!(run(&arguments).status.code(), Some(status), "{arguments:?}");
    }
}

#[test]
fn an_image_is_found_inside_a_disk() {
    let scratch = scratch();
    let image = fs::read(small(scratch.path())).unwrap();
    let mut disk = vec![0; 1 << 20];
    disk[450] = 0x83;
    disk[454..458].copy_from_slice(&2048_u32.to_le_bytes());
    disk[458..462].copy_from_slice(&((image.len() / 512) as u32).to_le_bytes());
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk.extend_from_slice(&image);
    let path = scratch.path().join("disk");
    fs::write(&path, &disk).unwrap();
    for place in [["--partition", "1"], ["--offset", "1M"]] {
        assert_eq!(output(&["cat", text(&path), "/etc/motd", place[0], place[1]]), "hello\n");
    }
    assert_eq!(run(&["ls", text(&path)]).status.code(), Some(3));
    // Truncated within the partition.
    fs::write(&path, &disk[..2 << 20]).unwrap();
    let refused = run(&["cat", text(&path), "/large", "--partition", "1"]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("truncated"));
}

#[test]
fn a_closed_pipe_is_not_reported() {
    let scratch = scratch();
    let image = small(scratch.path());
    for arguments in [&["cat", text(&image), "/large"][..], &["extract", text(&image), "-"]] {
        let mut command = program();
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut first = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()), "{arguments:?}");
    }
}

#[test]
fn a_full_output_exits_with_4() {
    let scratch = scratch();
    let image = small(scratch.path());
    let Ok(full) = fs::File::options().write(true).open("/dev/full") else { return };
    let output = program().args(["cat", text(&image), "/large"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write the output"));
}

#[test]
fn an_archive_on_standard_input_is_built() {
    let scratch = scratch();
    let [first, archive, second] = ["small.img", "a.tar", "b.img"].map(|n| scratch.path().join(n));
    small(scratch.path());
    output(&["extract", text(&first), text(&archive)]);
    assert_eq!(run(&["extract", text(&first), text(&archive)]).status.code(), Some(4), "exists");
    let mut command = program();
    let mut child = command
        .args(["build", "-", text(&second), "--free", "1M"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let bytes = fs::read(&archive).unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(output(&["cat", text(&second), "/etc/motd"]), "hello\n");
}
