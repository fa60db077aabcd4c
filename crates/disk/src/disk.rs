//! `Disk`: the translation layer behind one lock, as a block device.
//!
//! State changes and submissions of operations happen under the lock, almost without sleeping (see ftl.rs).
//! Fingerprints are computed before it is taken; reads of flash and waits for completion follow after it is released.

use crate::blocks::State;
use crate::budget::Budget;
use crate::capacity::sectors_max;
use crate::format::place::{At, Place};
use crate::ftl::{Ftl, Incoming};
use crate::options::{DedupMode, Format, Identity, Options};
use crate::policy::Fingerprinter;
use crate::read::read_with_entry;
use crate::recover;
use crate::tools::shadow::Shadow;
use std::sync::Arc;
use vellum_base::sync::{Mutex, MutexGuard};
use vellum_base::{
    Allocation, Avoided, BlockAddr, BlockDevice, BlockState, DeviceInfo, Env, Error, Flash, IoClass, Kind,
    Lba, LedgerSnapshot, Nanos, PageAddr, Result, SECTOR_BYTES,
};
use vellum_codes::{Digest, lines};

/// Maximum number of sectors processed per acquisition of the lock.
const CHUNK_SECTORS: usize = 32;
/// Maximum number of sectors trimmed or zeroed per acquisition of the lock.
const RUN_SECTORS: u64 = 1 << 16;
/// A disk of 4 KiB sectors on flash.
///
/// ```
/// use std::sync::Arc;
/// use vellum_base::{BlockDevice, Geometry, Lba, RealEnv};
/// use vellum_disk::{Disk, Format, Options};
/// # use vellum_media::nand::{Nand, NandParams};
///
/// let (channels, dies_per_channel, blocks_per_die) = (2, 1, 32);
/// let (pages_per_block, page_bytes, oob_bytes) = (64, 4096, 32);
/// let geometry =
///     Geometry { channels, dies_per_channel, blocks_per_die, pages_per_block, page_bytes, oob_bytes };
/// let flash = Arc::new(Nand::ram(geometry, NandParams::default())?);
/// Disk::format(flash.clone(), RealEnv::new(), &Format::new(2048))?;
/// let disk = Disk::open(flash, RealEnv::new(), Options::default())?;
/// disk.write(Lba(7), &[1; 4096], false)?;
/// disk.flush()?;
/// let mut back = [0; 4096];
/// disk.read(Lba(7), &mut back)?;
/// assert_eq!(back, [1; 4096]);
/// disk.close()?;
/// # Ok::<(), vellum_base::Error>(())
/// ```
pub struct Disk {
    pub(crate) ftl: Mutex<Ftl>,
    pub(crate) flash: Arc<dyn Flash>,
    env: Arc<dyn Env>,
    pub(crate) fingerprinter: Fingerprinter,
    info: DeviceInfo,
    elide: bool,
    pack: bool,
    cpu: crate::CpuModel,
    pub(crate) budget: Arc<Budget>,
    opened_at: Nanos,
    powered_before_ns: u64,
}

impl Disk {
    /// Creates a new disk on `flash`. Previous contents are erased.
    pub fn format(flash: Arc<dyn Flash>, env: Arc<dyn Env>, format: &Format) -> Result<()> {
        let geometry = *flash.geometry();
        recover::check_geometry(&geometry)?;
        let bad = count_bad(&*flash);
        let most = sectors_max(&geometry, bad);
        if format.sectors == 0 || format.sectors > most {
            return Err(Error::new(
                Kind::NoSpace,
                format!(
                    "a disk on this flash can have 1 to {most} sectors, not {}: choose a smaller size or more \
                         over-provisioning",
                    format.sectors
                ),
            ));
        }
        let words = [env.random(), env.random()].map(u64::to_le_bytes);
        let drawn: [u8; 16] = std::array::from_fn(|i| words[i / 8][i % 8]);
        let identity = Identity {
            uuid: if format.uuid == [0; 16] { drawn } else { format.uuid },
            sectors: format.sectors,
            seed: env.random(),
            dedup: format.dedup,
            keep_copies: format.keep_copies,
            spare_blocks: geometry.blocks()
                - format.sectors.div_ceil(u64::from(geometry.slots_per_block())) as u32,
            tbw_bytes: format.tbw_bytes,
        };
        let mut ftl = Ftl::new(flash, env, identity, Options::default());
        erase_everything(&mut ftl)?;
        ftl.complete_checkpoint(true)
    }

