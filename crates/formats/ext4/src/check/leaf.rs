//! Checks of directory entries.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use vfs::check::{Code, Finding};

use super::codes::{
    DIR_BLOCK, DIR_CHECKSUM, DIR_DOTS, DIR_DUPLICATE, DIR_INODE, DIR_NAME, DIR_NAMES, DIR_POLICY,
    DIR_TYPE, HTREE_HASH, HTREE_LEAF,
};
use super::context::Context;
use super::directories::{CheckedDirectory, Directories};
use super::inodes::{ENCRYPTED, HIDDEN, InodeState, VALUE};
use super::survey::ROOT;
use super::tree::{IndexPlan, Role};
use crate::dir::casefold;
use crate::dir::compare::NameEncoding;
use crate::format::address::Block;
use crate::format::dirent::{self, DirRecord};
use crate::format::features::Incompat;
use crate::format::inode::flags;

/// Minimum length of an encrypted name.
const ENCRYPTED_NAME_MIN: usize = 16;
/// Type code of directories in directory entries.
const TYPE_DIRECTORY: u8 = 2;

/// Offset of the byte after the name `.` in the first block; `DOT_DOT_END` is the one after `..`.
const DOT_END: usize = 9;
const DOT_DOT_END: usize = 22;

/// State of a thread that reads directories.
pub(super) struct DirectoryReader<'r, 'c> {
    context: &'r Context<'c>,
    directories: &'r Directories,
    has_types: bool,
    plan: IndexPlan,
    buffer: Vec<u8>,
    /// For the current block: the hash of each name and the offset of its entry.
    keys: Vec<u64>,
    /// For a directory without an index: hashes of all names.
    all_keys: Vec<u64>,
    folded: Vec<u8>,
}

/// The chain of entries that is being checked.
#[derive(Clone, Copy)]
struct Chain<'d> {
    directory: &'d CheckedDirectory,
    /// The block; `None` for entries in the inode.
    place: Option<Block>,
    role: Role,
}

impl Chain<'_> {
    fn finding(&self, code: &'static Code) -> Finding {
        let finding = Finding::new(code).of_inode(self.directory.ino.into());
        match self.place {
            Some(place) => finding.at_block(place.0),
            None => finding,
        }
    }

    fn of_entry(&self, code: &'static Code, record: &DirRecord<'_>) -> Finding {
        self.finding(code).named(record.name)
    }
}

impl<'r, 'c> DirectoryReader<'r, 'c> {
    pub(super) fn new(context: &'r Context<'c>, directories: &'r Directories) -> Self {
        Self {
            context,
            directories,
            has_types: context.params.sb.features.incompat(Incompat::FILETYPE),
            plan: IndexPlan::default(),
            buffer: Vec::new(),
            keys: Vec::new(),
            all_keys: Vec::new(),
            folded: Vec::new(),
        }
    }

    /// Reads and checks a directory.
    pub(super) fn read(&mut self, directory: &CheckedDirectory) {
        if directory.has(flags::INLINE_DATA) {
            return self.read_inline(directory);
        }
        let (context, directories) = (self.context, self.directories);
        let mut plan = std::mem::take(&mut self.plan);
        plan.make(context, directories, directory);
        self.plan = plan;
        self.all_keys.clear();
        let mut buffer = std::mem::take(&mut self.buffer);
        directories.for_each_block(context, directory, &mut buffer, &mut |number, place, bytes| {
            self.block(directory, number, place, bytes);
            ControlFlow::Continue(())
        });
        self.buffer = buffer;
        self.all_keys.sort_unstable();
        if self.all_keys.windows(2).any(|pair| pair[0] == pair[1]) {
            self.find_duplicates(directory);
        }
    }

    fn read_inline(&mut self, directory: &CheckedDirectory) {
        let context = self.context;
        let Some(inline) = context.inline_directory(directory.ino) else { return };
        let chain = Chain { directory, place: None, role: Role::Linear };
        if let Some(state) = context.inodes.get(directory.ino) {
            state.count_name();
        }
        self.dot_dot(&chain, inline.parent());
        self.all_keys.clear();
        for part in inline.parts() {
            if let Err(damage) = dirent::verify_structure(part, u32::MAX, false) {
                context.tell_damage(directory.ino, DIR_BLOCK, &damage);
            }
            for record in dirent::entries(part) {
                self.entry(&chain, &record);
                let key = self.long_key(directory, record.name);
                self.all_keys.push(key);
            }
        }
        self.all_keys.sort_unstable();
        if self.all_keys.windows(2).any(|pair| pair[0] == pair[1]) {
            self.find_duplicates(directory);
        }
    }

