//! A host that refuses calls, and failing durability calls.

use super::*;

/// The host's file system refuses the `nth` call of a short workload.
fn refused(shape: Shape, fresh: &Nand, nth: u64, errno: i32) -> bool {
    let flash = Arc::new(fresh.fork().unwrap());
    let disk = shape.open(&flash).unwrap();
    let mut oracle = Oracle::new(shape);
    let mut rng = SmallRng::seed_from_u64(21);
    let context = format!("{shape:?}, errno {errno} at call {nth}");
    flash.arm(nth, Fault::Host { errno });
    let refusal = (0..60).find_map(|_| step(&disk, &mut oracle, &mut rng).err());
    if let Some(e) = &refusal {
        let kind = if errno == 28 { Kind::NoSpace } else { Kind::Io };
        assert_eq!(e.kind(), kind, "{context}: {e}");
        let mut now = oracle.clone();
        now.settle(&disk, &context);
        match disk.write(Lba(30), &content(13), false).and_then(|()| disk.flush()) {
            // The failed call was a read.
            Ok(()) => {
                oracle = now;
                oracle.versions[30] = vec![13];
            }
            Err(e) => {
                assert_eq!(e.kind(), Kind::Poisoned, "{context}: {e}");
                assert!(
                    e.to_string().contains("takes no writes since a durability failure"),
                    "{context}: {e}"
                );
                assert!(disk.stat().poisoned.is_some(), "{context}");
                let device = flash.counters().pages_programmed * u64::from(shape.page_bytes);
                assert_eq!(disk.ledger().programmed_total(), device, "{context}");
            }
        }
    }
    drop(disk);
    flash.power_on();
    let disk = shape.open(&flash).unwrap_or_else(|e| panic!("{context}: {e}"));
    oracle.settle(&disk, &context);
    assert_sound(&disk);
    refusal.is_some()
}

#[test]
fn a_host_that_refuses_any_call_costs_nothing_flushed() {
    for shape in Shape::all() {
        let fresh = shape.flash(5);
        format(shape, &fresh);
        for errno in [5, 28] {
            let reached = (1..).find(|nth| !refused(shape, &fresh, *nth, errno)).unwrap();
            assert!(reached > 10, "{shape:?}: the workload must make calls");
        }
    }
}

/// A flash whose `sync` fails on demand.
struct Unsyncable {
    inner: Arc<Nand>,
    fails: AtomicBool,
}

impl Flash for Unsyncable {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }
    fn submit(&self, class: IoClass, ops: &mut [FlashOp<'_>]) -> Result<Done, BatchError> {
        self.inner.submit(class, ops)
    }
    fn report(&self, block: BlockAddr) -> BlockReport {
        self.inner.report(block)
    }
    fn counters(&self) -> FlashCounters {
        self.inner.counters()
    }
    fn sync(&self) -> Result<(), FlashError> {
        match self.fails.load(Relaxed) {
            true => Err(std::io::Error::from_raw_os_error(5).into()),
            false => self.inner.sync(),
        }
    }
    fn nvram(&self) -> Option<&dyn Nvram> {
        self.inner.nvram()
    }
}

#[test]
fn a_failed_sync_poisons() {
    for shape in Shape::all() {
        let nand = shape.flash(1);
        format(shape, &nand);
        let flash = Arc::new(Unsyncable { inner: nand.clone(), fails: AtomicBool::new(false) });
        let disk = Disk::open(flash.clone(), RealEnv::new(), Options::default()).unwrap();
        disk.write(Lba(40), &content(3), true).unwrap();
        flash.fails.store(true, Relaxed);
        disk.write(Lba(40), &content(5), false).unwrap();
        assert_eq!(disk.flush().unwrap_err().kind(), Kind::Io);
        flash.fails.store(false, Relaxed);
        for refused in [disk.flush(), disk.write(Lba(1), &content(5), false), disk.trim(Lba(40), 1)] {
            let refused = refused.unwrap_err();
            assert_eq!(refused.kind(), Kind::Poisoned);
            assert!(refused.to_string().contains("close it and open it again"), "{refused}");
        }
        assert!(read(&disk, 40) == content(5), "reads go on");
        drop(disk);
        let disk = shape.open(&nand).unwrap();
        let found = read(&disk, 40);
        assert!(found == content(3) || found == content(5));
        disk.write(Lba(40), &content(11), true).unwrap();
        assert_sound(&disk);
    }
}
