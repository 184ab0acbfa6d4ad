//! Hostile bytes for everything that reads a request: keys, canonical bodies, pointers, snapshots.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request};
use onceward_fuzz::Fuzz;

use crate::fingerprint::{Head, Pick, Pointer, Rules, SECRET_BYTES, fingerprint};
use crate::key::{KeyForm, KeyShape};
use crate::snapshot;

#[test]
fn fuzz_key() {
    let seeds =
        [&b"8e03978e-40d5-43e8-bc93-6894a57f9324"[..], b"\"quoted\"", b"\"a\\\"b\\\\c\"; p=1", b"a, b"];
    let words: &[&[u8]] = &[b"\"", b"\\", b";", b",", b":YQ==:", b"?1", b" "];
    Fuzz::new("key").with_seeds(seeds).with_words(words).run(|input| {
        let mut headers = HeaderMap::new();
        for line in input.split(|byte| *byte == b'\n') {
            let Ok(value) = HeaderValue::from_bytes(line) else { return "not a field".to_owned() };
            headers.append("idempotency-key", value);
        }
        let read = |form| match KeyShape::default().with_form(form).read(&headers) {
            Ok(key) => {
                let bounded = key.as_ref().is_none_or(|key| (1..=255).contains(&key.len()) && key.is_ascii());
                assert!(bounded, "{key:?}");
                format!("{}", key.is_some())
            }
            Err(bad) => bad.to_string(),
        };
        format!("{} {}", read(KeyForm::Strict), read(KeyForm::Lenient))
    });
}

/// Feeds bodies of one media type, and checks that a fingerprint is a function of the request.
fn fuzz_body(name: &str, media: &'static str, seeds: &[&[u8]], words: &[&[u8]]) {
    let request = Request::post("/charges").header(CONTENT_TYPE, media).body(()).unwrap();
    let (parts, ()) = request.into_parts();
    let pointer = Pointer::parse("/a/0/b").unwrap();
    let rules = [Rules::default(), Rules::default().with_members(Pick::Except(vec![pointer]))];
    Fuzz::new(name).with_seeds(seeds.iter().copied()).with_words(words).run(|body| {
        let head = Head::from(&parts);
        for rules in &rules {
            let secret = [7; SECRET_BYTES];
            let one = fingerprint(rules, &secret, &head, body);
            assert_eq!(one, fingerprint(rules, &secret, &head, body));
        }
        // The first byte and the length stand for the shape of the document.
        (body.first().copied(), body.len().next_power_of_two())
    });
}

#[test]
fn fuzz_json() {
    let seeds: [&[u8]; 4] = [
        br#"{"amount":12,"a":[{"b":1.0e-2}],"c":"\u00e9\n"}"#,
        b"[1,2.0,20e-1,9007199254740993,-0,1e400]",
        br#"{"a":{"b":{"c":[null,true,false,""]}},"a":1}"#,
        "\"\u{feff}\\ud800\"".as_bytes(),
    ];
    let words: [&[u8]; 12] =
        [b"{", b"[", b"]", b"}", b",", b":", b"\"", b"\\u", b"\\ud83d\\ude00", b"1e999999999", b"-", b"null"];
    fuzz_body("json", "application/json", &seeds, &words);
}

#[test]
fn fuzz_form() {
    let seeds: [&[u8]; 2] = [b"amount=12&currency=EUR&note=a+b%20c", b"a=1&a=2&=&%zz=%"];
    fuzz_body("form", "application/x-www-form-urlencoded", &seeds, &[b"&", b"=", b"%", b"%00", b"+"]);
}

#[test]
fn fuzz_multipart() {
    let seeds: [&[u8]; 2] = [
        b"--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n12\r\n--x--\r\n",
        b"before\r\n--x\r\nA: b\r\n\r\n\r\n--x\r\nContent-Type: text/plain\r\n\r\nbody\r\n--x--behind",
    ];
    fuzz_body(
        "multipart",
        "multipart/form-data; boundary=x",
        &seeds,
        &[b"--x", b"\r\n", b"--x--", b"\r\n\r\n", b":"],
    );
}

#[test]
fn fuzz_head() {
    let seeds =
        ["multipart/form-data; boundary=\"a b\"\n/charges?a=1&b=%2f", "application/json; charset=utf-8\n/"];
    let words: &[&[u8]] = &[b"\n", b"boundary=", b"\"", b"\\", b"%", b"%2e", b"&", b"+json", b";"];
    Fuzz::new("head").with_seeds(seeds).with_words(words).run(|input| {
        let (media, target) = input.split_at(input.iter().position(|byte| *byte == b'\n').unwrap_or(0));
        let request = Request::patch(target.trim_ascii()).header(CONTENT_TYPE, media).body(());
        let Ok((parts, ())) = request.map(Request::into_parts) else { return 255 };
        let print =
            fingerprint(&Rules::default(), &[7; SECRET_BYTES], &Head::from(&parts), b"--a b\r\n\r\n{}");
        print.digest()[0] / 32
    });
}

