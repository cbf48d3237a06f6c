//! Extent trees: which blocks of the device hold which blocks of a file.
//!
//! The tree of an inode is read and changed only under the inode's lock. A descent checks that
//! each node has the depth its parent calls for, so a hostile tree cannot lead in circles.

mod insert;
mod lookup;
