//! The NFS client of Linux, in the guest.

use std::sync::Mutex;

use testkit::{guest, require};

use crate::common::{self, *};

/// Commands in the mounted export. `$(…)` that fails ends the script.
const WORK: &str = r#"
set -e
mkdir d
echo hello > d/f
test "$(cat d/f)" = hello
ln d/f d/g
ln -s f d/l
test "$(cat d/l)" = hello
mkfifo d/p
mknod d/b b 7 1
mknod d/c c 1 3
head -c 3000000 /dev/urandom > /tmp/data
cp /tmp/data d/data
sync
echo 3 > /proc/sys/vm/drop_caches
cmp /tmp/data d/data
head -c 1000000 /tmp/data >> d/f
truncate -s 100 d/f
test "$(stat -c %s d/f)" = 100
chmod 4711 d/g
chown 5:6 d/g
touch -d '2001-02-03 04:05:06' d/data
mv d/g d/h
for i in $(seq 300); do echo $i > d/n$i; done
test "$(ls d | wc -l)" = 307
for i in $(seq 300); do test "$(cat d/n$i)" = $i; done
rm d/n*
exec 3>d/open
rm d/open
echo kept >&3
exec 3>&-
test -z "$(ls -A d | grep nfs)"
mkdir -p x/y/z
mv x/y d/moved
rmdir x
! rmdir d 2>/dev/null
! mv d d/moved 2>/dev/null
df . > /dev/null
stat -c '%n %f %h %u %g %s %Y' d/b d/c d/f d/h d/l d/p d/data
"#;

#[test]
fn the_kernel_works_on_an_export() {
    require!(Guest("NFS_V3"));
    on_both(|image| {
        let output = Mutex::new(String::new());
        common::serve(image, &options(), |address| {
            let done = guest::nfs(address.port(), "3", EXPORT, WORK);
            *output.lock().unwrap() = done.unwrap_or_else(|said| panic!("{}: {said}", image.name));
        });
        let output = output.into_inner().unwrap();
        for line in [
            "d/b 61a4 1 0 0 0 ",
            "d/c 21a4 1 0 0 0 ",
            "d/f 81c9 2 5 6 100 ",
            "d/h 81c9 2 5 6 100 ",
            "d/l a1ff 1 0 0 1 ",
            "d/p 11a4 1 0 0 0 ",
            "d/data 81a4 1 0 0 3000000 981173106",
        ] {
            assert!(output.contains(line), "{}: {line} is missing in\n{output}", image.name);
        }
        common::serve(image, &options(), |address| {
            let mut client = NfsClient::connect(address);
            let root = client.mount(EXPORT).unwrap();
            let names = client.readdir(&root, (0, 0), 4096).unwrap().0;
            assert!(names.iter().all(|(_, name, _)| !name.starts_with(".nfs")), "{names:?}");
            assert!(client.lookup(&root, "d").is_ok() && client.lookup(&root, "x").is_err());
        });
    });
}

/// Users of the guest have the rights of their IDs.
#[test]
fn the_kernel_and_the_server_agree_about_permissions() {
    require!(Guest("NFS_V3"));
    let script = r#"
set -e
mkdir -m 1777 d
mkdir -m 700 secret
echo s > secret/f
echo a > d/a
chmod 600 d/a
cat > /tmp/user <<'END'
cat d/a 2>/dev/null && echo read
rm -f d/a 2>/dev/null; test -e d/a && echo kept
ls secret 2>/dev/null || echo closed
echo mine > d/mine && cat d/mine
stat -c '%u %g' d/mine
END
setpriv --reuid 1000 --regid 1000 --clear-groups sh /tmp/user
"#;
    on_both(|image| {
        common::serve(image, &checked(), |address| {
            let output = guest::nfs(address.port(), "3", EXPORT, script).unwrap();
            assert_eq!(output.trim(), "kept\nclosed\nmine\n1000 1000", "{}", image.name);
        });
    });
}
