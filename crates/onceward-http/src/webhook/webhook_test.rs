use http::HeaderValue;
use serde_json::Value;

use super::*;

/// Made by the senders' own libraries: see `tests/webhook_vectors/generate`.
const VECTORS: &str = include_str!("../../tests/webhook_vectors/vectors.json");

struct Vector {
    scheme: Scheme,
    secret: String,
    headers: HeaderMap,
    body: Vec<u8>,
    time: u64,
    key: String,
}

impl Vector {
    fn all() -> Vec<Self> {
        let vectors: Value = serde_json::from_str(VECTORS).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let read = |vector: &Value| Self {
            scheme: text(&vector["scheme"]).parse().unwrap(),
            secret: text(&vector["secret"]),
            headers: vector["headers"].as_object().unwrap().iter().fold(
                HeaderMap::new(),
                |mut headers, (name, value)| {
                    headers.insert(
                        HeaderName::try_from(name).unwrap(),
                        HeaderValue::try_from(text(value)).unwrap(),
                    );
                    headers
                },
            ),
            body: text(&vector["body"]).into_bytes(),
            time: vector["time"].as_u64().unwrap(),
            key: text(&vector["key"]),
        };
        vectors.as_array().unwrap().iter().map(read).collect()
    }

    fn of(scheme: Scheme) -> Self {
        Self::all().into_iter().find(|vector| vector.scheme == scheme).unwrap()
    }

    fn verifier(&self) -> Verifier {
        Verifier::new(self.scheme, [&self.secret]).unwrap()
    }

    fn verify(&self) -> Result<Event, BadSignature> {
        self.verify_at(self.time)
    }

    fn verify_at(&self, seconds: u64) -> Result<Event, BadSignature> {
        self.verifier().verify(&self.headers, &self.body, at(seconds))
    }

    fn signature_field(&self) -> HeaderName {
        HeaderName::from_static(match self.scheme {
            Scheme::StandardWebhooks => "webhook-signature",
            Scheme::Stripe => "stripe-signature",
            Scheme::GitHub => "x-hub-signature-256",
            Scheme::Shopify => "x-shopify-hmac-sha256",
        })
    }

    fn set(&mut self, name: &HeaderName, value: &str) {
        self.headers.insert(name.clone(), HeaderValue::try_from(value).unwrap());
    }

