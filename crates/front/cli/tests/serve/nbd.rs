//! The kernel's NBD client with several connections, in the guest.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use testkit::guest::{self, GuestJob};
use testkit::require;

use super::{data_file, disk_of_machine, read};
use crate::program::diskwright;

/// Four writers at a time, and a second mount that reads what they wrote. The arguments are a port and a file.
const SCRIPT: &str = r#"set -e
connect() {
    nbd-client 10.0.2.2 $PORT /dev/nbd0 -connections 4
    [ "$(netstat -tn | grep -c "10.0.2.2:$PORT .*ESTABLISHED")" = 4 ]
}
network
modprobe nbd
connect
mount /dev/nbd0 /mnt
grep -q Welcome /mnt/motd
for round in 1 2 3; do
    for i in 1 2 3 4; do
        { dd if="$FILES/data" of=/mnt/data$round$i bs=64k conv=fsync 2>/dev/null && echo $i > /mnt/file$round$i; } &
    done
    wait
done
rm /mnt/data11
fstrim /mnt
umount /mnt
nbd-client -d /dev/nbd0
connect
mount -o ro /dev/nbd0 /mnt
for i in 12 23 34; do
    cmp "$FILES/data" /mnt/data$i
done
umount /mnt
nbd-client -d /dev/nbd0
echo complete
"#;

/// A server at a free port.
struct Served {
    server: Child,
    port: String,
    /// Kept open, so that the server can write messages.
    _said: BufReader<ChildStderr>,
}

impl Served {
    /// Serves the image `a.img` in a folder.
    fn start(folder: &Path) -> Self {
        let mut command = diskwright();
        command.current_dir(folder).args(["serve", "a.img", "--nbd", "127.0.0.1:0"]);
        let mut server = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(server.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let port = line.split_once("127.0.0.1:").map(|(_, rest)| rest.split(';').next().unwrap());
        let port = port.unwrap_or_else(|| panic!("no address: {line}")).to_owned();
        Self { server, port, _said: said }
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
fn a_kernel_uses_several_connections() {
    require!(Guest("BLK_DEV_NBD"), Tool("e2fsck"), Tool("xfs_repair"));
    let (_dir, data, bytes) = data_file();
    for format in ["ext4", "xfs"] {
        let disk = disk_of_machine(format);
        let mut served = Served::start(disk.path());
        let mut job = GuestJob::new(format!("PORT={}\n{SCRIPT}", served.port));
        job.files = vec![("data", data.clone())];
        job.limit = Duration::from_secs(600);
        let answer = guest::run(&job);
        let is_complete = answer.status == 0 && answer.output.contains("complete");
        assert!(is_complete, "{format}: {}\n{}", answer.output, answer.log);
        kill_process(Pid::from_child(&served.server), Signal::TERM).unwrap();
        assert_eq!(served.server.wait().unwrap().code(), Some(0), "{format}");
        let image = disk.path().join("a.img");
        testkit::judge(&image);
        assert!(read(&image, "/data34") == bytes, "{format}");
        assert_eq!(read(&image, "/file23"), b"3\n", "{format}");
    }
}
