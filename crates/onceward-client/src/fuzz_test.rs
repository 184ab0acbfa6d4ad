//! Hostile bytes for the requests in the journal.

use bytes::Bytes;
use onceward_fuzz::Fuzz;

use crate::stored_request::{StoredRequest, tests};

#[test]
fn fuzz_stored_request() {
    let words: &[&[u8]] = &[b"http://", b"https://[::1]:0/", b"POST", b"content-type", b"\r\n", b"%"];
    Fuzz::new("stored_request").with_seeds(tests::examples()).with_words(words).run(|input| {
        let Some(stored) = StoredRequest::decode(&Bytes::copy_from_slice(input)) else { return 0 };
        let again = stored.encode().expect("what was read is written");
        assert_eq!(StoredRequest::decode(&again).expect("what was written is read"), stored);
        1 + stored.request.headers.len()
    });
}
