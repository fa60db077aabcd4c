//! The timeline of one hard disk: the position of its head and platter, and when it is done.
//!
//! 1. Requests are served one at a time, in order of arrival.
//! 2. The platter's angle is a function of time alone: reading a sector and writing it back takes a whole revolution in
//!    between.
//! 3. Seek times follow Lee's curve `min + a sqrt(x) + b x`, x being the fraction of the full stroke; within a track
//!    there is none. (Compared with seek tables measured by DiskSim's authors it is 3 to 10 % off.)

use vellum_base::{Nanos, SECTOR_BYTES};

const ZONES: u64 = 16;

/// A drive's data sheet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HddModel {
    /// Size of the drive; the device below may be smaller, and then occupies the outer tracks.
    pub sectors: u64,
    /// Revolutions per minute.
    pub rpm: u32,
    /// Shortest, mean and longest seek.
    pub seek_us: [u32; 3],
    /// Additional settle time of the head before a write.
    pub write_settle: Nanos,
    /// Time to switch to the next track during a transfer.
    pub track_switch: Nanos,
    /// The controller's overhead per request.
    pub overhead: Nanos,
    /// Bytes per second on the outermost track, and on the innermost.
    pub bytes_per_second: [u64; 2],
    /// The drive reads ahead, so that the next read of a sequence does not wait for a revolution.
    pub reads_ahead: bool,
}

impl HddModel {
    /// A 7,200 rpm SATA drive of 1 TB, its write cache off.
    pub const SATA_1TB: HddModel = HddModel {
        sectors: 1_000_204_886_016 / SECTOR_BYTES as u64,
        rpm: 7200,
        seek_us: [800, 8500, 16_000],
        write_settle: Nanos::from_us(500),
        track_switch: Nanos::from_us(800),
        overhead: Nanos::from_us(200),
        bytes_per_second: [130_000_000, 65_000_000],
        reads_ahead: true,
    };

    /// The same as in the KDD paper: look-ahead is off, too.
    pub const SATA_1TB_PLAIN: HddModel = HddModel { reads_ahead: false, ..HddModel::SATA_1TB };

    /// A model by its name on the command line.
    pub fn by_name(name: &str) -> Option<HddModel> {
        match name {
            "sata-1tb" => Some(HddModel::SATA_1TB),
            "sata-1tb-plain" => Some(HddModel::SATA_1TB_PLAIN),
            _ => None,
        }
    }

    /// Time of one revolution.
    pub fn turn(&self) -> Nanos {
        Nanos(60_000_000_000 / u64::from(self.rpm))
    }

    /// Time of a seek over this fraction of the full stroke.
    pub fn seek(&self, stroke: f64) -> Nanos {
        if stroke == 0.0 {
            return Nanos::ZERO;
        }
        let [min, mean, max] = self.seek_us.map(f64::from);
        let a = (-10.0 * min + 15.0 * mean - 5.0 * max) / 3.0;
        let b = (7.0 * min - 15.0 * mean + 8.0 * max) / 3.0;
        Nanos(((min + a * stroke.sqrt() + b * stroke) * 1e3) as u64)
    }

    /// Sectors on a track of a zone. Rates fall linearly from the first zone to the last.
    fn track_sectors(&self, zone: u64) -> f64 {
        let [outer, inner] = self.bytes_per_second.map(|rate| rate as f64);
        let rate = outer + (inner - outer) * zone as f64 / (ZONES - 1) as f64;
        rate * self.turn().as_secs_f64() / SECTOR_BYTES as f64
    }
}

/// The position of a sector.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    track: u64,
    /// Fraction of a revolution.
    angle: f64,
    /// Number of sectors on its track.
    track_sectors: f64,
}

/// The timeline of one drive. See the module.
pub struct Drive {
    model: HddModel,
    /// Number of tracks before each zone, and of all.
    tracks: [u64; ZONES as usize + 1],
    track: u64,
    until: Nanos,
    /// Where a sequence of reads would continue, and when its last byte was read.
    read_to: Option<(u64, Nanos)>,
    /// Time it was busy.
    pub busy: Nanos,
}

impl Drive {
    /// An idle drive, with its head on the outermost track.
    pub fn new(model: HddModel) -> Drive {
        let mut tracks = [0; ZONES as usize + 1];
        for zone in 0..ZONES {
            let sectors = (model.sectors / ZONES) as f64;
            tracks[zone as usize + 1] =
                tracks[zone as usize] + (sectors / model.track_sectors(zone)).ceil() as u64;
        }
        Drive { model, tracks, track: 0, until: Nanos::ZERO, read_to: None, busy: Nanos::ZERO }
    }

    fn place(&self, lba: u64) -> Place {
        let zone_sectors = (self.model.sectors / ZONES).max(1);
        let zone = (lba / zone_sectors).min(ZONES - 1);
        let track_sectors = self.model.track_sectors(zone);
        let tracks = (lba - zone * zone_sectors) as f64 / track_sectors;
        // The first sector of a track is offset from the last of the previous track by the time of a switch.
        let skew = self.model.track_switch.0 as f64 / self.model.turn().0 as f64;
        let track = self.tracks[zone as usize] + tracks as u64;
        Place { track, angle: (tracks.fract() + skew * track as f64).fract(), track_sectors }
    }

