//! `diskwright serve`: the view of a client, exclusion of other users, and exit statuses.

mod nbd;
mod nfs;
mod ublk;
mod webdav;

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use testkit::require;

use crate::mount::wait_until;

use crate::program::diskwright;

/// A server, and the directory with its image `a.img` and its socket `s`.
struct Served {
    server: Child,
    folder: tempfile::TempDir,
}

fn image(folder: &Path) {
    fs::create_dir(folder.join("source")).unwrap();
    fs::write(folder.join("source/motd"), "Welcome.\n").unwrap();
    let mut build = diskwright();
    build.current_dir(folder).args(["build", "source", "a.img", "--size", "16M"]);
    assert!(build.output().unwrap().status.success());
}

fn serve(options: &[&str]) -> Served {
    let folder = tempfile::tempdir().unwrap();
    image(folder.path());
    let server = start(folder.path(), &[&["a.img", "--nbd", "unix:s"], options].concat());
    Served { server, folder }
}

/// Starts a server at the socket `s` in a folder.
fn start(folder: &Path, arguments: &[&str]) -> Child {
    let mut command = diskwright();
    command.current_dir(folder).arg("serve").args(arguments);
    let server = command.stderr(Stdio::piped()).spawn().unwrap();
    let socket = folder.join("s");
    wait_until("the server's socket", || UnixStream::connect(&socket).is_ok());
    server
}

impl Served {
    fn url(&self) -> String {
        format!("nbd+unix:///?socket={}", self.folder.path().join("s").display())
    }

    /// Runs a command on the image. Returns its status and messages.
    fn command(&self, line: &str) -> (Option<i32>, String) {
        let mut command = diskwright();
        let output =
            command.current_dir(self.folder.path()).args(line.split(' ')).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    /// Ends the server with a signal. Returns its exit status.
    fn end(&mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.server), signal).unwrap();
        self.server.wait().unwrap().code()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // The server has ended, unless the test failed.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn a_client_writes_to_an_exclusively_locked_image() {
    require!(Tool("qemu-io"), Tool("e2fsck"));
    let mut served = serve(&[]);
    let mut qemu = testkit::command("qemu-io");
    // Beyond the used space: the last block is free.
    qemu.args(["-f", "raw", "-t", "none", "-c", "write -P 9 16773120 4096", "-c", "flush"]);
    let output = qemu.arg(served.url()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let (status, said) = served.command("mkdir a.img /new");
    assert_eq!(status, Some(4), "{said}");
    assert!(said.contains("in use"), "{said}");
    assert_eq!(served.end(Signal::TERM), Some(0));
    assert!(!served.folder.path().join("s").exists());
    let bytes = fs::read(served.folder.path().join("a.img")).unwrap();
    assert!(bytes[16_773_120..].iter().all(|&byte| byte == 9));
    testkit::e2fsck(served.folder.path().join("a.img"));
    assert_eq!(served.command("mkdir a.img /new").0, Some(0));
}

#[test]
fn a_read_only_server_permits_readers_and_no_writers() {
    require!(Tool("qemu-io"));
    let mut served = serve(&["--read-only"]);
    assert_eq!(served.command("ls a.img").0, Some(0));
    assert_eq!(served.command("mkdir a.img /new").0, Some(4));
    let mut qemu = testkit::command("qemu-io");
    qemu.args(["-f", "raw", "-c", "write 0 512"]).arg(served.url());
    let output = qemu.output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    assert_eq!(served.end(Signal::INT), Some(0));
}

#[test]
fn images_that_cannot_be_served_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    image(folder.path());
    let run = |words: &[&str]| {
        let output = diskwright().current_dir(folder.path()).args(words).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, said) = run(&["serve", "a.img", "--nbd", "nowhere"]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("unix:PATH"), "{said}");
    assert_eq!(run(&["serve", "none.img", "--nbd", "unix:s"]).0, Some(4));
    let (status, said) = run(&["serve", "a.img", "--nbd", "unix:no/such/folder"]);
    assert_eq!(status, Some(4), "{said}");
    assert!(said.contains("cannot listen at unix:no/such/folder"), "{said}");
}

#[test]
fn one_protocol_must_be_chosen() {
    let folder = tempfile::tempdir().unwrap();
    image(folder.path());
    for line in [
        "serve a.img",
        "serve a.img --nbd unix:s --vhost-user t",
        "serve a.img --nbd unix:s --queues 2",
        "serve a.img --nbd unix:s --ublk",
        "serve a.img --vhost-user s --ublk",
        "serve a.img --vhost-user s --queues 0",
        "serve a.img --vhost-user s --queues 65",
    ] {
        let output = diskwright().current_dir(folder.path()).args(line.split(' ')).output();
        assert_eq!(output.unwrap().status.code(), Some(2), "{line}");
    }
    let mut command = diskwright();
    command.current_dir(folder.path());
    let output = command.args(["serve", "a.img", "--vhost-user", "no/such/folder"]).output();
    let said = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(said.contains("cannot listen at no/such/folder"), "{said}");
}

