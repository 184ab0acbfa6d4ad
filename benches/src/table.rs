//! One table for all results: what, measured, goal, whether it is met.

/// Prints a table row by row as results come in.
#[derive(Clone, Copy)]
pub struct Table;

impl Table {
    pub fn start(title: &str) -> Self {
        println!("\n{title}\n{:<64} {:>16} {:>16}  ok", "what", "measured", "goal");
        Self
    }

    /// One result; `met` is `None` for a number that is only for information.
    pub fn row(self, what: &str, measured: &str, goal: &str, met: Option<bool>) {
        let mark = match met {
            None => "",
            Some(true) => "yes",
            Some(false) => "NO",
        };
        println!("{what:<64} {measured:>16} {goal:>16}  {mark}");
    }
}

/// The middle of an odd number of rounds.
pub fn median(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}
