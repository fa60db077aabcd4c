//! A timing model of flash: a decorator that gives every operation of a device its completion time.
//!
//! The model. A channel is a bus and its dies. All times are of the environment's clock; nothing sleeps here.
//! 1. A die runs one operation at a time, in order of submission. A read is a sense, then a transfer. A program is a
//!    transfer, then the program proper. An erase occupies only the die, and begins no earlier than its `after`. Until
//!    then, work for other blocks that is short enough goes first.
//! 2. Reads of every class but [`IoClass::Background`] go before all programs and erases of their die that have not
//!    begun, and suspend the one that has: they wait for at most [`Timing::suspend`]. Queued work is delayed by as
//!    much; completion times already returned for it are not revised.
//! 3. The bus serves reads of (2) before anything else, each in the first gap after its sense. Other transfers share
//!    the rest; for them only the amount of earlier work counts, not the order in which it becomes ready.
//! 4. Dies have a second page register: a transfer overlaps with the die's next operation. The page sensed last is read
//!    again without a sense. A page whose program has not finished is read at once from the buffer that feeds the die.
//! 5. Copy-back on one die is a sense and a program, without the bus; between dies the page crosses both buses.
//! 6. An operation that fails on the flash takes as long as a successful one.
//! 7. A device with a write buffer protected by capacitors ([`Timed::with_protected_buffer`]) completes a program when
//!    the buffer, which is in front of the buses, has accepted the page: when the number of unfinished programs queued
//!    on its die is small enough. After a power cut the device still finishes it, and everything before it on that die.

mod bookings;
mod clock;

use crate::one_of::OneOf;
use clock::{Channel, Flight};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use vellum_base::flash::BatchError;
use vellum_base::sync::Mutex;
use vellum_base::{
    BlockAddr, BlockReport, Done, Env, Flash, FlashCounters, FlashError, FlashOp, Geometry, IoClass, Nanos,
    Nvram, PageAddr, Parity, Scrambling, Source,
};

use crate::nand::{InFlight, InFlightOp, PowerCut};

/// Durations of the parts of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// Sensing a page into its register.
    pub read: Nanos,
    /// Programming a page from its register.
    pub program: Nanos,
    /// Erasing a block.
    pub erase: Nanos,
    /// To suspend a program or an erase in favour of a read, and resume it.
    pub suspend: Nanos,
    /// Bandwidth of a channel's bus.
    pub channel_bytes_per_second: u64,
}

/// A device with completion times.
pub struct Timed<F: ?Sized> {
    env: Arc<dyn Env>,
    timing: Timing,
    geometry: Geometry,
    channels: Vec<Mutex<Channel>>,
    inner: Arc<F>,
}

/// The channel used by a batch.
type Channels<'a> = OneOf<'a, Channel>;

/// How long each part was busy since the device was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Utilisation {
    /// Transfers, by channel.
    pub channels: Vec<Nanos>,
    /// Senses, programs and erases, by die.
    pub dies: Vec<Nanos>,
}

impl<F: Flash + ?Sized> Timed<F> {
    /// `inner`, timed by the clock of `env`.
    pub fn new(inner: Arc<F>, timing: Timing, env: Arc<dyn Env>) -> Timed<F> {
        let geometry = *inner.geometry();
        let channels = Vec::new();
        Timed { env, timing, geometry, channels, inner }.with_protected_buffer(0)
    }

    /// Adds a write buffer of `pages_per_die` that survives a power cut (rule 7). To be called before the device is
    /// used.
    pub fn with_protected_buffer(mut self, pages_per_die: u32) -> Timed<F> {
        let (dies, protected) = (self.geometry.dies_per_channel, pages_per_die as usize);
        let channel = |_| Mutex::new(Channel::new(dies, &self.timing, protected));
        self.channels = (0..self.geometry.channels).map(channel).collect();
        self
    }

    /// The decorated device.
    pub fn inner(&self) -> &Arc<F> {
        &self.inner
    }

    /// Its timing parameters.
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// How long each part was busy.
    pub fn utilisation(&self) -> Utilisation {
        let channels = self.channels.iter().map(|c| c.lock().bus_busy()).collect();
        let dies = (0..self.geometry.dies()).map(|die| {
            let (channel, die) = self.place(die);
            self.channels[channel].lock().die_busy(die)
        });
        Utilisation { channels, dies: dies.collect() }
    }

    /// When all programs so far are finished on the flash, including those accepted by a protected buffer.
    pub fn programmed_at(&self) -> Nanos {
        self.channels.iter().map(|c| c.lock().programmed()).max().unwrap_or(Nanos::ZERO)
    }

    /// The channel of a die, and the die's index on it.
    #[inline]
    fn place(&self, die: u32) -> (usize, usize) {
        let channel = self.geometry.channel_of(die);
        (channel as usize, ((die - channel) / self.geometry.channels) as usize)
    }

    #[inline]
    fn place_of(&self, block: BlockAddr) -> (usize, usize) {
        self.place(self.geometry.die_of(block))
    }

