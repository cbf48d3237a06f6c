//! Operations on names: making, linking, removing and moving what they lead to.

mod create;
