//! The runtime on tokio.

use std::collections::HashSet;

use super::{Runtime, TokioRuntime};

#[test]
fn no_attempt_is_drawn_twice() {
    let worlds = [TokioRuntime::new(), TokioRuntime::new()];
    let drawn: HashSet<u128> = (0..2_000).map(|at| worlds[at % 2].random()).collect();
    assert_eq!(drawn.len(), 2_000);
}