    /// Returns when a request that arrives now is done.
    pub fn serve(&mut self, now: Nanos, lba: u64, sectors: u64, is_write: bool) -> Nanos {
        let start = self.until.max(now);
        let begin = start + self.model.overhead;
        let first = self.place(lba);
        let transfer = self.transfer(first, sectors);
        let done = match self.read_to {
            Some((at, end)) if at == lba && !is_write && self.model.reads_ahead => begin.max(end + transfer),
            _ => self.arrive(begin, first, is_write) + transfer,
        };
        self.read_to = (!is_write).then_some((lba + sectors, done));
        self.track = self.place(lba + sectors - 1).track;
        self.until = done;
        self.busy += done - start;
        done
    }

    /// Serves a request that does not access the platter.
    pub fn answer(&mut self, now: Nanos) -> Nanos {
        let start = self.until.max(now);
        self.until = start + self.model.overhead;
        self.busy += self.model.overhead;
        self.until
    }

    /// When the head is at the position and its first sector passes by.
    fn arrive(&self, begin: Nanos, to: Place, is_write: bool) -> Nanos {
        let stroke = self.track.abs_diff(to.track) as f64 / self.tracks[ZONES as usize] as f64;
        let settle = if is_write { self.model.write_settle } else { Nanos::ZERO };
        let there = begin + self.model.seek(stroke) + settle;
        let turn = self.model.turn().0;
        let angle = (there.0 % turn) as f64 / turn as f64;
        let wait = (to.angle - angle).rem_euclid(1.0);
        there + Nanos((wait * turn as f64) as u64)
    }

    fn transfer(&self, first: Place, sectors: u64) -> Nanos {
        let turn = self.model.turn().0 as f64;
        let skew = self.model.track_switch.0 as f64 / turn;
        let in_track = (first.angle - skew * first.track as f64).rem_euclid(1.0);
        let turns = sectors as f64 / first.track_sectors;
        let switches = (in_track + turns - 1e-9).max(0.0).floor();
        Nanos((turns * turn + switches * self.model.track_switch.0 as f64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: HddModel = HddModel::SATA_1TB;

    fn noise(state: &mut u64, below: u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 20) % below
    }

    #[test]
    fn the_seek_curve_has_the_data_sheet_s_values() {
        assert_eq!(MODEL.seek(0.0), Nanos::ZERO);
        let ms = |stroke| MODEL.seek(stroke).0 as f64 / 1e6;
        assert!((ms(1.0) - 16.0).abs() < 0.01 && ms(1e-6) < 0.82, "{} {}", ms(1.0), ms(1e-6));
        let mut state = 1;
        let mut place = || noise(&mut state, 1 << 30) as f64 / (1u64 << 30) as f64;
        let mean = (0..100_000).map(|_| ms((place() - place()).abs())).sum::<f64>() / 1e5;
        assert!((mean - 8.5).abs() < 0.05, "{mean}");
    }

    /// 8.5 ms of seek (a little less, as more sectors are on the outer tracks), half a revolution, overhead.
    #[test]
    fn random_reads_take_about_13_ms() {
        let mut drive = Drive::new(MODEL);
        let (mut state, mut now) = (7, Nanos::ZERO);
        for _ in 0..20_000 {
            now = drive.serve(now, noise(&mut state, MODEL.sectors), 1, false);
        }
        let mean_ms = now.0 as f64 / 1e6 / 20_000.0;
        assert!((12.2..13.1).contains(&mean_ms), "{mean_ms}");
        assert_eq!(drive.busy, now);
    }

    #[test]
    fn writing_back_what_was_just_read_waits_a_whole_turn() {
        let mut drive = Drive::new(MODEL);
        let read = drive.serve(Nanos::ZERO, 5000, 1, false);
        let written = drive.serve(read, 5000, 1, true);
        let off = (written - read).0 as f64 / MODEL.turn().0 as f64;
        assert!((off - 1.0).abs() < 1e-3, "{off} turns");
    }

    #[test]
    fn a_stream_runs_at_the_zone_s_rate() {
        for (start, rate) in [(0, 130.0), (MODEL.sectors - 60_000, 65.0)] {
            let mut drive = Drive::new(MODEL);
            let mut now = Nanos::ZERO;
            for i in 0..400 {
                now = drive.serve(now, start + i * 128, 128, false);
            }
            let mb_per_s = 400.0 * 128.0 * 4096.0 / 1e6 / now.as_secs_f64();
            // Track switches cost a tenth.
            assert!((0.85 * rate..rate).contains(&mb_per_s), "{mb_per_s} of {rate}");
        }
    }

    #[test]
    fn without_reading_ahead_and_with_writes_a_sequence_waits_a_turn_each() {
        let rate = |model: HddModel, is_write| {
            let mut drive = Drive::new(model);
            let mut now = Nanos::ZERO;
            for i in 0..200 {
                now = drive.serve(now, i * 16, 16, is_write);
            }
            now.0 as f64 / 200.0 / model.turn().0 as f64
        };
        let turns = [rate(HddModel::SATA_1TB_PLAIN, false), rate(MODEL, true)];
        assert!(turns.iter().all(|turns| (0.95..1.2).contains(turns)), "{turns:?}");
        assert!(rate(MODEL, false) < 0.1);
    }
}
