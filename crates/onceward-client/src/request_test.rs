//! Checks the size of the future of one call.

use crate::client::Client;

/// What waits for an answer is moved once or twice, and the first cache holds it next to those of all other
/// callers, or does not: at three thousand bytes each, the fetching of them could be measured.
#[tokio::test]
async fn a_call_under_way_is_small() {
    const CALL_BYTES_MAX: usize = 1_088;
    let client = Client::builder().build().unwrap();
    let call = client.post("http://127.0.0.1:1/").body("{}").send();
    let bytes = size_of_val(&call);
    assert!(bytes <= CALL_BYTES_MAX, "{bytes} bytes");
}
