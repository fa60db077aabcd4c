//! The log store: the same promises as the other engine's but for order.

mod crash;
mod emptied;
mod failing;
mod full;
pub(crate) mod harness;
mod interface;
mod keeps_up;
mod model;
pub(crate) mod repair;
mod reuse;
pub(crate) mod rot;
mod shut_in;
mod under_way;