#[test]
fn fuzz_pointer() {
    let seeds = ["/a/0/b", "", "/~0~1", "/a~b"];
    Fuzz::new("pointer").with_seeds(seeds).with_words(&[b"/", b"~", b"~0", b"~1"]).run(|input| {
        let text = String::from_utf8_lossy(input);
        match Pointer::parse(&text) {
            Ok(pointer) => {
                assert_eq!(Pointer::parse(&pointer.to_string()).unwrap(), pointer);
                "read".into()
            }
            Err(error) => error.to_string().chars().rev().take(20).collect::<String>(),
        }
    });
}

#[test]
fn fuzz_snapshot() {
    let mut headers = HeaderMap::new();
    headers.append("x-a", HeaderValue::from_static("1"));
    headers.append("x-a", HeaderValue::from_static("2"));
    let omitted = snapshot::Omitted::default();
    let seed = snapshot::encode(http::StatusCode::CREATED, &headers, b"{}", &omitted).to_vec();
    Fuzz::new("snapshot").with_seeds([seed]).run(|input| {
        let Some(response) = snapshot::decode(&Bytes::copy_from_slice(input)) else { return (0, 0) };
        let (parts, body) = response.into_parts();
        let again = snapshot::encode(parts.status, &parts.headers, &body, &omitted);
        assert!(snapshot::decode(&again).is_some(), "what was written is read");
        (parts.status.as_u16(), parts.headers.len())
    });
}

/// Hostile signature fields, and bodies that were changed on their way: only the signed body verifies.
#[test]
fn fuzz_signature() {
    let vectors: serde_json::Value =
        serde_json::from_str(include_str!("../tests/webhook_vectors/vectors.json")).unwrap();
    let vectors: Vec<Signed> = vectors.as_array().unwrap()[..4].iter().map(Signed::read).collect();
    let seeds: Vec<Vec<u8>> = vectors
        .iter()
        .enumerate()
        .map(|(at, signed)| {
            let at = u8::try_from(at).unwrap();
            [&[at][..], signed.headers[&signed.field].as_bytes(), b"\n", &signed.body].concat()
        })
        .collect();
    let words: &[&[u8]] =
        &[b"v1,", b"v1=", b"t=", b"sha256=", b",", b" ", b"=", b"\n", b"\"id\":", b"\\u00e9"];
    let refs: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
    Fuzz::new("signature").with_seeds(refs).with_words(words).run(|input| {
        let Some((scheme, rest)) = input.split_first() else { return "empty".to_owned() };
        let signed = &vectors[usize::from(*scheme) % vectors.len()];
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let (field, body) = (&rest[..end], rest.get(end + 1..).unwrap_or_default());
        let Ok(value) = HeaderValue::from_bytes(field) else { return "not a field".to_owned() };
        let mut headers = signed.headers.clone();
        headers.insert(signed.field.clone(), value);
        match signed.verifier.verify(&headers, body, signed.time) {
            Ok(event) => {
                assert_eq!(body, signed.body, "a changed body verifies");
                assert!((1..=255).contains(&event.key().len()));
                "verified".into()
            }
            Err(bad) => bad.to_string().chars().take(24).collect(),
        }
    });
}

/// An event as its sender's library signed it.
struct Signed {
    verifier: crate::webhook::Verifier,
    headers: HeaderMap,
    field: http::HeaderName,
    body: Vec<u8>,
    time: std::time::SystemTime,
}

impl Signed {
    fn read(vector: &serde_json::Value) -> Self {
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let mut headers = HeaderMap::new();
        for (name, value) in vector["headers"].as_object().unwrap() {
            headers.insert(http::HeaderName::try_from(name).unwrap(), text(value).parse().unwrap());
        }
        let is_signature =
            |name: &&http::HeaderName| name.as_str().contains("signature") || name.as_str().contains("hmac");
        let scheme = text(&vector["scheme"]).parse().unwrap();
        Self {
            verifier: crate::webhook::Verifier::new(scheme, [text(&vector["secret"])]).unwrap(),
            field: headers.keys().find(is_signature).unwrap().clone(),
            headers,
            body: text(&vector["body"]).into_bytes(),
            time: std::time::UNIX_EPOCH + std::time::Duration::from_secs(vector["time"].as_u64().unwrap()),
        }
    }
}
