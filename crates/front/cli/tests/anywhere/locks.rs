//! QEMU's image locks, taken by either side, and locks of files that disks refer to.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use testkit::{require, scratch, wait_until};

use super::{fails, ok, run};
use crate::mount::Mounting;

fn qemu(dir: &Path, line: &str) -> std::process::Output {
    let mut words = line.split_whitespace();
    let mut command = testkit::command(words.next().unwrap());
    command.current_dir(dir).args(words).stdin(Stdio::null()).output().unwrap()
}

/// Runs a QEMU command that must succeed. On a busy machine QEMU cannot always measure how fast it derives keys.
#[track_caller]
fn qemu_ok(dir: &Path, line: &str) {
    let mut output = qemu(dir, line);
    for _ in 0..50 {
        if !String::from_utf8_lossy(&output.stderr).contains("Unable to get accurate CPU usage") {
            break;
        }
        output = qemu(dir, line);
    }
    assert!(output.status.success(), "{line}: {output:?}");
}

/// Runs a QEMU command that must fail because of a lock.
#[track_caller]
fn qemu_is_kept_out(dir: &Path, line: &str) {
    let output = qemu(dir, line);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("lock"), "{line}: {output:?}");
}

/// Creates `a.img` with ext4, and `a.qcow2` with the same contents.
fn images(dir: &Path) {
    super::source(dir);
    assert!(run(dir, "build source a.img --free 8M").status.success());
    qemu_ok(dir, "qemu-img convert -f raw -O qcow2 a.img a.qcow2");
}

/// A QEMU program that keeps an image open until dropped.
struct User(Child);

