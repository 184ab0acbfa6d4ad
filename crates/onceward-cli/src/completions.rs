//! `onceward completions`: prints the completion script of a shell.

use std::process::ExitCode;

use clap_complete::Shell;

const AFTER_HELP: &str = "\
Examples:
  onceward completions bash > ~/.local/share/bash-completion/completions/onceward
  onceward completions zsh > ~/.zfunc/_onceward        # a folder in $fpath
  onceward completions fish > ~/.config/fish/completions/onceward.fish";

/// Print the completion script of a shell
///
/// The script goes to standard output. Store it where the shell looks for completions.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The shell
    shell: Shell,
}

impl Args {
    pub fn run(self, mut command: clap::Command) -> ExitCode {
        let name = command.get_name().to_owned();
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, name, &mut script);
        print!("{}", String::from_utf8_lossy(&script));
        ExitCode::SUCCESS
    }
}
