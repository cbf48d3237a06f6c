//! Set-ID bits and capabilities after a change of contents by the owner, by others and by root.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use super::trace::Trace;
use crate::place::{Place, tool};

const USERS: [(&str, &[&str]); 4] = [
    ("root", &[]),
    ("owner", &["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"]),
    ("owner outside of the group", &["setpriv", "--reuid=1000", "--regid=3000", "--clear-groups"]),
    ("other", &["setpriv", "--reuid=2000", "--regid=2000", "--clear-groups"]),
];

const CHANGES: [(&str, &str); 6] = [
    ("write", "printf x | dd of=FILE conv=notrunc bs=1 status=none"),
    ("append", "printf x >> FILE"),
    ("truncate", "truncate -s 3 FILE"),
    ("fallocate", "fallocate -l 100000 FILE"),
    ("punch", "fallocate -p -o 0 -l 4096 FILE"),
    ("chgrp to the same group", "chgrp 1000 FILE"),
];

const MODES: [u32; 9] = [0o6777, 0o6766, 0o6666, 0o2766, 0o2666, 0o2777, 0o4666, 0o4777, 0o2767];

pub(super) fn all(place: &mut Place, trace: &mut Trace) {
    fs::set_permissions(place.path(), Permissions::from_mode(0o777)).unwrap();
    for (user, prefix) in USERS {
        for (change, line) in CHANGES {
            for mode in MODES {
                let path = place.join("file");
                fs::write(&path, vec![b'c'; 10_000]).unwrap();
                chown(&path, Some(1000), Some(1000)).unwrap();
                fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
                let line = line.replace("FILE", &format!("'{}'", path.display()));
                let mut words = prefix.to_vec();
                words.extend(["sh", "-c", &line]);
                let mut command = tool(words[0]);
                let output = command.args(&words[1..]).output().unwrap();
                let what = format!("{change} of {mode:o} by {user}");
                trace.saw(&what, output.status.success());
                let now = fs::metadata(&path).unwrap().mode() & 0o7777;
                trace.saw(format!("{what}: mode"), format!("{now:o}"));
                fs::remove_file(&path).unwrap();
            }
        }
    }
}
