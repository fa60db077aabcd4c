//! An [`Env`](vellum_base::Env) in virtual time: blocking engine code runs as coroutines on one OS thread, and
//! a run is a pure function of its seed.
//!
//! ```
//! use vellum_base::{Env, Nanos};
//! use vellum_sim::Sim;
//!
//! let sim = Sim::new(7);
//! let env = sim.env();
//! let end = sim.run(|| {
//!     let worker = env.clone().spawn("worker", {
//!         let env = env.clone();
//!         Box::new(move || env.sleep_until(Nanos::from_ms(5)))
//!     });
//!     worker.join();
//!     env.now()
//! });
//! assert_eq!(end, Nanos::from_ms(5));
//! ```
//!
//! - [`Sim`] owns the world and runs it; [`SimEnv`] is the environment for engine code.
//! - [`FaultPlan`] selects the operations that fail; [`Sim::run_until`] and [`SimEnv::cut_power`] stop the world in the
//!   middle, as a power cut would.
//! - [`check`] runs a test for many seeds and prints the command that replays a failed one.

mod check;
mod coroutine;
mod events;
mod faults;
mod log;
mod sim;
mod stacks;
mod tasks;
mod waiters;
mod world;

pub use check::{SEED_VARIABLE, check, check_on_all_cores, seed_from_env};
pub use faults::FaultPlan;
pub use sim::{Sim, SimConfig, SimEnv};
