//! Clones as the disks of virtual machines that are killed.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

use testkit::{require, scratch, wait_until};

use super::clones::judge;
use super::{ok, run};
use crate::program::diskwright;

/// Script of the machine. Its root is the clone. `synced` in the shared folder tells that files were synced; the machine
/// then writes until it is killed.
const SCRIPT: &str = r#"
set -e
modprobe virtio_blk
mount /dev/vda /mnt
mkdir -p /mnt/bin /mnt/share /mnt/dev
cp /bin/busybox /mnt/bin/sh
mount --bind /share /mnt/share
mount -t devtmpfs dev /mnt/dev
cat > /mnt/init <<'END'
set -e
export PATH=/bin
for i in $(seq 100); do
    echo "$i" > /file$i
done
dd if=/share/data of=/data bs=64k conv=fsync 2>/dev/null
sync
echo go > /share/synced
i=0
while true; do
    i=$((i + 1))
    dd if=/share/data of=/later$((i % 5)) bs=64k 2>/dev/null
    mkdir -p /directory$i
done
END
for name in seq dd sync mkdir; do ln -sf sh /mnt/bin/$name; done
exec chroot /mnt /bin/sh /init
"#;

/// Starts a server for a clone, and returns it when its socket exists.
fn serve(dir: &Path, protocol: &str) -> Child {
    let mut command = diskwright();
    command.current_dir(dir).args(["serve", "clone"]);
    command.args(if protocol == "nbd" { ["--nbd", "unix:s"] } else { ["--vhost-user", "s"] });
    let server = command.stderr(Stdio::null()).spawn().unwrap();
    wait_until("the server's socket", || dir.join("s").exists());
    server
}

/// Runs a machine with the disk at the socket until its files are synced, and kills it a little later.
fn run_and_kill(dir: &Path, share: &Path, protocol: &str) {
    let guest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scripts/guest");
    let mut machine = testkit::command("python3");
    machine.arg(guest).arg(format!("--{protocol}")).arg(dir.join("s"));
    machine.arg("--share").arg(share).args(["--memory", "512", "--", SCRIPT]);
    let output = fs::File::create(dir.join("output")).unwrap();
    let errors = output.try_clone().unwrap();
    let mut machine = machine.stdout(output).stderr(errors).spawn().unwrap();
    wait_until("the machine to sync", || {
        if let Some(status) = machine.try_wait().unwrap() {
            panic!("{status}: {}", fs::read_to_string(dir.join("output")).unwrap());
        }
        share.join("synced").exists()
    });
    std::thread::sleep(std::time::Duration::from_millis(300));
    // QEMU dies with it.
    machine.kill().unwrap();
    machine.wait().unwrap();
}

#[test]
fn a_clone_survives_the_crash_of_its_machine_and_grows_in_one_command() {
    require!(Guest("VIRTIO_BLK"), Tool("e2fsck"), Tool("xfs_repair"), Tool("python3"));
    for (format, protocol) in
        [("ext4", "vhost-user"), ("xfs", "nbd"), ("xfs", "vhost-user"), ("ext4", "nbd")]
            .into_iter()
            .take(testkit::effort(2, 4, 4))
    {
        let (home, share) = (scratch(), scratch());
        let dir = home.path();
        fs::create_dir(dir.join("source")).unwrap();
        fs::write(dir.join("source/hostname"), "image\n").unwrap();
        let line = format!("build source base.img --fs {format} --size 320M");
        assert!(run(dir, &line).status.success());
        let before = testkit::digest(&dir.join("base.img"));
        ok(dir, "clone base.img clone --size 512M");
        let data: Vec<u8> = (0..2 << 20).map(|at: u32| (at / 7 % 251) as u8).collect();
        fs::write(share.path().join("data"), &data).unwrap();
        let mut server = serve(dir, protocol);
        run_and_kill(dir, share.path(), protocol);
        // The host crashes as well.
        server.kill().unwrap();
        server.wait().unwrap();
        let info = String::from_utf8(ok(dir, "info --json clone")).unwrap();
        let is_dirty = info.contains("needs_recovery") || info.contains("must be replayed");
        assert!(is_dirty, "{format}: {info}");
        // A snapshot of the state after the crash grows alone.
        ok(dir, "snapshot clone crashed");
        for name in ["clone", "crashed"] {
            if name == "clone" {
                let grown = run(dir, "grow clone");
                assert!(grown.status.success(), "{format}, {protocol}: {grown:?}");
            }
            assert_eq!(ok(dir, &format!("cat {name} /hostname")), b"image\n");
            for number in 1..=100 {
                let found = ok(dir, &format!("cat {name} /file{number}"));
                assert_eq!(found, format!("{number}\n").as_bytes(), "{format}, {protocol}");
            }
            assert!(ok(dir, &format!("cat {name} /data")) == data, "{format}, {protocol}");
        }
        let info = String::from_utf8(ok(dir, "info --json clone")).unwrap();
        assert!(info.contains("\"blocks\": 131072"), "{info}");
        judge(dir, "clone");
        ok(dir, "reset clone");
        assert!(run(dir, "recover clone").status.success());
        judge(dir, "clone");
        assert_eq!(testkit::digest(&dir.join("base.img")), before, "the base is changed");
    }
}
