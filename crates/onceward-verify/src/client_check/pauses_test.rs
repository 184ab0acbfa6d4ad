use std::time::Duration;

use super::Pauses;

fn pauses(runs: [&[u64]; 4]) -> Pauses {
    Pauses(runs.map(|run| run.iter().map(|ms| Duration::from_millis(*ms)).collect()).to_vec())
}

#[test]
fn growth_and_jitter_are_told() {
    let exact = pauses([&[200, 400, 800], &[201, 401, 802], &[203, 400, 800], &[200, 405, 870]]);
    assert_eq!((exact.grow(), exact.have_jitter()), (Some(true), Some(false)), "one run met a busy moment");
    let jitter = pauses([&[120, 300, 700], &[90, 360, 420], &[190, 210, 790], &[40, 390, 610]]);
    assert_eq!((jitter.grow(), jitter.have_jitter()), (Some(true), Some(true)));
    let constant = pauses([&[100, 120, 90], &[95, 101, 130], &[130, 99, 120], &[99, 130, 100]]);
    assert_eq!(constant.grow(), Some(false));
    let busy = pauses([&[77, 81, 109], &[60, 95, 140], &[98, 52, 70], &[66, 74, 90]]);
    assert_eq!(busy.grow(), Some(false), "the machine made one of them longer");
    let single = pauses([&[100], &[100], &[100], &[100]]);
    assert_eq!((single.grow(), single.have_jitter()), (None, Some(false)));
    assert!(pauses([&[1, 2], &[0, 1], &[3, 0], &[9, 9]]).are_none());
    let none = pauses([&[], &[], &[], &[]]);
    assert_eq!((none.common(), none.grow(), none.have_jitter()), (0, None, None));
}