    /// Opens the disk on `flash`, after a clean close or a crash.
    pub fn open(flash: Arc<dyn Flash>, env: Arc<dyn Env>, options: Options) -> Result<Disk> {
        Disk::open_with_progress(flash, env, options, &mut |_, _| {})
    }

    /// The same; if all contents are read in (`strong`), `progress` gets the number of sectors done, and of all
    /// sectors.
    pub fn open_with_progress(
        flash: Arc<dyn Flash>,
        env: Arc<dyn Env>,
        options: Options,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Disk> {
        // Recovery may have to store what a torn page lost; a read-only disk does that in memory.
        let flash: Arc<dyn Flash> = if options.read_only { Arc::new(Shadow::new(flash)?) } else { flash };
        let mut ftl = recover::recover(flash.clone(), env.clone(), options)?;
        if ftl.options.host_scrambles && ftl.identity.dedup.uses_parity() {
            ftl.options.cpu.hash = Nanos::ZERO; // the parity of incoming data is that of unscrambled data
        }
        let fingerprinter = Fingerprinter::new(ftl.identity.dedup, ftl.identity.seed, &*flash);
        ftl.find_journals(&fingerprinter)?;
        ftl.learn_index(&fingerprinter, progress);
        env.sleep_until(ftl.wait_until);
        Ok(Disk {
            info: DeviceInfo { sectors: ftl.identity.sectors, read_only: ftl.options.read_only, trims: true },
            elide: ftl.options.elide,
            pack: ftl.pack,
            cpu: ftl.options.cpu,
            budget: ftl.budget.clone(),
            powered_before_ns: ftl.life.powered_ns,
            opened_at: env.now(),
            fingerprinter,
            flash,
            env,
            ftl: Mutex::new(ftl),
        })
    }

    /// Flushes, and completes a checkpoint that records the clean close: the next opening needs nothing else. Writes
    /// nothing if there were only reads.
    pub fn close(&self) -> Result<()> {
        if self.info.read_only {
            return Ok(());
        }
        self.flush()?;
        let done = {
            let mut ftl = self.lock_for_write()?;
            let unread = |ledger| LedgerSnapshot { host_read_bytes: 0, ..ledger };
            let counted = unread(ftl.ledger.snapshot()) != unread(ftl.checkpoint.root_ledger);
            if ftl.seq == ftl.checkpoint.root_seq && !counted {
                return Ok(());
            }
            ftl.life.powered_ns = self.powered_ns();
            ftl.closing_checkpoint()?;
            ftl.last_done
        };
        self.env.sleep_until(done);
        Ok(())
    }

    /// The current ledger.
    pub fn ledger(&self) -> LedgerSnapshot {
        self.ftl.lock().ledger.snapshot()
    }

    /// How duplicates are found.
    pub fn dedup(&self) -> DedupMode {
        self.ftl.lock().identity.dedup
    }

    /// The result of the last journal discovery; `None` if this disk does not look for journals.
    pub fn discovery(&self) -> Option<crate::discover::Discovery> {
        self.ftl.lock().watch.found().cloned()
    }

    /// Time in service, including this opening.
    pub(crate) fn powered_ns(&self) -> u64 {
        self.powered_before_ns + self.env.now().saturating_sub(self.opened_at).0
    }

    /// Charges the modelled controller for fingerprinting `sectors` in the background.
    pub(crate) fn charge_fingerprints(&self, sectors: u64) {
        let spent = Nanos(self.cpu.hash.0 * sectors);
        if spent > Nanos::ZERO {
            self.env.charge(spent);
        }
    }

    pub(crate) fn sleep_until(&self, time: Nanos) {
        self.env.sleep_until(time);
    }

    pub(crate) fn lock_for_write(&self) -> Result<MutexGuard<'_, Ftl>> {
        if self.info.read_only {
            return Err(Error::new(Kind::Unsupported, "the disk is open read-only"));
        }
        let ftl = self.ftl.lock();
        refuse_poisoned(&ftl)?;
        Ok(ftl)
    }

