//! `diskwright mount --via nfs`. Kernels of test machines have no NFS client, so the program runs in the guest.

use std::path::Path;

use testkit::guest::{self, GuestJob};
use testkit::{judge, require, scratch};

use crate::mount::Point;
use crate::mount_cli::common::{ext4, fails, image};
use crate::program::ok;

/// Mounts `$1`, changes it, and unmounts it in three ways: by the program, by umount(8) while data is in the kernel's
/// cache, and by a signal. Then it is mounted read-only, with an overlay, and by a server that is killed.
const WORK: &str = r#"
set -e
modprobe nfsv3
cp $FILES/diskwright /run/diskwright
dw=/run/diskwright
mkdir -p /mnt/point
$dw mount $1 /mnt/point --via nfs --log /tmp/log
$dw mounts
$dw mounts --json
cat /mnt/point/motd
head -c 300000 /dev/urandom > /tmp/data
cp /tmp/data /mnt/point/data
chown 5:6 /mnt/point/data
mkdir /mnt/point/dir
! $dw mkdir $1 /other 2>/tmp/said
cat /tmp/said
$dw unmount /mnt/point
test -z "$($dw mounts)"
$dw mkdir $1 /unmounted

$dw mount $1 /mnt/point --via nfs -o allow_other,noexec
cmp /tmp/data /mnt/point/data
stat -c '%u %g' /mnt/point/data
chmod 600 /mnt/point/data
! setpriv --reuid 7 --regid 7 --clear-groups cat /mnt/point/data 2>/dev/null
setpriv --reuid 7 --regid 7 --clear-groups cat /mnt/point/motd
cp /tmp/data /mnt/point/cached
umount /mnt/point
$dw cat $1 /cached | cmp - /tmp/data

$dw mount $1 /mnt/point --via nfs --foreground --map-user &
server=$!
until $dw mounts | grep -q rw; do sleep 0.2; done
stat -c 'shown %u %g' /mnt/point/data
! setpriv --reuid 7 --regid 7 --clear-groups cat /mnt/point/motd 2>/dev/null
cp /tmp/data /mnt/point/signalled
kill -TERM $server
wait $server
$dw cat $1 /signalled | cmp - /tmp/data
$dw ls -l $1 /data

$dw mount $1 /mnt/point --via nfs -o ro
$dw mounts
! touch /mnt/point/new 2>/dev/null
$dw unmount /mnt/point

$dw mount $1 /mnt/point --via nfs --overlay /tmp/changes
echo changed > /mnt/point/over
$dw mounts
$dw unmount /mnt/point
! $dw cat $1 /over 2>/dev/null
$dw mount $1 /mnt/point --via nfs --overlay /tmp/changes
echo "overlay: $(cat /mnt/point/over)"
$dw unmount /mnt/point

$dw mount $1 /mnt/point --via nfs
echo lost > /mnt/point/lost
killall -9 diskwright
test -z "$($dw mounts)"
$dw unmount /mnt/point || echo "status $?"
$dw recover $1
echo complete
"#;

fn works(image: &Path) {
    let mut job = GuestJob::new(WORK).disk(image, false);
    job.files.push(("diskwright", env!("CARGO_BIN_EXE_diskwright").into()));
    let answer = guest::run(&job);
    let output = &answer.output;
    assert_eq!(answer.status, 0, "{output}\n{}", answer.log);
    for part in [
        "/mnt/point\t/dev/",
        "\tnfs\trw",
        "\"via\":\"nfs\",\"read_only\":false",
        "Welcome.",
        "in use by diskwright, mounted at /mnt/point",
        "\n5 6\n",
        "\nshown 0 0\n",
        "\tnfs\tro",
        "overlay: changed",
        "needs recovery",
        "status 4",
        "complete",
    ] {
        assert!(output.contains(part), "{part:?} is missing in\n{output}");
    }
    judge(image);
    let dir = image.parent().unwrap();
    let names = ok(dir, "ls a.img /");
    for name in ["cached", "data", "dir", "signalled", "unmounted"] {
        assert!(names.lines().any(|line| line == name), "{name} is missing in {names}");
    }
}

#[test]
fn the_kernels_client_mounts_an_image_of_ext4() {
    require!(Guest("NFS_V3"), Tool("e2fsck"));
    let dir = scratch();
    works(&ext4(dir.path()));
}

#[test]
fn the_kernels_client_mounts_an_image_of_xfs() {
    require!(Guest("NFS_V3"), Tool("xfs_repair"));
    if testkit::effort(true, false, false) {
        return;
    }
    let dir = scratch();
    works(&image(dir.path(), "--size 400M --fs xfs"));
}

#[test]
fn a_kernel_without_client_is_named() {
    require!(Root, Tool("mount"), Tool("e2fsck"));
    if std::fs::read_to_string("/proc/filesystems").unwrap().contains("\tnfs\n") {
        return;
    }
    let dir = scratch();
    let image = ext4(dir.path());
    let point = Point::new();
    let said = fails(dir.path(), &point, "mount a.img POINT --via nfs", 4);
    assert!(said.contains("no NFS client") && said.contains("--via fuse"), "{said}");
    judge(image);
    let said = fails(dir.path(), &point, "mount a.img POINT --via nfs -o threads=4", 2);
    assert!(said.contains("unknown option threads=4"), "{said}");
    let said = fails(dir.path(), &point, "mount a.img POINT --map-user", 2);
    assert!(said.contains("--via nfs"), "{said}");
    fails(dir.path(), &point, "mount a.img POINT --via nfs -o allow_other --map-user", 2);
}
