//! Requests that are spelled so that the gateway and the service could read them differently.

use super::stage::{Gateway, Home, Service};

fn stage(config: &str, flags: &[&str]) -> (Home, Service, Gateway) {
    let (home, service) = (Home::new(), Service::charging());
    home.write_config(config);
    let gateway = home.start_with(&service.url(), flags);
    (home, service, gateway)
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

const REQUIRED: &str = "[[route]]\npath = \"/charges\"\nkey = \"required\"\noperation = \"route\"";

#[test]
fn no_spelling_of_a_path_passes_a_required_key() {
    let flags = ["--path-case", "ignore", "--trailing-slash", "ignore"];
    let (_home, service, gateway) = stage(REQUIRED, &flags);
    for path in [
        "/charges",
        "/Charges",
        "/charges/",
        "//charges",
        "/x/../charges",
        "/x/%2e%2e/charges",
        "/./charges",
        "/%63harges",
        "/charges;a",
        "/x%2f..%2fcharges",
        "/charges%2f",
    ] {
        let said = gateway.raw(
            format!("POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
                .as_bytes(),
        );
        assert_eq!(status(&said), 400, "{path}\n{said}");
    }
    let said =
        gateway.raw(b"post /charges HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(status(&said), 400, "{said}");
    assert_eq!(service.effects(), 0);
    // Spellings that mean the same are one intent, and are forwarded as they came.
    for path in ["/Charges", "/charges/", "/%63harges", "/charges"] {
        assert_eq!(gateway.post(path, &[("Idempotency-Key", "a")], "{}").status, 201, "{path}");
    }
    let [request] = &service.received()[..] else { panic!("{:?}", service.received()) };
    assert_eq!(request.line, "POST /Charges HTTP/1.1");
}

#[test]
fn ambiguous_paths_pass_where_the_operator_says_so() {
    let (_home, service, gateway) = stage("normalise = false", &[]);
    assert_eq!(gateway.post("/a%2Fb//c", &[], "{}").status, 201);
    assert_eq!(service.received()[0].line, "POST /a%2Fb//c HTTP/1.1");
}

#[test]
fn a_path_does_not_leave_the_base_of_the_upstream() {
    let (home, service) = (Home::new(), Service::charging());
    let gateway = home.start(&format!("{}/api", service.url()));
    for path in ["/../admin", "/%2e%2e/admin", "/x/../../admin", "/..;/admin", "/..%2fadmin", "/..%5cadmin"] {
        let said =
            gateway.raw(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes());
        assert_eq!(status(&said), 400, "{path}\n{said}");
    }
    assert_eq!(service.effects(), 0);
}

#[test]
fn a_request_has_one_host_one_framing_and_no_credentials_in_its_target() {
    let (_home, service, gateway) = stage("", &[]);
    for (head, expected) in [
        ("POST /c HTTP/1.1\r\n", 400),
        ("POST /c HTTP/1.1\r\nHost: a\r\nHost: b\r\n", 400),
        ("POST /c HTTP/1.1\r\nHost: u:p@h\r\n", 400),
        ("POST http://u:p@h/c HTTP/1.1\r\nHost: h\r\n", 400),
        ("POST * HTTP/1.1\r\nHost: a\r\n", 400),
        ("POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n", 501),
    ] {
        for key in ["", "Idempotency-Key: a\r\n"] {
            let end = if expected == 501 { "\r\n0\r\n\r\n" } else { "Content-Length: 0\r\n\r\n" };
            let said = gateway.raw(format!("{head}{key}Connection: close\r\n{end}").as_bytes());
            assert_eq!(status(&said), expected, "{head}\n{said}");
        }
    }
    assert_eq!(service.effects(), 0);
    let said = gateway.raw(b"OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(status(&said), 201, "{said}");
    assert_eq!(service.received()[0].line, "OPTIONS * HTTP/1.1");
}

#[test]
fn a_clients_bad_chunk_is_the_clients_fault() {
    let (_home, service, gateway) = stage("", &["--body-grace", "300ms"]);
    for key in ["", "Idempotency-Key: a\r\n"] {
        let head = format!("POST /c HTTP/1.1\r\nHost: a\r\n{key}Transfer-Encoding: chunked\r\n\r\n");
        let said = gateway.raw(format!("{head}5\r\nhello\r\nxyz\r\n").as_bytes());
        assert_eq!(status(&said), 400, "{said}");
        let said = gateway.raw(format!("{head}5\r\nhel").as_bytes());
        assert_eq!(status(&said), 408, "{said}");
    }
    assert_eq!(service.effects(), 0);
}

#[test]
fn forwarded_fields_are_believed_only_from_trusted_proxies() {
    let claimed = [
        ("X-Forwarded-For", "198.51.100.9"),
        ("X-Forwarded-Host", "evil"),
        ("X-Forwarded-Proto", "https"),
        ("Forwarded", "for=198.51.100.9"),
    ];
    let (_home, service, gateway) = stage("", &[]);
    gateway.post("/c", &claimed, "{}");
    let request = &service.received()[0];
    assert_eq!(request.field("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(request.field("x-forwarded-proto"), Some("http"));
    assert_ne!(request.field("x-forwarded-host"), Some("evil"));
    assert!(!request.field("forwarded").unwrap().contains("198.51.100.9"));
    let (_home, service, gateway) = stage("trusted_proxies = [\"127.0.0.0/8\"]", &[]);
    gateway.post("/c", &claimed, "{}");
    let request = &service.received()[0];
    assert_eq!(request.field("x-forwarded-for"), Some("198.51.100.9, 127.0.0.1"));
    assert_eq!(request.field("x-forwarded-proto"), Some("https"));
    assert_eq!(request.field("x-forwarded-host"), Some("evil"));
}

#[test]
fn look_alike_fields_do_not_reach_the_service() {
    let (_home, service, gateway) = stage("", &[]);
    let fields = [
        ("Idempotency-Key", "a"),
        ("Onceward_Fence", "99"),
        ("Onceward_Attempt", "x"),
        ("Idempotency_Key", "other"),
        ("X_Forwarded_For", "1.2.3.4"),
        ("X-Tenant", "acme"),
        ("X_Tenant", "evil"),
        ("Plain_Name", "kept"),
    ];
    assert_eq!(gateway.post("/c", &fields, "{}").status, 201);
    let request = &service.received()[0];
    let with_underscore: Vec<_> =
        request.fields.iter().map(|(name, _)| name.as_str()).filter(|name| name.contains('_')).collect();
    assert_eq!(with_underscore, ["plain_name"]);
    assert_eq!((request.key(), request.field("x-tenant")), ("a", Some("acme")));
}

#[test]
fn an_upgrade_to_anything_but_websocket_is_not_passed() {
    let (_home, service, gateway) = stage("", &[]);
    let said = gateway.raw(
        b"GET /c HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAA\r\n\r\n",
    );
    assert_eq!(status(&said), 201, "{said}");
    let request = &service.received()[0];
    for name in ["upgrade", "http2-settings", "connection"] {
        assert_eq!(request.field(name), None, "{name}");
    }
}
