use super::*;

fn row() -> Row {
    let ours = Side::new("gateway", vec![30_000.0, 33_000.0, 27_000.0]);
    let other = Side::new("nginx", vec![50_000.0, 50_000.0, 30_000.0]);
    Row::ratio("first run", Unit::PerSecond, &ours, &other)
}

#[test]
fn a_ratio_is_the_median_of_the_rounds_ratios() {
    let judged = row().judged();
    assert_eq!(judged.rounds, [0.6, 0.66, 0.9]);
    assert_eq!(row().judged_text(), "0.66 (0.60–0.90)");
}

#[test]
fn goals_are_judged_at_their_edges() {
    let alone = |goal| Row::alone("trips", Unit::Trips, &Side::new("ours", vec![2.0])).goal(goal).met();
    assert_eq!(alone(Goal::AtMost(2.0)), Some(true));
    assert_eq!(alone(Goal::AtLeast(2.0)), Some(true));
    assert_eq!(alone(Goal::Below(2.0)), Some(false));
    assert_eq!(row().met(), None);
}

#[test]
fn an_excess_is_a_difference() {
    let (ours, other) = (Side::new("layer", vec![3_100.0]), Side::new("handler", vec![700.0]));
    let row = Row::excess("first run", Unit::Nanoseconds, &ours, &other).goal(Goal::Below(3_000.0));
    assert_eq!((row.judged_text().as_str(), row.goal_text().as_str()), ("+2,400 ns", "< +3,000 ns"));
    assert_eq!(row.met(), Some(true));
}

#[test]
#[should_panic(expected = "the sides take turns")]
fn sides_with_unequal_rounds_are_no_comparison() {
    let _ = Row::ratio("x", Unit::PerSecond, &Side::new("a", vec![1.0]), &Side::new("b", vec![1.0, 2.0]));
}
