//! What each workload is made of. YCSB's are those of its files `workloads/workloada` to `workloadf` (Cooper et al.,
//! SoCC 2010, section 4); the others are called as in `db_bench` of LevelDB and RocksDB.

use super::Kind;
use super::choice::Choice;
use super::record::KeyForm;

/// YCSB's exponent.
pub const YCSB_SKEW: f64 = 0.99;
/// Most records of a scan in YCSB; every length from 1 is as likely.
pub const YCSB_SCAN_RECORDS_MAX: u32 = 100;

/// A workload by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workload {
    /// Every record once, in the order of keys.
    FillSeq,
    /// Records drawn uniformly are set, as many times as there are records: about 63 % of them are there afterwards.
    FillRandom,
    /// The same, over records that are there.
    Overwrite,
    /// Records drawn uniformly are read.
    ReadRandom,
    /// YCSB's load phase: every record once; keys are hashes, so in no order.
    YcsbLoad,
    /// Half reads, half updates, Zipf.
    YcsbA,
    /// 95 % reads, 5 % updates, Zipf.
    YcsbB,
    /// Reads, Zipf.
    YcsbC,
    /// 95 % reads of what was inserted last, 5 % inserts.
    YcsbD,
    /// 95 % short scans, Zipf, 5 % inserts.
    YcsbE,
    /// Half reads, half reads followed by an update of the same, Zipf.
    YcsbF,
}

/// Shares of the kinds of requests, and where requests fall.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// Kinds and their shares, which add up to 1.
    pub shares: &'static [(Kind, f64)],
    /// On which record a request falls that is no insert.
    pub choice: Choice,
}

impl Workload {
    /// Every workload.
    pub const ALL: [Workload; 11] = [
        Workload::FillSeq,
        Workload::FillRandom,
        Workload::Overwrite,
        Workload::ReadRandom,
        Workload::YcsbLoad,
        Workload::YcsbA,
        Workload::YcsbB,
        Workload::YcsbC,
        Workload::YcsbD,
        Workload::YcsbE,
        Workload::YcsbF,
    ];

    /// As on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Workload::FillSeq => "fillseq",
            Workload::FillRandom => "fillrandom",
            Workload::Overwrite => "overwrite",
            Workload::ReadRandom => "readrandom",
            Workload::YcsbLoad => "ycsb-load",
            Workload::YcsbA => "ycsb-a",
            Workload::YcsbB => "ycsb-b",
            Workload::YcsbC => "ycsb-c",
            Workload::YcsbD => "ycsb-d",
            Workload::YcsbE => "ycsb-e",
            Workload::YcsbF => "ycsb-f",
        }
    }

    /// The workload of that name.
    pub fn named(name: &str) -> Option<Workload> {
        Workload::ALL.into_iter().find(|workload| workload.name() == name)
    }

    /// Whose keys it uses.
    pub const fn key_form(self) -> KeyForm {
        match self {
            Workload::FillSeq | Workload::FillRandom | Workload::Overwrite | Workload::ReadRandom => {
                KeyForm::DbBench
            }
            _ => KeyForm::Ycsb,
        }
    }

    /// What must have run on an empty store before; `None` if it begins with one.
    pub const fn after(self) -> Option<Workload> {
        match self {
            Workload::FillSeq | Workload::FillRandom | Workload::YcsbLoad => None,
            Workload::Overwrite | Workload::ReadRandom => Some(Workload::FillRandom),
            _ => Some(Workload::YcsbLoad),
        }
    }

    /// What it is made of.
    pub const fn mix(self) -> Mix {
        const ZIPF: Choice = Choice::Zipf { skew: YCSB_SKEW };
        const LATEST: Choice = Choice::Latest { skew: YCSB_SKEW };
        let (shares, choice): (&'static [(Kind, f64)], Choice) = match self {
            Workload::FillSeq | Workload::YcsbLoad => (&[(Kind::Insert, 1.0)], Choice::Uniform),
            Workload::FillRandom | Workload::Overwrite => (&[(Kind::Update, 1.0)], Choice::Uniform),
            Workload::ReadRandom => (&[(Kind::Read, 1.0)], Choice::Uniform),
            Workload::YcsbA => (&[(Kind::Read, 0.5), (Kind::Update, 0.5)], ZIPF),
            Workload::YcsbB => (&[(Kind::Read, 0.95), (Kind::Update, 0.05)], ZIPF),
            Workload::YcsbC => (&[(Kind::Read, 1.0)], ZIPF),
            Workload::YcsbD => (&[(Kind::Read, 0.95), (Kind::Insert, 0.05)], LATEST),
            Workload::YcsbE => (&[(Kind::Scan, 0.95), (Kind::Insert, 0.05)], ZIPF),
            Workload::YcsbF => (&[(Kind::Read, 0.5), (Kind::ReadModifyWrite, 0.5)], ZIPF),
        };
        Mix { shares, choice }
    }
}

impl Mix {
    /// The share of a kind.
    pub fn share(&self, kind: Kind) -> f64 {
        self.shares.iter().filter(|(of, _)| *of == kind).map(|(_, share)| share).sum()
    }
}