    #[inline]
    fn time(&self, channels: &mut Channels<'_>, now: Nanos, class: IoClass, op: &FlashOp<'_>) -> Nanos {
        match op {
            FlashOp::Read { page, data, oob, .. } => {
                let (channel, die) = self.place_of(page.block);
                let bytes = (data.len() + oob.len()) as u64;
                let urgent = class != IoClass::Background;
                channels.get(channel).read(now, die, *page, bytes, urgent)
            }
            FlashOp::Program { page, parts, .. } => self.time_program(channels, now, *page, parts),
            FlashOp::Erase { block, after } => {
                let (channel, die) = self.place_of(*block);
                channels.get(channel).erase(now, die, *block, *after)
            }
        }
    }

    fn time_program(
        &self,
        channels: &mut Channels<'_>,
        now: Nanos,
        page: PageAddr,
        parts: &[Source<'_>],
    ) -> Nanos {
        let (channel, die) = self.place_of(page.block);
        let mut bytes = self.geometry.oob_bytes as u64;
        let (mut ready, mut senses, mut register) = (now, 0, None);
        for part in parts {
            match part {
                Source::Copy { page: from, bytes: copied, .. } => {
                    let again = register.replace(*from) == Some(*from);
                    if self.place_of(from.block) == (channel, die) {
                        senses += !again as u64;
                    } else {
                        bytes += *copied as u64;
                        let (channel, die) = self.place_of(from.block);
                        let source = channels.get(channel);
                        ready = ready.max(source.read(now, die, *from, *copied as u64, false));
                    }
                }
                other => bytes += other.len() as u64,
            }
        }
        channels.get(channel).program(now, die, page, bytes, ready, senses)
    }
}

impl<F: Flash + PowerCut + ?Sized> Timed<F> {
    /// Cuts the power now: operations that the dies have not finished are undone or torn in the decorated device.
    pub fn power_cut(&self) -> Result<(), FlashError> {
        let now = self.env.now();
        let mut in_flight = Vec::new();
        for channel in &self.channels {
            channel.lock().drain(now, |flight: Flight| {
                in_flight.push(InFlight { what: flight.what, started: flight.start <= now });
            });
        }
        self.inner.power_cut_now(&in_flight)
    }
}

impl<F: Flash + ?Sized> Flash for Timed<F> {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, class: IoClass, ops: &mut [FlashOp<'_>]) -> Result<Done, BatchError> {
        let result = self.inner.submit(class, ops);
        let begun = match &result {
            Ok(_) => ops.len(),
            Err(BatchError { index, error, .. }) => index + on_silicon(error) as usize,
        };
        let now = self.env.now();
        let mut channels = OneOf::new(&self.channels);
        let at = ops[..begun].iter().fold(now, |at, op| at.max(self.time(&mut channels, now, class, op)));
        let timed = |done: Done| Done { at: at.max(done.at), ..done };
        result.map(timed).map_err(|e| BatchError { done: timed(e.done), ..e })
    }

    fn report(&self, block: BlockAddr) -> BlockReport {
        self.inner.report(block)
    }

    fn counters(&self) -> FlashCounters {
        self.inner.counters()
    }

    fn sync(&self) -> Result<(), FlashError> {
        self.inner.sync()
    }

    fn failing_bits(&self) -> u32 {
        self.inner.failing_bits()
    }

    fn nvram(&self) -> Option<&dyn Nvram> {
        self.inner.nvram()
    }

    fn parity(&self) -> Option<&dyn Parity> {
        self.inner.parity().map(|_| self as &dyn Parity)
    }
}

impl<F: Flash + ?Sized> Timed<F> {
    fn inner_parity(&self) -> &dyn Parity {
        self.inner.parity().expect("`Timed::parity` asked")
    }
}

/// Computing parity takes no time on the flash. Reading stored parity takes a sense, and only the parity crosses the
/// bus.
impl<F: Flash + ?Sized> Parity for Timed<F> {
    fn code(&self) -> &'static str {
        self.inner_parity().code()
    }

    fn scrambling(&self) -> Scrambling {
        self.inner_parity().scrambling()
    }

    fn bytes(&self) -> usize {
        self.inner_parity().bytes()
    }

    fn of_data(&self, sector: &[u8], parity: &mut [u8]) {
        self.inner_parity().of_data(sector, parity);
    }

    fn scramble(&self, seed: u64, sector: &mut [u8]) {
        self.inner_parity().scramble(seed, sector);
    }

    fn of_page(&self, class: IoClass, page: PageAddr, parity: &mut [u8]) -> Result<Done, FlashError> {
        let (channel, die) = self.place_of(page.block);
        let (bytes, urgent) = (parity.len() as u64, class != IoClass::Background);
        let done = self.inner_parity().of_page(class, page, parity)?;
        let now = self.env.now();
        let at = self.channels[channel].lock().read(now, die, page, bytes, urgent);
        Ok(Done { at: at.max(done.at), ..done })
    }
}

/// True if the operation failed after occupying the die.
fn on_silicon(error: &FlashError) -> bool {
    matches!(error, FlashError::ProgramFailed(_) | FlashError::EraseFailed(_) | FlashError::Uncorrectable(_))
}

impl Flight {
    fn is_program_of(&self, page: PageAddr) -> bool {
        self.what == InFlightOp::Program(page)
    }
}
