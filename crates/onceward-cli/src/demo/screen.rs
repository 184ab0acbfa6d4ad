//! Prints the demo. Colours are used only on a terminal.

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
            self.bold("However often a request is sent, its effect happens once, and every copy gets the same answer.")
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
        println!("   observed  {seen} {}", self.painted(colour, mark));
    }

    pub fn closing(&self, failed: usize, scenarios: usize, payments: u64, charges: u64) {
        let (colour, result) = match failed {
            0 => (GREEN, format!("All {scenarios} scenarios passed.")),
            _ => (RED, format!("{failed} of {scenarios} scenarios failed.")),
        };
        let sum = format!("{payments} payments were requested, {charges} charges were made.");
        let sum_colour = if payments == charges { GREEN } else { RED };
        println!("\n{} {}", self.painted(colour, &result), self.painted(sum_colour, &sum));
    }

    pub fn try_it(gateway: &str, admin: &str) {
        println!(
            "\nThe demo keeps running until you press Ctrl-C. Send a charge (twice), send another amount, read the ledger:\n"
        );
        let key = "-H 'Idempotency-Key: \"mine\"'";
        let json = "-H 'Content-Type: application/json'";
        println!("   curl -i http://{gateway}/charges {key} {json} -d '{{\"amount\":7}}'");
        println!("   curl -i http://{gateway}/charges {key} {json} -d '{{\"amount\":5}}'");
        println!("   curl http://{gateway}/ledger");
        println!("\nand list the receipts: onceward receipts list --admin http://{admin}");
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
