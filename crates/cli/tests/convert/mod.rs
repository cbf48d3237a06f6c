//! Images made anew of others by `diskwright convert`.

mod common;
mod refusals;
mod round_trip;
mod upgrades;
