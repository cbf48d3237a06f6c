//! Table of requests with their names and arguments, and of unsupported ones.

use super::request::Request;
use super::session::DebugSession;
use super::{
    bitmaps, blocks, change, contents, directory, htree, inode_fields, listing, logdump, names,
    owners, space, stat, superblock, xattrs,
};
use crate::failure::Failure;
use crate::invoked::say;

/// Supported request.
pub(super) struct Command {
    names: &'static [&'static str],
    /// Arguments of the request, in the original's notation.
    pub(super) usage: &'static str,
    /// Minimum number of arguments of a request that changes the image.
    least: usize,
    /// True if it requires an image that is open for writing.
    pub(super) changes: bool,
    pub(super) run: RequestHandler,
}

/// Function that executes a request.
type RequestHandler = fn(&mut DebugSession, &Request) -> Result<(), Failure>;

impl Command {
    /// Returns whether a changing request accepts this number of arguments.
    pub(super) fn accepts(&self, words: usize) -> bool {
        words >= self.least
    }
}

const fn look(names: &'static [&'static str], usage: &'static str, run: RequestHandler) -> Command {
    Command { names, usage, least: 0, changes: false, run }
}

const fn alter(
    names: &'static [&'static str],
    usage: &'static str,
    least: usize,
    run: RequestHandler,
) -> Command {
    Command { names, usage, least, changes: true, run }
}

/// All supported requests.
static COMMANDS: &[Command] = &[
    look(&["show_debugfs_params", "params"], "", superblock::parameters),
    look(&["open_filesys", "open"], "[-w] <device>", superblock::open),
    look(&["close_filesys", "close"], "", superblock::close),
    look(&["feature", "features"], "[[^]feature ...]", superblock::features),
    alter(&["dirty_filesys", "dirty"], "", 0, superblock::dirty),
    look(&["show_super_stats", "stats"], "[-h]", superblock::stats),
    look(&["supported_features"], "[feature]", superblock::supported_features),
    look(&["ncheck"], "[-c] <inode number> ...", owners::ncheck),
    look(&["icheck"], "<block number> ...", owners::icheck),
    look(&["change_root_directory", "chroot"], "<file>", directory::change_root),
    look(&["change_working_directory", "cd"], "<file>", directory::change),
    look(&["print_working_directory", "pwd"], "", directory::print),
    look(&["lcd"], "<native dir>", directory::change_native),
    look(&["list_directory", "ls"], "[-c] [-d] [-l] [-p] [-r] file", listing::list),
    look(&["show_inode_info", "stat"], "<file>", stat::stat),
    look(&["inode_dump", "idump", "id"], "<file>", stat::dump),
    look(&["imap"], "<file>", stat::place),
    look(&["dump_extents", "extents", "ex"], "[-n] [-l] file", blocks::extents),
    look(&["blocks"], "<file>", blocks::list),
    look(&["bmap"], "[-a] <file> logical_blk [physical_blk]", blocks::map),
    look(&["filefrag"], "[-dvr] file", blocks::fragments),
    look(&["block_dump", "bdump", "bd"], "[-f inode] block_num", blocks::dump),
    alter(&["link", "ln"], "<source file> <dest_name>", 2, names::link),
    alter(&["unlink"], "<pathname>", 1, names::unlink),
    alter(&["mkdir"], "<filename>", 1, names::make_directory),
    alter(&["rmdir"], "<filename>", 1, names::remove_directory),
    alter(&["rm"], "<filename>", 1, names::remove),
    alter(&["kill_file"], "<file>", 1, change::kill),
    alter(&["copy_inode"], "<source file> <dest_name>", 2, change::copy),
    alter(&["clri"], "<file>", 1, change::clear),
    alter(&["undelete", "undel"], "<inode_num> [dest_name]", 1, change::undelete),
    look(&["list_deleted_inodes", "lsdel"], "", change::list_deleted),
    alter(&["freei"], "<file> [num]", 1, bitmaps::free_inode),
    alter(&["seti"], "<file> [num]", 1, bitmaps::set_inode),
    look(&["testi"], "<file>", bitmaps::test_inode),
    alter(&["freeb"], "<block> [count]", 1, bitmaps::free_block),
    alter(&["setb"], "<block> [count]", 1, bitmaps::set_block),
    look(&["testb"], "<block> [count]", bitmaps::test_block),
    look(&["find_free_block", "ffb"], "[count [goal]]", bitmaps::find_block),
    look(&["find_free_inode", "ffi"], "[dir [mode]]", bitmaps::find_inode),
    alter(&["expand_dir", "expand"], "<file>", 1, space::expand),
    alter(&["mknod"], "<name> [p| [c|b] <major> <minor>]", 1, names::make_node),
    alter(&["write"], "<native file> <new file>", 2, contents::write),
    alter(&["symlink"], "<filename> <target>", 2, names::symlink),
    look(&["dump_inode", "dump"], "[-p] <file> <output_file>", contents::dump),
    look(&["cat"], "<file>", contents::cat),
    look(&["rdump"], "<directory>... <native directory>", contents::dump_trees),
    alter(&["set_super_value", "ssv"], "<field> <value>", 1, superblock::set),
    alter(&["set_inode_field", "sif"], "<inode> <field> <value>", 1, inode_fields::set),
    look(&["logdump"], "[-acsS] [-n<num_trans>] [output_file]", logdump::dump),
    look(&["htree_dump", "htree"], "<file>", htree::dump),
    look(&["dx_hash", "hash"], "[-h hash_alg] [-s hash_seed] filename", htree::hash),
    look(&["dirsearch"], "dir filename", directory::search),
    alter(&["fallocate"], "<file> start_blk [end_blk]", 2, space::allocate),
    alter(&["punch", "truncate"], "<file> start_blk [end_blk]", 2, space::punch),
    alter(&["set_current_time"], "<time>", 1, superblock::set_time),
    look(&["ea_list"], "<file>", xattrs::list),
    look(&["ea_get"], "[-f outfile]|[-xVC] [-r] <file> <attr>", xattrs::get),
    alter(&["ea_set"], "[-f <value_file>] [-r] <file> <attr> [<value>]", 1, xattrs::set),
    alter(&["ea_rm"], "<file> <attrs>...", 1, xattrs::remove),
    look(&["help"], "", help),
    look(&["list_requests", "lr", "?"], "", help),
];

