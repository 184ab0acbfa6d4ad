//! The demo on a screen. Colours only where somebody looks.

use std::io::IsTerminal;

pub struct Screen {
    colours: bool,
}

impl Screen {
    pub fn new() -> Self {
        let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { colours }
    }

    pub fn opening(&self, gateway: &str, service: &str) {
        println!(
            "{}",
            self.bold("Whatever is sent again, its effect happens once, and everyone gets the same answer.")
        );
        println!("\n   clients ──▶ onceward {gateway} ──▶ payments {service}");
        println!("                  └─ receipts, on disk");
    }

    pub fn title(&self, number: usize, title: &str) {
        println!("\n{}", self.bold(&format!("{number}. {title}")));
    }

    pub fn outcome(&self, expected: &str, seen: &str) {
        println!("   expected  {expected}");
        let (mark, colour) = if expected == seen { ("✓", GREEN) } else { ("✗", RED) };
        println!("   seen      {seen} {}", self.painted(colour, mark));
    }

    pub fn closing(&self, failed: usize, acts: usize, payments: u64, charges: u64) {
        let (colour, said) = match failed {
            0 => (GREEN, format!("All {acts} acts went as expected.")),
            _ => (RED, format!("{failed} of {acts} acts did not go as expected.")),
        };
        let sum = format!("{payments} payments were asked for, {charges} charges were made.");
        let sum_colour = if payments == charges { GREEN } else { RED };
        println!("\n{} {}", self.painted(colour, &said), self.painted(sum_colour, &sum));
    }

    pub fn try_it(gateway: &str, admin: &str) {
        println!("\nIt stays up until you press Ctrl-C. Charge (twice), charge less, look at the ledger:\n");
        let key = "-H 'Idempotency-Key: \"mine\"'";
        let json = "-H 'Content-Type: application/json'";
        println!("   curl -i http://{gateway}/charges {key} {json} -d '{{\"amount\":7}}'");
        println!("   curl -i http://{gateway}/charges {key} {json} -d '{{\"amount\":5}}'");
        println!("   curl http://{gateway}/ledger");
        println!("\nand see the receipts: onceward receipts list --admin http://{admin}");
    }

    fn bold(&self, text: &str) -> String {
        self.painted("\x1b[1m", text)
    }

    fn painted(&self, colour: &str, text: &str) -> String {
        if self.colours { format!("{colour}{text}\x1b[0m") } else { text.to_owned() }
    }
}

const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
