//! A proxy that changes nothing but the time in a service's answers: a process behind it that was paused and a service
//! whose clock has moved look the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Removes the field.
pub(crate) const NO_DATE: i64 = i64::MIN;

pub(crate) struct DatedProxy {
    pub(crate) port: u16,
    /// Seconds that are added to every `Date`.
    shift_s: Arc<AtomicI64>,
}

impl DatedProxy {
    pub(crate) async fn start(service_port: u16, shift_s: i64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shift_s = Arc::new(AtomicI64::new(shift_s));
        let shift = shift_s.clone();
        tokio::spawn(async move {
            while let Ok((caller, _)) = listener.accept().await {
                let Ok(service) = TcpStream::connect(("127.0.0.1", service_port)).await else { continue };
                let shift = shift.clone();
                tokio::spawn(async move {
                    let (mut calls, mut to_caller) = caller.into_split();
                    let (mut answers, mut to_service) = service.into_split();
                    let there = tokio::io::copy(&mut calls, &mut to_service);
                    let back = async {
                        let mut bytes = vec![0; 64 << 10];
                        while let Ok(count @ 1..) = answers.read(&mut bytes).await {
                            redate(&mut bytes[..count], shift.load(Ordering::SeqCst));
                            if to_caller.write_all(&bytes[..count]).await.is_err() {
                                break;
                            }
                        }
                    };
                    tokio::select! { _ = there => {}, () = back => {} }
                });
            }
        });
        Self { port, shift_s }
    }

    pub(crate) fn set(&self, shift_s: i64) {
        self.shift_s.store(shift_s, Ordering::SeqCst);
    }
}

fn redate(part: &mut [u8], shift_s: i64) {
    const FIELD: &[u8] = b"\r\ndate: ";
    let found = part.windows(FIELD.len()).position(|at| at.eq_ignore_ascii_case(FIELD));
    let Some(at) = found else { return };
    if shift_s == NO_DATE {
        part[at + 2..at + 6].copy_from_slice(b"x-at");
        return;
    }
    let date = &mut part[at + FIELD.len()..][..29];
    let now = httpdate::parse_http_date(std::str::from_utf8(date).unwrap()).unwrap();
    let now_s = now.duration_since(UNIX_EPOCH).unwrap().as_secs().checked_add_signed(shift_s).unwrap();
    let shifted = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(now_s));
    date.copy_from_slice(shifted.as_bytes());
}
