//! Differences as text and JSON.

use serde_json::{Map, Value, json as value};
use vfs::{DeviceNumber, InodeFlags};

use super::change::{Change, ChangeKind, Difference, XattrChange};
use crate::list::join;
use crate::text::{escaped, lossy, not_utf8, rfc3339, type_word};

/// Formats a change as one line without newline: `A`, `D` or `M`, the path, and for `M` the differences. Deceptive
/// bytes are escaped, so each change is exactly one line.
pub fn line(change: &Change) -> String {
    let path = join(b"/", &change.path);
    let path = escaped(&path);
    match change.kind {
        ChangeKind::Added => format!("A {path}"),
        ChangeKind::Removed => format!("D {path}"),
        ChangeKind::Modified => {
            let differences: Vec<String> = change.differences.iter().map(words).collect();
            format!("M {path}: {}", differences.join(", "))
        }
    }
}

fn words(difference: &Difference) -> String {
    match difference {
        Difference::Type(old, new) => format!("type {} → {}", type_word(*old), type_word(*new)),
        Difference::Mode(old, new) => format!("mode {old:04o} → {new:04o}"),
        Difference::Owner((uid, gid), (new_uid, new_gid)) => {
            format!("owner {uid}:{gid} → {new_uid}:{new_gid}")
        }
        Difference::Size(old, new) => format!("size {old} → {new}"),
        Difference::Contents => "contents".into(),
        Difference::Target(old, new) => format!("target {} → {}", escaped(old), escaped(new)),
        Difference::Device(old, new) => {
            format!("device {}:{} → {}:{}", old.major, old.minor, new.major, new.minor)
        }
        Difference::Mtime(old, new) => format!("mtime {} → {}", rfc3339(*old), rfc3339(*new)),
        Difference::Xattr(name, change) => {
            let sign = match change {
                XattrChange::Added => "+",
                XattrChange::Removed => "-",
                XattrChange::Modified => "",
            };
            format!("xattr {sign}{}", escaped(name))
        }
        Difference::Flags(old, new) => {
            let signed = |sign: char, flags: InodeFlags| {
                names(flags).into_iter().map(move |name| format!("{sign}{name}"))
            };
            let all: Vec<String> =
                signed('+', *new - *old).chain(signed('-', *old - *new)).collect();
            format!("flags {}", all.join(" "))
        }
        Difference::Links => "links".into(),
    }
}

/// Returns a change as a JSON object.
pub fn json(change: &Change) -> Value {
    let path = join(b"/", &change.path);
    let mut object = Map::new();
    let kind = match change.kind {
        ChangeKind::Added => "added",
        ChangeKind::Removed => "removed",
        ChangeKind::Modified => "modified",
    };
    object.insert("change".into(), kind.into());
    bytes(&mut object, "path", &path);
    object.insert("type".into(), type_word(change.file_type).into());
    if change.kind == ChangeKind::Modified {
        let differences: Vec<Value> = change.differences.iter().map(fields).collect();
        object.insert("differences".into(), differences.into());
    }
    object.into()
}

fn fields(difference: &Difference) -> Value {
    let pair =
        |what: &str, from: Value, to: Value| value!({ "what": what, "from": from, "to": to });
    match difference {
        Difference::Type(old, new) => pair("type", type_word(*old).into(), type_word(*new).into()),
        Difference::Mode(old, new) => {
            pair("mode", format!("{old:04o}").into(), format!("{new:04o}").into())
        }
        Difference::Owner(old, new) => {
            let owner = |(uid, gid): (u32, u32)| value!({ "uid": uid, "gid": gid });
            pair("owner", owner(*old), owner(*new))
        }
        Difference::Size(old, new) => pair("size", (*old).into(), (*new).into()),
        Difference::Contents => value!({ "what": "contents" }),
        Difference::Target(old, new) => {
            let mut object = Map::new();
            object.insert("what".into(), "target".into());
            bytes(&mut object, "from", old);
            bytes(&mut object, "to", new);
            object.into()
        }
        Difference::Device(old, new) => {
            let number =
                |device: DeviceNumber| value!({ "major": device.major, "minor": device.minor });
            pair("device", number(*old), number(*new))
        }
        Difference::Mtime(old, new) => pair("mtime", rfc3339(*old).into(), rfc3339(*new).into()),
        Difference::Xattr(name, change) => {
            let change = match change {
                XattrChange::Added => "added",
                XattrChange::Removed => "removed",
                XattrChange::Modified => "modified",
            };
            let mut object = Map::new();
            object.insert("what".into(), "xattr".into());
            bytes(&mut object, "name", name);
            object.insert("change".into(), change.into());
            object.into()
        }
        Difference::Flags(old, new) => pair("flags", names(*old).into(), names(*new).into()),
        Difference::Links => value!({ "what": "links" }),
    }
}

/// Adds text under a key, and its bytes under a second key if they are not UTF-8.
fn bytes(object: &mut Map<String, Value>, key: &str, value: &[u8]) {
    object.insert(key.into(), lossy(value).into());
    if let Some(hex) = not_utf8(value) {
        object.insert(format!("{key}_bytes"), hex.into());
    }
}

/// Returns the names of flags as in `lsattr --json`.
fn names(flags: InodeFlags) -> Vec<&'static str> {
    let names = crate::lsattr::NAMES.iter();
    names.filter(|(flag, _)| flags.contains(*flag)).map(|&(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use vfs::FileType;

    use super::*;

    #[test]
    fn a_change_is_one_line_whatever_its_name() {
        let differences = vec![
            Difference::Mode(0o644, 0o4755),
            Difference::Owner((0, 0), (1000, 100)),
            Difference::Contents,
            Difference::Xattr(b"user.a".into(), XattrChange::Added),
            Difference::Flags(InodeFlags::IMMUTABLE, InodeFlags::NODUMP),
        ];
        let (path, kind) = (b"a\n\xff".to_vec(), ChangeKind::Modified);
        let change = Change { path, kind, file_type: FileType::Regular, differences };
        let expected = "M /a\\n\\xff: mode 0644 → 4755, owner 0:0 → 1000:100, contents, xattr +user.a, \
                        flags +nodump -immutable";
        assert_eq!(line(&change), expected);
        let object = json(&change);
        assert_eq!((&object["path_bytes"], &object["type"]), (&"2f610aff".into(), &"file".into()));
        assert_eq!(object["differences"][1]["to"]["uid"], 1000);
    }
}
