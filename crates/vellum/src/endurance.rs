//! Endurance of flash, as given in data sheets.

use vellum::base::size::parse_size;
use vellum::base::{Error, Result};

/// Manufacturers count TBW in powers of ten: `300TB`. Binary units work as everywhere.
pub fn parse_tbw(text: &str) -> Result<u64> {
    let bad =
        || Error::invalid(format!("'{text}' is not an endurance; write it like 300TB, 1.5PB or 300TiB"));
    const DECIMAL: [(&str, f64); 4] = [("GB", 1e9), ("TB", 1e12), ("PB", 1e15), ("EB", 1e18)];
    let upper = text.trim().to_ascii_uppercase();
    for (unit, scale) in DECIMAL {
        if let Some(number) = upper.strip_suffix(unit) {
            let bytes = number.trim().parse::<f64>().ok().map(|n| n * scale);
            return bytes.filter(|b| (0.0..1.8e19).contains(b)).map(|b| b as u64).ok_or_else(bad);
        }
    }
    if upper.parse::<f64>().is_ok() {
        // It would mean bytes, which is never intended.
        return Err(Error::invalid(format!("'{text}' has no unit; write it like {text}TB, 1.5PB or 300TiB")));
    }
    let has_unit = upper.ends_with('B');
    if has_unit { parse_size(text).map_err(|_| bad()) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endurance_is_decimal_as_on_data_sheets() {
        assert_eq!(parse_tbw("300TB").unwrap(), 300_000_000_000_000);
        assert_eq!(parse_tbw("1.5 pb").unwrap(), 1_500_000_000_000_000);
        assert_eq!(parse_tbw("1TiB").unwrap(), 1 << 40);
        assert!(parse_tbw("-1TB").is_err() && parse_tbw("manyTB").is_err());
        assert!(parse_tbw("300").unwrap_err().to_string().contains("no unit; write it like 300TB"));
    }
}
