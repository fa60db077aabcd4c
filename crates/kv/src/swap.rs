//! Atomically replaceable pointers that are read without a lock. Under `shuttle` each use is a scheduling point, as
//! with locks: any other task may run before it.

pub(crate) use arc_swap::Guard;
#[cfg(not(feature = "shuttle"))]
pub(crate) use arc_swap::{ArcSwap, ArcSwapOption};
#[cfg(feature = "shuttle")]
pub(crate) use stirred::{ArcSwap, ArcSwapOption};

#[cfg(feature = "shuttle")]
mod stirred {
    use super::Guard;
    use arc_swap::{ArcSwapAny, RefCnt};
    use std::sync::Arc;
    use vellum_base::sync::atomic::{AtomicBool, Ordering::Relaxed};

    /// A pointer, and what makes its uses steps.
    pub(crate) struct Stirred<P: RefCnt>(ArcSwapAny<P>, AtomicBool);

    pub(crate) type ArcSwap<T> = Stirred<Arc<T>>;
    pub(crate) type ArcSwapOption<T> = Stirred<Option<Arc<T>>>;

    impl<P: RefCnt> Stirred<P> {
        fn step(&self) -> &ArcSwapAny<P> {
            self.1.load(Relaxed);
            &self.0
        }

        pub(crate) fn load(&self) -> Guard<P> {
            self.step().load()
        }
        pub(crate) fn load_full(&self) -> P {
            self.step().load_full()
        }
        pub(crate) fn store(&self, value: P) {
            self.step().store(value);
        }
        pub(crate) fn swap(&self, value: P) -> P {
            self.step().swap(value)
        }
    }

    impl<T> ArcSwap<T> {
        pub(crate) fn from_pointee(value: T) -> ArcSwap<T> {
            Stirred(ArcSwapAny::from(Arc::new(value)), AtomicBool::new(false))
        }
    }

    impl<T> ArcSwapOption<T> {
        pub(crate) fn empty() -> ArcSwapOption<T> {
            Stirred(ArcSwapAny::from(None), AtomicBool::new(false))
        }
    }
}