/// Script of the virtual machine. `go` in the shared folder tells that it is writing.
const WRITES: &str = r#"
set -e
modprobe virtio_blk
for disk in vda vdb; do
    mkdir -p /mnt/$disk
    mount /dev/$disk /mnt/$disk
    grep -q Welcome /mnt/$disk/motd
done
echo go > /share/go
for i in $(seq 400); do
    for disk in /mnt/vda /mnt/vdb; do
        echo "$i" > $disk/file$i
        [ $((i % 20)) != 0 ] || dd if=/share/data of=$disk/data$i bs=64k conv=fsync 2>/dev/null
    done
done
for disk in /mnt/vda /mnt/vdb; do
    fstrim $disk
    umount $disk
done
echo complete
"#;

/// Creates an image of a format for the virtual machine.
fn disk_of_machine(format: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("source")).unwrap();
    fs::write(folder.path().join("source/motd"), "Welcome.\n").unwrap();
    let mut build = diskwright();
    build.current_dir(folder.path()).args(["build", "source", "a.img", "--size", "400M"]);
    assert!(build.args(["--fs", format]).output().unwrap().status.success());
    folder
}

/// Returns contents for files that guests write.
fn data() -> Vec<u8> {
    (0..3 << 20).map(|at: u32| (at / 7 % 251) as u8).collect()
}

/// Creates a file with [`data`]. Returns its directory, its path and its contents.
fn data_file() -> (TempDir, PathBuf, Vec<u8>) {
    let dir = testkit::scratch();
    let (path, bytes) = (dir.path().join("data"), data());
    fs::write(&path, &bytes).unwrap();
    (dir, path, bytes)
}

/// Returns the contents of a file in an image.
fn read(image: &Path, path: &str) -> Vec<u8> {
    let output = diskwright().arg("cat").arg(image).arg(path).output().unwrap();
    assert!(output.status.success(), "{path}: {output:?}");
    output.stdout
}

/// Checks what the virtual machine wrote to an image.
fn check_written(image: &Path, data: &[u8]) {
    testkit::judge(image);
    let read = |name: &str, step: usize| {
        let paths = (step..=400).step_by(step).map(|number| format!("/{name}{number}"));
        let output = diskwright().arg("cat").arg(image).args(paths).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let expected: String = (1..=400).map(|number| format!("{number}\n")).collect();
    assert_eq!(String::from_utf8_lossy(&read("file", 1)), expected);
    assert!(read("data", 20) == data.repeat(20), "{}", image.display());
}

/// A kernel writes while the servers are killed and started again.
#[test]
fn a_virtual_machine_writes_to_its_disk_and_survives_a_restart_of_the_server() {
    require!(Guest("VIRTIO_BLK"), Tool("e2fsck"), Tool("xfs_repair"), Tool("python3"));
    let share = tempfile::tempdir().unwrap();
    let data = data();
    fs::write(share.path().join("data"), &data).unwrap();
    let folders = ["ext4", "xfs"].map(disk_of_machine);
    let arguments = ["a.img", "--vhost-user", "s", "--queues", "2"];
    let mut servers = folders.each_ref().map(|folder| start(folder.path(), &arguments));
    let guest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scripts/guest");
    let mut machine = testkit::command("python3");
    machine.arg(guest);
    for folder in &folders {
        machine.arg("--vhost-user").arg(folder.path().join("s"));
    }
    machine.arg("--share").arg(share.path()).args(["--memory", "512", "--", WRITES]);
    let machine = machine.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the guest to write", || share.path().join("go").exists());
    for _ in 0..3 {
        for (server, folder) in servers.iter_mut().zip(&folders) {
            server.kill().unwrap();
            server.wait().unwrap();
            *server = start(folder.path(), &arguments);
        }
        std::thread::sleep(std::time::Duration::from_millis(700));
    }
    let output = machine.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("complete"), "{output:?}");
    for (server, folder) in servers.iter_mut().zip(&folders) {
        kill_process(Pid::from_child(server), Signal::TERM).unwrap();
        assert_eq!(server.wait().unwrap().code(), Some(0));
        check_written(&folder.path().join("a.img"), &data);
    }
}
