use serde_json::{Value, json};

use super::{operations, server};

fn description() -> Value {
    json!({
        "openapi": "3.1.0",
        "servers": [{"url": "http://127.0.0.1:3000/v1/"}],
        "paths": {
            "/charges": {
                "get": {},
                "post": {
                    "parameters": [
                        {"$ref": "#/components/parameters/Key"},
                        {"name": "X-Api-Version", "in": "header", "required": true, "schema": {"enum": ["2026-01"]}},
                        {"name": "X-Trace", "in": "header", "schema": {"type": "string"}}
                    ],
                    "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Charge"}}}}
                }
            },
            "/orders/{id}/items": {
                "parameters": [{"name": "id", "in": "path", "required": true, "schema": {"type": "integer", "minimum": 7}}],
                "put": {
                    "parameters": [
                        {"name": "Request-Id", "in": "header"},
                        {"name": "mode", "in": "query", "required": true, "example": "a b"}
                    ],
                    "requestBody": {"content": {
                        "text/plain": {},
                        "application/vnd.x+json": {"examples": {"one": {"value": {"n": 1}}}}
                    }}
                },
                "delete": {}
            }
        },
        "components": {
            "parameters": {"Key": {"name": "X-Idempotency-Token", "in": "header", "required": true}},
            "schemas": {
                "Charge": {
                    "type": "object",
                    "required": ["amount", "currency", "payer", "tags", "parent"],
                    "properties": {
                        "id": {"type": "string", "readOnly": true, "example": "x"},
                        "amount": {"type": "integer", "exclusiveMinimum": 99},
                        "currency": {"type": "string", "minLength": 6, "maxLength": 6},
                        "note": {"type": "string"},
                        "memo": {"type": "string", "example": "hello"},
                        "payer": {"allOf": [{"$ref": "#/components/schemas/Person"}, {"required": ["vip"], "properties": {"vip": {"type": "boolean"}}}]},
                        "tags": {"type": "array", "items": {"oneOf": [{"const": 5}, {"type": "string"}]}, "minItems": 2},
                        "parent": {"$ref": "#/components/schemas/Charge"}
                    }
                },
                "Person": {"type": ["object", "null"], "required": ["mail"], "properties": {"mail": {"type": "string", "format": "email"}}}
            }
        }
    })
}

#[test]
fn operations_that_change_something_are_found_with_examples() {
    let found = operations(&description(), &["Request-Id"]).unwrap();
    let names: Vec<String> = found.iter().map(super::DescribedOperation::name).collect();
    assert_eq!(names, ["POST /charges", "PUT /orders/{id}/items", "DELETE /orders/{id}/items"]);
    let [post, put, delete] = &found[..] else { panic!("{found:?}") };
    assert_eq!(post.key_header.as_deref(), Some("X-Idempotency-Token"));
    assert_eq!(post.headers, [("X-Api-Version".to_owned(), "2026-01".to_owned())]);
    let body: Value = serde_json::from_str(post.body.as_deref().unwrap()).unwrap();
    assert_eq!(
        (&body["amount"], &body["currency"], &body["memo"]),
        (&json!(100), &json!("textxx"), &json!("hello"))
    );
    assert_eq!(
        (&body["payer"], &body["tags"]),
        (&json!({"mail": "anna@example.com", "vip": true}), &json!([5, 5]))
    );
    assert!(body.get("id").is_none() && body.get("note").is_none(), "{body}");
    assert_eq!(put.key_header.as_deref(), Some("Request-Id"), "the name that was asked for");
    assert_eq!(put.target, "/orders/7/items?mode=a%20b");
    assert_eq!(put.headers, [("Content-Type".to_owned(), "application/vnd.x+json".to_owned())]);
    assert_eq!(put.body.as_deref(), Some(r#"{"n":1}"#));
    assert_eq!((delete.key_header.as_ref(), delete.body.as_ref()), (None, None));
    assert_eq!(server(&description()), Some("http://127.0.0.1:3000/v1"));
}

#[test]
fn what_is_no_description_is_refused() {
    for text in [r#"{"swagger":"2.0"}"#, "{}", "[]", "3"] {
        assert!(operations(&serde_json::from_str(text).unwrap(), &["Idempotency-Key"]).is_err(), "{text}");
    }
}

/// The places of a key: the first of header, query and body that has one.
#[test]
fn a_key_is_found_in_a_header_a_query_and_a_body() {
    let body = |schema: Value| json!({"content": {"application/json": {"schema": schema}}});
    let parameter = |name: &str, place: &str| json!({"name": name, "in": place, "required": true, "schema": {"type": "string"}});
    let string = json!({"type": "string"});
    let payment = json!({
        "type": "object", "required": ["payment"],
        "properties": {"payment": {"$ref": "#/components/schemas/Payment"}}
    });
    let by_part = json!({"allOf": [{"properties": {"amount": {"type": "integer"}}}, {"$ref": "#/components/schemas/Payment"}]});
    let read_only = json!({"properties": {"idempotency_key": {"type": "string", "readOnly": true}}});
    let operations_of = json!({
        "openapi": "3.0.3",
        "paths": {
            "/a": {"post": {"parameters": [parameter("request_id", "query"), parameter("at", "query")]}},
            "/b": {"post": {"requestBody": body(json!({"type": "object", "properties": {"idempotencyKey": string}}))}},
            "/c": {"post": {"requestBody": body(payment)}},
            "/d": {"post": {"requestBody": body(by_part)}},
            "/e": {"post": {
                "parameters": [parameter("Idempotency-Key", "header"), parameter("request_id", "query")],
                "requestBody": body(json!({"properties": {"request_id": string}}))
            }},
            "/f": {"post": {"requestBody": body(read_only)}},
            "/g": {"post": {"requestBody": {"content": {"application/json": {"example": {"request_id": "r-1"}}}}}}
        },
        "components": {"schemas": {"Payment": {
            "type": "object", "required": ["amount"],
            "properties": {"amount": {"type": "integer"}, "request_id": {"type": "string"}}
        }}}
    });
    let found = operations(&operations_of, &["Idempotency-Key", "request_id"]).unwrap();
    let places: Vec<[Option<&str>; 3]> = found
        .iter()
        .map(|one| [&one.key_header, &one.key_parameter, &one.key_pointer].map(|place| place.as_deref()))
        .collect();
    assert_eq!(
        places,
        [
            [None, Some("request_id"), None],
            [None, None, Some("/idempotencyKey")],
            [None, None, Some("/payment/request_id")],
            [None, None, Some("/request_id")],
            [Some("Idempotency-Key"), None, None],
            [None, None, None],
            [None, None, Some("/request_id")],
        ]
    );
    assert_eq!(found[0].target, "/a?at=text", "the key is not part of the target");
    assert_eq!(found[4].target, "/e?request_id=text", "it is not the key here");
    assert!(found[..5].iter().all(super::DescribedOperation::has_key) && !found[5].has_key());
}