    fn prepare<'a>(&self, data: &'a [u8]) -> Incoming<'a> {
        let is_zero = self.elide && vellum_codes::is_zero(data);
        let (digest, passed_by) = if is_zero { (None, false) } else { self.fingerprint(data) };
        let spent = if digest.is_some() { self.cpu.request + self.cpu.hash } else { self.cpu.request };
        if spent > Nanos::ZERO {
            self.env.charge(spent);
        }
        let small = if self.pack && !is_zero { few_lines(data) } else { None };
        Incoming { data, is_zero, crc: vellum_codes::crc32c(data), digest, passed_by, small }
    }

    /// The fingerprint, if this mode has one and there is time for it; and true if there was no time.
    fn fingerprint(&self, data: &[u8]) -> (Option<Digest>, bool) {
        if !self.budget.limits() {
            return (self.fingerprinter.digest(data), false);
        }
        let begun = self.env.now();
        if !self.budget.allows(begun) {
            return (None, true);
        }
        let digest = self.fingerprinter.digest(data);
        let now = self.env.now();
        self.budget.spend(begun, now, self.cpu.hash);
        (digest, false)
    }

    /// Writes whole sectors, and waits until the writer may continue.
    fn write_chunk(&self, lba: Lba, data: &[u8]) -> Result<()> {
        let wait = if data.len() == SECTOR_BYTES {
            // Prefetches the sector's entries while its bytes are examined.
            if let Some(ftl) = self.ftl.try_lock() {
                ftl.map.prefetch(lba.0 as u32);
            }
            let incoming = self.prepare(data);
            self.write_prepared(lba, std::iter::once(incoming))?
        } else {
            let incoming: Vec<_> =
                data.chunks_exact(SECTOR_BYTES).map(|sector| self.prepare(sector)).collect();
            self.write_prepared(lba, incoming.into_iter())?
        };
        self.env.sleep_until(wait);
        Ok(())
    }

    fn write_prepared<'a>(&self, lba: Lba, sectors: impl Iterator<Item = Incoming<'a>>) -> Result<Nanos> {
        let now = self.env.now();
        let mut ftl = self.lock_for_write()?;
        ftl.wait_until = Nanos::ZERO;
        ftl.life.host_commands += 1;
        for (i, incoming) in sectors.enumerate() {
            ftl.ledger.host_written(SECTOR_BYTES as u64);
            ftl.write(lba.0 as u32 + i as u32, &incoming)?;
            ftl.settle()?;
        }
        if ftl.journals_due(false) {
            ftl.find_journals(&self.fingerprinter)?;
        }
        let admitted = ftl.admit(now);
        Ok(ftl.wait_until.max(admitted))
    }

    /// Applies a run to the map in bounded parts.
    fn set_runs(&self, lba: Lba, sectors: u64, place: Place) -> Result<u64> {
        let (mut at, mut held) = (lba.0, 0);
        let end = lba.0 + sectors;
        while at < end {
            let count = (end - at).min(RUN_SECTORS);
            let mut ftl = self.lock_for_write()?;
            held += ftl.set_run(at as u32, count as u32, place)?;
            match ftl.settle() {
                // Trimming is what makes room again; a later flush reports if it did not.
                Err(e) if e.kind() == Kind::NoSpace && ftl.poisoned.is_none() => {}
                settled => settled?,
            }
            at += count;
        }
        Ok(held)
    }

    fn read_chunk(&self, lba: Lba, buf: &mut [u8]) -> Result<Nanos> {
        let mut plan = [None; CHUNK_SECTORS];
        let mut done = self.plan_read(lba, buf, &mut plan)?;
        let (mut failed, mut crcs) = ([const { None }; CHUNK_SECTORS], [0; CHUNK_SECTORS]);
        let pieces = 0..buf.len() / SECTOR_BYTES;
        for i in pieces.clone() {
            if let Some(Planned { page, index, .. }) = plan[i] {
                let out = &mut buf[i * SECTOR_BYTES..][..SECTOR_BYTES];
                match read_with_entry(&*self.flash, IoClass::Foreground, page, index, out) {
                    Ok((entry, read)) => (crcs[i], done) = (entry.data_crc, done.max(read.at)),
                    Err(e) => failed[i] = Some(e),
                }
            }
        }
        // Sectors that moved while they were read are read again, under the lock.
        let mut ftl = self.ftl.lock();
        ftl.wait_until = Nanos::ZERO;
        for i in pieces {
            let Some(planned) = plan[i] else { continue };
            let sector = lba.0 as u32 + i as u32;
            if planned.still_holds(&ftl, sector) {
                if let Some(e) = failed[i].take() {
                    return Err(e.context(format!("read {}", Lba(sector.into()))));
                }
                let slot = ftl.geometry.slot_of(planned.page, planned.index);
                ftl.checked.note(slot, planned.erase_count, crcs[i]);
            } else {
                let place = ftl.map.place(sector);
                ftl.read_place(place, IoClass::Foreground, &mut buf[i * SECTOR_BYTES..][..SECTOR_BYTES])?;
            }
        }
        Ok(done.max(ftl.wait_until))
    }

    /// Fills the sectors that need no read of flash, and plans reads of the others.
    fn plan_read(
        &self,
        lba: Lba,
        buf: &mut [u8],
        plan: &mut [Option<Planned>; CHUNK_SECTORS],
    ) -> Result<Nanos> {
        let mut ftl = self.ftl.lock();
        ftl.wait_until = Nanos::ZERO;
        ftl.life.host_commands += 1;
        ftl.ledger.host_read(buf.len() as u64);
        for (i, out) in buf.chunks_exact_mut(SECTOR_BYTES).enumerate() {
            let place = ftl.map.place(lba.0 as u32 + i as u32);
            match place.at() {
                At::Slot(slot) => {
                    let (page, index) = ftl.geometry.page_of_slot(slot);
                    match ftl.page.slot(page, index) {
                        Some(bytes) => out.copy_from_slice(bytes),
                        None => {
                            let erase_count = ftl.blocks.erase_count(page.block);
                            plan[i] = Some(Planned { place, page, index, erase_count });
                        }
                    }
                }
                _ => ftl.read_place(place, IoClass::Foreground, out)?,
            }
        }
        Ok(ftl.wait_until)
    }
}