    fn block(&mut self, directory: &CheckedDirectory, number: u32, place: Block, bytes: &[u8]) {
        let chain = Chain { directory, place: Some(place), role: self.plan.role(number) };
        if self.plan.is_unreached(number) {
            let finding = chain.finding(HTREE_LEAF);
            self.context.tell(finding.detail(format!("the index does not contain block {number}")));
        }
        if chain.role == Role::Node {
            return;
        }
        if chain.role != Role::Root {
            self.verify(&chain, bytes);
        }
        let mut records = dirent::records(bytes);
        if number == 0 {
            self.dots(&chain, records.next(), records.next());
            // Some programs compare these names as zero-terminated strings.
            if bytes[DOT_END] != 0 || bytes[DOT_DOT_END] != 0 {
                let finding = chain.finding(DIR_DOTS).detail("a name does not end with a NUL byte");
                self.context.tell(finding);
            }
        }
        self.keys.clear();
        self.fetch_states(bytes);
        let is_whole = matches!(chain.role, Role::Leaf { .. }) || directory.blocks <= 1;
        for record in records.filter(|record| record.inode != 0) {
            self.entry(&chain, &record);
            let key = self.key(&chain, &record, bytes);
            if is_whole {
                self.keys.push(key);
            }
        }
        if is_whole {
            self.check_duplicates(&chain, bytes);
        }
    }

    /// Prefetches the states of all inodes of a block. Entries are in hash order, so in a large directory their states
    /// are far apart in memory. Reading them together overlaps the cache misses.
    fn fetch_states(&self, bytes: &[u8]) {
        let states =
            dirent::records(bytes).filter_map(|record| self.context.inodes.get(record.inode));
        std::hint::black_box(states.fold(0, |all, state| all ^ state.type_code()));
    }

    fn verify(&self, chain: &Chain<'_>, bytes: &[u8]) {
        let context = self.context;
        let has_checksums = context.params.checksums && !self.plan.is_broken;
        let seed = has_checksums.then_some(chain.directory.seed);
        let Err(damage) = dirent::verify(bytes, u32::MAX, seed) else { return };
        let is_sound = dirent::verify_structure(bytes, u32::MAX, false).is_ok();
        let code = if is_sound { DIR_CHECKSUM } else { DIR_BLOCK };
        let finding = Finding::of_damage(code, &damage).of_inode(chain.directory.ino.into());
        context.tell(finding.at_block(chain.place.map_or(0, |place| place.0)));
    }

