//! Images whose features rule over inodes: fs-verity, projects and quotas. e2fsck judges what is
//! left.

mod changing;
mod quotas;