/// A planned read of a sector from flash without the lock.
#[derive(Clone, Copy)]
struct Planned {
    place: Place,
    page: PageAddr,
    index: u32,
    erase_count: u32,
}

impl Planned {
    /// True if what was read belongs to the sector: same place, and the block was not erased in between.
    fn still_holds(&self, ftl: &Ftl, sector: u32) -> bool {
        ftl.map.place(sector) == self.place && ftl.blocks.erase_count(self.page.block) == self.erase_count
    }
}

/// After a failed durability call: the error for all further calls.
pub(crate) fn refuse_poisoned(ftl: &Ftl) -> Result<()> {
    match &ftl.poisoned {
        None => Ok(()),
        Some(why) if why == "the power is off" => Err(Error::new(Kind::PowerLost, why.clone())),
        Some(why) => Err(Error::new(
            Kind::Poisoned,
            format!(
                "the disk takes no writes since a durability failure ({why}): close it and open it again"
            ),
        )),
    }
}

/// The bitmap of non-zero lines if there are few enough to pack. For most data sixteen lines are enough to decide.
fn few_lines(data: &[u8]) -> Option<u64> {
    const LINES_MAX: u32 = 12;
    let zero = |line: &[u8]| line.iter().fold(0, |acc, b| acc | b) == 0;
    if !data.chunks_exact(4 * lines::LINE_BYTES).any(|four| zero(&four[..lines::LINE_BYTES])) {
        return None;
    }
    let map = lines::nonzero_lines(data);
    (map.count_ones() <= LINES_MAX).then_some(map)
}

fn count_bad(flash: &dyn Flash) -> u32 {
    let blocks = (0..flash.geometry().blocks()).map(BlockAddr);
    blocks.filter(|b| flash.report(*b).state == BlockState::Bad).count() as u32
}

