//! Images converted by `diskwright convert`.

mod common;
mod refusals;
mod round_trip;
mod upgrades;
