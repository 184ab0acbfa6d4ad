//! Reads and writes a date as HTTP has it (RFC 9110, IMF-fixdate), such as in `Retry-After`.

use super::report::date::civil;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// From the weekday of the first of January 1970 on.
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

/// Such as `Sun, 06 Nov 1994 08:49:37 GMT`, of seconds since 1970.
pub(crate) fn written(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    let (year, month, day) = civil(days);
    let name = |names: &[&'static str], index: u64| names[usize::try_from(index).unwrap_or_default()];
    let (weekday, month) = (name(&WEEKDAYS, days % 7), name(&MONTHS, month - 1));
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

/// Seconds since 1970 of `Sun, 06 Nov 1994 08:49:37 GMT`; none for anything else.
pub(crate) fn unix_s(text: &str) -> Option<u64> {
    let (_, date) = text.trim().split_once(", ")?;
    let [day, month, year, time, "GMT"] = date.split(' ').collect::<Vec<_>>()[..] else { return None };
    let [hour, minute, second] = time.split(':').collect::<Vec<_>>()[..] else { return None };
    let number = |text: &str, max: u64| text.parse::<u64>().ok().filter(|number| *number <= max);
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let (day, year) = (number(day, 31)?, number(year, 9_999).filter(|year| *year >= 1970)?);
    let (hour, minute, second) = (number(hour, 23)?, number(minute, 59)?, number(second, 60)?);
    // Years from March, so that the day that a leap year has more is its last.
    let from_march = if month > 2 { year } else { year - 1 };
    let added_days = from_march / 4 - from_march / 100 + from_march / 400;
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day.checked_sub(1)?;
    // 719,468 days are from March of the year 0 to 1970.
    let days = (365 * from_march + added_days + day_of_year).checked_sub(719_468)?;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::{unix_s, written};

    #[test]
    fn dates_are_read() {
        for (text, seconds) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            ("Tue, 29 Feb 2000 12:09:00 GMT", Some(951_826_140)),
            ("Thu, 31 Dec 2099 23:59:59 GMT", Some(4_102_444_799)),
            ("120", None),
            ("", None),
            ("Sun, 06 Nov 1994 08:49:37 CET", None),
            ("Sun, 00 Nov 1994 08:49:37 GMT", None),
            ("Sun, 06 Foo 1994 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 08:61:37 GMT", None),
            ("Wed, 31 Dec 1969 23:59:59 GMT", None),
        ] {
            assert_eq!(unix_s(text), seconds, "{text}");
            if let Some(seconds) = seconds {
                assert_eq!(written(seconds), text);
            }
        }
    }
}
