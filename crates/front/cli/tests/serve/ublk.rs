//! Block devices of the kernel, in the guest.

use std::path::{Path, PathBuf};
use std::time::Duration;

use testkit::guest::{self, GuestJob};
use testkit::require;

use super::{data_file, disk_of_machine, read};
use crate::program::diskwright;

/// `serve` starts a server of `$device`, and `ended` ends it and removes its device. The device of a killed server keeps
/// its number.
const FUNCTIONS: &str = r#"set -e
modprobe ublk_drv
start() {
    : >server.log
    "$FILES/diskwright" serve "$@" --ublk --queues 2 2>server.log & server=$!
    until grep -q "serving at /dev/ublkb" server.log; do
        kill -0 $server 2>/dev/null || return 1
        sleep 0.05
    done
}
serve() {
    tries=100
    until start "$@"; do
        # The kernel ends the requests of a killed server, and keeps its image open until then.
        grep -q "in use by another program" server.log && tries=$((tries - 1)) && [ $tries -gt 0 ] ||
            { cat server.log; exit 1; }
        sleep 0.1
    done
    device=$(sed -n 's|.*serving at \(/dev/ublkb[0-9]*\).*|\1|p' server.log)
    number=${device#/dev/ublkb}
    [ -b $device ] && [ -c /dev/ublkc$number ]
}
ended() {
    kill -TERM $server
    wait $server || { cat server.log; exit 1; }
    [ ! -e $device ] && [ ! -e /dev/ublkc$number ]
}
"#;

/// Files of all sizes, freed space, and a device that is mounted again.
const CHANGES: &str = r#"
serve "$1"
mount $device /mnt
grep -q Welcome /mnt/motd
for i in $(seq 100); do
    echo $i > /mnt/file$i
    [ $((i % 20)) != 0 ] || dd if="$FILES/data" of=/mnt/data$i bs=64k conv=fsync 2>/dev/null
done
rm /mnt/data40
fstrim /mnt
umount /mnt
mount $device /mnt
cmp "$FILES/data" /mnt/data100
umount /mnt
ended
serve "$1" --read-only
[ "$(cat /sys/block/ublkb$number/ro)" = 1 ]
mount -o ro $device /mnt
[ "$(cat /mnt/file100)" = 100 ]
umount /mnt
! dd if=/dev/zero of=$device bs=4096 count=1 oflag=direct 2>/dev/null
ended
echo complete
"#;

/// The server is killed. The mount gets errors and does not hang, and synced files are in the image.
const KILL: &str = r#"
serve "$1"
mount $device /mnt
echo synced > /mnt/synced
sync /mnt/synced
kill -KILL $server
wait $server || true
! dd if="$FILES/data" of=/mnt/lost bs=64k conv=fsync 2>/dev/null
umount /mnt
echo complete
"#;

/// The server is killed while several programs write through the kernel. A second server has the state of the crash: the
/// kernel replays the journal or log, and synced files are there. The second one is killed as well.
const KILL_WRITERS: &str = r#"
serve "$1"
mount $device /mnt
for i in $(seq 50); do echo $i > /mnt/file$i; done
dd if="$FILES/data" of=/mnt/data bs=64k conv=fsync 2>/dev/null
sync
mkdir /mnt/d1 /mnt/d2 /mnt/d3
for w in 1 2 3; do
    { i=0
      while i=$((i + 1)) && echo $i 2>/dev/null > /mnt/d$w/new$i && [ $i -lt 100000 ]; do
          [ $((i % 10)) != 0 ] || dd if="$FILES/data" of=/mnt/d$w/later bs=64k conv=fsync 2>/dev/null || break
          echo $i > progress$w
      done; } & writers="$writers $!"
done
until [ -e progress1 ] && [ -e progress2 ] && [ -e progress3 ] && [ $(cat progress1) -ge 25 ]; do sleep 0.05; done
kill -KILL $server
wait $server || true
for writer in $writers; do wait $writer || true; done
umount /mnt
serve "$1"
mount $device /mnt
cmp "$FILES/data" /mnt/data
[ "$(cat /mnt/file50)" = 50 ]
[ $(ls /mnt/d1 | wc -l) -ge 10 ]
echo second > /mnt/second
sync
echo unsynced > /mnt/third
kill -KILL $server
wait $server || true
umount /mnt
echo complete
"#;

fn program() -> PathBuf {
    env!("CARGO_BIN_EXE_diskwright").into()
}

fn run(image: &Path, data: &Path, script: &str) {
    let mut job = GuestJob::new(format!("{FUNCTIONS}{script}")).disk(image, false);
    job.files = vec![("diskwright", program()), ("data", data.to_owned())];
    job.limit = Duration::from_secs(600);
    let answer = guest::run(&job);
    let is_complete = answer.status == 0 && answer.output.contains("complete");
    assert!(is_complete, "{}\n{}", answer.output, answer.log);
}

#[test]
fn a_kernel_mounts_and_changes_an_image() {
    require!(Guest("BLK_DEV_UBLK"), Tool("e2fsck"), Tool("xfs_repair"));
    let (_dir, data, bytes) = data_file();
    for format in ["ext4", "xfs"] {
        let disk = disk_of_machine(format);
        let image = disk.path().join("a.img");
        run(&image, &data, CHANGES);
        testkit::judge(&image);
        assert!(read(&image, "/data100") == bytes, "{format}");
        assert_eq!(read(&image, "/file99"), b"99\n", "{format}");
        run(&image, &data, KILL);
        assert_eq!(read(&image, "/synced"), b"synced\n", "{format}");
    }
}

/// The image is not repaired: recovery is sufficient.
#[test]
fn an_image_recovers_after_its_server_was_killed_below_writers() {
    require!(Guest("BLK_DEV_UBLK"), Tool("e2fsck"), Tool("xfs_repair"));
    let (_dir, data, bytes) = data_file();
    for format in ["ext4", "xfs"] {
        let disk = disk_of_machine(format);
        let image = disk.path().join("a.img");
        run(&image, &data, KILL_WRITERS);
        let mut info = diskwright();
        let info = info.args(["info", "--json"]).arg(&image).output().unwrap();
        let info = String::from_utf8(info.stdout).unwrap();
        let is_dirty = info.contains("needs_recovery") || info.contains("must be replayed");
        assert!(is_dirty, "{format}: {info}");
        assert!(diskwright().arg("recover").arg(&image).status().unwrap().success(), "{format}");
        testkit::judge(&image);
        assert!(read(&image, "/data") == bytes, "{format}");
        for number in 1..=50 {
            let found = read(&image, &format!("/file{number}"));
            assert_eq!(found, format!("{number}\n").into_bytes(), "{format}");
        }
        assert_eq!(read(&image, "/second"), b"second\n", "{format}");
    }
}

#[test]
fn without_ublk_the_device_is_named() {
    if Path::new("/dev/ublk-control").exists() {
        eprintln!("skipped serve::ublk::without_ublk_the_device_is_named: this kernel has ublk");
        return;
    }
    let disk = disk_of_machine("ext4");
    let output = diskwright().current_dir(disk.path()).args(["serve", "a.img", "--ublk"]).output();
    let output = output.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("/dev/ublk-control") && said.contains("ublk_drv"), "{said}");
}
