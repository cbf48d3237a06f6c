//! What names mean in XFS: how entries are stored, what a new inode is like, and the counts of links and
//! parent pointers. The operations themselves are in [`operation::names`].

mod directories;
mod links;
mod make;

#[cfg(test)]
mod tests;
