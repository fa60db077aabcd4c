//! `--dwpd` and `--tbw`: how much flash a cache may write a day.

use super::cache::PolicyArg;
use crate::endurance::parse_tbw;
use crate::failure::Failure;
use std::path::Path;
use vellum::base::{Error, SECTOR_BYTES};

const DAYS_A_YEAR: f64 = 365.25;
/// More than any flash can take in a day; a larger value is a typing error.
const DWPD_MAX: f64 = 1e6;
const LIMITLESS: &str = "give it some, such as --dwpd 0.3; without --dwpd and --tbw there is no limit";

/// None: there is no limit.
#[derive(clap::Args)]
pub struct BudgetArgs {
    /// Write the SSD over so many times a day at most, as data sheets count (kdd only): 1, 0.3, ...
    #[arg(long, value_name = "N", conflicts_with = "tbw")]
    dwpd: Option<f64>,
    /// Write so much to the SSD in --years at most, as data sheets say it (kdd only): 300TB, ...
    #[arg(long, value_name = "BYTES", value_parser = parse_tbw)]
    tbw: Option<u64>,
    /// For so long --tbw is to do
    #[arg(long, value_name = "N", default_value_t = 5.0, requires = "tbw")]
    years: f64,
}

impl BudgetArgs {
    /// Whether a budget is given.
    pub fn is_given(&self) -> bool {
        self.dwpd.is_some() || self.tbw.is_some()
    }

    /// Refuses impossible options before anything is changed.
    pub fn check(&self, ssd: &Path, policy: PolicyArg) -> Result<(), Failure> {
        if let Some(dwpd) = self.dwpd.filter(|dwpd| !(0.0..=DWPD_MAX).contains(dwpd)) {
            let what = format!("--dwpd {dwpd}: it is a number from 0 to {DWPD_MAX}");
            return Err(Error::invalid(what).into());
        }
        if !(self.years.is_finite() && self.years > 0.0) {
            let what = format!("--years {}: what --tbw allows is spread over more than 0 years", self.years);
            return Err(Failure::with_next(
                Error::invalid(what),
                "say for how long it is to last: --years 5",
            ));
        }
        if self.dwpd == Some(0.0) || self.tbw == Some(0) {
            let what = format!("a budget of nothing leaves {} a cache that is never written", ssd.display());
            return Err(Failure::with_next(Error::invalid(what), LIMITLESS));
        }
        if self.is_given() && policy != PolicyArg::Kdd {
            let what = "only policy kdd keeps a budget of flash writes";
            return Err(Failure::with_next(Error::invalid(what), "leave out --policy, or --dwpd and --tbw"));
        }
        Ok(())
    }

    /// The budget in bytes per day, for an SSD of this size.
    pub fn bytes_a_day(&self, ssd: &Path, ssd_bytes: u64) -> Result<Option<u64>, Failure> {
        let whole = self.dwpd.map(|dwpd| dwpd * ssd_bytes as f64);
        let of_life = self.tbw.map(|tbw| tbw as f64 / (self.years * DAYS_A_YEAR));
        match whole.or(of_life) {
            Some(bytes) if bytes < SECTOR_BYTES as f64 => {
                let what = format!("that is {bytes:.0} bytes a day: {} is never written", ssd.display());
                Err(Failure::with_next(Error::invalid(what), "a page is 4 KiB; give it a few thousand a day"))
            }
            Some(bytes) if bytes > DWPD_MAX * ssd_bytes as f64 => {
                let what = format!("{} is never written over {DWPD_MAX} times a day", ssd.display());
                Err(Failure::with_next(Error::invalid(what), LIMITLESS))
            }
            other => Ok(other.map(|bytes| bytes as u64)),
        }
    }
}
