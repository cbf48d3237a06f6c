//! Architecture as a ratchet: no file depends on another file that depends on it, directly or through others.
//!
//! The same holds for rooms: modules of the first level with everything below them, except for the known dependencies.
//!
//! The scan follows `use` items and paths that begin with `crate` or `super`, through re-exports to the defining file.
//! A module and its parent may depend on each other.

use std::collections::{BTreeMap, BTreeSet};

use super::tidy::{code_only, files};

/// Known cycles. The first three are one unit in several files, or types that contain each other. The others should
/// become fewer: in them, a type is in the same file as code that works on it.
const KNOWN: &[&[&str]] = &[
    &["engine/src/checkpoint.rs", "engine/src/engine.rs", "engine/src/txn.rs"],
    &["bench/src/environments/format.rs", "bench/src/environments/spec.rs"],
    &["bench/src/report/headline.rs", "bench/src/report/make.rs"],
    &["diskwright/src/build/error.rs", "diskwright/src/error.rs"],
    &["import/src/content.rs", "import/src/directory/file.rs", "import/src/entry.rs"],
    &[
        "ext4/src/check/claims.rs",
        "ext4/src/check/contents.rs",
        "ext4/src/check/context.rs",
        "ext4/src/check/directories.rs",
        "ext4/src/check/groups.rs",
        "ext4/src/check/inode.rs",
        "ext4/src/check/leaf.rs",
        "ext4/src/check/mapping.rs",
        "ext4/src/check/references.rs",
        "ext4/src/check/survey.rs",
        "ext4/src/check/tally.rs",
        "ext4/src/check/tree.rs",
    ],
    &["ext4/src/repair/files/attributes.rs", "ext4/src/repair/files/inodes.rs"],
    &["ext4/src/repair/files/map.rs", "ext4/src/repair/files/repair_context.rs"],
    &["ext4/src/repair/quota.rs", "ext4/src/repair/system_files.rs"],
    &[
        "xfs/src/check/attributes.rs",
        "xfs/src/check/directory/mod.rs",
        "xfs/src/check/forks.rs",
        "xfs/src/check/inodes.rs",
        "xfs/src/check/names.rs",
    ],
    &["xfs/src/check/directory/blocks.rs", "xfs/src/check/directory/index.rs"],
    &["xfs/src/log/bounds.rs", "xfs/src/log/end.rs", "xfs/src/log/read.rs"],
    &["xfs/src/log/recover.rs", "xfs/src/log/replay/mod.rs"],
    &["xfs/src/repair/fields.rs", "xfs/src/repair/inode.rs"],
];

/// Known dependencies of a lower room on an upper one, by crate. A room is a module of the first level with everything
/// below it. Without these, no rooms need each other in circles. They should become fewer.
const UPWARD: &[(&str, &str, &str)] = &[
    ("cli", "cli", "commands"),
    ("diskwright", "anywhere", "volume"),
    ("diskwright", "dispatch", "image"),
    ("diskwright", "error", "build"),
    ("diskwright", "fs", "build"),
    ("diskwright", "fs", "copy"),
    ("diskwright", "fs", "edit"),
    ("diskwright", "fs", "extract"),
    ("diskwright", "lock", "anywhere"),
    ("engine", "engine", "checkpoint"),
    ("engine", "engine", "txn"),
    ("ext4", "alloc", "fs"),
    ("ext4", "alloc", "op"),
    ("ext4", "file", "map"),
    ("ext4", "fs", "orphan"),
    ("ext4", "inode", "fs"),
    ("ext4", "inode", "op"),
    ("ext4", "inode", "xattr"),
    ("ext4", "op", "map"),
    ("ext4", "op", "orphan"),
    ("ext4", "op", "quota"),
    ("ext4", "volume", "blocks"),
    ("ext4", "volume", "quota"),
    ("fuse", "space", "adapter"),
    ("import", "content", "directory"),
    ("import", "error", "combine"),
    ("import", "error", "rule_file"),
    ("import", "error", "oci"),
    ("xfs", "fs", "deferred_create"),
    ("xfs", "fs", "dir"),
    ("xfs", "fs", "file"),
    ("xfs", "fs", "inode"),
    ("xfs", "fs", "orphan"),
    ("xfs", "inode", "alloc"),
    ("xfs", "inode", "quota"),
    ("xfs", "map", "alloc"),
    ("xfs", "map", "inode"),
    ("xfs", "mkfs", "resize"),
    ("xfs", "mkfs", "xattr"),
    ("xfs", "op", "alloc"),
    ("xfs", "op", "dir"),
    ("xfs", "op", "inode"),
    ("xfs", "op", "orphan"),
    ("xfs", "op", "quota"),
    ("xfs", "volume", "alloc"),
    ("xfs", "volume", "dir"),
    ("xfs", "volume", "quota"),
];