fn erase_everything(ftl: &mut Ftl) -> Result<()> {
    for block in (0..ftl.geometry.blocks()).map(BlockAddr) {
        let report = ftl.flash.report(block);
        match report.state {
            BlockState::Bad => ftl.blocks.load(block, State::Bad, report.erase_count),
            BlockState::Good if report.pages_written == 0 => {
                ftl.blocks.load(block, State::Free, report.erase_count);
            }
            BlockState::Good => {
                ftl.blocks.load(block, State::Open, report.erase_count);
                ftl.erase(block)?;
            }
        }
    }
    Ok(())
}

impl BlockDevice for Disk {
    fn info(&self) -> DeviceInfo {
        self.info
    }

    fn read(&self, lba: Lba, buf: &mut [u8]) -> Result<()> {
        self.info.check_buffer(lba, buf.len())?;
        let mut done = Nanos::ZERO;
        for (i, chunk) in buf.chunks_mut(CHUNK_SECTORS * SECTOR_BYTES).enumerate() {
            done = done.max(self.read_chunk(lba.offset((i * CHUNK_SECTORS) as u64), chunk)?);
        }
        self.env.sleep_until(done);
        Ok(())
    }

    fn write(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()> {
        self.info.check_buffer(lba, data.len())?;
        for (i, chunk) in data.chunks(CHUNK_SECTORS * SECTOR_BYTES).enumerate() {
            self.write_chunk(lba.offset((i * CHUNK_SECTORS) as u64), chunk)?;
        }
        if fua { self.flush() } else { Ok(()) }
    }

    fn trim(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.info.check_range(lba, sectors)?;
        let held = self.set_runs(lba, sectors, Place::HOLE)?;
        self.ftl.lock().ledger.avoided(Avoided::Trim, held * SECTOR_BYTES as u64);
        Ok(())
    }

    fn write_zeroes(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()> {
        self.info.check_range(lba, sectors)?;
        self.set_runs(lba, sectors, Place::ZERO)?;
        let bytes = sectors * SECTOR_BYTES as u64;
        let ftl = self.ftl.lock();
        ftl.ledger.host_written(bytes);
        ftl.ledger.avoided(Avoided::Zero, bytes);
        drop(ftl);
        if fua { self.flush() } else { Ok(()) }
    }

    fn remap(&self, from: Lba, to: Lba, sectors: u64) -> Result<u64> {
        self.info.check_remap(from, to, sectors)?;
        self.remap_all(from, to, sectors)
    }

    fn remaps(&self) -> bool {
        true
    }

    fn flush(&self) -> Result<()> {
        if self.info.read_only {
            return Ok(());
        }
        let ready_at = self.ftl.lock().nvram_ready_at;
        self.env.sleep_until(ready_at);
        let (seq, done) = {
            let mut ftl = self.lock_for_write()?;
            if ftl.journals_due(true) {
                ftl.find_journals(&self.fingerprinter)?;
            }
            ftl.life.powered_ns = self.powered_ns();
            (ftl.persist()?, ftl.last_done)
        };
        let synced = self.flash.sync();
        self.env.sleep_until(done);
        let mut ftl = self.ftl.lock();
        synced.map_err(|e| ftl.poison(e.into()))?;
        // A concurrent sync may have failed, and lost data that this one relies on.
        refuse_poisoned(&ftl)?;
        ftl.durable_seq = ftl.durable_seq.max(seq);
        ftl.record_opening()
    }

    fn allocation(&self, lba: Lba, sectors: u64) -> Result<(Allocation, u64)> {
        self.info.check_range(lba, sectors.max(1))?;
        let ftl = self.ftl.lock();
        let kind = |sector: u64| match ftl.map.place(sector as u32) {
            Place::HOLE => Allocation::Hole,
            Place::ZERO => Allocation::Zero,
            _ => Allocation::Data,
        };
        let first = kind(lba.0);
        let most = sectors.clamp(1, RUN_SECTORS);
        let alike = (1..most).take_while(|i| kind(lba.0 + i) == first).count() as u64 + 1;
        Ok((first, alike))
    }
}
