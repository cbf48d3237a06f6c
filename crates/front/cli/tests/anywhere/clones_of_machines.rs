//! Clones as the disks of virtual machines that are killed.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

use testkit::{require, scratch, wait_until};

use super::clones::judge;
use super::{ok, run};
use crate::program::diskwright;

/// Script of the machine. The clones are the roots of its two programs. `synced-DISK` in the shared folder tells that
/// files were synced; the machine then writes until it is killed.
const SCRIPT: &str = r#"
set -e
modprobe virtio_blk
for disk in vda vdb; do
    root=/mnt/$disk
    mkdir -p $root
    mount /dev/$disk $root
    mkdir -p $root/bin $root/share $root/dev
    cp /bin/busybox $root/bin/sh
    mount --bind /share $root/share
    mount -t devtmpfs dev $root/dev
    cat > $root/init <<'END'
set -e
export PATH=/bin
for i in $(seq 100); do
    echo "$i" > /file$i
done
dd if=/share/data of=/data bs=64k conv=fsync 2>/dev/null
sync
echo go > /share/synced-$1
i=0
while true; do
    i=$((i + 1))
    dd if=/share/data of=/later$((i % 5)) bs=64k 2>/dev/null
    mkdir -p /directory$i
done
END
    for name in seq dd sync mkdir; do ln -sf sh $root/bin/$name; done
    { chroot $root /bin/sh /init $disk || true; echo "$disk" > /share/ended; } &
done
wait
"#;

/// A clone of an image of a format, served by a protocol.
struct Disk {
    home: tempfile::TempDir,
    format: &'static str,
    protocol: &'static str,
    before: (u64, u32),
}

impl Disk {
    fn new((format, protocol): (&'static str, &'static str)) -> Self {
        let home = scratch();
        let dir = home.path();
        fs::create_dir(dir.join("source")).unwrap();
        fs::write(dir.join("source/hostname"), "image\n").unwrap();
        let line = format!("build source base.img --fs {format} --size 320M");
        assert!(run(dir, &line).status.success());
        let before = testkit::digest(&dir.join("base.img"));
        ok(dir, "clone base.img clone --size 512M");
        Self { home, format, protocol, before }
    }

    /// Starts a server for the clone, and returns it when its socket exists.
    fn serve(&self) -> Child {
        let dir = self.home.path();
        let mut command = diskwright();
        command.current_dir(dir).args(["serve", "clone"]);
        let nbd = self.protocol == "nbd";
        command.args(if nbd { ["--nbd", "unix:s"] } else { ["--vhost-user", "s"] });
        let server = command.stderr(Stdio::null()).spawn().unwrap();
        wait_until("the server's socket", || dir.join("s").exists());
        server
    }

    /// Checks the clone after the crash. `data` is the file that was synced.
    fn check(&self, data: &[u8]) {
        let (dir, format, protocol) = (self.home.path(), self.format, self.protocol);
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
            let paths: String = (1..=100).map(|number| format!(" /file{number}")).collect();
            let expected: String = (1..=100).map(|number| format!("{number}\n")).collect();
            let found = ok(dir, &format!("cat {name}{paths}"));
            assert_eq!(String::from_utf8_lossy(&found), expected, "{format}, {protocol}");
            assert!(ok(dir, &format!("cat {name} /data")) == data, "{format}, {protocol}");
        }
        let info = String::from_utf8(ok(dir, "info --json clone")).unwrap();
        assert!(info.contains("\"blocks\": 131072"), "{info}");
        judge(dir, "clone");
        ok(dir, "reset clone");
        assert!(run(dir, "recover clone").status.success());
        judge(dir, "clone");
        assert_eq!(testkit::digest(&dir.join("base.img")), self.before, "the base is changed");
    }
}

/// Runs a machine with these disks until its files are synced, and kills it a little later.
fn run_and_kill(disks: &[Disk], share: &Path) {
    let guest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scripts/guest");
    let mut machine = testkit::command("python3");
    machine.arg(guest);
    for disk in disks {
        machine.arg(format!("--{}", disk.protocol)).arg(disk.home.path().join("s"));
    }
    machine.arg("--share").arg(share).args(["--memory", "512", "--", SCRIPT]);
    let told = disks[0].home.path().join("output");
    let output = fs::File::create(&told).unwrap();
    let errors = output.try_clone().unwrap();
    let mut machine = machine.stdout(output).stderr(errors).spawn().unwrap();
    wait_until("the machine to sync", || {
        let status = machine.try_wait().unwrap();
        if status.is_some() || share.join("ended").exists() {
            panic!("{status:?}: {}", fs::read_to_string(&told).unwrap());
        }
        ["vda", "vdb"].iter().all(|disk| share.join(format!("synced-{disk}")).exists())
    });
    std::thread::sleep(std::time::Duration::from_millis(300));
    // QEMU dies with it.
    machine.kill().unwrap();
    machine.wait().unwrap();
}

#[test]
fn a_clone_survives_the_crash_of_its_machine_and_grows_in_one_command() {
    require!(Guest("VIRTIO_BLK"), Tool("e2fsck"), Tool("xfs_repair"), Tool("python3"));
    for kinds in
        [[("ext4", "vhost-user"), ("xfs", "nbd")], [("xfs", "vhost-user"), ("ext4", "nbd")]]
            .into_iter()
            .take(testkit::effort(1, 1, 2))
    {
        let share = scratch();
        let disks = kinds.map(Disk::new);
        let data: Vec<u8> = (0..2 << 20).map(|at: u32| (at / 7 % 251) as u8).collect();
        fs::write(share.path().join("data"), &data).unwrap();
        let servers = disks.each_ref().map(Disk::serve);
        run_and_kill(&disks, share.path());
        // The host crashes as well.
        for mut server in servers {
            server.kill().unwrap();
            server.wait().unwrap();
        }
        disks.iter().for_each(|disk| disk.check(&data));
    }
}
