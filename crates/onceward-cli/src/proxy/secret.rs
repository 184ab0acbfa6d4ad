//! Reads or creates the secret that credentials and bodies are hashed with. It must stay the same across restarts and in
//! all processes that share a store, or a retry would not match its receipt.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use onceward::Onceward;
use onceward_http::fingerprint::{SECRET_BYTES, Secrets};

use super::known_secrets::has_receipts;

/// The environment variable with one secret, or several separated by commas, the one in use first.
pub const VARIABLE: &str = "ONCEWARD_SECRET";
/// The file beside the embedded store's own.
const FILE: &str = "secret";
/// Shorter secrets can be guessed.
const CHARACTERS_MIN: usize = 32;

/// The secrets for a store: given, stored in the folder of the embedded store, or random for the memory store. The store
/// is open already, and has created its folder.
pub async fn for_store(store: &str, given: Option<&str>, onceward: &Onceward) -> Result<Secrets, String> {
    if let Some(given) = given {
        return read(given);
    }
    match store.split_once(':') {
        Some(("embedded", folder)) => stored(Path::new(folder), onceward).await,
        Some(("memory", _)) => Ok(Secrets::new(random()?)),
        _ => Err(format!(
            "a store that several gateways may share needs a secret that they share: set {VARIABLE} to at least \
             {CHARACTERS_MIN} random characters, the same on every gateway"
        )),
    }
}

fn read(given: &str) -> Result<Secrets, String> {
    let mut secrets = given.split(',').map(str::trim).map(|secret| {
        if secret.len() < CHARACTERS_MIN {
            return Err(format!(
                "{VARIABLE}: a secret needs at least {CHARACTERS_MIN} characters; this one has {}",
                secret.len()
            ));
        }
        // Text of any length becomes a key of one length. The context keeps it apart from other uses.
        Ok(blake3::derive_key("onceward 2026-11-16 gateway secret", secret.as_bytes()))
    });
    let first = secrets.next().expect("split gives at least one")?;
    Ok(Secrets::new(first).with_older(secrets.collect::<Result<Vec<_>, _>>()?))
}

/// Reads the secret in a folder, or creates one durably before anything is hashed with it.
async fn stored(folder: &Path, onceward: &Onceward) -> Result<Secrets, String> {
    let path = folder.join(FILE);
    let wrong = |what: &str| format!("{}: {what}", path.display());
    match fs::read(&path) {
        Ok(bytes) => {
            let secret = bytes.try_into().map_err(|bytes: Vec<u8>| {
                wrong(&format!(
                    "a secret has {SECRET_BYTES} bytes, this one has {}; restore it from a backup: without it no \
                     retry finds its receipt",
                    bytes.len()
                ))
            })?;
            return Ok(Secrets::new(secret));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(wrong(&error.to_string())),
    }
    // Without its secret no receipt can be found, and with a new one every retry would run again.
    if has_receipts(onceward).await? {
        return Err(wrong(&format!(
            "the file is missing, but the store has receipts; restore it from a backup, or set {VARIABLE} if they were made with that"
        )));
    }
    let secret = random()?;
    write(folder, &path, &secret).map_err(|error| wrong(&error.to_string()))?;
    Ok(Secrets::new(secret))
}

/// Writes the file atomically and durably.
fn write(folder: &Path, path: &Path, secret: &[u8]) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    let part = path.with_extension("part");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
    file.write_all(secret)?;
    file.sync_all()?;
    fs::rename(&part, path)?;
    File::open(folder)?.sync_all()
}

fn random() -> Result<[u8; SECRET_BYTES], String> {
    let mut secret = [0; SECRET_BYTES];
    getrandom::fill(&mut secret).map_err(|error| format!("cannot generate a random secret: {error}"))?;
    Ok(secret)
}

#[cfg(test)]
#[path = "secret_test.rs"]
mod tests;