/// Path of a module in its crate.
type Module = Vec<String>;

/// The modules of a crate, each with its file and the code in it.
struct Crate {
    modules: BTreeMap<Module, (String, String)>,
    /// Names that modules re-export, and the modules that define them.
    shown: BTreeMap<(Module, String), Module>,
}

/// Returns the code of a file without its tests.
fn without_tests(text: &str) -> String {
    let code = code_only(text);
    let end = code.find("#[cfg(test)]\nmod tests").unwrap_or(code.len());
    let mut lines = code[..end].lines();
    let mut kept = String::new();
    while let Some(line) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            lines.next();
            continue;
        }
        kept.push_str(line);
        kept.push('\n');
    }
    kept
}

/// Returns the crates of the workspace by folder.
fn crates() -> BTreeMap<String, Crate> {
    let mut crates = BTreeMap::<String, Crate>::new();
    for (path, text) in files(&[".rs"]) {
        let in_crates = path.strip_prefix("crates/").and_then(|path| path.split_once('/'));
        let Some((file, (name, inner))) =
            in_crates.and_then(|(_, file)| Some((file, file.split_once("/src/")?)))
        else {
            continue;
        };
        let mut module: Module =
            inner.trim_end_matches(".rs").split('/').map(String::from).collect();
        if module.iter().any(|part| part.ends_with("tests")) {
            continue;
        }
        if ["mod", "lib", "main"].contains(&module.last().unwrap().as_str()) {
            module.pop();
        }
        let empty = || Crate { modules: BTreeMap::new(), shown: BTreeMap::new() };
        let of = crates.entry(name.to_owned()).or_insert_with(empty);
        of.modules.insert(module, (file.to_owned(), without_tests(&text)));
    }
    crates
}

/// Expands a tree of imports into paths, without `as`.
fn expand(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let (mut depth, mut start) = (0, 0);
    let ends = tree.char_indices().chain([(tree.len(), ',')]);
    for (at, character) in ends {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = tree[start..at].trim();
                start = (at + 1).min(tree.len());
                match part.split_once('{') {
                    Some((path, rest)) => {
                        let inner = rest.trim_end().trim_end_matches('}');
                        // Only the last brace closes this one.
                        let closed = rest.trim_end().strip_suffix('}').unwrap_or(inner);
                        expand(&format!("{prefix}{}", path.trim()), closed, paths);
                    }
                    None if part.is_empty() => {}
                    None => {
                        let path = part.split_once(" as ").map_or(part, |(path, _)| path);
                        paths.push(format!("{prefix}{}", path.trim()));
                    }
                }
            }
            _ => {}
        }
    }
}

/// Returns the paths that a file imports, and whether it re-exports them.
fn imports(code: &str) -> Vec<(bool, String)> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find("use ") {
        let line = rest[..at].rfind('\n').map_or(0, |line| line + 1);
        let before = rest[line..at].trim();
        rest = &rest[at + 4..];
        if before.is_empty() || before.starts_with("pub") {
            let end = rest.find(';').unwrap_or(rest.len());
            let mut paths = Vec::new();
            expand("", &rest[..end].replace('\n', " "), &mut paths);
            found.extend(paths.into_iter().map(|path| (!before.is_empty(), path)));
            rest = &rest[end..];
        }
    }
    found
}

/// Returns the paths in a file that begin with `crate` or `super`, whether imported or not.
fn paths(code: &str) -> Vec<String> {
    let is_path = |character: char| character.is_alphanumeric() || "_:".contains(character);
    let words = code.split(|character| !is_path(character));
    // A path that ends in colons continues in braces: it is part of a tree of imports.
    let is_whole = |word: &&str| !word.ends_with(':');
    words
        .filter(|word| word.starts_with("crate::") || word.starts_with("super::"))
        .filter(is_whole)
        .map(str::to_owned)
        .collect()
}