    /// Checks the first two records of a directory.
    fn dots(&self, chain: &Chain<'_>, first: Option<DirRecord<'_>>, second: Option<DirRecord<'_>>) {
        let is = |record: Option<&DirRecord<'_>>, name: &[u8]| {
            record.is_some_and(|record| record.inode != 0 && record.name == name)
        };
        let own = chain.directory.ino;
        if !is(first.as_ref(), b".") || first.is_some_and(|record| record.inode != own) {
            self.context.tell(chain.finding(DIR_DOTS).named(b"."));
        }
        if let Some(record) = first.filter(|record| record.inode == own) {
            self.check_type(chain, &record, TYPE_DIRECTORY);
            if let Some(state) = self.context.inodes.get(own) {
                state.count_name();
            }
        }
        if !is(second.as_ref(), b"..") {
            self.context.tell(chain.finding(DIR_DOTS).named(b".."));
        }
        if let Some(record) = second {
            self.check_type(chain, &record, TYPE_DIRECTORY);
            self.dot_dot(chain, record.inode);
        }
    }

    fn dot_dot(&self, chain: &Chain<'_>, parent: u32) {
        chain.directory.dotdot.store(parent, Ordering::Relaxed);
        match self.context.inodes.get(parent) {
            Some(state) if state.is_dir() => state.count_name(),
            // The parent is verified later.
            _ => {}
        }
    }

    fn entry(&mut self, chain: &Chain<'_>, record: &DirRecord<'_>) {
        self.check_name(chain, record);
        let context = self.context;
        let ino = record.inode;
        let bad = |detail: &str| {
            let finding = chain.of_entry(DIR_INODE, record);
            context.tell(finding.detail(format!("it refers to inode {ino}, {detail}")));
        };
        if ino > context.params.sb.inodes_count {
            return bad("which does not exist");
        }
        if ino < context.params.sb.first_ino {
            return bad("which is reserved");
        }
        let Some(state) = context.inodes.get(ino) else {
            context.check_left_out(ino);
            return bad("which is not in use");
        };
        if state.has(VALUE | HIDDEN) {
            return bad("which has no directory entries");
        }
        if state.is_removed() && state.is_dir() {
            return bad("a directory that was removed");
        }
        state.count_name();
        self.check_type(chain, record, state.type_code());
        if chain.directory.has(flags::ENCRYPT) {
            self.check_policy(chain, record, state);
        }
        if state.is_dir() {
            self.subdirectory(chain, record);
        }
    }

    fn check_type(&self, chain: &Chain<'_>, record: &DirRecord<'_>, code: u8) {
        let expected = if self.has_types { code } else { 0 };
        // The Hurd stores no types, because translators may change them.
        let is_left_out = record.file_type == 0 && self.context.params.sb.is_of_hurd();
        // Without types, this byte is the high byte of the name's length.
        if record.file_type != expected && !is_left_out {
            let finding = chain.of_entry(DIR_TYPE, record);
            self.context.tell(finding.mismatch(expected, record.file_type));
        }
    }

    /// Checks that the files of an encrypted directory have its policy. Kernels reject others.
    fn check_policy(&self, chain: &Chain<'_>, record: &DirRecord<'_>, state: &InodeState) {
        if !state.has_contents() {
            return;
        }
        let policies = self.context.policies.lock();
        let problem = match (policies.get(&chain.directory.ino), policies.get(&record.inode)) {
            _ if !state.has(ENCRYPTED) => "is not encrypted",
            (Some(own), Some(other)) if own != other => "has another encryption policy",
            _ => return,
        };
        drop(policies);
        let finding = chain.of_entry(DIR_POLICY, record);
        self.context.tell(finding.detail(format!("inode {} {problem}", record.inode)));
    }

    fn subdirectory(&self, chain: &Chain<'_>, record: &DirRecord<'_>) {
        let Some(below) = self.directories.find(record.inode) else { return };
        let own = chain.directory.ino;
        let set = below.parent.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed);
        if let Err(before) = set {
            let finding = Finding::new(DIR_NAMES).of_inode(own.into()).named(record.name);
            let detail = format!("directory {} has an entry in directory {before}", record.inode);
            self.context.tell(finding.detail(detail));
        }
    }

    fn check_name(&self, chain: &Chain<'_>, record: &DirRecord<'_>) {
        let name = record.name;
        let style = chain.directory.style();
        let is_bad = if style == NameEncoding::Encrypted {
            name.len() < ENCRYPTED_NAME_MIN
        } else {
            name.iter().any(|&byte| byte == b'/' || byte == 0) || matches!(name, b"." | b"..")
        };
        if is_bad {
            self.context.tell(chain.of_entry(DIR_NAME, record));
        } else if style == NameEncoding::Folded
            && self.context.params.strict_names
            && std::str::from_utf8(name).is_err()
        {
            let finding = chain.of_entry(DIR_NAME, record);
            self.context.tell(finding.detail("it is not UTF-8, which the encoding requires"));
        }
    }

    /// Returns the key of a name in its block. Checks that the index leads to this block for it.
    fn key(&mut self, chain: &Chain<'_>, record: &DirRecord<'_>, bytes: &[u8]) -> u64 {
        let hash = match (chain.role, self.hash(chain, record, bytes)) {
            (Role::Leaf { low, high }, Some(hash)) => {
                // Bit 0 is set if the block continues the last hash of the block before.
                let is_in = hash >= low & !1
                    && (hash < high || high == u32::MAX || high & 1 == 1 && hash == high & !1);
                if !is_in && !self.plan.is_broken {
                    let finding = chain.of_entry(HTREE_HASH, record);
                    let expected = format!("{low:#010x} to {high:#010x}");
                    self.context.tell(finding.mismatch(expected, format!("{hash:#010x}")));
                }
                hash
            }
            (Role::Linear | Role::Unreached, _) if chain.directory.blocks > 1 => {
                let key = self.long_key(chain.directory, record.name);
                self.all_keys.push(key);
                return key;
            }
            _ => (self.long_key(chain.directory, record.name) >> 32) as u32,
        };
        u64::from(hash) << 32 | record.offset as u64
    }

    /// Returns the hash that the index uses for a name, if it is known.
    fn hash(&mut self, chain: &Chain<'_>, record: &DirRecord<'_>, bytes: &[u8]) -> Option<u32> {
        if self.plan.is_keyed {
            let at = record.offset + (dirent::HEADER_SIZE + record.name.len()).next_multiple_of(4);
            let stored = bytes.get(at..).and_then(|bytes| bytes.first_chunk::<4>())?;
            return Some(u32::from_le_bytes(*stored) & !1);
        }
        let hasher = self.plan.hasher?;
        Some(chain.directory.style().hash(&hasher, record.name, &mut self.folded).major)
    }

    /// Returns a hash of the comparison form of a name. Collisions are unlikely.
    fn long_key(&mut self, directory: &CheckedDirectory, name: &[u8]) -> u64 {
        let name = if directory.style() == NameEncoding::Folded {
            casefold::fold(name, &mut self.folded);
            &self.folded[..]
        } else {
            name
        };
        hash_64(name)
    }

    /// Finds equal names among the entries whose keys were collected.
    fn check_duplicates(&mut self, chain: &Chain<'_>, bytes: &[u8]) {
        self.keys.sort_unstable();
        let keys = std::mem::take(&mut self.keys);
        let is_folded = chain.directory.style() == NameEncoding::Folded;
        for (at, key) in keys.iter().enumerate() {
            // Few names share a hash, except with deliberate collisions; some duplicates are then missed.
            const SAME_HASH_MAX: usize = 64;
            let others = keys[at + 1..].iter().take(SAME_HASH_MAX);
            for other in others.take_while(|other| *other >> 32 == key >> 32) {
                let name = |key: &u64| dirent::record_at(bytes, *key as u32 as usize);
                let (Some(one), Some(two)) = (name(key), name(other)) else { continue };
                let is_same = if is_folded {
                    let mut folded = Vec::new();
                    casefold::fold(one.name, &mut folded);
                    casefold::fold(two.name, &mut self.folded);
                    folded == self.folded
                } else {
                    one.name == two.name
                };
                if is_same {
                    self.context.tell(chain.of_entry(DIR_DUPLICATE, &two));
                }
            }
        }
        self.keys = keys;
    }

    /// Finds equal names among the names of a directory with equal keys.
    fn find_duplicates(&mut self, directory: &CheckedDirectory) {
        let keys = std::mem::take(&mut self.all_keys);
        let mut suspects: Vec<u64> =
            keys.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        suspects.dedup();
        let is_folded = directory.style() == NameEncoding::Folded;
        let mut met: HashSet<Vec<u8>> = HashSet::new();
        let (context, directories) = (self.context, self.directories);
        let mut buffer = std::mem::take(&mut self.buffer);
        directories.for_each_entry(context, directory, &mut buffer, &mut |entry| {
            let name = entry.name;
            let key = self.long_key(directory, name);
            let is_suspect = suspects.binary_search(&key).is_ok();
            let compared = || if is_folded { self.folded.clone() } else { name.to_vec() };
            if is_suspect && !met.insert(compared()) {
                let finding = Finding::new(DIR_DUPLICATE).of_inode(directory.ino.into());
                context.tell(finding.named(name));
            }
            ControlFlow::Continue(())
        });
        self.buffer = buffer;
        self.all_keys = keys;
    }
}

/// Returns a fast hash that mixes in each word by a multiplication.
fn hash_64(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let (words, rest) = bytes.as_chunks::<8>();
    let mix = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word) * u128::from(FACTOR);
        (product >> 64) as u64 ^ product as u64
    };
    let hash = words.iter().fold(!0, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    let rest = rest.iter().fold(bytes.len() as u64, |word, &byte| word << 8 | u64::from(byte));
    mix(mix(hash, rest), FACTOR)
}

impl InodeState {
    /// Returns true for inodes that need no name: the file system's own, attribute values, removed ones.
    pub(super) const fn needs_no_name(&self) -> bool {
        self.has(VALUE | HIDDEN) || self.is_removed()
    }
}

const _: () = assert!(ROOT < crate::format::superblock::FIRST_INO_REV0);
