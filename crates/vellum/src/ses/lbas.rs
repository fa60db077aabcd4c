//! A list of sectors on the command line: `0-1023,4096`, or `spread` for those from which a scrambler can be learned.

use std::str::FromStr;
use vellum_base::{Error, Lba, Result};

/// Maximum number of sectors.
const LBAS_MAX: u64 = 1 << 16;
/// Number of sums that `spread` adds to the powers of two.
const SPREAD_SUMS: u64 = 24;

/// Sectors to write or to dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LbaList {
    /// Inclusive ranges.
    Ranges(Vec<(u64, u64)>),
    /// Sector 0, every power of two, and sums that cover all powers: enough to learn a map of all sectors.
    Spread,
}

impl LbaList {
    /// The sectors in ascending order, without duplicates; refuses those beyond a device of `sectors`.
    pub fn on(&self, sectors: u64) -> Result<Vec<Lba>> {
        let mut lbas: Vec<u64> = match self {
            LbaList::Ranges(ranges) => {
                if let Some((_, last)) = ranges.iter().find(|(_, last)| *last >= sectors) {
                    return Err(Error::invalid(format!(
                        "the disk ends with sector {}: no {last}",
                        sectors - 1
                    )));
                }
                ranges.iter().flat_map(|(first, last)| *first..=*last).collect()
            }
            LbaList::Spread => spread(sectors),
        };
        lbas.sort_unstable();
        lbas.dedup();
        Ok(lbas.into_iter().map(Lba).collect())
    }
}

fn spread(sectors: u64) -> Vec<u64> {
    let powers = (0..64).map(|bit| 1 << bit).take_while(|power| *power < sectors);
    // Evenly spaced, odd and even in turn: all of their bits vary.
    let sums =
        (1..=SPREAD_SUMS).map(|i| (u128::from(sectors) * u128::from(i) / u128::from(SPREAD_SUMS)) as u64);
    [0].into_iter().chain(powers).chain(sums.map(|end| end.saturating_sub(1))).collect()
}

impl FromStr for LbaList {
    type Err = Error;
    fn from_str(text: &str) -> Result<LbaList> {
        if text == "spread" {
            return Ok(LbaList::Spread);
        }
        let bad = || {
            Error::invalid(format!(
                "'{text}' is no list of sectors; write numbers and ranges like 0-1023,4096 (at most {LBAS_MAX} sectors), or spread"
            ))
        };
        let number = |text: &str| text.parse::<u64>().map_err(|_| bad());
        let mut count = 0u64;
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            let length = last.checked_sub(first).ok_or_else(bad)?;
            count = count.saturating_add(length).saturating_add(1);
            if count > LBAS_MAX { Err(bad()) } else { Ok((first, last)) }
        };
        text.split(',').map(range).collect::<Result<_>>().map(LbaList::Ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_codes::scrambler::SeedMap;

    #[test]
    fn lists_are_read() {
        let on = |text: &str| {
            let lbas = text.parse::<LbaList>().and_then(|list| list.on(1000));
            lbas.map(|lbas| lbas.into_iter().map(|lba| lba.0).collect::<Vec<_>>())
        };
        assert_eq!(on("7,0-2,1").unwrap(), [0, 1, 2, 7]);
        for text in ["", "-", "5-3", "1,,2", "a", "1000", "0-1000", "0-99999999999", "18446744073709551615"] {
            assert!(on(text).is_err(), "{text}");
        }
    }

    #[test]
    fn spread_spans_every_sector() {
        for sectors in [1, 2, 3, 16, 23, 24, 25, 1000, 4096, (1 << 22) - 3, 1 << 30] {
            let lbas = LbaList::Spread.on(sectors).unwrap();
            assert!(lbas.iter().all(|lba| lba.0 < sectors), "{sectors}: {lbas:?}");
            let facts = lbas.iter().map(|lba| (lba.0, 0));
            assert_eq!(SeedMap::of_facts(facts).unwrap().first_unknown(sectors), None);
            let powers = 64 - (sectors - 1).leading_zeros();
            let least = u64::from(1 + powers + 8).min(sectors);
            assert!(lbas.len() as u64 >= least, "{sectors}: {} sectors", lbas.len());
        }
    }
}
