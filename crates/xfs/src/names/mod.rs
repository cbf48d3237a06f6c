//! Operations on names: making, linking, removing and moving what they lead to.
//!
//! Each keeps, in one operation, the entries of directories, the counts of links and the parent
//! pointers of what the entries lead to.

mod create;
mod entry;
mod link;
mod rename;
mod unlink;

#[cfg(test)]
mod tests;
