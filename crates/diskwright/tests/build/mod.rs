//! Images that `diskwright build` makes, judged by e2fsck and by what the kernel shows of them.

mod common;
mod containers;
mod directories;
mod ending;
mod failures;
mod features;
mod large_files;
mod owners;
mod reproducible;
mod round_trip;
mod sizes;
mod sources;
mod streams;
