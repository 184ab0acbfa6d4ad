//! The data folder: its marker and format, and the lock that keeps other processes out.
//!
//! ```text
//! ONCEWARD   marker: format number, nonce and checksum, the first thing written into a new folder
//! LOCK       empty; the process that has the folder open holds an OS lock on it
//! ACKED      the last acknowledged group (acked_file.rs)
//! db/        fjall's database (tables.rs)
//! CREATING   while the database is being created; with it there, db/ holds nothing yet
//! TRIAL      only while the cause of a failed write is examined
//! ```
//!
//! A folder that is refused is left exactly as it was.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onceward::{Error, ErrorKind, Result};

const MARKER: &str = "ONCEWARD";
const MARKER_NEW: &str = "ONCEWARD.new";
const LOCK: &str = "LOCK";
const ACKED: &str = "ACKED";
const DATABASE: &str = "db";
const CREATING: &str = "CREATING";
const TRIAL: &str = "TRIAL";
const TRIAL_BYTES: usize = 256 * 1024;
/// The free space that a store needs to continue after the disk was full.
const SPACE_TO_GO_ON_BYTES: usize = 8 << 20;

/// The format this build reads and writes. Formats 1 and 2 were never released.
const FORMAT: u32 = 3;
const MARKER_NAME: &str = "onceward-embedded";

/// Drawn when the folder is made. Every group carries it, so that bytes of another folder's journal,
/// which may be inside a stored body, are never mistaken for a group of this one.
pub(crate) type Nonce = [u8; NONCE_BYTES];
pub(crate) const NONCE_BYTES: usize = 16;

/// An open data folder, locked until its last clone is dropped.
#[derive(Clone)]
pub(crate) struct Folder {
    path: PathBuf,
    nonce: Nonce,
    _lock: Arc<FolderLock>,
}

struct FolderLock(File);

impl Folder {
    /// Takes the folder for this process; creates it if it is missing or empty.
    pub(crate) fn take(path: &Path) -> Result<Self> {
        // Inspected before anything is changed, and again under the lock: another process may have
        // created it meanwhile.
        if inspect(path)? == FolderContents::Missing {
            create_folder(path).map_err(|error| failed("create", path, error))?;
        }
        let lock = lock(path)?;
        let nonce = match inspect(path)? {
            FolderContents::Ours(nonce) => nonce,
            FolderContents::Missing | FolderContents::Empty => {
                let nonce = new_nonce()?;
                write_marker(path, nonce).map_err(|error| failed("write to", path, error))?;
                nonce
            }
        };
        close_to_others(path);
        Ok(Self { path: path.to_path_buf(), nonce, _lock: Arc::new(FolderLock(lock)) })
    }

    pub(crate) fn nonce(&self) -> Nonce {
        self.nonce
    }

    pub(crate) fn acked(&self) -> PathBuf {
        self.path.join(ACKED)
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    /// Whether the disk has some free space. fjall does not report why its background work failed.
    pub(crate) fn has_space(&self) -> bool {
        !self.try_write(TRIAL_BYTES).is_err_and(|error| error.kind() == io::ErrorKind::StorageFull)
    }

    /// Whether a store that had stopped because the disk was full can continue.
    pub(crate) fn has_space_to_go_on(&self) -> bool {
        self.try_write(SPACE_TO_GO_ON_BYTES).is_ok()
    }

    fn try_write(&self, bytes: usize) -> io::Result<()> {
        let trial = self.path.join(TRIAL);
        let written = new_file(&trial).and_then(|mut file| {
            file.write_all(&vec![1; bytes])?;
            file.sync_all()
        });
        // Missing is what we want; anything else shows itself at the next write.
        let _ = fs::remove_file(&trial);
        written
    }

    /// Whether there is a database whose creation was completed.
    pub(crate) fn has_database(&self) -> bool {
        self.database().exists() && !self.path.join(CREATING).exists()
    }

    /// Creates the database with `create`. After a crash in between, the next opening creates it again.
    pub(crate) fn create_database<T>(&self, create: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
        let (creating, database) = (self.path.join(CREATING), self.database());
        let written = |done: io::Result<()>| done.map_err(|error| failed("write to", &self.path, error));
        written(new_file(&creating).and_then(|file| file.sync_all()).and_then(|()| sync_folder(&self.path)))?;
        if database.exists() {
            written(fs::remove_dir_all(&database))?;
        }
        // fjall makes files that everyone may read, in a folder that nobody else may enter.
        written(private_folder(&database))?;
        let created = create(&database)?;
        written(sync_folder(&self.path))?;
        written(fs::remove_file(&creating).and_then(|()| sync_folder(&self.path)))?;
        Ok(created)
    }
}

#[derive(PartialEq, Eq)]
enum FolderContents {
    Missing,
    Empty,
    Ours(Nonce),
}

fn inspect(path: &Path) -> Result<FolderContents> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FolderContents::Missing),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(Error::new(ErrorKind::Foreign, format!("{} is not a folder", path.display())));
        }
        Err(error) => return Err(failed("read", path, error)),
    };
    let mut stranger = None;
    for entry in entries {
        let name = entry.map_err(|error| failed("read", path, error))?.file_name();
        if name == MARKER {
            return read_marker(&path.join(MARKER)).map(FolderContents::Ours);
        }
        // Left by a creation that was interrupted.
        if name != LOCK && name != MARKER_NEW {
            stranger = Some(name);
        }
    }
    match stranger {
        None => Ok(FolderContents::Empty),
        Some(name) => Err(Error::new(
            ErrorKind::Foreign,
            format!(
                "{} holds {} but no {MARKER} file, so it belongs to something else; name an empty or new folder",
                path.display(),
                name.display()
            ),
        )),
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Closing is not enough: a child process has copies of all open files between fork and exec, and would hold
        // the lock until then.
        let _ = self.0.unlock();
    }
}

