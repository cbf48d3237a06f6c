//! `diff` and `apply`: layers that turn one tree into another, and what is left of them when something fails.

mod common;
mod crash;
mod damaged;
mod differences;
mod random;
mod round_trip;
mod rules;
mod sources;
mod tarball;
