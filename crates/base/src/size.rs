//! Sizes as people write them: `4GiB`, `64k`, `1.5TiB`; and shares: `12%`.

use crate::error::{Error, Result};

const UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// How a size is written, for messages.
pub const SIZE_FORMS: &str = "write it like 4GiB, 512MiB or 64KiB (4G, 512M, 64k), or as a number of bytes";

/// Parses a size in bytes. Units are binary: `4GiB`, `4G` and `4g` are the same; a bare number is bytes.
///
/// ```
/// use vellum_base::size::{format_size, parse_size};
/// assert_eq!(parse_size("1.5GiB").unwrap(), 3 << 29);
/// assert_eq!(parse_size("64k").unwrap(), 65536);
/// assert!(parse_size("4 bananas").is_err());
/// assert_eq!(format_size(3 << 29), "1.50GiB");
/// ```
pub fn parse_size(text: &str) -> Result<u64> {
    let text = text.trim();
    let bad = || Error::invalid(format!("'{text}' is not a size; {SIZE_FORMS}"));
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1u64 << 40,
        _ => return Err(bad()),
    };
    let bytes = match number.parse::<u64>() {
        Ok(n) => n.checked_mul(scale),
        Err(_) => match number.parse::<f64>() {
            Ok(n) if n * (scale as f64) < u64::MAX as f64 => Some((n * scale as f64) as u64),
            _ => None,
        },
    };
    bytes.ok_or_else(bad)
}

/// Writes a size with the largest binary unit that fits: exact numbers whole, others with two decimals.
pub fn format_size(bytes: u64) -> String {
    let (unit, scale) = UNITS.iter().find(|(_, s)| bytes >= *s).copied().unwrap_or(("B", 1));
    if bytes.is_multiple_of(scale) {
        format!("{}{unit}", bytes / scale)
    } else {
        format!("{:.2}{unit}", bytes as f64 / scale as f64)
    }
}

/// Parses a share such as `12%` (or `0.12`) as a fraction. A bare number of more than 1 is refused: who writes `12`
/// means 12%, not 1200%.
pub fn parse_share(text: &str) -> Result<f64> {
    let bad = || Error::invalid(format!("'{text}' is not a share; write it like 12% or 0.12"));
    let value = match text.trim().strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map_err(|_| bad())? / 100.0,
        None => text.trim().parse::<f64>().map_err(|_| bad())?,
    };
    if value.is_finite() && value > 1.0 && !text.contains('%') {
        let text = text.trim();
        return Err(Error::invalid(format!(
            "a share of {text} is more than the whole: did you mean {text}%?"
        )));
    }
    if value.is_finite() && value >= 0.0 { Ok(value) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_trip() {
        for bytes in [0, 1, 4095, 4096, 1 << 20, 16 << 30, 5 << 40] {
            let text = format_size(bytes);
            if !text.contains('.') {
                assert_eq!(parse_size(&text).unwrap(), bytes, "{text}");
            }
        }
        assert!(parse_size("99999999999TiB").is_err());
        assert!(parse_size("").is_err());
        assert_eq!(parse_share("12%").unwrap(), 0.12);
        assert_eq!((parse_share("1").unwrap(), parse_share("700%").unwrap()), (1.0, 7.0));
        assert!(parse_share("-1%").is_err());
        assert!(parse_share("12").unwrap_err().to_string().ends_with("did you mean 12%?"));
    }
}
