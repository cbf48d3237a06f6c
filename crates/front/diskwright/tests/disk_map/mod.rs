//! Contract of this crate, compared with the images' own records and with the tools of the formats.

mod common;
mod damage;
mod drawing;
mod golden;
mod places;
mod tools;
