//! Composition of the workloads. YCSB's are those of its files `workloads/workloada` to `workloadf` (Cooper et al.,
//! SoCC 2010, section 4); the others are named as in `db_bench` of LevelDB and RocksDB.

use super::Kind;
use super::choice::Choice;
use super::record::KeyForm;

/// YCSB's exponent of the Zipf distribution.
pub const YCSB_SKEW: f64 = 0.99;
/// Longest scan in YCSB, in records; all lengths from 1 on are equally likely.
pub const YCSB_SCAN_RECORDS_MAX: u32 = 100;

/// A workload by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workload {
    /// Every record once, in the order of keys.
    FillSeq,
    /// Sets uniformly drawn records, as many times as there are records: about 63 % of them exist afterwards.
    FillRandom,
    /// The same, on existing records.
    Overwrite,
    /// Reads uniformly drawn records.
    ReadRandom,
    /// YCSB's load phase: every record once; as keys are hashes, in no order.
    YcsbLoad,
    /// 50 % reads, 50 % updates, Zipf.
    YcsbA,
    /// 95 % reads, 5 % updates, Zipf.
    YcsbB,
    /// 100 % reads, Zipf.
    YcsbC,
    /// 95 % reads of the newest records, 5 % inserts.
    YcsbD,
    /// 95 % short scans, Zipf, 5 % inserts.
    YcsbE,
    /// 50 % reads, 50 % reads followed by an update of the same record, Zipf.
    YcsbF,
}

/// Shares of the kinds of requests, and the choice of records.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// Kinds with their shares, which add up to 1.
    pub shares: &'static [(Kind, f64)],
    /// Choice of the record for requests other than inserts.
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

    /// Name on the command line.
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

    /// The workload with that name.
    pub fn named(name: &str) -> Option<Workload> {
        Workload::ALL.into_iter().find(|workload| workload.name() == name)
    }

    /// The form of its keys.
    pub const fn key_form(self) -> KeyForm {
        match self {
            Workload::FillSeq | Workload::FillRandom | Workload::Overwrite | Workload::ReadRandom => {
                KeyForm::DbBench
            }
            _ => KeyForm::Ycsb,
        }
    }

    /// The workload that must have run on an empty store before; `None` if this one starts with an empty store.
    pub const fn after(self) -> Option<Workload> {
        match self {
            Workload::FillSeq | Workload::FillRandom | Workload::YcsbLoad => None,
            Workload::Overwrite | Workload::ReadRandom => Some(Workload::FillRandom),
            _ => Some(Workload::YcsbLoad),
        }
    }

    /// Its composition.
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
    /// The total share of a kind.
    pub fn share(&self, kind: Kind) -> f64 {
        self.shares.iter().filter(|(of, _)| *of == kind).map(|(_, share)| share).sum()
    }
}
