//! `onceward migrate`: creates or upgrades the tables of a database.

use std::process::ExitCode;

use crate::help;

const AFTER_HELP: &str = "\
Examples:
  onceward migrate --store postgres://owner@db/shop
  onceward migrate --store sqlite:./receipts.db
  onceward migrate --store postgres://owner@db/shop --new-identity  # after a restore, where a front is used
  onceward migrate --store postgres://owner@db/shop --messages      # outbox and dead letters, too

Exit code:
  0  the tables are up to date
  1  they are not; the message says why";

/// Create or upgrade the tables of a database.
///
/// `onceward proxy` and `onceward serve` do this when they start. Run it by hand, as a user with the right to create
/// tables, where theirs has no such right.
#[derive(clap::Args)]
#[command(after_long_help = help::with_databases(AFTER_HELP))]
pub struct Args {
    /// The database.
    #[arg(long, value_name = "URL", env = "ONCEWARD_STORE", hide_env_values = true)]
    store: String,

    /// Give the database another identity: after it was restored from a backup, so that nothing that a front
    /// (`front=redis://…`) has from before the restore is believed.
    #[arg(long)]
    new_identity: bool,

    /// Make the tables for messages, too: outbox, dead letters, versions.
    #[arg(long)]
    messages: bool,
}

impl Args {
    pub async fn run(self) -> ExitCode {
        if self.messages
            && let Err(error) = crate::dead::migrate(&self.store).await
        {
            eprintln!("onceward: {error}");
            return ExitCode::from(1);
        }
        let migrated = onceward_stores::migrate(&self.store).await;
        if self.new_identity && migrated.is_ok() {
            if let Err(error) = onceward_stores::renew_identity(&self.store).await {
                eprintln!("onceward: {error}");
                return ExitCode::from(1);
            }
            println!("the database has a new identity");
        }
        match migrated {
            Ok(done) if done.from == done.to => {
                println!("the tables are at version {} already", done.to);
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
