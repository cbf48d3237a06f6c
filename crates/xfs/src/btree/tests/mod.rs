//! Trees against a model: after each run of random changes the records are those of the model and the
//! structure is as checkers want it.

mod damage;
mod harness;
mod kernel;
mod model;
mod reverse_map;
mod structure;