    fn signature(&self) -> String {
        self.headers[self.signature_field()].to_str().unwrap().to_owned()
    }
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

#[test]
fn what_the_senders_libraries_sign_is_accepted() {
    let vectors = Vector::all();
    for scheme in Scheme::ALL {
        assert!(vectors.iter().filter(|vector| vector.scheme == scheme).count() >= 2, "{}", scheme.name());
    }
    for vector in vectors {
        let event = vector.verify().unwrap_or_else(|error| panic!("{}: {error}", vector.scheme.name()));
        assert_eq!(event.key(), vector.key);
        let by_content = matches!(vector.scheme, Scheme::GitHub | Scheme::Shopify);
        assert_eq!(event.content_key(&[7; 32], &vector.body).is_some(), by_content);
    }
}

#[test]
fn a_changed_body_is_refused() {
    for mut vector in Vector::all() {
        let whole = vector.body.clone();
        let value: Value = serde_json::from_slice(&whole).unwrap();
        let mut changed = whole.clone();
        changed[5] ^= 1;
        for body in [
            changed,
            whole[..whole.len() - 1].to_vec(),
            whole[1..].to_vec(),
            [&whole[..], b" "].concat(),
            // The same value in another encoding.
            serde_json::to_vec_pretty(&value).unwrap(),
            String::from_utf8(whole.clone()).unwrap().encode_utf16().flat_map(u16::to_le_bytes).collect(),
            Vec::new(),
        ] {
            vector.body = body;
            assert_eq!(vector.verify(), Err(BadSignature::Mismatch), "{}", vector.scheme.name());
        }
    }
}

#[test]
fn a_forged_or_damaged_signature_is_refused() {
    for vector in Vector::all() {
        let name = vector.scheme.name();
        let other = Verifier::new(
            vector.scheme,
            [if name == "standard-webhooks" {
                "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
            } else {
                "another secret of 32 characters!"
            }],
        );
        let verified = other.unwrap().verify(&vector.headers, &vector.body, at(vector.time));
        assert_eq!(verified, Err(BadSignature::Mismatch), "{name}");
        // Every field is needed, once.
        for field in vector.headers.keys().filter(|field| field.as_str() != "x-github-hook-id") {
            let mut headers = vector.headers.clone();
            headers.remove(field);
            let verified = vector.verifier().verify(&headers, &vector.body, at(vector.time));
            assert_eq!(verified, Err(BadSignature::Missing(field.clone())), "{name}");
            let mut headers = vector.headers.clone();
            headers.append(field, vector.headers[field].clone());
            let verified = vector.verifier().verify(&headers, &vector.body, at(vector.time));
            assert_eq!(verified, Err(BadSignature::Several(field.clone())), "{name}");
        }
    }
    let malformed = |scheme: Scheme, value: &str| {
        let mut vector = Vector::of(scheme);
        let field = vector.signature_field();
        vector.set(&field, value);
        vector.verify().unwrap_err()
    };
    let zeros = "0".repeat(64);
    for (scheme, value, mismatch) in [
        (Scheme::StandardWebhooks, "v1", false),
        (Scheme::StandardWebhooks, "v1,?", false),
        (Scheme::StandardWebhooks, "v1,", true),
        (Scheme::StandardWebhooks, "v1a,AAAA", true),
        (Scheme::StandardWebhooks, "v1,AAAA", true),
        (Scheme::Stripe, "t=1800000000", true),
        (Scheme::Stripe, "v1=00", false),
        (Scheme::Stripe, "t=1800000000,t=1800000000", false),
        (Scheme::Stripe, "t=,v1=", false),
        (Scheme::Stripe, "t=+1800000000", false),
        (Scheme::Stripe, "t=99999999999999999999999", false),
        (Scheme::Stripe, &format!("t=1800000000,v0={zeros}"), true),
        (Scheme::Stripe, &format!("t=1800000000,v1={zeros}"), true),
        (Scheme::GitHub, "sha256=", false),
        (Scheme::GitHub, &zeros, false),
        (Scheme::GitHub, &format!("sha1={zeros}"), false),
        (Scheme::GitHub, &format!("sha256={}zz", &zeros[2..]), false),
        (Scheme::GitHub, &format!("sha256={zeros}"), true),
        (Scheme::Shopify, "?", false),
        (Scheme::Shopify, "AAAA", true),
    ] {
        let expected = if mismatch {
            BadSignature::Mismatch
        } else {
            BadSignature::Malformed(Vector::of(scheme).signature_field())
        };
        assert_eq!(malformed(scheme, value), expected, "{} {value}", scheme.name());
    }
}

#[test]
fn a_signature_is_good_for_five_minutes_in_both_directions() {
    for vector in Vector::all() {
        let timed = matches!(vector.scheme, Scheme::StandardWebhooks | Scheme::Stripe);
        for (seconds, expected) in [
            (vector.time + 300, None),
            (vector.time - 300, None),
            (vector.time + 301, Some(BadSignature::TooOld(301))),
            (vector.time - 301, Some(BadSignature::TooEarly(301))),
            (0, Some(BadSignature::TooEarly(vector.time))),
        ] {
            let expected = expected.filter(|_| timed);
            assert_eq!(vector.verify_at(seconds).err(), expected, "{} at {seconds}", vector.scheme.name());
        }
    }
    // The time is signed.
    let mut vector = Vector::of(Scheme::StandardWebhooks);
    vector.set(&WEBHOOK_TIMESTAMP, &(vector.time + 400).to_string());
    assert_eq!(vector.verify_at(vector.time + 400), Err(BadSignature::Mismatch));
    let mut vector = Vector::of(Scheme::StandardWebhooks);
    vector.set(&WEBHOOK_ID, "msg_9");
    assert_eq!(vector.verify(), Err(BadSignature::Mismatch));
    let mut vector = Vector::of(Scheme::Stripe);
    let later = vector.signature().replace("t=1800000000", "t=1800000400");
    vector.set(&HeaderName::from_static("stripe-signature"), &later);
    assert_eq!(vector.verify_at(vector.time + 400), Err(BadSignature::Mismatch));
    let vector = Vector::of(Scheme::Stripe);
    let strict = vector.verifier().with_tolerance(Duration::from_secs(10));
    assert_eq!(
        strict.verify(&vector.headers, &vector.body, at(vector.time + 11)),
        Err(BadSignature::TooOld(11))
    );
}

#[test]
fn secrets_are_rotated_and_bounded() {
    for vector in Vector::all() {
        let old = if vector.scheme == Scheme::StandardWebhooks {
            "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
        } else {
            "a secret of an earlier time"
        };
        for secrets in [[old, &vector.secret], [&vector.secret, old]] {
            let verifier = Verifier::new(vector.scheme, secrets).unwrap();
            assert!(verifier.verify(&vector.headers, &vector.body, at(vector.time)).is_ok());
            assert!(!format!("{verifier:?}").contains(&vector.secret));
        }
    }
    assert!(Verifier::new(Scheme::GitHub, [""; 0]).is_err());
    assert!(Verifier::new(Scheme::GitHub, ["short"]).is_err());
    assert!(Verifier::new(Scheme::StandardWebhooks, ["whsec_???"]).is_err());
    assert!(Verifier::new(Scheme::GitHub, vec!["a secret of some length"; SECRETS_MAX]).is_ok());
    assert!(Verifier::new(Scheme::GitHub, vec!["a secret of some length"; SECRETS_MAX + 1]).is_err());
}

#[test]
fn many_signatures_in_one_field_are_bounded() {
    let mut vector = Vector::of(Scheme::StandardWebhooks);
    let (right, wrong) = (vector.signature(), format!("v1,{}=", "A".repeat(43)));
    let field = |others: usize| [vec![wrong.as_str(); others].join(" "), right.clone()].join(" ");
    vector.set(&WEBHOOK_SIGNATURE, &field(SIGNATURES_MAX - 1));
    assert!(vector.verify().is_ok());
    vector.set(&WEBHOOK_SIGNATURE, &field(SIGNATURES_MAX));
    assert_eq!(vector.verify(), Err(BadSignature::TooMany(WEBHOOK_SIGNATURE)));
    vector.set(&WEBHOOK_SIGNATURE, &field(1000));
    assert_eq!(vector.verify(), Err(BadSignature::Malformed(WEBHOOK_SIGNATURE)), "too long to be read");

    let mut vector = Vector::of(Scheme::Stripe);
    let name = vector.signature_field();
    let right = vector.signature();
    let with = |others: usize| format!("{right}{}", format!(",v1={}", "0".repeat(64)).repeat(others));
    vector.set(&name, &with(SIGNATURES_MAX - 2));
    assert!(vector.verify().is_ok());
    vector.set(&name, &with(SIGNATURES_MAX - 1));
    assert_eq!(vector.verify(), Err(BadSignature::TooMany(name)));
}

#[test]
fn what_is_not_signed_is_part_of_the_second_key() {
    let vector = Vector::of(Scheme::GitHub);
    let event = vector.verify().unwrap();
    let key = |event: &Event| event.content_key(&[7; 32], &vector.body).unwrap();
    for (field, same) in [("x-github-delivery", true), ("x-github-event", false), ("x-github-hook-id", false)]
    {
        let mut other = Vector::of(Scheme::GitHub);
        other.set(&HeaderName::from_static(field), "other");
        assert_eq!(key(&other.verify().unwrap()) == key(&event), same, "{field}");
    }
    assert_ne!(event.content_key(&[8; 32], &vector.body), Some(key(&event)), "keyed");
    // An id that looks like such a key is none.
    let mut fake = Vector::of(Scheme::GitHub);
    fake.set(&HeaderName::from_static("x-github-delivery"), &key(&event));
    assert_ne!(fake.verify().unwrap().key(), key(&event));
}

#[test]
fn an_event_without_an_id_is_refused() {
    let secret = "whsec_0123456789abcdefghijklmnopqrstuv";
    let verifier = Verifier::new(Scheme::Stripe, [secret]).unwrap();
    for body in ["{}", "[]", r#"{"id":null}"#, r#"{"id":""}"#, "not json", ""] {
        let signature = hmac::sign(secret.as_bytes(), &[b"1800000000.", body.as_bytes()]);
        let hex = signature.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        let mut headers = HeaderMap::new();
        headers.insert("stripe-signature", HeaderValue::try_from(format!("t=1800000000,v1={hex}")).unwrap());
        assert_eq!(
            verifier.verify(&headers, body.as_bytes(), at(1_800_000_000)),
            Err(BadSignature::NoId),
            "{body}"
        );
    }
}

#[test]
fn our_own_signature_is_that_of_the_library() {
    let vector = Vector::of(Scheme::StandardWebhooks);
    let signer = Signer::new(&vector.secret).unwrap();
    assert_eq!(signer.sign(&vector.key, vector.time, &vector.body), vector.signature());
}
