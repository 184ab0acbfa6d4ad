//! `onceward migrate`: the tables of a database, brought up to date by somebody who may.

use std::process::ExitCode;

/// What `onceward migrate` is told on the command line.
#[derive(clap::Args)]
pub struct Args {
    /// The database, such as `postgres://user@host/database`, `mysql://…` or `sqlite:FILE`.
    #[arg(long, value_name = "URL", env = "ONCEWARD_STORE")]
    store: String,
}

impl Args {
    pub async fn run(self) -> ExitCode {
        match onceward_stores::migrate(&self.store).await {
            Ok(done) if done.from == done.to => {
                println!("the tables are of version {} already", done.to);
                ExitCode::SUCCESS
            }
            Ok(done) => {
                println!("the tables went from version {} to {}", done.from, done.to);
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("onceward: {error}");
                ExitCode::from(1)
            }
        }
    }
}
