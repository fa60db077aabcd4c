//! Guarantees of a simulation to the code in it.

mod cuts;
mod determinism;
mod failures;
mod tasks;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// The message with which `run` panics.
fn panic_text(run: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("a panic was due");
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()))
        .expect("a panic with a text")
}