impl Crate {
    /// Returns the module that defines the target of a path, if it is in this crate.
    fn resolve(&self, from: &Module, path: &str) -> Option<Module> {
        let mut parts: Vec<&str> = path.split("::").collect();
        let mut base = match parts[0] {
            "crate" => Module::new(),
            "self" | "super" => from.clone(),
            child => {
                let inner = [from.as_slice(), &[child.to_owned()]].concat();
                self.modules.contains_key(&inner).then(|| from.clone())?
            }
        };
        while matches!(parts.first(), Some(&("crate" | "self" | "super"))) {
            if parts.remove(0) == "super" {
                base.pop();
            }
        }
        for part in parts {
            let inner = [base.as_slice(), &[part.to_owned()]].concat();
            if self.modules.contains_key(&inner) {
                base = inner;
                continue;
            }
            return Some(self.shown.get(&(base.clone(), part.to_owned())).cloned().unwrap_or(base));
        }
        Some(base)
    }

    /// Records re-exports. Re-exports may refer to other re-exports.
    fn follow_shown(&mut self) {
        for _ in 0..4 {
            let mut shown = BTreeMap::new();
            for (module, (_, code)) in &self.modules {
                for (is_shown, path) in imports(code) {
                    let name = path.rsplit("::").next().unwrap_or_default().to_owned();
                    if is_shown && let Some(target) = self.resolve(module, &path) {
                        shown.insert((module.clone(), name), target);
                    }
                }
            }
            self.shown = shown;
        }
    }

    /// Returns the modules that each module depends on, without its parents and children.
    fn needs(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        let needs = self.modules.iter().map(|(module, (_, code))| {
            let imported = imports(code).into_iter().map(|(_, path)| path);
            let all = imported.chain(paths(code));
            let needed = all.filter_map(|path| self.resolve(module, &path));
            let apart = |other: &Module| !other.starts_with(module) && !module.starts_with(other);
            (module, needed.filter(apart).collect())
        });
        needs.collect()
    }

    /// Returns the rooms that each room needs. A room is a module of the first level with everything below it. The root
    /// of the crate is none.
    fn rooms(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut rooms = BTreeMap::<String, BTreeSet<String>>::new();
        for (module, needed) in self.needs() {
            let Some(room) = module.first() else { continue };
            let others = needed.iter().filter_map(|other| other.first());
            rooms
                .entry(room.clone())
                .or_default()
                .extend(others.filter(|other| *other != room).cloned());
        }
        rooms
    }

    /// Returns the cycles: sets of files that depend on each other.
    fn circles(&self) -> BTreeSet<BTreeSet<String>> {
        let needs = self.needs();
        let reached = |from: &Module| {
            let mut seen = BTreeSet::new();
            let mut pending: Vec<&Module> = needs[from].iter().collect();
            while let Some(module) = pending.pop() {
                if seen.insert(module.clone()) {
                    pending.extend(&needs[module]);
                }
            }
            seen
        };
        let reach: BTreeMap<&Module, BTreeSet<Module>> =
            self.modules.keys().map(|module| (module, reached(module))).collect();
        let in_circle = self.modules.keys().filter(|module| reach[module].contains(*module));
        let circle = |module: &Module| {
            let back = reach[module].iter().filter(|other| reach[*other].contains(module));
            back.map(|other| self.modules[other].0.clone()).collect()
        };
        in_circle.map(circle).collect()
    }
}

#[test]
fn files_do_not_need_each_other_in_circles() {
    let known: BTreeSet<BTreeSet<String>> =
        KNOWN.iter().map(|files| files.iter().map(|&file| file.to_owned()).collect()).collect();
    let mut found = BTreeSet::new();
    for (_, mut of) in crates() {
        of.follow_shown();
        found.extend(of.circles());
    }
    let new: Vec<_> = found.difference(&known).collect();
    assert!(new.is_empty(), "files that need each other: {new:#?}");
    let gone: Vec<_> = known.difference(&found).collect();
    assert!(gone.is_empty(), "circles that are no more: {gone:#?}");
}