/// Unsupported requests with the reasons.
const REFUSED: &[(&[&str], &str)] = &[
    (&["freefrag", "e2freefrag"], "use diskwright map for free extents"),
    (&["init_filesys"], "use mke2fs to create file systems"),
    (&["modify_inode", "mi"], "it prompts for each field; use set_inode_field to set one"),
    (
        &["set_block_group", "set_bg"],
        "descriptor checksums depend on the bitmaps; use setb and seti to change both",
    ),
    (&["dump_unused"], "use diskwright extract to copy files; read free blocks from the image"),
    (&["dump_mmp", "set_mmp_value", "smmp"], "use dumpe2fs -h to show multiple mount protection"),
    (
        &["extent_open", "eo", "extent_close", "ec"],
        "writes change extents; use dump_extents to show them",
    ),
    (&["zap_block", "zap"], "use dd to damage a block on purpose"),
    (&["list_quota", "lq", "get_quota", "gq"], "use repquota on a mount to show usage"),
    (
        &["journal_open", "jo", "journal_close", "jc", "journal_write", "jw"],
        "transactions are written only for changes",
    ),
    (&["journal_run", "jr"], "opening with -w replays the journal"),
];

/// Returns the request of this name.
pub(super) fn find(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.names.contains(&name))
}

/// Returns why a request of the original is not supported, or `None` for other names.
pub(super) fn refusal(name: &str) -> Option<&'static str> {
    REFUSED.iter().find(|(names, _)| names.contains(&name)).map(|(_, why)| *why)
}

/// Returns the names of all supported requests.
pub(crate) fn supported() -> Vec<String> {
    let mut names = COMMANDS.iter().flat_map(|command| command.names).collect::<Vec<_>>();
    names.extend([&"quit", &"q"]);
    names.iter().map(ToString::to_string).collect()
}

/// `help` and `list_requests`.
fn help(_: &mut DebugSession, _: &Request) -> Result<(), Failure> {
    say(format_args!("Available debugfs requests:\n"));
    for command in COMMANDS {
        say(format_args!("{:24} {}", command.names.join(", "), command.usage));
    }
    say(format_args!("{:24} ", "quit, q"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_one_meaning() {
        let mut names = supported();
        names.extend(REFUSED.iter().flat_map(|(names, _)| names.iter().map(ToString::to_string)));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
