//! Writes to standard output and standard error. The macros here have the names of the standard library's and take their
//! place in this crate, so that every command uses them: a reader that closed the pipe
//! (`onceward receipts list | head -1`) ends the command quietly instead of with a panic.

use std::any::Any;
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::panic::resume_unwind;

/// The exit code of a command whose reader closed the pipe: what a shell reports for SIGPIPE.
pub const CLOSED_PIPE: u8 = 141;

/// The payload that unwinds to `main` when nobody reads standard output any more.
struct ClosedPipe;

macro_rules! print {
    ($($text:tt)*) => { $crate::output::write(format_args!($($text)*)) };
}

macro_rules! println {
    () => { $crate::output::write(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::write(format_args!("{}\n", format_args!($($text)*))) };
}

macro_rules! eprint {
    ($($text:tt)*) => { $crate::output::write_error(format_args!($($text)*)) };
}

macro_rules! eprintln {
    ($($text:tt)*) => { $crate::output::write_error(format_args!("{}\n", format_args!($($text)*))) };
}

/// Writes to standard output.
pub fn write(text: fmt::Arguments<'_>) {
    if let Err(error) = or_end(io::stdout().lock().write_fmt(text)) {
        // For example a full disk. The command must not exit as if it had succeeded.
        panic!("cannot write to standard output: {error}");
    }
}

/// Writes to standard error. There is nowhere left to report a failure.
pub fn write_error(text: fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(text);
}

/// Tells the parent process where a server listens. A server whose parent stopped reading continues.
pub fn announce(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}

/// Ends the command if the reader of standard output is gone; gives back any other result.
pub fn or_end(written: io::Result<()>) -> io::Result<()> {
    match written {
        // Unwinding instead of `exit`, because a command may own processes and folders that it must remove.
        // `resume_unwind` prints nothing.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => resume_unwind(Box::new(ClosedPipe)),
        written => written,
    }
}

/// Returns whether a command unwound because of a closed pipe.
pub fn is_closed_pipe(payload: &(dyn Any + Send)) -> bool {
    payload.is::<ClosedPipe>()
}