fn lock(path: &Path) -> Result<File> {
    let file = private()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path.join(LOCK))
        .map_err(|error| failed("write to", path, error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::new(
            ErrorKind::InUse,
            format!("{} is in use by another process; stop it first, or name another folder", path.display()),
        )),
        Err(TryLockError::Error(error)) => Err(failed("lock", path, error)),
    }
}

/// Receipts may hold confidential answers, so only the owner may read the folder. A new folder is durable only
/// once its parent is synced.
fn create_folder(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|folder| !folder.exists()).collect();
    let Some(parent) = path.parent().filter(|_| !missing.is_empty()) else { return Ok(()) };
    fs::create_dir_all(parent)?;
    match private_folder(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => created?,
    }
    missing.into_iter().filter_map(Path::parent).try_for_each(sync_folder)
}

/// A new folder that only the owner may enter.
fn private_folder(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Options for a file that only the owner may read, if it is new.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn new_file(path: &Path) -> io::Result<File> {
    private().create(true).truncate(true).write(true).open(path)
}

/// A folder that was there before, a mounted volume for one, may be open to others.
#[cfg(unix)]
fn close_to_others(path: &Path) {
    use std::os::unix::fs::PermissionsExt;

    let Ok(found) = fs::metadata(path) else { return };
    let for_others = found.permissions().mode() & 0o077;
    if for_others == 0 {
        return;
    }
    if let Err(error) = fs::set_permissions(path, fs::Permissions::from_mode(0o700)) {
        let path = path.display();
        tracing::warn!(%path, %error, "others may read this folder of receipts; its mode should be 0700");
    }
}

#[cfg(not(unix))]
fn close_to_others(_: &Path) {}

fn new_nonce() -> Result<Nonce> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|error| {
        Error::new(ErrorKind::Unavailable, "the system gives no random numbers").caused_by(error.to_string())
    })?;
    Ok(nonce)
}

/// The marker is one line: `onceward-embedded 3 nonce crc32`, both in hexadecimal.
fn marker_line(nonce: Nonce) -> String {
    let text = format!("{MARKER_NAME} {FORMAT} {:032x}", u128::from_be_bytes(nonce));
    let checksum = crc32fast::hash(text.as_bytes());
    format!("{text} {checksum:08x}\n")
}

fn write_marker(path: &Path, nonce: Nonce) -> io::Result<()> {
    let new = path.join(MARKER_NEW);
    let mut file = new_file(&new)?;
    file.write_all(marker_line(nonce).as_bytes())?;
    file.sync_all()?;
    fs::rename(new, path.join(MARKER))?;
    sync_folder(path)
}

fn read_marker(path: &Path) -> Result<Nonce> {
    let bytes = fs::read(path).map_err(|error| failed("read", path, error))?;
    let marker = std::str::from_utf8(&bytes).ok().and_then(|line| {
        let (text, checksum) = line.strip_suffix('\n')?.rsplit_once(' ')?;
        let mut words = text.strip_prefix(MARKER_NAME)?.strip_prefix(' ')?.split(' ');
        let format: u32 = words.next()?.parse().ok()?;
        let nonce = words.next().and_then(|nonce| u128::from_str_radix(nonce, 16).ok());
        (u32::from_str_radix(checksum, 16).ok()? == crc32fast::hash(text.as_bytes()))
            .then_some((format, nonce.map(u128::to_be_bytes)))
    });
    match marker {
        Some((FORMAT, Some(nonce))) => Ok(nonce),
        None | Some((FORMAT, None)) => Err(Error::new(
            ErrorKind::Damaged,
            format!("{} is damaged; restore the folder from a copy, or name another folder", path.display()),
        )),
        Some((older, _)) if older < FORMAT => Err(Error::new(
            ErrorKind::Foreign,
            format!(
                "{} says format {older}, which was never released and cannot be read; this version reads format \
                 {FORMAT}. Nothing was changed; name another folder, or move this one away",
                path.display()
            ),
        )),
        Some((other, _)) => Err(Error::new(
            ErrorKind::Foreign,
            format!(
                "{} says format {other}, this version reads format {FORMAT}; use the version that wrote it",
                path.display()
            ),
        )),
    }
}

pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    // Elsewhere a folder cannot be opened as a file, and renames need no sync of their own.
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}

fn failed(verb: &str, path: &Path, error: io::Error) -> Error {
    super::errors::io(format!("cannot {verb} {}", path.display()), error)
}