impl User {
    /// Starts `line` in a directory, and waits until it has locked `file`.
    fn start(dir: &Path, line: &str, file: &str) -> Self {
        let mut words = line.split_whitespace();
        let mut command: Command = testkit::command(words.next().unwrap());
        command.current_dir(dir).args(words).stdin(Stdio::piped()).stdout(Stdio::null());
        let user = Self(command.spawn().unwrap());
        let inode = fs::metadata(dir.join(file)).unwrap().ino();
        wait_until("QEMU to lock the image", || {
            let locks = fs::read_to_string("/proc/locks").unwrap();
            locks
                .lines()
                .any(|line| line.contains("OFDLCK") && line.contains(&format!(":{inode} ")))
        });
        user
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}

#[test]
fn images_open_in_qemu_are_refused() {
    require!(Tool("qemu-img"), Tool("qemu-io"));
    let dir = scratch();
    let dir = dir.path();
    images(dir);
    for (kind, file, image) in [("raw", "a.img", "a.img"), ("qcow2", "a.qcow2", "qcow2:a.qcow2")] {
        let user = User::start(dir, &format!("qemu-io -f {kind} {file}"), file);
        for line in [format!("rm {image} /etc/hostname"), format!("ls {image} /")] {
            let said = fails(dir, &line, 4);
            assert!(said.contains(&format!("{file}: in use by QEMU")), "{said}");
        }
        assert_eq!(ok(dir, &format!("cat --norecovery {image} /etc/hostname")), b"image\n");
        drop(user);
        // A QEMU reader excludes only writers. A reader of a raw image excludes none.
        let user = User::start(dir, &format!("qemu-io -r -f {kind} {file}"), file);
        assert_eq!(ok(dir, &format!("cat {image} /etc/hostname")), b"image\n");
        if kind == "qcow2" {
            assert!(fails(dir, &format!("mkdir {image} /new"), 4).contains("in use by QEMU"));
        }
        drop(user);
        ok(dir, &format!("mkdir {image} /new"));
    }
    qemu_ok(dir, "qemu-img check -q a.qcow2");
}

#[test]
fn qemu_is_kept_out_of_what_is_mounted() {
    require!(Fuse, Tool("qemu-img"), Tool("qemu-io"));
    let dir = scratch();
    let dir = dir.path();
    images(dir);
    for (kind, file, image) in [
        ("raw", "a.img", dir.join("a.img").display().to_string()),
        ("qcow2", "a.qcow2", format!("qcow2:{}", dir.join("a.qcow2").display())),
    ] {
        let convert = format!("qemu-img convert -f {kind} -O raw {file} copy");
        let shared = format!("qemu-img convert -U -f {kind} -O raw {file} copy");
        let write = format!("qemu-io -f {kind} -c flush {file}");
        let mounted = Mounting::new(image.as_ref()).start();
        qemu_is_kept_out(dir, &convert);
        qemu_is_kept_out(dir, &write);
        qemu_ok(dir, &shared);
        if kind == "qcow2" {
            qemu_is_kept_out(dir, "qemu-img info a.qcow2");
            qemu_ok(dir, "qemu-img info -U a.qcow2");
        }
        mounted.unmount();
        let mounted = Mounting::new(image.as_ref()).options("ro").start();
        qemu_is_kept_out(dir, &write);
        qemu_ok(dir, &convert);
        mounted.unmount();
        qemu_ok(dir, &write);
    }
}

#[test]
fn the_base_of_a_mounted_disk_is_not_changed() {
    require!(Fuse, Tool("qemu-img"), Tool("qemu-io"));
    let dir = scratch();
    let dir = dir.path();
    images(dir);
    qemu_ok(dir, "qemu-img create -q -f qcow2 -b a.img -F raw raw.top");
    qemu_ok(dir, "qemu-img create -q -f qcow2 -b a.qcow2 -F qcow2 middle");
    qemu_ok(dir, "qemu-img create -q -f qcow2 -b middle -F qcow2 qcow2.top");
    for (top, base, place) in [
        ("raw.top", "a.img", "a.img"),
        ("qcow2.top", "a.qcow2", "qcow2:a.qcow2"),
        ("qcow2.top", "middle", "qcow2:middle"),
    ] {
        for options in ["rw", "ro"] {
            let image = format!("qcow2:{}", dir.join(top).display());
            let mounted = Mounting::new(image.as_ref()).options(options).start();
            let said = fails(dir, &format!("rm {place} /etc/hostname"), 4);
            assert!(said.contains("in use"), "{said}");
            let kind = if base == "a.img" { "raw" } else { "qcow2" };
            qemu_is_kept_out(dir, &format!("qemu-io -f {kind} -c flush {base}"));
            assert_eq!(fs::read_to_string(mounted.join("etc/hostname")).unwrap(), "image\n");
            mounted.unmount();
        }
    }
    // The same with an overlay of ours.
    for place in ["a.img", "qcow2:a.qcow2", "qcow2:qcow2.top"] {
        let image = place.replace("qcow2:", &format!("qcow2:{}/", dir.display()));
        let image = if image == place { dir.join(place).display().to_string() } else { image };
        let overlay = dir.join("changes");
        let mounting = Mounting::new(image.as_ref());
        let mounted = mounting.arguments(["--overlay".as_ref(), overlay.as_os_str()]).start();
        let said = fails(dir, &format!("rm {place} /etc/hostname"), 4);
        assert!(said.contains("in use"), "{said}");
        mounted.unmount();
        fs::remove_file(overlay).unwrap();
    }
}

#[test]
fn data_in_another_file_is_refused_unless_allowed() {
    require!(Fuse, Tool("qemu-img"), Tool("qemu-io"));
    let dir = scratch();
    let dir = dir.path();
    images(dir);
    qemu_ok(dir, "qemu-img convert -f raw -O qcow2 -o data_file=data a.img disk");
    for line in ["ls qcow2:disk /", "mkdir qcow2:disk /new"] {
        let said = fails(dir, line, 3);
        assert!(said.contains("its data is in the file \"data\""), "{said}");
        assert!(said.contains("--allow-data-files"), "{said}");
    }
    ok(dir, "--allow-data-files mkdir qcow2:disk /new");
    qemu_ok(dir, "qemu-img check -q disk");
    assert_eq!(ok(dir, "cat --allow-data-files qcow2:disk /etc/hostname"), b"image\n");
    // A reader needs no write permission.
    let image = format!("qcow2:{}", dir.join("disk").display());
    let mounting = Mounting::new(image.as_ref()).arguments(["--allow-data-files"]);
    let mounted = mounting.options("ro").start();
    qemu_is_kept_out(dir, "qemu-io -f raw -c flush data");
    mounted.unmount();
    // The rule also applies to a disk below another one.
    qemu_ok(dir, "qemu-img create -q -f qcow2 -b disk -F qcow2 top");
    assert!(fails(dir, "ls qcow2:top /", 3).contains("--allow-data-files"));
    assert_eq!(ok(dir, "cat --allow-data-files qcow2:top /etc/hostname"), b"image\n");
}

#[test]
fn files_without_end_are_refused_by_their_type() {
    require!(Tool("qemu-img"));
    let dir = scratch();
    let dir = dir.path();
    images(dir);
    let fifo = dir.join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();
    for (name, what) in
        [("fifo", "a pipe"), ("socket", "a socket"), ("/dev/zero", "a character device")]
    {
        qemu_ok(dir, "qemu-img create -q -f qcow2 -b a.img -F raw top");
        qemu_ok(dir, &format!("qemu-img rebase -u -b {name} -F raw top"));
        for line in ["ls qcow2:top /", "mkdir qcow2:top /new"] {
            let said = fails(dir, line, 3);
            assert!(said.contains(what) && said.contains(name), "{said}");
        }
        qemu_ok(dir, "qemu-img convert -f raw -O qcow2 -o data_file=data a.img disk");
        qemu_ok(dir, &format!("qemu-img amend -f qcow2 -o data_file={name} disk"));
        let said = fails(dir, "ls --allow-data-files qcow2:disk /", 3);
        assert!(said.contains(what) && said.contains(name), "{said}");
    }
}

/// Runs the command that a message suggests.
#[track_caller]
fn way_out(dir: &Path, said: &str) {
    let command = said.split_once("qemu-img ").unwrap().1.trim();
    let command = command.replace("KEYFILE", "key");
    qemu_ok(dir, &format!("qemu-img {command}"));
    assert_eq!(ok(dir, "cat qcow2:plain.qcow2 /etc/hostname"), b"image\n");
}

#[test]
fn features_that_are_not_supported_are_named_with_a_way_out() {
    require!(Tool("qemu-img"));
    let dir = scratch();
    let dir = dir.path();
    images(dir);
    fs::write(dir.join("key"), "a secret").unwrap();
    let secret = "--object secret,id=key,file=key";
    for (options, name) in [
        (
            "encrypt.format=luks,encrypt.key-secret=key,encrypt.iter-time=10".to_owned(),
            "LUKS encryption",
        ),
        ("compression_type=zstd".to_owned(), "compression by zstd"),
        ("extended_l2=on".to_owned(), "an extended L2 table"),
    ] {
        qemu_ok(dir, &format!("qemu-img convert {secret} -f raw -O qcow2 -o {options} a.img odd"));
        for line in ["ls qcow2:odd /", "mkdir qcow2:odd /new"] {
            let said = fails(dir, line, 3);
            assert!(said.contains(&format!("odd: {name}")), "{said}");
            way_out(dir, &said);
        }
    }
    // Fields that qemu-img does not set: the encryption method, and incompatible features.
    for (at, value, name, has_way_out) in [
        (32, 1_u32.to_be_bytes().to_vec(), "AES encryption", false),
        (72, (1_u64 << 40).to_be_bytes().to_vec(), "incompatible feature of bit 40", false),
        (72, 1_u64.to_be_bytes().to_vec(), "marked as dirty", true),
        (72, 2_u64.to_be_bytes().to_vec(), "marked as corrupt", true),
    ] {
        let mut bytes = fs::read(dir.join("a.qcow2")).unwrap();
        bytes[at..at + value.len()].copy_from_slice(&value);
        fs::write(dir.join("odd"), bytes).unwrap();
        for line in ["mkdir qcow2:odd /new", "ls qcow2:odd /"] {
            let said = fails(dir, line, 3);
            assert!(said.contains(name) && said.contains("qemu-img "), "{said}");
        }
        if has_way_out {
            qemu_ok(dir, "qemu-img check -q -r all odd");
            assert_eq!(ok(dir, "cat qcow2:odd /etc/hostname"), b"image\n");
        }
    }
}
