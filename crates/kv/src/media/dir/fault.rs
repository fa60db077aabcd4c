//! Errors of a device under a mapping. Where a system call would return one, the kernel sends a signal (SIGBUS), which
//! ends the process. The handler here puts zeros where nothing could be read, and marks the range. The mark is checked
//! after each access; if it is set, the access is repeated by system calls, which return the error.
//!
//! States of a slot: free → taken (`begin` is `TAKEN`) → in use → free. There are as many slots as there ever were
//! ranges at a time; they are never freed.
//!
//! Invariants
//! 1. The mark is there before the zeros are.
//! 2. The handler takes no lock, allocates nothing, and leaves `errno` as it was.
//! 3. It is set once and stays. Signals that are not ours, and those that a process sent, go to the handler before; one
//!    that is set after ours must pass on signals that are not its own, too. A thread that has blocked the signal is
//!    ended by the kernel, with its process, as without us.
//! 4. A range is given up before its memory is: while anybody touches it, it is in a slot.
//!
//! `unsafe`, because a signal handler is, and memory is mapped over a mapping.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::*, compiler_fence, fence};

/// Most ranges of a process: the kernel has a limit to its mappings (65,530), which are not ours alone.
const RANGES_MAX: usize = 16 << 10;
const FREE: usize = 0;
const TAKEN: usize = usize::MAX;

struct Slot {
    begin: AtomicUsize,
    end: AtomicUsize,
    has_failed: AtomicBool,
    next: Option<&'static Slot>,
}

/// All slots, the newest first.
static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(null_mut());
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The handler before ours, and bytes of a page; `None` if ours could not be set.
static BEFORE: OnceLock<Option<(libc::sigaction, usize)>> = OnceLock::new();

/// A range of memory that is mapped.
pub(super) struct Guarded(&'static Slot);

impl Guarded {
    /// From now on, faults in `range` are marked. `None` if there are too many, or the system does not let us.
    pub(super) fn new(range: Range<usize>) -> Option<Guarded> {
        BEFORE.get_or_init(prepared).as_ref()?;
        let slot = free_slot()?;
        slot.has_failed.store(false, Relaxed);
        slot.end.store(range.end, Release);
        slot.begin.store(range.start, Release);
        Some(Guarded(slot))
    }

    /// True if all that was read until now was there, and all that was written went there.
    #[inline]
    pub(super) fn is_sound(&self) -> bool {
        // What was done with the memory is done before the mark is looked at, for the compiler, too.
        compiler_fence(SeqCst);
        fence(Acquire);
        !self.0.has_failed.load(Relaxed)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.0.begin.store(FREE, Release);
    }
}

fn slots() -> impl Iterator<Item = &'static Slot> {
    std::iter::successors(slot_at(SLOTS.load(Acquire)), |slot| slot.next)
}

fn slot_at(slot: *const Slot) -> Option<&'static Slot> {
    // SAFETY: it was leaked, and is changed by atomics only.
    unsafe { slot.as_ref() }
}

fn free_slot() -> Option<&'static Slot> {
    let take = |slot: &&Slot| slot.begin.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok();
    if let Some(slot) = slots().find(take) {
        return Some(slot);
    }
    if COUNT.fetch_add(1, Relaxed) >= RANGES_MAX {
        COUNT.fetch_sub(1, Relaxed);
        return None;
    }
    let (begin, end) = (AtomicUsize::new(TAKEN), AtomicUsize::new(FREE));
    let slot = Box::leak(Box::new(Slot { begin, end, has_failed: AtomicBool::new(false), next: None }));
    let _ = SLOTS.fetch_update(AcqRel, Acquire, |head| {
        slot.next = slot_at(head);
        Some(&raw mut *slot)
    });
    Some(slot)
}

/// Takes the signal over.
fn prepared() -> Option<(libc::sigaction, usize)> {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: plain calls of the system with memory of ours; zeros are an action.
    unsafe {
        let page_bytes = usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)).ok()?;
        let is_set = libc::sigaction(libc::SIGBUS, &ours(), before.as_mut_ptr()) == 0;
        is_set.then(|| (before.assume_init(), page_bytes))
    }
}

fn ours() -> libc::sigaction {
    // SAFETY: zeros are an action.
    unsafe {
        let mut ours = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        ours.sa_sigaction = on_fault as *const () as usize;
        // Where a thread has a stack for signals, it runs there.
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        ours
    }
}

extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // A fault right after the handler was set comes again until `BEFORE` is set.
    let Some(Some((before, page_bytes))) = BEFORE.get() else { return };
    // SAFETY: the kernel hands over what a handler with SA_SIGINFO gets, and `errno` is this thread's.
    unsafe {
        let (code, address, errno) = ((*info).si_code, (*info).si_addr() as usize, *libc::__errno_location());
        let is_fault = code > 0;
        // If memory failed that nobody is accessing (`BUS_MCEERR_AO`), the mark is enough.
        let is_done =
            is_fault && mark(address) && (code == libc::BUS_MCEERR_AO || put_zeros(address, *page_bytes));
        if !is_done {
            pass_on(before, is_fault, signal, info, context);
        }
        *libc::__errno_location() = errno;
    }
}

