use std::time::{Duration, SystemTime};

use super::{Answer, Meaning};

fn answer(fields: &[(&str, &str)]) -> Answer {
    let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Answer { status: 503, fields, body: bytes::Bytes::new(), meaning: Meaning::Usual }
}

#[test]
fn retry_after_is_a_number_or_a_date() {
    let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
    let wait = |after: &str| answer(&[date, ("retry-after", after)]).retry_after_s();
    assert_eq!(wait(" 120 "), Some(120));
    assert_eq!(wait("Sun, 06 Nov 1994 08:50:07 GMT"), Some(30));
    assert_eq!(wait("Sun, 06 Nov 1994 08:49:00 GMT"), Some(0), "it is over");
    assert_eq!(wait("soon"), None);
    assert_eq!(answer(&[date]).retry_after_s(), None);
    // Without a Date it is compared with the clock of this machine.
    assert!(SystemTime::now() > SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777));
    assert_eq!(answer(&[("retry-after", date.1)]).retry_after_s(), Some(0));
    assert!(answer(&[("retry-after", "Thu, 31 Dec 2099 23:59:59 GMT")]).retry_after_s() > Some(60));
}
