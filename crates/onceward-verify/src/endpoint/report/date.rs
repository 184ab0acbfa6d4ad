//! A date in UTC, for an operator.

/// Such as `2026-11-18 17:04 UTC`.
pub(super) fn utc(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", second / 3_600, second / 60 % 60)
}

/// Year, month and day of a number of days since 1970.
pub(in crate::endpoint) fn civil(days: u64) -> (u64, u64, u64) {
    // Years from March, so that the day that a leap year has more is its last (Howard Hinnant's algorithm).
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn dates_are_right() {
        for (unix_s, date) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_826_140, "2000-02-29 12:09 UTC"),
            (1_763_484_660, "2025-11-18 16:51 UTC"),
            (4_102_444_799, "2099-12-31 23:59 UTC"),
        ] {
            assert_eq!(utc(unix_s), date);
        }
    }
}