/// Marks the range that the address is in; false if there is none.
fn mark(address: usize) -> bool {
    let mut is_ours = false;
    for slot in slots() {
        let (begin, end) = (slot.begin.load(Acquire), slot.end.load(Acquire));
        // Otherwise the slot has another range by now.
        let is_one = begin != FREE && begin == slot.begin.load(Relaxed);
        if is_one && (begin..end).contains(&address) {
            slot.has_failed.store(true, SeqCst);
            is_ours = true;
        }
    }
    is_ours
}

/// Puts a page of zeros where the address is, for this process alone.
///
/// # Safety
/// The address is in a range that is mapped, and stays so meanwhile.
unsafe fn put_zeros(address: usize, page_bytes: usize) -> bool {
    let page = (address - address % page_bytes) as *mut libc::c_void;
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
    // SAFETY: the caller's; the access was interrupted to get here, so that the range is not given up.
    unsafe { libc::mmap(page, page_bytes, access, kind, -1, 0) != libc::MAP_FAILED }
}

/// Does what would have been done without us.
///
/// # Safety
/// The last three are what a handler was called with.
unsafe fn pass_on(
    before: &libc::sigaction,
    is_fault: bool,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    type Plain = extern "C" fn(libc::c_int);
    type Informed = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    // SAFETY: a handler that is neither of the two constants is a function, of the kind that the flag says.
    unsafe {
        let may_be_unset = !is_fault && before.sa_sigaction != libc::SIG_DFL;
        match before.sa_sigaction {
            libc::SIG_IGN if !is_fault => {}
            libc::SIG_DFL | libc::SIG_IGN => {
                // A fault comes again when this returns, and then ends the process; what was sent does not.
                let mut default = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &default, null_mut());
                if !is_fault {
                    libc::raise(signal);
                }
            }
            function if before.sa_flags & libc::SA_SIGINFO != 0 => {
                std::mem::transmute::<usize, Informed>(function)(signal, info, context);
            }
            function => std::mem::transmute::<usize, Plain>(function)(signal),
        }
        if may_be_unset {
            // Rust's own handler, for stack overflows, removes itself at the first signal of another kind.
            libc::sigaction(signal, &ours(), null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::mapping::Mapping;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// A mapped file of two pages, the second of which is gone.
    fn cut() -> Mapping {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let map = Mapping::of(&file).unwrap();
        file.set_len(4096).unwrap();
        map
    }

    #[test]
    fn what_cannot_be_read_is_zeros_and_a_mark() {
        let (map, other) = (cut(), cut());
        let bytes = map.get(0..8192).unwrap();
        assert!(bytes[4095] == 0 && map.is_sound());
        assert!(std::thread::scope(|scope| scope.spawn(|| bytes[5000]).join()).unwrap() == 0);
        assert!(!map.is_sound() && map.get(0..1).is_none());
        assert!(other.is_sound(), "only the range that it is in");
        drop(map);
        let again = cut();
        assert!(again.is_sound(), "a slot is used again without its mark");
    }

    /// Runs one of these tests in a process of its own, which knows that it is.
    fn alone(test: &str) -> std::process::Output {
        let (program, test) = (std::env::current_exe().unwrap(), format!("media::dir::fault::tests::{test}"));
        Command::new(program).args(["--exact", &test]).env("VELLUM_FAULTS", "1").output().unwrap()
    }

    fn is_alone() -> bool {
        std::env::var_os("VELLUM_FAULTS").is_some()
    }

    /// Not ours: the process ends as if we were not there.
    #[test]
    fn other_faults_end_the_process() {
        if is_alone() {
            let _ours = cut();
            let file = tempfile::tempfile().unwrap();
            file.set_len(4096).unwrap();
            // SAFETY: that it cannot be read is what this is for.
            let theirs = unsafe { memmap2::Mmap::map(&file) }.unwrap();
            file.set_len(0).unwrap();
            std::process::exit(theirs[0].into());
        }
        let done = alone("other_faults_end_the_process");
        assert_eq!(done.status.signal(), Some(libc::SIGBUS), "{done:?}");
    }

    /// Rust's own handler, which has it next, gives the signal up.
    #[test]
    fn a_signal_that_was_sent_leaves_the_handler() {
        if is_alone() {
            let map = cut();
            // SAFETY: a plain call.
            assert_eq!(unsafe { libc::raise(libc::SIGBUS) }, 0);
            let read = map.get(0..8192).unwrap()[5000];
            std::process::exit(if map.is_sound() { 1 } else { 7 + i32::from(read) });
        }
        let done = alone("a_signal_that_was_sent_leaves_the_handler");
        assert_eq!(done.status.code(), Some(7), "{done:?}");
    }
}
