//! `diff` and `apply`: layers that convert one tree to another, and the result after failures.

mod common;
mod crash;
mod damaged;
mod differences;
mod random;
mod round_trip;
mod rules;
mod sources;
mod tarball;
