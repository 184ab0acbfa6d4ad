//! `onceward machine`: checks a state machine that is declared in a file, and draws it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use onceward_stores::sql::Machine;

const AFTER_HELP: &str = "\
Examples:
  onceward machine orders.toml                                  # Mermaid, to standard output
  onceward machine orders.toml --format svg --output orders.svg

The file:
  table = \"orders\"                     # of your service, with the columns that the next two name
  key = \"id\"
  state = \"state\"
  initial = \"placed\"                   # optional; every other state must be reachable from it
  history = \"order_history\"            # optional: a table with a row per change

  [allowed]                            # a state that nothing follows is final
  placed = [\"paid\", \"cancelled\"]
  paid = [\"shipped\", \"cancelled\"]

Exit code:
  0  the machine makes sense, and is drawn
  1  it does not; the message says why
  2  the file cannot be read, or the drawing cannot be written";

/// Check a declared state machine and draw it
///
/// The service reads the same file with `Machine::builder_from_toml` of onceward-stores, so the drawing is what the service
/// does.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The file that declares the machine
    file: PathBuf,
    /// How it is drawn
    #[arg(long, value_enum, default_value_t = Format::Mermaid)]
    format: Format,
    /// The file to write; standard output if not given
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Mermaid,
    Svg,
}

impl Args {
    pub fn run(self) -> ExitCode {
        let shown = self.file.display();
        let declaration = match std::fs::read_to_string(&self.file) {
            Ok(declaration) => declaration,
            Err(error) => return refuse(2, &format!("cannot read {shown}: {error}")),
        };
        let machine = match Machine::builder_from_toml(&declaration)
            .and_then(onceward_stores::sql::MachineBuilder::build)
        {
            Ok(machine) => machine,
            Err(error) => return refuse(1, &format!("{shown}: {error}")),
        };
        let drawn = match self.format {
            Format::Mermaid => machine.mermaid(),
            Format::Svg => machine.svg(),
        };
        match self.output.as_deref() {
            None => print!("{drawn}"),
            Some(path) => {
                if let Err(error) = std::fs::write(path, drawn) {
                    return refuse(2, &format!("cannot write {}: {error}", Path::display(path)));
                }
            }
        }
        ExitCode::SUCCESS
    }
}

fn refuse(code: u8, why: &str) -> ExitCode {
    eprintln!("onceward: {why}");
    ExitCode::from(code)
}
