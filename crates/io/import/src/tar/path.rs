//! Conversion of archive paths to the form of `Entry::path`. No I/O.

use crate::Damage;

/// Strips leading and trailing slashes and `.` components. `what` is the kind of path in an error.
pub(super) fn normalize(path: &[u8], what: &'static str) -> Result<Vec<u8>, Damage> {
    if path.is_empty() || path.contains(&0) {
        return Err(Damage::Path(what));
    }
    let mut normal = Vec::with_capacity(path.len());
    for component in path.split(|&b| b == b'/') {
        match component {
            b"" | b"." => {}
            b".." => return Err(Damage::ParentComponent),
            name => {
                if !normal.is_empty() {
                    normal.push(b'/');
                }
                normal.extend_from_slice(name);
            }
        }
    }
    Ok(normal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_and_plain() {
        let normal = |path: &str| normalize(path.as_bytes(), "path");
        assert_eq!(normal("./a/./b//c/").unwrap(), b"a/b/c");
        assert_eq!(normal("/etc/passwd").unwrap(), b"etc/passwd");
        assert_eq!(normal("./").unwrap(), b"");
        assert_eq!(normal("a/..b/c..").unwrap(), b"a/..b/c..");
        assert_eq!(normal("a/../b"), Err(Damage::ParentComponent));
        assert_eq!(normal(".."), Err(Damage::ParentComponent));
        assert_eq!(normal(""), Err(Damage::Path("path")));
        assert_eq!(normal("a\0b"), Err(Damage::Path("path")));
    }
}