/// Returns the rooms of a cycle: all rooms that remain after those that need no remaining one are removed.
fn rooms_in_circles(mut rooms: BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    loop {
        let left: BTreeSet<String> = rooms.keys().cloned().collect();
        rooms.retain(|_, needed| !needed.is_disjoint(&left));
        if rooms.len() == left.len() {
            return left;
        }
    }
}

/// Returns whether a room needs another one, directly or through others.
fn reaches(rooms: &BTreeMap<String, BTreeSet<String>>, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut pending = vec![from];
    while let Some(room) = pending.pop() {
        if room == to {
            return true;
        }
        if seen.insert(room) {
            pending.extend(rooms.get(room).into_iter().flatten().map(String::as_str));
        }
    }
    false
}

#[test]
fn rooms_do_not_need_each_other_in_circles() {
    let mut seen = BTreeSet::new();
    for (name, mut of) in crates() {
        of.follow_shown();
        let mut rooms = of.rooms();
        let upward: Vec<_> = UPWARD.iter().filter(|(of, ..)| *of == name).collect();
        for (_, lower, upper) in &upward {
            let is_there = rooms.get_mut(*lower).is_some_and(|needed| needed.remove(*upper));
            assert!(is_there, "{name}: {lower} does not need {upper} any more");
        }
        let circle = rooms_in_circles(rooms.clone());
        assert!(
            circle.is_empty(),
            "{name}: these rooms, or rooms above them, need each other: {circle:?}"
        );
        for (_, lower, upper) in upward {
            assert!(
                reaches(&rooms, upper, lower),
                "{name}: {lower} may need {upper} without a circle"
            );
        }
        seen.insert(name);
    }
    let unknown: Vec<_> = UPWARD.iter().filter(|(name, ..)| !seen.contains(*name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn trees_of_imports_are_followed() {
    let code = "use a::{b, c::{d as e, f}};\npub(crate) use super::g;\nfn x() { crate::h::i() }\n";
    let expected = [(false, "a::b"), (false, "a::c::d"), (false, "a::c::f"), (true, "super::g")];
    let found = imports(code);
    let found: Vec<_> = found.iter().map(|(shown, path)| (*shown, path.as_str())).collect();
    assert_eq!(found, expected);
    assert_eq!(paths(code), ["super::g", "crate::h::i"]);
}

/// Folders of crates, lowest first. A crate depends only on crates of the same folder and of lower folders.
const FOLDERS: [&str; 4] = ["core", "formats", "io", "front"];

/// Returns the crates that a manifest needs for building, without those for tests.
fn needed(manifest: &str) -> impl Iterator<Item = &str> {
    let sections = manifest.split("\n[").filter(|section| {
        let title = section.lines().next().unwrap_or_default();
        title.ends_with("dependencies]") && !title.contains("dev-dependencies")
    });
    sections.flat_map(str::lines).filter_map(|line| line.split(['.', ' ']).next())
}

#[test]
fn crates_depend_on_lower_folders_only() {
    let manifests = files(&["Cargo.toml"]);
    let (_, root) = manifests.iter().find(|(path, _)| path == "Cargo.toml").expect("a workspace");
    // `disk = { path = "crates/core/disk", …`
    let places: BTreeMap<&str, &str> = root
        .lines()
        .filter_map(|line| line.split_once(" = { path = \"crates/"))
        .filter_map(|(name, rest)| Some((name, rest.split_once('/')?.0)))
        .collect();
    // Position in the list.
    let height = |folder: &str| FOLDERS.iter().position(|name| *name == folder);
    let mut found = Vec::new();
    for (path, manifest) in &manifests {
        let Some(folder) = path.strip_prefix("crates/").and_then(|rest| rest.split('/').next())
        else {
            continue;
        };
        let Some(own) = height(folder) else { continue };
        for name in needed(manifest) {
            let Some(place) = places.get(name) else { continue };
            // Crates that only measure or test are not part of the product.
            if height(place).is_none_or(|other| other > own) {
                found.push(format!("{path} needs {name} of {place}/"));
            }
        }
    }
    assert!(places.len() > 10, "{places:?}");
    assert!(found.is_empty(), "docs/DESIGN.md has the order of folders:\n{}", found.join("\n"));
}
