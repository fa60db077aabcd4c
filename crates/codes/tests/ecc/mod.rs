//! The error-correcting code compared with a slow implementation of its definition.

mod correct;
mod distance;
mod encode;
mod fold;
mod oracle;
mod tables;
