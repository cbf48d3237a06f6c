//! `diskwright check`: output for sound and damaged images, and exit statuses. The tests of the
//! formats check that all damage is found.

pub(crate) mod common;
mod device;
mod ending;
mod output;
mod places;
